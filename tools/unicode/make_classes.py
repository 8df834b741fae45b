#!/usr/bin/env python3
"""Writes text/unicode_table.h: the ranges of Unicode's letters (L) and numbers (N), from Python's unicodedata.

    python3 tools/unicode/make_classes.py > text/unicode_table.h
"""

import sys
import unicodedata


def ranges(initial):
    """[first, last] of all maximal ranges of code points whose general category begins with the letter."""
    found = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] != initial:
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def table(name, initial):
    words = ["{0x%x, 0x%x}," % tuple(pair) for pair in ranges(initial)]
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) > 116:
            lines.append("")
        lines[-1] += " " + word
    return "inline constexpr CodePointRange %s[] = {\n%s\n};\n" % (name, "\n".join("   " + line for line in lines))


print("""// Letters and numbers of Unicode %s. Written by tools/unicode/make_classes.py. Private to text/.
#pragma once

namespace tandem { inline namespace v0 { namespace text {

/// The code points first, .., last.
struct CodePointRange {
  char32_t first;
  char32_t last;
};

// clang-format off
%s
%s// clang-format on

}}}  // namespace tandem::v0::text""" % (unicodedata.unidata_version, table("kLetterRanges", "L"), table("kNumberRanges", "N")))
