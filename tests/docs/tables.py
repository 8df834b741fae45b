#!/usr/bin/python3
"""Generates a test that compiles the code of a page's tables with the last column "tandem", one function per row.

    tables.py PAGE PRELUDE > tables_test.cc

Code in backticks in that column is C++, in three forms:

    statements that end with ';'               unchanged
    a qualified name, for example `td::cat`    a using declaration
    anything else                              an expression

The code of a row is one scope. A row without code is an error. Compiler errors show the line of the page."""

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
    print("// The compilation of the rows is the test. This case only checks that there are rows.")
    print("TEST(DocumentationTables, MoreThanTenRowsAreCompiled) { EXPECT_GT(%d, 10); }\n\n}  // namespace" % len(table))


if __name__ == "__main__":
    main()
