#!/usr/bin/python3
"""Checks that files have at most 600 lines; longer files should be split."""

import sys

sys.dont_write_bytecode = True
import common

LIMIT = 600


def check(root):
    paths = common.files(root, ("",) + common.LIBRARY_PACKAGES + common.OTHER_FOLDERS, common.CXX + (".bzl", ".py", "BUILD"))
    violations = []
    for path in paths:
        lines = common.read(root, path).count("\n")
        if lines > LIMIT:
            violations.append("%s: %d lines; at most %d" % (path, lines, LIMIT))
    return violations, len(paths)


PLANTED = [
    ({"tensor/long.cc": "\n" * 601, "tests/ops/fine.cc": "\n" * 600}, ["tensor/long.cc: 601 lines"]),
    ({"tools/x.py": "\n" * 700, "long.h": "\n" * 700, "base/BUILD": "\n" * 601},
     ["tools/x.py", "long.h", "base/BUILD"]),
]

if __name__ == "__main__":
    common.run(check, PLANTED, at_least=40)
