#!/usr/bin/python3 -B
"""Compares the lines per package with the table in CONTRIBUTING.md, so that growth is a visible change of that table.

    tools/check/lines.py            # fails if a package differs from its row by more than 5 % and 50 lines, or the total by 1 %
    tools/check/lines.py --update   # writes the table

The table is not exact: otherwise each commit would change it, and any two commits would conflict.
"""

import re
import sys

import common

SUFFIXES = common.CXX + (".bzl", ".c", ".md", ".py", ".sh", "BUILD")
PAGE = "CONTRIBUTING.md"
HEAD = "| package | lines | lines of `tests/` |\n|---|---|---|\n"
_TABLE = re.compile(re.escape(HEAD) + r"((?:\|.*\n)*)")

def slack(name, lines):
    return 0.01 * lines if name == "total" else max(50, 0.05 * lines)


def count(root):
    """Lines by package: [of the package, of its tests]. Tests of no package have the row "other"."""
    lines = {name: [0, 0] for name in common.LIBRARY_PACKAGES + common.OTHER_FOLDERS + ("other", "total") if name != "tests"}
    for path in common.files(root, common.LIBRARY_PACKAGES + common.OTHER_FOLDERS, SUFFIXES):
        folders = path.split("/")
        is_test = folders[0] == "tests"
        name = folders[is_test] if folders[is_test] in lines else "other"
        for row in (name, "total"):
            lines[row][is_test] += common.read(root, path).count("\n")
    return lines


def check(root):
    table = _TABLE.search(common.read(root, PAGE))
    rows = dict((name, [int(a), int(b)]) for name, a, b in re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \|$", table.group(1), re.M))
    violations = []
    for name, found in count(root).items():
        for column, what in enumerate(("", " (tests)")):
            expected = rows.get(name, [0, 0])[column]
            if abs(found[column] - expected) > slack(name, expected):
                violations.append("%s%s has %d lines, %s's table has %d; run tools/check/lines.py --update and state in the commit "
                                  "message what was added" % (name, what, found[column], PAGE, expected))
    return violations, len(rows)


def update(root):
    text = "".join("| %s | %d | %d |\n" % (name, *numbers) for name, numbers in count(root).items() if any(numbers))
    page = common.read(root, PAGE)
    with open(root + "/" + PAGE, "w", encoding="utf-8") as f:
        f.write(_TABLE.sub(lambda _: HEAD + text, page))


PLANTED = [
    ({PAGE: HEAD + "| base | 20 | 40 |\n| other | 0 | 1 |\n| total | 20 | 41 |\n", "base/a.cc": "\n" * 20, "tests/base/a.h": "\n" * 38,
      "tests/x.py": "\n", "tests/base/data.txt": "\n" * 9}, ["total (tests) has 39 lines, CONTRIBUTING.md's table has 41; run"]),
    ({PAGE: HEAD + "| base | 20 | 40 |\n| total | 71 | 40 |\n", "base/BUILD": "\n" * 71, "tests/base/a.h": "\n" * 40},
     ["base has 71 lines, CONTRIBUTING.md's table has 20"]),
]

if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        update(common.workspace_root())
    else:
        common.run(check, PLANTED, at_least=15)
