#!/usr/bin/python3 -B
"""Tests benchmarks/compare_commit.py with rows of imaginary programs, and with a repository whose git and builds are shell scripts."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "benchmarks"))
import compare_commit

# Builds a program that reports the time in the file `us`, and counts builds.
BAZELW = """#!/bin/sh
[ "$1" = build ] || exit 0
echo >> builds; mkdir -p out/bin/bench
printf '#!/bin/sh\\necho "{\\\\"op\\\\": \\\\"add\\\\", \\\\"us\\\\": %s}" >> "$2"\\n' "$(cat us)" > out/bin/bench/bench
chmod +x out/bin/bench/bench
"""
# Stands for git: a commit is the folder of that name next to the repository.
GIT = """#!/bin/sh
case $3 in
  rev-parse) commit=${5%^*}; [ -d "$2/../$commit" ] || exit 128; echo "$commit" ;;
  archive) tar -c -C "$2/../$4" . ;;
esac
"""
OLD, NEW = 40 * "a", 40 * "b"


class CompareCommit(unittest.TestCase):
    def test_order_within_pairs_alternates(self):
        order = []
        old, new = (lambda: order.append("old") or 1), (lambda: order.append("new") or 2)
        self.assertEqual(compare_commit.alternate(old, new, 3), ([1, 1, 1], [2, 2, 2]))
        self.assertEqual(order, ["old", "new", "new", "old", "old", "new"])

    def test_rows_are_medians_ratios_and_the_spread_of_the_old_build(self):
        runs = lambda *times: [[{"op": "add", "bytes": 4, "us": t}, {"op": "add", "bytes": 8, "us": 2 * t}] for t in times]
        self.assertEqual(list(compare_commit.compare(runs(10, 20, 10), runs(20, 10, 20), [])), [
            "bytes=4 us: old 10, new 20, new/old 2.000 (0.500 to 2.000), old/old 0.500 to 2.000",
            "bytes=8 us: old 20, new 40, new/old 2.000 (0.500 to 2.000), old/old 0.500 to 2.000"])
        self.assertEqual(list(compare_commit.compare(runs(1, 1), runs(1, 1), ["p50_us"])), [])
        with self.assertRaises(compare_commit.Failure):
            list(compare_commit.compare(runs(1, 1), [runs(1)[0], []], []))

    def test_commit_is_built_once(self):
        with tempfile.TemporaryDirectory() as folder:
            top, old = pathlib.Path(folder, "top"), pathlib.Path(folder, "old")
            (top / "benchmarks").mkdir(parents=True)
            shutil.copy(compare_commit.__file__, top / "benchmarks")
            (top / "bazelw").write_text(BAZELW, encoding="ascii")
            (top / "bazelw").chmod(0o755)
            (pathlib.Path(folder) / "git").write_text(GIT, encoding="ascii")
            (pathlib.Path(folder) / "git").chmod(0o755)
            for commit, us in ((OLD, "4"), (NEW, "2")):
                (top / "us").write_text(us, encoding="ascii")
                shutil.copytree(top, pathlib.Path(folder, commit))
            call = lambda *flags: subprocess.run(
                [top / "benchmarks" / "compare_commit.py", "//bench", "--pairs", "2", "--folder", old, *flags],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=dict(os.environ, HOME=folder, PATH=folder + ":" + os.environ["PATH"]))
            for _ in range(2):
                self.assertEqual(call("--commit", OLD).stdout,
                                 "us: old 4, new 2, new/old 0.500 (0.500 to 0.500), old/old 1.000 to 1.000\n")
            self.assertEqual((old / "builds").read_text(encoding="ascii"), "\n")
            self.assertRegex(call("--commit", NEW).stderr, r"compare_commit: --folder: \S+ has commit a{12} "
                             r"\(expected b{12}\); give another folder\n")
            self.assertIn("ends with status 128:", call("--commit", "none").stderr)


if __name__ == "__main__":
    unittest.main()
