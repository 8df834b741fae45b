#!/usr/bin/env -S python3 -B
"""The checks of the source tree ignore what is not in git: results, output of builds, virtual environments, files of editors."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools/check"))
import common
import documents
import file_length
import include_direction
import words

PAGE = "`results/gpt2/run` and `venv/bin/x` do not exist before a run; `ops/<family>.h` does\n"
TREE = {"README.md": PAGE, "ops/a.h": "// docs/a.md\n", "docs/a.md": "# A\n", "tests/ops/a_test.cc": ""}
IGNORED = ["results/gpt2/losses.h", "out/bin/a.h", "bazel-out/a.h", "ops/__pycache__/a.h"]  # by .gitignore
FOREIGN = ["venv/lib/a.h", ".vscode/a.h"]  # outside of the tree's folders
UNTRACKED = ["ops/a (copy).h", "docs/notes.md", "notes.md"]  # only git knows that they are not part of the tree


class TrackedFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        for path, text in TREE.items():
            self.write(path, text.encode())
        shutil.copy(os.path.join(ROOT, ".gitignore"), self.root)

    def write(self, path, content):
        os.makedirs(os.path.join(self.root, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(self.root, path), "wb") as file:
            file.write(content)

    def check_used(self, paths):
        for path in paths:
            self.write(path, b"[dead](link.md) docs/gone.md \xff\n" if path.endswith(".h") else b"[dead](link.md)\n")
        os.symlink("nowhere", os.path.join(self.root, "ops/.#a.h"))  # an editor's lock
        self.assertEqual(common.tracked(self.root), sorted([".gitignore"] + list(TREE)))
        for check in (documents, words, file_length, include_direction):
            self.assertEqual(check.check(self.root)[0], [])

    def test_source_archive(self):
        self.check_used(IGNORED + FOREIGN)

    def test_git_without_program(self):
        self.write(".git", b"")
        self.check_used(IGNORED + FOREIGN)

    def test_git(self):
        has_git = shutil.which("git") is not None  # it is not among the packages that tandem needs
        for command in [["init", "--quiet"], ["add", "."]] if has_git else []:
            subprocess.run(["git", "-C", self.root] + command, check=True)
        self.check_used(IGNORED + FOREIGN + (UNTRACKED if has_git else []))
        os.remove(os.path.join(self.root, "ops/a.h"))  # deleted, but not committed
        self.assertNotIn("ops/a.h", common.tracked(self.root))


if __name__ == "__main__":
    unittest.main()
