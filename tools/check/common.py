"""Shared by the checks of the source tree: finding files, stripping comments, compiling, self-tests, and running a check.

A check is a function root -> (violations, number of checked items). run() first tests it on small trees with known violations,
then runs it on the workspace, and fails if it checked fewer items than expected, because such a check proves nothing.
"""

import contextlib
import fnmatch
import os
import re
import subprocess
import sys
import tempfile

LIBRARY_PACKAGES = ("base", "tensor", "autograd", "ops", "nn", "optim", "data", "io", "distributed", "profile", "text", "models", "train")
OTHER_FOLDERS = ("examples", "benchmarks", "tests", "tools", "docs", "third_party")
CXX = (".h", ".cc", ".cu", ".cuh")


def workspace_root():
    """The source tree, found by this file's real path: Bazel runs checks through symbolic links."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    if not os.path.isfile(os.path.join(root, "WORKSPACE")):
        sys.exit("%s is not a source tree: it has no WORKSPACE" % root)
    return root


def tracked(root):
    """Sorted relative paths of the files in git. Without git (a source archive, or no git is installed), of the files in the root and
    in the folders of the tree that .gitignore does not exclude. So what programs, editors and virtual environments write is not read."""
    if os.path.exists(os.path.join(root, ".git")):
        try:
            command = ["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z"]
            listed = os.fsdecode(subprocess.run(command, capture_output=True, check=True).stdout).split("\0")
            return sorted(path for path in listed if path and os.path.isfile(os.path.join(root, path)))
        except (OSError, subprocess.CalledProcessError):
            pass
    ignore = os.path.join(root, ".gitignore")
    rules = [".git"] + (read(root, ".gitignore").split() if os.path.isfile(ignore) else [])
    ignored = lambda path: any(fnmatch.fnmatch("/" + path, (rule if rule[0] == "/" else "*/" + rule).rstrip("/")) for rule in rules)
    found = []
    for folder, folders, names in os.walk(root):
        inside = lambda name: os.path.relpath(os.path.join(folder, name), root)
        known = LIBRARY_PACKAGES + OTHER_FOLDERS if folder == root else folders
        folders[:] = [name for name in folders if name in known and not ignored(inside(name))]
        found += [inside(name) for name in names if os.path.isfile(os.path.join(folder, name)) and not ignored(inside(name))]
    return sorted(found)


def files(root, folders, suffixes):
    """The tracked files with these suffixes in these folders and their subfolders; the folder "" means the files directly in the
    root."""
    inside = lambda path: any(path.startswith(folder + "/") if folder else "/" not in path for folder in folders)
    return [path for path in tracked(root) if path.endswith(suffixes) and inside(path)]


def matching(paths, pattern):
    """The paths that match the pattern, in which `*` stands for any part of one name."""
    depth = pattern.count("/")
    return [path for path in paths if path.count("/") == depth and fnmatch.fnmatchcase(path, pattern)]


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read()


_COMMENT_OR_STRING = re.compile(
    r"""//[^\n]*(?:\\\n[^\n]*)*|/\*.*?\*/|R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'""",
    re.DOTALL)


def _blank(match):
    text = match.group(0)
    lines = "\n" * text.count("\n")
    if text.startswith("/"):
        return " " + lines
    return ('""' if text[0] in 'R"' else "'0'") + lines


def strip_comments_and_strings(text):
    """Removes comments and the content of literals from C++; line numbers do not change."""
    return _COMMENT_OR_STRING.sub(_blank, text)


def strings(text):
    """Yields (offset, literal) of the string literals of C++ outside of comments."""
    for match in _COMMENT_OR_STRING.finditer(text):
        if match.group(0)[0] in 'R"':
            yield match.start(), match.group(0)


@contextlib.contextmanager
def compiler(root):
    """A function that compiles C++ text, or files (text None), with g++ or another program in a folder in which `root` is tandem/,
    and returns its CompletedProcess. The function's `folder` is that folder."""
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(root, os.path.join(folder, "tandem"))

        def run(text, *arguments, program="g++"):
            return subprocess.run([program, "-std=c++20", "-I.", *arguments, *([] if text is None else ["-"])], cwd=folder, input=text, text=True, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "LC_ALL": "C"})

        run.folder = folder
        yield run


def _plant(root, tree):
    for path, text in tree.items():
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)


def self_test(check, planted):
    """Runs the check on trees, given as pairs of {path: text} and the expected violations, each a part of a reported line."""
    for tree, expected in planted:
        with tempfile.TemporaryDirectory() as root:
            _plant(root, tree)
            violations, _ = check(root)
        unmatched = list(violations)
        for part in expected:
            hit = next((v for v in unmatched if part in v), None)
            if hit is None:
                sys.exit("self-test: violation not found: %r in %r\nfound: %s" % (part, tree, violations))
            unmatched.remove(hit)
        if unmatched:
            sys.exit("self-test: unexpected violations: %s in %r" % (unmatched, tree))


def run(check, planted, at_least):
    """Runs the self-test, then the check of the workspace; exits with status 1 after a violation."""
    self_test(check, planted)
    violations, seen = check(workspace_root())
    for violation in violations:
        print(violation)
    print("%d checked, %d violations" % (seen, len(violations)))
    if seen < at_least:
        sys.exit("expected at least %d checked items" % at_least)
    sys.exit(1 if violations else 0)
