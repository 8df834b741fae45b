#!/usr/bin/env python3
"""Makes the documentation's site: guides, API reference and search, by Debian's Doxygen.

    ./bazelw run //docs:site -- FOLDER

FOLDER is made, or replaced if an earlier site is in it. index.html is its start page; no server is needed.
"""

import argparse
import collections
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import headers
import links
import pages
import common

_HERE = os.path.dirname(os.path.realpath(__file__))
_PACKAGE = "doxygen"
INSTALL = "apt-get install --no-install-recommends " + _PACKAGE
_TAGLINE = "Neural networks in C++, trained on CPUs and NVIDIA GPUs"
_VERSION = re.compile(r'kVersion = "([^"]+)"')
_WARNING = re.compile(r"^(?:warning: )?(.*?):(\d+): (.*)$")
_UNDOCUMENTED = re.compile(r"^(?:Member|Compound) (.*?) is not documented\.$")
_CODE = re.compile(r"<code>((?:[^<]|<a [^>]*>|</a>)+)</code>")
_FRAGMENT = re.compile(r"<div class=\"fragment\">.*?</div><!-- fragment -->", re.DOTALL)
_CODE_LINK = re.compile(r"<a class=\"code[^>]*>([^<]*)</a>")
_ANY_LINK = re.compile(r"<a [^>]*>([^<]*)</a>")
_QUALIFIED = re.compile(r"<a [^>]*>[^<]*</a>|(?<!\w)td::((?:\w+::)*[A-Z]\w*)\b")
_TAGGED_CLASS = re.compile(r"<compound kind=\"(?:class|struct)\">\s*<name>([^<]+)</name>\s*<filename>([^<]+)</filename>")
_SUMMARY = re.compile(r"<div class=\"summary\">.*?</div>", re.DOTALL)
# Indexes that the navigation and the search replace.
_INDEXES = re.compile(r"-members\.html$|^(?:functions|namespacemembers|namespaces|globals|classes|hierarchy|modules|pages|files|dir_)\w*\.html$")
_MARK = "generator-of-this-folder.txt"

# Members that need no comment because the C++ standard library has them, with the same meaning: those of the types that stand for
# vector, shared_ptr and function_ref, and what every type may have: copies, moves, output, comparison.
_STANDARD_TYPES = ("SmallVector", "RefPtr", "FunctionRef")
_STANDARD_MEMBERS = re.compile(r"^(?:friend )?operator(?:=|==|!=|<<)\(")


def is_exempt(symbol):
    """Whether a symbol may be without documentation; `symbol` as in Doxygen's warning."""
    match = re.match(r"^(.*) \((\w[\w ]*)\) of (?:class|struct|namespace|file|group) (.*)$", symbol)
    if not match:
        return False
    declaration, kind, scope = match.groups()
    owner = re.sub(r"<.*", "", scope).split("::")[-1].strip()
    if owner in _STANDARD_TYPES and kind in ("function", "typedef"):
        return True
    if declaration.startswith("SmallVector("):  # constructors that a derived class takes over
        return True
    if kind in ("function", "friend") and _STANDARD_MEMBERS.match(declaration):
        return True
    # Copies, moves, and the constructor without arguments.
    arguments = re.match(r"^~?%s\((.*?)\)" % re.escape(owner), declaration)
    return bool(arguments) and re.sub(r"\s*(const|&|&&)\s*|\w+$", "", arguments.group(1)).strip() in ("", owner)


def _navigation(root, names, public):
    guides = pages.sections(root, names)
    lines = ["<p><a href=\"index.html\">Overview</a></p>"]
    for section, entries in guides:
        lines.append("<p>%s</p>\n<ul>" % html.escape(section))
        lines += ["<li><a href=\"%s.html\">%s</a></li>" % (name, html.escape(text[0].upper() + text[1:])) for name, text in entries]
        lines.append("</ul>")
    lines.append("<p>API reference</p>\n<ul>")
    lines += ["<li><a href=\"group__%s.html\">%s</a></li>" % (package, package) for package in headers.PACKAGES
              if any(header.startswith(package + "/") for header in public)]
    if "docs/operations.md" in names:
        lines.append("<li><a href=\"%s.html\">All operations</a></li>" % names["docs/operations.md"])
    lines += ["<li><a href=\"annotated.html\">All classes</a></li>", "</ul>"]
    project = [(names[path], text) for path, text in (("CHANGELOG.md", "Changelog"), ("CONTRIBUTING.md", "Contributing"),
                                                     ("LICENSE", "Licence")) if path in names]
    if project:
        lines.append("<p>Project</p>\n<ul>")
        lines += ["<li><a href=\"%s.html\">%s</a></li>" % entry for entry in project]
        lines.append("</ul>")
    return "\n".join(lines)


def _api_table(public):
    rows = ["| <a href=\"group__%s.html\">%s</a> | %s |" % (package, package, text) for package, text in headers.PACKAGES.items()
            if any(header.startswith(package + "/") for header in public)]
    return "\n## API reference {#api-reference}\n\n| | |\n|---|---|\n%s\n" % "\n".join(rows)


def _write(text, *path):
    path = os.path.join(*path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def _stage(root, folder):
    """Writes Doxygen's input below a folder. Returns what is wrong with it, and file -> lines of the original."""
    problems, origins = [], {}
    public = headers.read_all(root)
    names = pages.page_paths(root)
    for header, text in public.items():
        problems += headers.undocumented_macros(header, text)
        staged, origins[os.path.join("tandem", header)] = headers.stage(header, text, names)
        _write(staged, folder, "input", "tandem", header)
    _write(headers.package_groups(public), folder, "input", "packages.dox")
    urls = {header: "group__%s.html" % headers.group_of(header).replace("_", "__") for header in public}
    for path, name in names.items():
        if path == pages.DECISIONS:
            text = pages.decisions_page(root, names)
        elif path == "LICENSE":
            text = pages.licence_page(root)
        else:
            text = pages.stage(root, path, names, urls, problems)
        if path == pages.INDEX:
            text += _api_table(public)
        _write(text, folder, "input", "pages", name + ".md")
    version = _VERSION.search(public.get("base/version.h", ""))
    for file in ("header.html", "footer.html"):
        text = common.read(_HERE, file).replace("@TAGLINE@", _TAGLINE).replace("@NAVIGATION@", _navigation(root, names, public))
        _write(text.replace("@VERSION@", version.group(1) if version else ""), folder, file)
    return problems, origins, names, urls


def _run_doxygen(root, folder, out):
    pictures = [os.path.join(root, path) for path in common.files(root, ["docs"], pages.PICTURES)]
    settings = common.read(_HERE, "Doxyfile") + "".join("%s = %s\n" % (name, " ".join('"%s"' % path for path in paths)) for name, paths in [
        ("INPUT", [os.path.join(folder, "input")]),
        ("STRIP_FROM_PATH", [os.path.join(folder, "input")]),
        ("STRIP_FROM_INC_PATH", [os.path.join(folder, "input")]),
        ("OUTPUT_DIRECTORY", [os.path.dirname(out)]),
        ("HTML_OUTPUT", [os.path.basename(out)]),
        ("HTML_HEADER", [os.path.join(folder, "header.html")]),
        ("HTML_FOOTER", [os.path.join(folder, "footer.html")]),
        ("LAYOUT_FILE", [os.path.join(_HERE, "layout.xml")]),
        ("HTML_STYLESHEET", [os.path.join(_HERE, "style.css")]),
        ("HTML_EXTRA_FILES", pictures),
        ("GENERATE_TAGFILE", [os.path.join(folder, "tags.xml")]),
        ("WARN_LOGFILE", [os.path.join(folder, "warnings.txt")]),
    ])
    _write(settings, folder, "Doxyfile")
    done = subprocess.run([_PACKAGE, os.path.join(folder, "Doxyfile")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit("site: doxygen failed:\n" + done.stdout)
    return common.read(folder, "warnings.txt").splitlines()


def _violations(warnings, folder, origins):
    """Doxygen's warnings with the lines of the original files, once each, without the symbols that are exempt."""
    found = []
    for warning in warnings:
        match = _WARNING.match(warning)
        if not match:
            found.append(warning.strip())
            continue
        path, line, text = match.groups()
        path = os.path.relpath(path, os.path.join(folder, "input")) if os.path.isabs(path) else path
        if path in origins and 0 < int(line) <= len(origins[path]):
            line = origins[path][int(line) - 1]
        symbol = _UNDOCUMENTED.match(text.removeprefix("warning: "))
        if symbol and is_exempt(symbol.group(1)):
            continue
        found.append("%s:%s: %s" % (path.removeprefix("tandem/"), line, text.removeprefix("warning: ")))
    return sorted(set(found) - {""})


def _class_urls(tags):
    """Class -> URL, by full name without "tandem::", and by last name where that is unique."""
    urls, last = {}, collections.defaultdict(list)
    for name, file in _TAGGED_CLASS.findall(tags):
        if "&lt;" not in name:
            urls[name.removeprefix("tandem::")] = file
            last[name.split("::")[-1]].append(file)
    urls.update({name: files[0] for name, files in last.items() if len(files) == 1})
    return urls


def _finish(out, headers_urls, class_urls):
    """Removes Doxygen's indexes, marks the current page in the navigation, and corrects the links in code: Doxygen links every word that
    is also a function's name, and misses the classes and headers that guides name."""

    def link(text, name, urls):
        return "<a href=\"%s\">%s</a>" % (urls[name], text) if name in urls else text

    def fix_fragment(match):
        text = _CODE_LINK.sub(lambda found: found.group(0) if "::" in found.group(1) else found.group(1), match.group(0))
        return _QUALIFIED.sub(lambda found: link(found.group(0), found.group(1), class_urls), text)

    def fix_code(match):
        text = _ANY_LINK.sub(lambda found: found.group(0) if "::" in found.group(1) else found.group(1), match.group(1)).replace("\\|", "|")
        urls = {**class_urls, **headers_urls}
        return "<code>%s</code>" % link(text, text.removeprefix("td::"), urls)

    for file in common.files(out, [""], (".html",)):
        if _INDEXES.search(file):
            os.remove(os.path.join(out, file))
            continue
        text = common.read(out, file)
        text = _SUMMARY.sub("", text).replace("<li><a href=\"%s\">" % file, "<li><a aria-current=\"page\" href=\"%s\">" % file)
        text = _FRAGMENT.sub(fix_fragment, text)
        text = _CODE.sub(fix_code, text)
        _write(text, out, file)


def build(root, out):
    """Makes the site of a source tree in a new folder. Returns (violations, number of links and warnings looked at)."""
    with tempfile.TemporaryDirectory() as folder:
        problems, origins, names, urls = _stage(root, folder)
        os.makedirs(os.path.dirname(out), exist_ok=True)
        warnings = _run_doxygen(root, folder, out)
        problems += _violations(warnings, folder, origins)
        class_urls = _class_urls(common.read(folder, "tags.xml"))
    shutil.copyfile(os.path.join(_HERE, "search.css"), os.path.join(out, "search", "search.css"))
    _finish(out, urls, class_urls)
    broken, seen = links.check(out)
    return problems + broken, seen


def have_doxygen(install=False):
    """Whether Doxygen is there, after installing it if this user may."""
    if shutil.which(_PACKAGE):
        return True
    if not install or not shutil.which("apt-get"):
        return False
    become = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if become and (not shutil.which("sudo") or subprocess.run(become + ["true"], stderr=subprocess.DEVNULL).returncode != 0):
        return False
    print("site: installing Debian's doxygen, once", file=sys.stderr)
    command = become + ["apt-get", "-y", "-qq"]
    package = ["install", "--no-install-recommends", _PACKAGE]
    for update in (False, True):
        if update:
            subprocess.run(command + ["update"], stdout=subprocess.DEVNULL)
        if subprocess.run(command + package, stdout=subprocess.DEVNULL, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}).returncode == 0:
            break
    return shutil.which(_PACKAGE) is not None


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
    violations, seen = build(common.workspace_root(), out)
    _write("Made by ./bazelw run //docs:site. The next run replaces this folder.\n", out, _MARK)
    for violation in violations:
        print(violation, file=sys.stderr)
    print("%s: %d links, %d problems, %.1f s" % (os.path.join(out, "index.html"), seen, len(violations), time.monotonic() - started))
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
