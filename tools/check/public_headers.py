#!/usr/bin/env -S python3 -B
"""Checks that every installed header compiles by itself, so that programs may include headers in any order, and after macros of other
libraries; and that examples include only installed headers, so that they compile outside of the tree. Installed are the headers that
tandem.h and those in tools/install/BUILD include, directly or indirectly. Headers that a .cc file of the library includes first are
compiled after the standard library's, as that file is."""

import concurrent.futures
import os
import re
import shutil

import common

UMBRELLA = "tandem.h"
INSTALL = "tools/install/BUILD"
# Of X11, Qt, Windows and COM, macOS, glog and the C library.
MACROS = """None=0L Bool=int Status=int Success=0 True=1 False=0 Always=2 Above=0 Below=1 Complex=0 Unsorted=0
    emit= foreach=for forever=for(;;) signals=public slots=
    interface=struct near= far= IN= OUT= OPTIONAL= ERROR=0 DELETE=1 min(a,b)=a max(a,b)=b
    check(x)= verify(x)= require(x,y)= nil=0 CHECK(x)=x LOG(x)=x I=0 major(x)=x minor(x)=x""".split()
_INCLUDE = re.compile(r"^\s*#\s*include\s*<tandem/([^>]+)>", re.MULTILINE)


def public_headers(root, more=()):
    """The headers that tandem.h and the headers `more` include."""
    found, ahead = set(), [UMBRELLA, *more]
    while ahead:
        header = ahead.pop()
        if header not in found:
            found.add(header)
            ahead += _INCLUDE.findall(common.read(root, header))
    return sorted(found)


def listed_headers(root):
    return re.findall(r'"tandem/([^"]+)"', common.read(root, INSTALL))


def installed_headers(root):
    return public_headers(root, listed_headers(root))


def included_first(root):
    """The headers whose first line of code in some library file is their #include."""
    sources = common.files(root, common.LIBRARY_PACKAGES, (".cc",))
    texts = (common.strip_comments_and_strings(common.read(root, source)).lstrip() for source in sources)
    return {found.group(1) for found in map(_INCLUDE.match, texts) if found}


def first_error(compile_text, headers, *flags):
    """The compiler's first error of a file that includes the headers, or None."""
    text = "".join("#include <tandem/%s>\n" % header for header in headers)
    done = compile_text(text, "-fsyntax-only", *flags, "-x", "c++")
    if done.returncode == 0:
        return None
    return next(line for line in done.stdout.splitlines() + [done.stdout] if "error:" in line or line == done.stdout)


def check(root):
    installed = installed_headers(root)
    headers = [header for header in installed if "/cuda/" not in header and not header.endswith("_cuda.h")]
    first = included_first(root)
    with common.compiler(root) as compile_text, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        standard = os.path.join(common.workspace_root(), "tools/build/std_pch.h")
        shutil.copy(standard, compile_text.folder)
        compile_text(None, "-x", "c++-header", "std_pch.h", "-o", "std_pch.h.gch")
        flags = lambda header: ["-include", "std_pch.h"] if header in first else []
        errors = list(pool.map(lambda header: first_error(compile_text, [header], *flags(header)), headers))
        after_macros = first_error(compile_text, headers, *("-D" + macro for macro in MACROS))
    violations = ["%s does not compile by itself: %s" % pair for pair in zip(headers, errors) if pair[1]]
    if after_macros and not violations:
        violations.append("the headers do not compile after macros of other libraries: " + after_macros)
    for path in common.files(root, ["examples"], common.CXX):
        for header in _INCLUDE.findall(common.read(root, path)):
            if header not in installed and not header.startswith("examples/"):
                violations.append("%s includes %s, which is not installed" % (path, header))
    return violations, len(headers)


PLANTED = [
    ({"tandem.h": "#include <tandem/base/a.h>\n#include <tandem/base/b.h>\n",
      INSTALL: "",
      "base/a.h": "std::string f(Other x);\n",
      "base/a.cc": "// Its header is not complete.\n#include <tandem/base/a.h>\n#include <string>\n",
      "base/b.h": "std::string g();\n",
      "base/b.cc": "#include <string>\n\n#include <tandem/base/b.h>\n"},
     ["tandem.h does not compile by itself", "base/a.h does not compile by itself", "base/b.h does not compile by itself"]),
    ({"tandem.h": "#include <tandem/base/a.h>\n#include <tandem/base/b.h>\n",
      INSTALL: "",
      "base/a.h": "#pragma once\n#include <string>\n",
      "base/b.h": "#pragma once\n#include <tandem/base/c.h>\nstd::string f();\n",
      "base/c.h": "#pragma once\n",
      "base/private.h": "std::string g();\n"},
     ["base/b.h does not compile by itself"]),
    ({"tandem.h": "int f(int interface);\n", INSTALL: '"tandem/train/a.h",', "train/a.h": "struct Private;\n",
      "examples/a.cc": "#include <tandem/train/a.h>\n#include <tandem/base/a.h>\n#include <tandem/examples/b.h>\n"},
     ["after macros of other libraries", "examples/a.cc includes base/a.h"]),
]

if __name__ == "__main__":
    common.run(check, PLANTED, at_least=50)
