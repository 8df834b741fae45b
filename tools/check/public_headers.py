#!/usr/bin/env python3
"""Checks that every public header compiles by itself, so that programs may include headers in any order. Public headers are those
that tandem.h includes, directly or indirectly. Headers that a .cc file of the library includes first are not compiled again."""

import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import common

UMBRELLA = "tandem.h"
_INCLUDE = re.compile(r"^\s*#\s*include\s*<tandem/([^>]+)>", re.MULTILINE)


def public_headers(root):
    found, ahead = set(), [UMBRELLA]
    while ahead:
        header = ahead.pop()
        if header not in found:
            found.add(header)
            ahead += _INCLUDE.findall(common.read(root, header))
    return sorted(found)


def included_first(root):
    """The headers whose first line of code in some library file is their #include: building the library compiles them."""
    sources = common.files(root, common.LIBRARY_PACKAGES, (".cc",))
    texts = (common.strip_comments_and_strings(common.read(root, source)).lstrip() for source in sources)
    return {found.group(1) for found in map(_INCLUDE.match, texts) if found}


def first_error(folder, header):
    """The compiler's first error of the header, or None."""
    done = subprocess.run(["g++", "-std=c++20", "-fsyntax-only", "-I", folder, "-x", "c++", "-"],
                          input="#include <tandem/%s>\n" % header, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode == 0:
        return None
    return next(line for line in done.stdout.splitlines() + [done.stdout] if "error:" in line or line == done.stdout)


def check(root):
    headers = public_headers(root)
    alone = sorted(set(headers) - included_first(root))
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        os.symlink(root, os.path.join(folder, "tandem"))
        errors = list(pool.map(lambda header: first_error(folder, header), alone))
    return ["%s does not compile by itself: %s" % pair for pair in zip(alone, errors) if pair[1]], len(headers)


PLANTED = [
    ({"tandem.h": "#include <tandem/base/a.h>\n#include <tandem/base/b.h>\n",
      "base/a.h": "std::string f();\n",
      "base/a.cc": "// The build fails for this.\n#include <tandem/base/a.h>\n#include <string>\n",
      "base/b.h": "std::string g();\n",
      "base/b.cc": "#include <string>\n\n#include <tandem/base/b.h>\n"},
     ["tandem.h does not compile by itself", "base/b.h does not compile by itself"]),
    ({"tandem.h": "#include <tandem/base/a.h>\n#include <tandem/base/b.h>\n",
      "base/a.h": "#pragma once\n#include <string>\n",
      "base/b.h": "#pragma once\n#include <tandem/base/c.h>\nstd::string f();\n",
      "base/c.h": "#pragma once\n",
      "base/private.h": "std::string g();\n"},
     ["base/b.h does not compile by itself"]),
]

if __name__ == "__main__":
    common.run(check, PLANTED, at_least=50)
