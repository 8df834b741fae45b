#!/usr/bin/env -S python3 -B
"""Checks that libraries write and read text in the same form under every locale of the program: streams of strings, conversions of
the C library that depend on the locale, and printf of floating-point numbers are forbidden. base/format.h and str() replace them."""

import re

import common

ALLOWED = {"base/error.h": "ostringstream", "base/error.cc": "locale"}  # str()
_NAMES = re.compile(r"\b([io]?stringstream|sto(?:i|l|ll|ul|ull|f|d|ld)|strto(?:f|d|ld)|atof|setprecision|locale|setlocale|strftime|put_time"
                    r"|to(?:lower|upper)|is(?:alpha|alnum|digit|space|print|punct|upper|lower))(?=[ ]?[(:]|[ ]\w)")
_PRINTF = re.compile(r"%[-+ #0]*[\d*]*(?:\.[\d*]*)?L?['aefgAEFG]")


def check(root):
    violations, paths = [], common.files(root, ("",) + common.LIBRARY_PACKAGES, common.CXX)
    for path in paths:
        text = common.read(root, path)
        names = [match.group(1) for match in _NAMES.finditer(common.strip_comments_and_strings(text))]
        violations += ["%s: %s; use str() or base/format.h" % (path, name) for name in names if ALLOWED.get(path) != name]
        if "printf" in text:
            violations += ["%s: printf of %s; use base/format.h" % (path, t) for _, t in common.strings(text) if _PRINTF.search(t)]
    return violations, len(paths)


PLANTED = [
    ({"io/a.cc": "// std::stoi(x)\nstd::ostringstream out; int n = std::stoi(text);\n"}, ["io/a.cc: ostringstream", "io/a.cc: stoi"]),
    ({"base/error.h": "std::ostringstream out; std::locale::global(x);\n"}, ["base/error.h: locale"]),
    ({"data/a.cc": "char c = std::tolower(d); double x = strtod(p, &end); y = p.isspace;\n"}, ["tolower", "strtod"]),
    ({"train/a.cc": 'snprintf(t, n, "%d %8.2f s", i, x); printf("%s 5 % of", s);\n'}, ['printf of "%d %8.2f s"']),
    ({"tests/a.cc": "std::istringstream in;\n", "tensor/a.cc": 'str("100 %.", "%full");\n'}, []),
]

if __name__ == "__main__":
    common.run(check, PLANTED, at_least=300)
