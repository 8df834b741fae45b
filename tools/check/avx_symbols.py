#!/usr/bin/python3
"""The object files of *_avx*.cc define functions of tandem alone, and no weak symbol.

An inline function or template compiled for wider instructions is a weak symbol like the one of the baseline; the linker keeps
either, and on an older machine the program would stop with an illegal instruction.  Arguments: the archives.
"""

import re
import subprocess
import sys
import tempfile

_OURS = re.compile(r"_ZNK?6tandem")
_HARMLESS = re.compile(r"DW\.ref\.|__odr_asan|__asan|__tsan|__ubsan|__gcov|__llvm")


def violations_of(nm_lines):
    """(violations, number of tandem's symbols) of the output of nm --extern-only --defined-only."""
    wrong, ours = [], 0
    for line in nm_lines:
        fields = line.split()
        if len(fields) != 3 or _HARMLESS.match(fields[2]):
            continue
        _, kind, symbol = fields
        if kind in "WVuwvi":
            wrong.append("weak symbol, shared with the baseline: " + symbol)
        elif not _OURS.match(symbol):
            wrong.append("symbol outside tandem::, " + symbol)
        else:
            ours += 1
    return wrong, ours


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
            wrong, ours = violations_of(nm(folder + "/a.o"))
        if len(wrong) != len(expected) or not all(e in w for e, w in zip(expected, wrong)) or ours == 0:
            sys.exit("self-test: %r gave %r" % (parts, wrong))


def main(archives):
    _self_test()
    if archives == ["--self-test-only"]:
        return 0
    if not archives:
        sys.exit("no archive given")
    failed = False
    for archive in archives:
        wrong, ours = violations_of(nm(archive))
        for text in wrong:
            print("%s: %s" % (archive, text))
        print("%s: %d symbols of tandem, %d wrong" % (archive, ours, len(wrong)))
        failed = failed or bool(wrong) or ours == 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
