#!/usr/bin/env -S python3 -B
"""Makes the documentation's site: guides, API reference and search, by Debian's Doxygen.

    ./bazelw run //docs:site -- FOLDER

FOLDER is made, or replaced if an earlier site is in it. index.html is its start page; no server is needed. Doxygen reads copies of the
installed headers and of the pages that have their lines, so its warnings name lines of the tree. In these copies each header is a
group of its package, overloads and _async forms repeat the comment that they share, and links lead to pages of the site.
"""

import argparse
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
import time

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(_HERE), "check"))
import common
import documents
import public_headers

INSTALL = "apt-get install --no-install-recommends doxygen"
_MARK = "generator-of-this-folder.txt"
_FILES = (".svg", ".png", "LICENSE")
_DECISIONS = "docs/decisions"

PACKAGES = {
    "base": "Errors, logging, environment variables, futures, half types, trace events.",
    "tensor": "Tensors, devices, dtypes, memory, random numbers, State; CUDA streams and graphs.",
    "autograd": "Backward, gradient modes, numerical checks of gradients.",
    "ops": "Operations on tensors, and autocast.",
    "nn": "Modules, layers and initial values.",
    "optim": "Optimizers, schedules, clipping, gradient scaling.",
    "data": "Data sets, samplers and loaders.",
    "io": "Checkpoints, safetensors, NumPy and TensorBoard files.",
    "distributed": "Starting ranks, process groups, DistributedDataParallel, communication hooks.",
    "profile": "Trace files and reports of steps.",
    "models": "Networks with the parameter names of torchvision and transformers.",
    "text": "Tokenizers, token files and data sets of texts.",
    "train": "The training loop, metrics, progress and charts.",
}
assert set(PACKAGES) == set(common.LIBRARY_PACKAGES)
_NAMESPACES = {
    "": "All of tandem. Programs usually write `namespace td = tandem;`.",
    "::comm": "Sums, broadcasts, scatters and gathers between devices of a process.",
    "::cuda": "CUDA devices, streams, events and graphs.",
    "::nn::init": "Initial values of parameters.",
    **{"::" + name: text for name, text in PACKAGES.items() if name not in ("base", "tensor", "ops")},
}

# Headers. Doxygen links to friends without describing them; specializations have the comment of their template.
_HIDDEN = re.compile(r"^(?: *///.*\n)*( +friend |template <> )(?:.*[;}]|.*\{\n(?:.*\n)*?(?: +)?\})$|^ +\S.* = delete;$"
                     r"|^(?: *template <.*>\n)? *__attribute__\(\(unavailable\((?:.*\n)??.*;$", re.MULTILINE)
_NAMESPACE = re.compile(r"^(namespace tandem \{ )inline namespace v0 \{(.*)$")
_NAMESPACE_END = re.compile(r"^(\}+)\}(  // namespace tandem)::v0")
_ATTRIBUTE = re.compile(r"\[\[[^\]]*\]\]")
_NAME = re.compile(r"(operator\s*(?:\(\)|[^\s\w(]+)|[\w~]+)\s*\(")
_SENTENCE_END = re.compile(r"(?<![ (][A-Z])\.\s+|\n\n")
_SENDS = {"isend": "send", "recv": "send", "irecv": "send"}

# Members that need no comment because the C++ standard library has them, with the same meaning: those of the types that stand for
# vector, shared_ptr and function_ref, and what every type may have: copies, moves, output, comparison.
_STANDARD_TYPES = ("SmallVector", "RefPtr", "FunctionRef")
_STANDARD_MEMBERS = re.compile(r"^(?:friend )?operator(?:=|==|!=|<<)\(|^SmallVector\(")


def is_exempt(warning):
    """Whether a warning of Doxygen is about a symbol that needs no documentation."""
    match = re.match(r"Member (.*) \((\w[\w ]*)\) of (?:class|struct|namespace|file|group) (.*) is not documented\.$", warning)
    if not match:
        return False
    declaration, kind, scope = match.groups()
    owner = re.sub(r"<.*", "", scope).split("::")[-1].strip()
    if owner in _STANDARD_TYPES and kind in ("function", "typedef") or _STANDARD_MEMBERS.match(declaration):
        return True
    arguments = re.match(r"~?%s\((.*?)\)" % re.escape(owner), declaration)  # copies, moves, and the constructor without arguments
    return bool(arguments) and re.sub(r"\s*(const|&|&&)\s*|\w+$", "", arguments.group(1)).strip() in ("", owner)


def summary(text):
    """The comment at the top of a header: (first sentence, the rest)."""
    comment = re.match(r"(?://.*\n)*", text).group(0)
    first, *rest = _SENTENCE_END.split(re.sub(r"^// ?", "", comment, flags=re.MULTILINE).strip(), maxsplit=1)
    return " ".join(first.split()).rstrip(".") + ".", "".join(rest)


def share_comments(lines):
    """Copies the comment of a function to the overloads, the _async forms and those with the same body but for the name directly below it."""
    def base(name):
        name = _SENDS.get(name, name.removesuffix("_async"))
        return "_coalesced" if name.endswith("_coalesced") else name

    def without_name(text, found):
        return re.sub(r"\b%s\b" % re.escape(found.group(1)), "", text) if found and "{ return " in text else None

    result, comment, name, shape, place, previous = [], [], None, None, "", ""
    for at, line in enumerate(lines):
        text = line.strip()
        indent = line[:len(line) - len(line.lstrip())]
        if text.startswith("///"):
            comment, place = (comment if previous.startswith("///") else []) + [text[3:]], indent
        elif not text:
            comment = []
        elif re.match(r"[A-Za-z~\[]", text) and ("///<" in text or comment and indent == place):
            found = _NAME.search(_ATTRIBUTE.sub("", lines[at + 1] if text.startswith("template ") and "(" not in text else text))
            declared = base(found.group(1)) if found else None
            if "///<" in text:
                comment, place, name = [text.partition("///<")[2]], indent, declared
            elif previous.startswith("///"):
                name, shape = declared, without_name(text, found)
            elif name and (declared == name or shape and without_name(text, found) == shape) and not previous.startswith("template "):
                line = indent + "/**%s */ %s" % (" @nl".join(comment), text)
        result.append(line)
        previous = text
    return result


def group_of(header):
    return os.path.splitext(header)[0].replace("/", "_")


def stage_header(header, text):
    group = group_of(header)
    result = []
    for line in share_comments(_HIDDEN.sub(lambda hidden: "\n" * hidden.group(0).count("\n"), text).splitlines()):
        opened = _NAMESPACE.match(line)
        if opened:
            line = "%s%s /** @addtogroup %s@nl@{ */" % (opened.group(1), opened.group(2).lstrip(), group)
        elif _NAMESPACE_END.match(line):
            line = "/** @} */ " + _NAMESPACE_END.sub(r"\1\2", line)
        elif line.startswith("#define") and result[-1].startswith("///"):
            result[-1] += " @ingroup " + group
        code, slashes, comment = line.partition("///")
        result.append(code + slashes + comment.replace("<T>", "&lt;T&gt;"))
    first, rest = summary(text)
    first = re.sub(r"(?<=[ (][A-Z]\.) ", r"\\ ", first)  # otherwise Doxygen too ends the sentence at initials
    return "%s\n/** @defgroup %s %s\n@ingroup %s\n@brief %s\n\n%s\n*/\n" % ("\n".join(result), group, header, header.split("/")[0], first, rest)


def undocumented_macros(header, text):
    """Doxygen does not report these."""
    documented = set(re.findall(r"^///.*\n(?:#(?!define).*\n)*#define (\w+)", text, re.MULTILINE))
    return ["%s:%d: macro %s is not documented" % (header, number, line.split()[1].split("(")[0])
            for number, line in enumerate(text.splitlines(), 1)
            if line.startswith("#define ") and line.split()[1].split("(")[0] not in documented]


class Pages:
    """Guides as Doxygen reads them: headings have the fragments of GitHub as labels, and links lead to these."""

    _FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
    _HEADING = re.compile(r"^(#+) +(.*?) *$", re.MULTILINE)
    _SPAN = re.compile(r"(^ {4}.*$|`+[^`]+`+)|(!?)\[([^\]]*)\]\(([^)\s]+)\)|@(?=\w)", re.MULTILINE)

    def __init__(self, root, headers):
        tracked = common.tracked(root)
        self.root, self.problems = root, []
        self.paths = documents.pages(tracked) + common.matching(tracked, "CHANGELOG.md")
        self.labels = {header: group_of(header) for header in headers}
        for path in self.paths:
            name = os.path.splitext(path)[0].removeprefix("docs/").removesuffix("/README").lower()
            self.labels[path] = "mainpage" if path == "README.md" else re.sub(r"[^a-z0-9]", "-", name)
        self.labels[_DECISIONS] = "decisions"

    def stage(self, path):
        """The text of a page for Doxygen."""
        seen = {}

        def label(match):
            marks, text = match.groups()
            if marks == "#":
                return "# %s {#%s}" % (text, self.labels[path])
            fragment = documents.fragment(text)
            seen[fragment] = seen.get(fragment, -1) + 1
            return "%s %s {#%s--%s%s}" % (marks, text, self.labels[path], fragment, "-%d" % seen[fragment] if seen[fragment] else "")

        def resolve(match):
            code, is_picture, text, link = match.groups()
            if code:
                return "`%s`" % code if "'" in code and re.match("`[^`]", code) else code  # Doxygen ends `it's` at the quote
            if not link or "://" in link:
                return match.group(0) if link else "\\@"
            link, _, fragment = link.partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link)) if link else path
            if is_picture or target.endswith(_FILES):
                if not os.path.isfile(os.path.join(self.root, target)):
                    self.problems.append("%s: the link %s leads to nothing" % (path, link))
                name = posixpath.basename(target)
                return "<img src=\"%s\" alt=\"%s\"/>" % (name, text) if is_picture else "<a href=\"%s\">%s</a>" % (name, text)
            if target not in self.labels:
                if not target.endswith(".md"):  # Doxygen reports those
                    self.problems.append("%s: the link %s leads to nothing in the site" % (path, link))
                return match.group(0)
            label = self.labels[target] + ("--" + fragment if fragment else "")
            return "%s@ref %s \"%s\"" % ("\n" * text.count("\n"), label, " ".join(text.replace("`", "").split()))

        parts = self._FENCED.split(common.read(self.root, path))
        parts[::2] = [self._SPAN.sub(resolve, self._HEADING.sub(label, part)) for part in parts[::2]]
        return "".join(parts)


def stage(root, folder):
    """Writes Doxygen's input into a folder. Returns what is wrong with it."""
    def write(path, text):
        path = os.path.join(folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    more = [header for header in public_headers.listed_headers(root) if "define_optimizer" not in header and "cuda" not in header]
    headers = [header for header in public_headers.public_headers(root, more) if header != public_headers.UMBRELLA]
    problems = []
    for header in headers:
        text = common.read(root, header)
        problems += undocumented_macros(header, text)
        write(header, stage_header(header, text))
    pages = Pages(root, headers)
    for path in pages.paths:
        write(path, pages.stage(path))
    decisions = ["- @subpage %s\n" % pages.labels[path] for path in pages.paths if path.startswith(_DECISIONS)]
    write("decisions.md", "# Decisions {#decisions}\n\nWhy parts of tandem are built as they are.\n\n" + "".join(decisions))
    # The rows of README's table of documents group the pages in the site's tree.
    rows = re.findall(r"^\| (\w+) \| (.*\]\(.*) \|$", common.read(root, "README.md"), re.MULTILINE)
    for number, (name, cell) in enumerate(rows):
        labels = [pages.labels[path] for path in re.findall(r"\]\(([^)#]+)\)", cell) if path in pages.labels]
        write("%d.md" % number, "# %s {#group-%s}\n\n%s" % (name, name, "".join("- @subpage %s\n" % label for label in labels)))
    groups = ["/** @defgroup %s %s\n@brief %s */\n" % (package, package, text) for package, text in PACKAGES.items()
              if any(header.startswith(package + "/") for header in headers)]
    write("packages.dox", "".join(groups + ["/** @namespace tandem%s\n@brief %s */\n" % pair for pair in _NAMESPACES.items()]))
    return problems + pages.problems, len(headers) + len(pages.paths)


def build(root, out):
    """Makes the site of a source tree in a new folder. Returns (violations, number of headers and pages)."""
    with tempfile.TemporaryDirectory() as folder:
        violations, count = stage(root, folder)
        files = [os.path.join(root, path) for path in common.files(root, ["", "docs"], _FILES)]
        settings = "%s\nOUTPUT_DIRECTORY = \"%s\"\nHTML_OUTPUT = \"%s\"\nHTML_EXTRA_FILES = %s\n" % (
            common.read(_HERE, "Doxyfile"), *os.path.split(out), " ".join('"%s"' % file for file in files))
        os.makedirs(os.path.dirname(out), exist_ok=True)
        done = subprocess.run(["doxygen", "-"], cwd=folder, input=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit("site: doxygen failed:\n" + done.stdout)
        for warning in common.read(folder, "warnings.txt").replace(os.path.realpath(folder) + "/", "").splitlines():
            place, text = re.match(r"((?:\S+?:\d+: )?)(?:warning: )?(.*)", warning.strip()).groups()
            if not is_exempt(text):
                violations.append(place + text)
    return sorted(set(violations) - {""}), count


def have_doxygen(install=False):
    """Whether Doxygen is there, after installing it if this user may."""
    for command in (["update"], ["install", "--no-install-recommends", "doxygen"]):
        if install and not shutil.which("doxygen") and shutil.which("apt-get"):
            print("site: apt-get " + " ".join(command), file=sys.stderr)
            become = [] if os.geteuid() == 0 else ["sudo", "-n"]
            subprocess.run(become + ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "-qq"] + command, stdout=subprocess.DEVNULL)
    return shutil.which("doxygen") is not None


def main():
    parser = argparse.ArgumentParser(prog="./bazelw run //docs:site --", description="Makes the documentation's site.")
    parser.add_argument("folder", help="is made; an earlier site in it is replaced")
    args = parser.parse_args()
    started = time.monotonic()
    # `bazel run` starts this in another folder, and names the user's.
    out = os.path.normpath(os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", os.getcwd()), args.folder))
    if os.path.exists(out) and not (os.path.isdir(out) and (not os.listdir(out) or os.path.exists(os.path.join(out, _MARK)))):
        sys.exit("site: %s has other files; name a new or empty folder" % out)
    if not have_doxygen(install=True):
        sys.exit("site: doxygen is missing; as root: " + INSTALL)
    shutil.rmtree(out, ignore_errors=True)
    violations, count = build(common.workspace_root(), out)
    with open(os.path.join(out, _MARK), "w", encoding="utf-8") as f:
        f.write("Made by ./bazelw run //docs:site. The next run replaces this folder.\n")
    for violation in violations:
        print(violation, file=sys.stderr)
    print("%s: %d headers and pages, %d problems, %.1f s" % (os.path.join(out, "index.html"), count, len(violations), time.monotonic() - started))
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
