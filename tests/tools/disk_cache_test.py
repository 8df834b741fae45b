#!/usr/bin/env -S python3 -B
"""Tests of tools/build/disk_cache.py: one cache folder per set of installed versions, and the size limit."""

import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

PROGRAM = pathlib.Path(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], "tools/build/disk_cache.py")


class DiskCacheTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name)
        (self.top / "bin").mkdir()

    def folder(self, versions, *arguments):
        """Runs disk_cache.py with a fake dpkg-query that prints `versions`; returns the folder."""
        fake = self.top / "bin" / "dpkg-query"
        fake.write_text("#!/bin/sh\nprintf '%s'\n" % versions)
        fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
        environment = dict(os.environ, PATH="%s:%s" % (self.top / "bin", os.environ["PATH"]), XDG_CACHE_HOME=str(self.top / "cache"),
                           TANDEM_CUDA_HOME=str(self.top / "cuda"))
        return pathlib.Path(subprocess.run([PROGRAM, *arguments], env=environment, check=True, stdout=subprocess.PIPE,
                                           text=True).stdout.strip())

    def test_different_versions_get_different_folders(self):
        first = self.folder("g++-12 12.2.0-14")
        self.assertTrue(first.is_dir())
        self.assertEqual(first.parent, self.top / "cache" / "tandem" / "bazel")
        self.assertEqual(first, self.folder("g++-12 12.2.0-14"))
        self.assertNotEqual(first, self.folder("g++-12 12.2.0-15"))
        (self.top / "cuda").mkdir()
        (self.top / "cuda" / "version.json").write_text("13.0")
        self.assertNotEqual(first, self.folder("g++-12 12.2.0-14"))

    def test_least_recently_used_files_are_removed_first(self):
        old, new = self.folder("g++-12 1"), self.folder("g++-12 2")
        for age, path in enumerate([new / "ac" / "d", old / "cas" / "c", new / "cas" / "b", old / "cas" / "a"]):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"x" * 1000)
            os.utime(path, (1e9 - age, 1e9 - age))
        self.folder("g++-12 2", "--limit", "2500")
        self.assertEqual(["c", "d"], sorted(p.name for p in new.parent.rglob("*") if p.is_file()))

    def test_unknown_versions_are_an_error(self):
        with self.assertRaises(subprocess.CalledProcessError):
            self.folder("")


if __name__ == "__main__":
    unittest.main()
