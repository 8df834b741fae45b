#!/usr/bin/python3
"""Checks that the object files of *_avx*.cc define only functions of namespace tandem, and no weak symbols.

An inline function or template that is compiled for a wider instruction set is a weak symbol, like the baseline's. The linker keeps
one of them, so the program could fail with an illegal instruction on an older machine. Arguments: archives.
"""

import re
import subprocess
import sys
import tempfile

_TANDEM = re.compile(r"_ZNK?6tandem")
_HARMLESS = re.compile(r"DW\.ref\.|__odr_asan|__asan|__tsan|__ubsan|__gcov|__llvm")


def violations_of(nm_lines):
    """Returns (violations, number of tandem's symbols) for the output of nm --extern-only --defined-only."""
    wrong, num_tandem = [], 0
    for line in nm_lines:
        fields = line.split()
        if len(fields) != 3 or _HARMLESS.match(fields[2]):
            continue
        _, kind, symbol = fields
        if kind in "WVuwvi":
            wrong.append("weak symbol, which may replace the baseline's: " + symbol)
        elif not _TANDEM.match(symbol):
            wrong.append("symbol outside tandem::, " + symbol)
        else:
            num_tandem += 1
    return wrong, num_tandem


def nm(path):
    return subprocess.run(["nm", "--extern-only", "--defined-only", path], check=True, capture_output=True,
                          text=True).stdout.splitlines()


def _self_test():
    source = """
    namespace tandem { inline namespace v0 { namespace avx512 {
    static int hidden(int n) { return n + 1; }
    void kernel(int* p) { *p = hidden(*p); }
    %s
    } } }
    %s
    """
    cases = [
        (("", ""), []),
        (("inline int leaks(int n) { return n; } int (*keep(int))(int) { return &leaks; }", ""), ["weak symbol"]),
        (("template <class T> T twice(T x) { return x + x; } template int twice<int>(int);", ""), ["weak symbol"]),
        (("", "int outside(int n) { return n; }"), ["outside tandem::"]),
        (("", 'extern "C" int plain(int n) { return n; }'), ["outside tandem::"]),
    ]
    for parts, expected in cases:
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/a.cc", "w", encoding="utf-8") as f:
                f.write(source % parts)
            subprocess.run(["g++", "-std=c++20", "-O1", "-c", "a.cc", "-o", "a.o"], cwd=folder, check=True)
            wrong, num_tandem = violations_of(nm(folder + "/a.o"))
        if len(wrong) != len(expected) or not all(e in w for e, w in zip(expected, wrong)) or num_tandem == 0:
            sys.exit("self-test: %r: expected %r, found %r" % (parts, expected, wrong))


def main(archives):
    _self_test()
    if not archives:
        sys.exit("usage: avx_symbols.py ARCHIVE...")
    failed = False
    for archive in archives:
        wrong, num_tandem = violations_of(nm(archive))
        for text in wrong:
            print("%s: %s" % (archive, text))
        print("%s: %d symbols of tandem, %d wrong" % (archive, num_tandem, len(wrong)))
        failed = failed or bool(wrong) or num_tandem == 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
