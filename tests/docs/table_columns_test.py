#!/usr/bin/env -S python3 -B
"""Every row of a table in the documents has as many cells as its line of dashes; a table whose header has not is not rendered."""

import os
import re
import sys

_DELIMITER = re.compile(r"\|(:?-+:?\|)+$")


def line_cells(line):
    """Number of cells between the outer bars; 0 where they are missing."""
    line = line.rstrip()
    if len(line) < 2 or line[0] != "|" or line[-1] != "|":
        return 0
    return len(re.split(r"(?<!\\)\|", line[1:-1]))


def violations(page):
    """(line number, text) of the rows with another number of cells than the line of dashes."""
    found, expected, fenced = [], 0, False
    lines = page.splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            fenced = not fenced
        if fenced or not line.startswith("|"):
            expected = 0
        elif _DELIMITER.match(line) and not expected:
            expected = line.count("|") - 1
            if number == 1 or line_cells(lines[number - 2]) != expected:
                found.append((number - 1, lines[number - 2]))
        elif expected and line_cells(line) != expected:
            found.append((number, line))
    return found


PLANTED = [
    ("| a | b |\n|---|---|\n| 1 | 2 |\n", []),
    ("| | b |\n|---|---|\n| `x\\|y` | |\n", []),
    ("| a | b |\n|---|\n", [1]),
    ("| a |\n|---|\n| 1 |\n| 1 | 2 |\n", [4]),
    ("```\n| a | b |\n|---|\n```\n", []),
]

for text, wanted in PLANTED:
    got = [number for number, _ in violations(text)]
    assert got == wanted, "%r: found %s, expected %s" % (text, got, wanted)
# Bazel runs the test through links that end at this file's true place.
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(root, "tools/check"))
import common

pages = common.files(root, ["", "docs"], (".md",))
num_wrong = 0
for path in pages:
    for line_number, line_text in violations(common.read(root, path)):
        num_wrong += 1
        print("%s:%d: another number of cells than the table's dashes: %s" % (path, line_number, line_text[:80]))
print("%d pages looked at, %d wrong rows" % (len(pages), num_wrong))
sys.exit(1 if num_wrong or len(pages) < 30 else 0)
