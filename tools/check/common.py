"""What the checks of the source tree share: finding the tree, stripping comments, and the frame of a check.

A check is a function root -> (violations, number of things looked at).  run() first proves it on planted trees in a temporary
folder, then runs it on the workspace and fails if it saw fewer things than expected: a check that looks at nothing passes
nothing.
"""

import os
import re
import sys
import tempfile

LIBRARY_PACKAGES = ("base", "tensor", "autograd", "ops", "nn", "optim", "data", "io", "distributed", "profile")
OTHER_FOLDERS = ("examples", "benchmarks", "tests", "tools", "docs", "third_party")
CXX = (".h", ".cc", ".cu", ".cuh")


def workspace_root():
    """The real workspace: Bazel runs a check through links that end at this file's true place."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    if not os.path.isfile(os.path.join(root, "WORKSPACE")):
        sys.exit("no WORKSPACE in " + root)
    return root


def files(root, folders, suffixes):
    """Relative paths of the files with these suffixes below these folders and, for the folder "", directly in the root; sorted."""
    found = []
    for folder in folders:
        if folder == "":
            found += [f for f in os.listdir(root) if f.endswith(suffixes) and os.path.isfile(os.path.join(root, f))]
            continue
        for path, _, names in os.walk(os.path.join(root, folder)):
            found += [os.path.relpath(os.path.join(path, n), root) for n in names if n.endswith(suffixes)]
    return sorted(found)


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
    """C++ without comments and with empty literals; line numbers stay."""
    return _COMMENT_OR_STRING.sub(_blank, text)


def _plant(root, tree):
    for path, text in tree.items():
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)


def prove(check, planted):
    """Runs the check on planted trees: pairs of {path: text} and the expected violations, each a part of one reported line."""
    for tree, expected in planted:
        with tempfile.TemporaryDirectory() as root:
            _plant(root, tree)
            violations, _ = check(root)
        unmatched = list(violations)
        for part in expected:
            hit = next((v for v in unmatched if part in v), None)
            if hit is None:
                sys.exit("self-test: the planted violation was not found: %r in %r\nfound: %s" % (part, tree, violations))
            unmatched.remove(hit)
        if unmatched:
            sys.exit("self-test: reported without cause: %s in %r" % (unmatched, tree))


def run(check, planted, at_least):
    """Self-test, then the workspace; exits 1 if anything is wrong."""
    prove(check, planted)
    violations, seen = check(workspace_root())
    for violation in violations:
        print(violation)
    print("%d looked at, %d wrong" % (seen, len(violations)))
    if seen < at_least:
        sys.exit("expected to look at %d or more" % at_least)
    sys.exit(1 if violations else 0)
