#!/usr/bin/env -S python3 -B
"""Checks for words that are not standard terms, in string literals of the library and its programs, and in identifiers of C++.
CONTRIBUTING.md has the rules of style."""

import re

import common

# Word -> replacement.
IN_TEXTS = {
    "told": "notified, reported", "tells": "reports", "hears": "is notified", "heard": "was notified", "beside": "concurrently with",
    "whoever": "the rank or program that", "somebody": "a rank or program", "nobody": "no rank or program", "verdict": "consistency check",
    "lane": "stream", "chore": "primitive", "chores": "primitives", "rooms": "packages", "lies": "is", "anybody": "any rank or program",
}
# Part of an identifier, in lower case -> replacement.
IN_NAMES = {
    "chores": "primitives", "complaint": "error record", "complaints": "error records", "complain": "report", "hush": "suppress",
    "whoever": "the subject", "told": "notified", "hears": "notified", "heard": "notified", "letters": "messages",
    "fronts": "operator functions", "complained": "reported", "walk": "loop", "walks": "loops", "stretch": "chunk",
    "stretches": "chunks", "landed": "staged", "verdict": "outcome", "bells": "notifier", "parity": "buffer index",
    "tell": "notify", "tells": "notifies", "untold": "not notified", "beside": "concurrent",
}

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include.*$", re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def check(root):
    violations, seen = [], 0
    for path in common.files(root, ("",) + common.LIBRARY_PACKAGES + ("examples", "benchmarks", "tests"), common.CXX):
        seen += 1
        code = _INCLUDE.sub("", common.read(root, path))
        if not path.startswith("tests/"):
            for offset, text in common.strings(code):
                for word in re.findall(r"[a-z]+", text.lower()):
                    if word in IN_TEXTS:
                        line = code.count("\n", 0, offset) + 1
                        violations.append("%s:%d: '%s' in %s; write '%s'" % (path, line, word, text, IN_TEXTS[word]))
        names = set(_IDENTIFIER.findall(common.strip_comments_and_strings(code)))
        for name in sorted(names):
            for part in _PART.findall(name):
                if part.lower() in IN_NAMES:
                    violations.append("%s: the name %s; instead of '%s' use '%s'" % (path, name, part.lower(), IN_NAMES[part.lower()]))
    return violations, seen


PLANTED = [
    ({"base/a.cc": 'const char* a = "rank 1 was told";  // "nobody"\n#include <tandem/tensor/chores.h>\n'}, ["'told' in \"rank 1 was told\""]),
    ({"tests/base/a.cc": 'const char* a = "rank 1 was told";\n'}, []),
    ({"tensor/a.h": "void throw_complaint(); class DeviceComplaint {}; int holds_lettersets;\n"},
     ["the name throw_complaint", "the name DeviceComplaint"]),
    ({"distributed/group/a.h": "void hush();\n"}, ["the name hush"]),
    ({"ops/a.cc": "int x = 'a'; /* told */ auto y = \"beside the way\";\n"}, ["'beside'"]),
    ({"ops/a.cc": 'const char* a = "index 3 lies outside";  // lies\n'}, ["'lies' in \"index 3 lies outside\""]),
    ({"ops/a.h": "struct Walk {}; int num_stretches(); bool is_landed(); int walker; double stretched;\n"},
     ["the name Walk", "the name num_stretches", "the name is_landed"]),
]

if __name__ == "__main__":
    common.run(check, PLANTED, at_least=300)
