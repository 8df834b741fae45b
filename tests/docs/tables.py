#!/usr/bin/python3
"""Makes a test of the tables of a page whose last column is headed "tandem": its code is compiled, a function for each row.

    tables.py PAGE PRELUDE > tables_test.cc

What stands between backticks in that column is C++, in three forms:

    statements that end with ';'               stay as they are
    a qualified name, as `td::cat`             is looked up (a using declaration)
    everything else                            is an expression

The code of a row is one scope, in its order.  A row without code is an error.  Compilers name the line of the page."""

import re
import sys

NAME = re.compile(r"\w+(::\w+)+$")


def rows(page):
    """(number, code spans of the last cell) of each row of the tables for tandem."""
    inside = False
    for number, line in enumerate(page.splitlines(), 1):
        if not line.startswith("|"):
            inside = False
            continue
        cell = line.rstrip().rstrip("|").split("|")[-1].strip()
        if cell == "tandem":
            inside = True
        elif inside and not line.startswith("|--"):
            yield number, re.findall(r"`([^`]+)`", cell)


def statement(code):
    if code.endswith(";"):
        return code
    return "using %s;" % code if NAME.match(code) else "static_cast<void>(%s);" % code


def main():
    path, prelude = sys.argv[1:]
    with open(path, encoding="utf-8") as f:
        table = list(rows(f.read()))
    print("#include <%s>\n\n#include <gtest/gtest.h>\n\nnamespace {\n" % prelude)
    for number, spans in table:
        if not spans:
            sys.exit("%s:%d: the row's last cell has no code" % (path, number))
        print("struct Row%d : Prelude {\n  void row() {" % number)
        for code in spans:
            print("#line %d \"%s\"\n    %s" % (number, path, statement(code)))
        print("  }\n};\n")
    print("// That they are compiled is the test; that there are some is seen here.")
    print("TEST(Tables, EveryRowIsCompiled) { EXPECT_GT(%d, 10); }\n\n}  // namespace" % len(table))


if __name__ == "__main__":
    main()
