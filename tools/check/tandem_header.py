#!/usr/bin/env python3
"""#include <tandem/tandem.h> is cheap: it reaches no third-party header, and compiles in under two seconds of processor
time (the best of three: a loaded machine is not the header's fault)."""

import os
import re
import resource
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import common

LIMIT_S = 2.0
FLAGS = ["-std=c++20", "-O2", "-march=x86-64-v3"]

# What belongs to the language, the C library or the kernel.  Everything else below /usr is a library's.
_SYSTEM = re.compile(r"/usr/(lib/gcc/|include/(c\+\+|linux|asm-generic)/|include/[^/]+/(c\+\+|bits|sys|gnu|asm)/|"
                     r"include/[^/]+\.h$)")
_DIRECT = ("zlib.h", "zconf.h")  # libraries' headers that lie among the C library's


def compile_header(root, arguments):
    """Compiles a file that includes the header; returns what the compiler prints."""
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(root, os.path.join(folder, "tandem"))
        with open(os.path.join(folder, "user.cc"), "w", encoding="utf-8") as f:
            f.write("#include <tandem/tandem.h>\n")
        command = ["g++", *FLAGS, "-I.", *arguments, "user.cc"]
        return subprocess.run(command, check=True, cwd=folder, stdout=subprocess.PIPE, text=True).stdout


def headers(root):
    """Paths of all headers that are reached outside of the tree, whose own come out as relative paths."""
    words = compile_header(root, ["-M"]).replace("\\\n", " ").split()
    return sorted({os.path.realpath(word) for word in words if os.path.isabs(word)})


def check(root):
    found = headers(root)
    foreign = [p for p in found if not _SYSTEM.match(p) or os.path.basename(p) in _DIRECT]
    return ["tandem.h reaches " + p for p in foreign], len(found)


def compile_seconds(root):
    def spent():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    best = float("inf")
    for _ in range(3):
        before = spent()
        compile_header(root, ["-c", "-o", os.devnull])
        best = min(best, spent() - before)
    return best


PLANTED = [
    ({"tandem.h": "#include <tandem/base/x.h>\n", "base/x.h": "#include <zlib.h>\n#include <vector>\n"},
     ["zlib.h", "zconf.h"]),
    ({"tandem.h": "#include <fmt/core.h>\n"}, ["/usr/include/fmt/core.h"]),
]

if __name__ == "__main__":
    seconds = compile_seconds(common.workspace_root())
    print("tandem.h compiles in %.2f s" % seconds)
    if not 0 < seconds < LIMIT_S:
        sys.exit("expected less than %.1f s" % LIMIT_S)
    common.run(check, PLANTED, at_least=50)
