#!/usr/bin/env -S python3 -B
"""Checks the compile-time cost of #include <tandem/tandem.h>: it must not include third-party headers, and the compiler's memory, which
unlike time is the same in every run, is limited to 1.10 times that for the whole standard library: the compiler's tables double their
size now and then, so a few declarations can cost 20 MiB. --time prints the CPU time of the compiler, the best of five runs."""

import argparse
import functools
import os
import re
import sys

import common

FLAGS = ["-O2", "-march=x86-64-v3"]
TANDEM = "tandem/tandem.h"
STANDARD_LIBRARY = "bits/stdc++.h"

# Headers of the compiler, the C++ and C libraries and the kernel. All other headers below /usr belong to third-party
# libraries.
_SYSTEM = re.compile(r"/usr/(lib/gcc/|lib/linux/uapi/|include/(c\+\+|linux|asm-generic)/|include/[^/]+/(c\+\+|bits|sys|gnu|asm)/|"
                     r"include/[^/]+\.h$)")
_DIRECT = ("jpeglib.h", "png.h", "zlib.h", "zconf.h")  # third-party headers in the same folder as the C library's


def compile_header(root, header, arguments):
    """Compiles a file that includes the header; returns the compiler's output."""
    with common.compiler(root) as compile_text:
        done = compile_text("#include <%s>\n" % header, *FLAGS, *arguments, "-x", "c++")
    if done.returncode != 0:
        sys.exit(done.stdout)
    return done.stdout


def headers(root):
    """Paths of all included headers outside of the tree (headers of the tree have relative paths)."""
    words = compile_header(root, TANDEM, ["-M"]).replace("\\\n", " ").split()
    return sorted({os.path.realpath(word) for word in words if os.path.isabs(word)})


def compiler_mib(root, header):
    """MiB of the compiler's heap for a file that includes the header."""
    report = compile_header(root, header, ["-c", "-ftime-report", "-o", os.devnull])
    number, unit = re.search(r"^ *TOTAL .* (\d+)([kMG])$", report, re.MULTILINE).groups()
    return int(number) * {"k": 1 / 1024, "M": 1, "G": 1024}[unit]


@functools.cache
def limit_mib():
    return 1.10 * compiler_mib(common.workspace_root(), STANDARD_LIBRARY)


def check(root):
    found = headers(root)
    violations = ["tandem.h includes " + path for path in found if not _SYSTEM.match(path) or os.path.basename(path) in _DIRECT]
    own = compiler_mib(root, TANDEM)
    if own >= limit_mib():
        violations.append("tandem.h needs %.0f MiB of the compiler; the limit, 1.10 times the whole standard library's, is %.0f MiB" %
                          (own, limit_mib()))
    return violations, len(found)


def compile_seconds(root):
    def seconds():
        before = os.times()
        compile_header(root, TANDEM, ["-c", "-o", os.devnull])
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    return min(seconds() for _ in range(5))


PLANTED = [
    ({"tandem.h": "#include <tandem/base/x.h>\n", "base/x.h": "#include <zlib.h>\n#include <vector>\n"},
     ["zlib.h", "zconf.h"]),
    ({"tandem.h": "#include <fmt/core.h>\n"}, ["/usr/include/fmt/core.h"]),
    ({"tandem.h": "#include <bits/stdc++.h>\n" + "".join("inline std::map<int, std::array<int, %d>> map%d;\n" % (i, i) for i in range(60))},
     ["MiB of the compiler"]),
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time", action="store_true", help="print the CPU time of the compiler instead of checking")
    if parser.parse_args().time:
        print("tandem.h compiles in %.2f s" % compile_seconds(common.workspace_root()))
    else:
        common.run(check, PLANTED, at_least=50)
