"""Pages of the documentation as Doxygen reads them: names and headings get labels, links lead to pages of the site."""

import os
import posixpath
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "check"))
import common

_FENCE = re.compile(r"^```(\w*)")
_HEADING = re.compile(r"^(#+) +(.*?)\s*$")
_IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_CODE_SPAN = re.compile(r"(`+[^`]+`+)")
_BOLD = re.compile(r"\*\*(\S.*?)\*\*", re.DOTALL)
_NAV_ROW = re.compile(r"^\| ([\w ]+?) \| (.*\]\(docs/.*) \|$", re.MULTILINE)

DECISIONS = "docs/decisions"
INDEX = "README.md"
MIN_SECTIONS = 4  # of a page with a table of contents
PICTURES = (".svg", ".png")


def page_paths(root):
    """Page -> its name in the site; README.md is the main page."""
    names = [INDEX, "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md", "docs/decisions/*.md", "examples/README.md", "tests/*/README.md"]
    found, tracked = {}, common.tracked(root)
    for path in sorted(path for name in names for path in common.matching(tracked, name)):
        stem = os.path.splitext(os.path.basename(path))[0]
        if path == INDEX:
            name = "index"
        elif path.startswith(DECISIONS + "/"):
            name = "decision-" + stem.split("-")[0]
        elif stem == "README":
            name = os.path.basename(os.path.dirname(path)).replace("_", "-")
        else:
            name = stem.lower().replace("_", "-")
        found[path] = name
    if os.path.isdir(os.path.join(root, DECISIONS)):
        found[DECISIONS] = "decisions"
    if os.path.isfile(os.path.join(root, "LICENSE")):
        found["LICENSE"] = "licence"
    return found


def slug(heading):
    """The fragment that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def label(name, heading):
    return "%s--%s" % (name, slug(heading))


def title(text):
    for line in text.splitlines():
        if line.startswith("# "):
            return line[2:].strip()
    return ""


class _Stager:
    def __init__(self, root, path, pages, headers, problems):
        self.root, self.path, self.pages, self.headers, self.problems = root, path, pages, headers, problems
        self.number, self.labels = 0, {}

    def _resolve(self, target):
        return posixpath.normpath(posixpath.join(posixpath.dirname(self.path), target))

    def _broken(self, target):
        self.problems.append("%s:%d: the link %s leads to nothing in the site" % (self.path, self.number, target))

    def _link(self, match):
        text, target = match.groups()
        if "://" in target:
            return match.group(0)
        target, _, fragment = target.partition("#")
        path = self._resolve(target) if target else self.path
        if path in self.headers:
            return "[%s](%s)" % (text, self.headers[path])
        if path.endswith(PICTURES) and os.path.isfile(os.path.join(self.root, path)):
            return "<a href=\"%s\">%s</a>" % (posixpath.basename(path), text)
        if path not in self.pages:
            self._broken(match.group(2))
            return text
        url = self.pages[path] + ".html"
        if fragment:
            url += "#%s--%s" % (self.pages[path], fragment)
        return "<a href=\"%s\">%s</a>" % (url, text)

    def _image(self, match):
        text, target = match.groups()
        path = self._resolve(target)
        if not os.path.isfile(os.path.join(self.root, path)):
            self._broken(target)
        if not text.strip():
            self.problems.append("%s:%d: the picture %s has no text" % (self.path, self.number, target))
        return "<img src=\"%s\" alt=\"%s\"/>" % (posixpath.basename(path), text.replace("\"", "&quot;"))

    def _prose(self, text):
        spans = []

        def keep(match):
            span = match.group(0)
            # Doxygen ends a span of one backtick at a quote.
            spans.append("`%s`" % span if "'" in span and not span.startswith("``") else span)
            return "\0%d\0" % (len(spans) - 1)

        text = _CODE_SPAN.sub(keep, text)
        text = _LINK.sub(self._link, _IMAGE.sub(self._image, text))
        text = _BOLD.sub(r"<b>\1</b>", text)  # Doxygen wants a letter behind the asterisks
        text = re.sub(r"@(?=\w)", r"\\@", text)
        return re.sub("\0(\\d+)\0", lambda match: spans[int(match.group(1))], text)

    def _heading(self, line):
        marks, text = _HEADING.match(line).groups()
        if len(marks) == 1:
            has_contents = self.path.startswith(("docs/", "examples/")) and self.sections >= MIN_SECTIONS
            return "# %s {#%s}%s" % (text, "mainpage" if self.path == INDEX else self.pages[self.path], "\n\n[TOC]" if has_contents else "")
        name = label(self.pages[self.path], text)
        self.labels[name] = self.labels.get(name, -1) + 1
        if self.labels[name]:
            name += "-%d" % self.labels[name]
        return "%s %s {#%s}" % (marks, self._prose(text), name)

    def stage(self, text):
        self.sections = len(re.findall(r"^## ", text, re.MULTILINE))
        lines, prose, is_fenced = [], [], False

        def end_prose():
            if prose:
                lines.append(self._prose("\n".join(prose)))
                prose.clear()

        for number, line in enumerate(text.splitlines() + [""], 1):
            fence = _FENCE.match(line)
            is_code = is_fenced or line.startswith("    ")
            if not fence and not is_code and line and not _HEADING.match(line):
                if not prose:
                    self.number = number
                prose.append(line)
                continue
            end_prose()
            self.number = number
            if fence:
                line = "```" + ("" if is_fenced else {"cpp": "{.cpp}", "python": "{.py}"}.get(fence.group(1), ""))
                is_fenced = not is_fenced
            elif not is_code and line:
                line = self._heading(line)
            lines.append(line)
        return "\n".join(lines) + "\n"


def stage(root, path, pages, headers, problems):
    """A page for Doxygen; links that lead nowhere are added to `problems`. `headers`: header -> URL."""
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return _Stager(root, path, pages, headers, problems).stage(f.read())


def decisions_page(root, pages):
    rows = ["- <a href=\"%s.html\">%s</a>" % (name, title(open(os.path.join(root, path), encoding="utf-8").read()))
            for path, name in pages.items() if path.startswith(DECISIONS + "/")]
    return "# Decisions {#decisions}\n\nWhy parts of tandem are built as they are.\n\n%s\n" % "\n".join(rows)


def licence_page(root):
    with open(os.path.join(root, "LICENSE"), encoding="utf-8") as f:
        return "# Licence {#licence}\n\n```\n%s\n```\n" % f.read().strip()


def sections(root, pages):
    """Groups of guides, as in README's table of documents: (title, [(name of the page, text)])."""
    path = os.path.join(root, INDEX)
    if not os.path.isfile(path):
        return []
    with open(path, encoding="utf-8") as f:
        text = f.read()
    return [(row.group(1), [(pages[target], text) for text, target in _LINK.findall(row.group(2)) if target in pages])
            for row in _NAV_ROW.finditer(text)]
