#!/usr/bin/python3 -B
"""Checks that files have at most 600 lines, longer files should be split; and comment lines of C++ at most 120 columns, which
clang-format does not change."""

import re

import common

LIMIT = 600
_LONG_COMMENT = re.compile(r"^ *//[^\n]*$", re.MULTILINE)


def check(root):
    paths = common.files(root, ("",) + common.LIBRARY_PACKAGES + common.OTHER_FOLDERS, common.CXX + (".bzl", ".py", "BUILD"))
    violations = []
    for path in paths:
        lines = common.read(root, path).count("\n")
        if lines > LIMIT:
            violations.append("%s: %d lines; at most %d" % (path, lines, LIMIT))
        if path.endswith(common.CXX):
            comments = [line for line in _LONG_COMMENT.findall(common.read(root, path)) if len(line) > 120]
            violations += ["%s: a comment of %d columns: %s" % (path, len(line), line.strip()[:40]) for line in comments]
    return violations, len(paths)


PLANTED = [
    ({"tensor/long.cc": "\n" * 601, "tests/ops/fine.cc": "\n" * 600}, ["tensor/long.cc: 601 lines"]),
    ({"ops/a.h": "// " + "x" * 118 + "\n  // " + "y" * 115 + "\n"}, ["ops/a.h: a comment of 121 columns: // xxx"]),
    ({"tools/x.py": "\n" * 700, "long.h": "\n" * 700, "base/BUILD": "\n" * 601},
     ["tools/x.py", "long.h", "base/BUILD"]),
]

if __name__ == "__main__":
    common.run(check, PLANTED, at_least=40)
