#!/usr/bin/python3 -B
"""Checks that names in the documents exist: paths in backticks, Bazel labels, links with their headings, and pages named in code.
In the prose of docs/from_pytorch.md each word of code must be one of a public header, or be listed here as PyTorch's.

A path is checked if it begins with a folder of the tree; `<family>` and `*` in it match anything. Also limits the length of README.md.
"""

import itertools
import os
import re

import common

_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_LABEL = re.compile(r"(?<![:/\w])//((?:[\w-]+/)*(?:\.\.\.|[\w-]+)?)(?::([\w+{},.-]*[\w}])(?!<))?(?![\w<:/])")
_PATH = re.compile(r"[\w.*<>-]+(?:/[\w.*<>-]*)+$")
_PAGE = re.compile(r"\bdocs/[\w./-]*\w\.(?:md|svg)\b")
_MAX_README_LINES = 120
# Their planted trees name pages that are not in this one.
_PLANTED_NAMES = ("tools/check/documents.py", "tools/site/check_site.py", "tests/tools/tracked_files_test.py")
_FROM_PYTORCH = "docs/from_pytorch.md"  # its code blocks and tables are compiled by //tests/docs
_PYTORCH_ONLY = {"DETAIL", "TORCH_DISTRIBUTED_DEBUG", "True", "save_model", "set_to_none"}
_CODE = (".h", ".cc", ".cu", ".py", ".sh", "BUILD")


def pages(paths):
    names = ["README.md", "CONTRIBUTING.md", "docs/*.md", "docs/decisions/*.md", "examples/README.md", "tests/*/README.md"]
    return sorted(path for name in names for path in common.matching(paths, name))


def _with_folders(paths):
    """The paths and the folders above them."""
    return {path[:end] for path in paths for end in [m.start() for m in re.finditer("/", path)] + [len(path)]}


def fragment(heading):
    """The fragment that GitHub generates from a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _anchors(text):
    return {fragment(heading) for heading in re.findall(r"^#+ +(.*)$", _FENCED.sub("", text), re.MULTILINE)}


def _expand(name):
    """a_{b,c}_d -> a_b_d, a_c_d."""
    pieces = [piece[1:-1].split(",") if piece.startswith("{") else [piece] for piece in re.split(r"(\{[^}]*\})", name)]
    return ["".join(choice) for choice in itertools.product(*pieces)]


def _has_target(root, known, package, name):
    build = os.path.join(package, "BUILD")
    if build not in known:
        return False
    text = common.read(root, build)
    # Comprehensions often append "_test" to the names in a list, or in a string of words.
    quoted = any(re.search(r'"(?:[\w ]+ )?%s(?: [\w ]+)?"' % re.escape(one), text) for one in (name, name.removesuffix("_test")))
    return quoted or os.path.join(package, name) in known


def _check_label(root, known, package, name):
    if package.endswith("..."):
        return not package[:-4] or package[:-4] in known
    if not package and not name:
        return True  # a comment, or "//" alone
    return all(_has_target(root, known, package, one) for one in _expand(name or os.path.basename(package)))


def _check_page(root, page, known):
    """Returns (violations, number of checked names) of one page. `known`: the files and folders of the tree."""
    text = common.read(root, page)
    prose = _FENCED.sub("", text)
    wrong = []
    paths = [span for span in _INLINE.findall(prose) if _PATH.match(span) and span.split("/")[0] in known]
    for path in paths:
        if not common.matching(known, re.sub(r"<\w+>", "*", path).rstrip("/")):
            wrong.append("%s: the path %s does not exist" % (page, path))
    labels = _LABEL.findall(text)
    for package, name in labels:
        if not _check_label(root, known, package, name):
            wrong.append("%s: the target //%s%s does not exist" % (page, package, ":" + name if name else ""))
    links = [link for link in _LINK.findall(prose) if "://" not in link]
    for link in links:
        target, _, anchor = link.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
        if path not in known and path != ".":
            wrong.append("%s: the target of the link %s does not exist" % (page, link))
        elif anchor and anchor not in _anchors(common.read(root, path)):
            wrong.append("%s: %s has no heading #%s" % (page, path, anchor))
    return wrong, len(paths) + len(labels) + len(links)


def _check_words(root):
    """Returns (violations, number of checked words) of the page about PyTorch."""
    if not os.path.isfile(os.path.join(root, _FROM_PYTORCH)):
        return [], 0
    prose = "\n".join(line for line in _FENCED.sub("", common.read(root, _FROM_PYTORCH)).splitlines() if not line.startswith("|"))
    spans = [span for span in re.findall(r"`([^`]+)`", prose) if not span.startswith("tests/")]
    words = {word for span in spans for word in re.findall(r"[A-Za-z_]\w*", re.sub(r'"[^"]*"', "", span))} - _PYTORCH_ONLY - {"td"}
    known = {word for path in common.files(root, common.LIBRARY_PACKAGES, (".h",))
             for word in re.findall(r"[A-Za-z_]\w*", common.read(root, path))}
    return ["%s: no public header has %s" % (_FROM_PYTORCH, word) for word in words - known], len(words)


def check(root):
    paths = common.tracked(root)
    known = _with_folders(paths)
    violations, count = _check_words(root)
    for page in pages(paths):
        wrong, seen = _check_page(root, page, known)
        violations += wrong
        count += seen
    if "README.md" in known and common.read(root, "README.md").count("\n") > _MAX_README_LINES:
        violations.append("README.md: more than %d lines; manuals belong in docs/" % _MAX_README_LINES)
    for path in paths:
        if not path.endswith(_CODE) or "/" not in path or path.startswith("docs/") or path in _PLANTED_NAMES:
            continue
        for page in _PAGE.findall(common.read(root, path)):
            count += 1
            if page not in known:
                violations.append("%s: the page %s does not exist" % (path, page))
    return sorted(set(violations)), count


PLANTED = [
    ({"README.md": "See `ops/a.h`, `results/x.txt` and [a](docs/a.md#two-words), //ops:a.\n", "ops/a.h": "// docs/a.md\n",
      "ops/BUILD": 'name = "a"\n', "docs/a.md": "# A\n\n## Two words\n\n[top](#a), [read](../README.md), `ops/<family>.h`, //ops:<family>_test\n"}, []),
    ({"README.md": "`ops/b.h` and `ops/*/x_cpu.cc`\n", "ops/a.h": ""}, ["ops/b.h does not exist", "ops/*/x_cpu.cc does not exist"]),
    ({"docs/a.md": "[b](b.md), [c](#c), [d](../ops/a.h)\n", "ops/a.h": ""}, ["link b.md", "no heading #c"]),
    ({"docs/a.md": "```sh\nbazelw run //ops:b //ops:{a,c}\n```\n//ops/none //ops/... //ops:a_test //ops:e_test https://x.org/y\n", "ops/BUILD": '"a d_e"'},
     ["//ops:b", "//ops:{a,c}", "//ops/none", "//ops:e_test"]),
    ({"examples/README.md": "![p](pictures/a.png)\n"}, ["link pictures/a.png"]),
    ({"docs/decisions/001.md": "# One\n\n[two](002.md)\n"}, ["link 002.md"]),
    ({"README.md": "\n" * 121}, ["more than 120 lines"]),
    ({"docs/from_pytorch.md": "`td::f(x, \"y\")` and `Gone`\n\n| `table` |\n", "ops/a.h": "int f(int x);"}, ["no public header has Gone"]),
    ({"ops/a.h": "// see docs/gone.md\n"}, ["ops/a.h: the page docs/gone.md does not exist"]),
]

if __name__ == "__main__":
    common.run(check, PLANTED, at_least=200)
