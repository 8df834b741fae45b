#!/usr/bin/env -S python3 -B
"""Checks that a name in an anonymous namespace of a library is no name of the package's headers: as files are compiled together
(_unity in tools/build/tandem.bzl), it would replace that name in the files that follow, without an error."""

import os
import re

import common

_NAME = re.compile(r"(?:template <.*?> ?)?(?:(?:struct|class|enum class|enum|union) (\w+)|using (\w+) =|[^(]*?[ *&](\w+)(?:\(|\{| =|;|\[))")
_ANONYMOUS = re.compile(r"^namespace \{\n(.*?)^\}(?!;)", re.S | re.M)


def names(text):
    """The names that lines without indentation declare."""
    lines = [line.replace("TANDEM_API ", "") for line in text.split("\n") if re.match(r"[a-zA-Z\[]", line)]
    found = [_NAME.match(line) for line in lines if not line.startswith(("namespace", "friend"))]
    return {next(name for name in match.groups() if name) for match in found if match}


def check(root):
    violations, declared = [], {}
    paths = [path for path in common.files(root, common.LIBRARY_PACKAGES, (".h", ".cc")) if not re.search(r"_cpu\.cc|_avx\w*\.cc", path)]
    texts = {path: common.strip_comments_and_strings(common.read(root, path)) for path in paths}
    for path in paths:
        if path.endswith(".h"):
            declared.setdefault(os.path.dirname(path), {}).update(dict.fromkeys(names(texts[path]), path))
    for path in paths:
        for part in _ANONYMOUS.findall(texts[path]) if path.endswith(".cc") else []:
            headers = declared.get(os.path.dirname(path), {})
            violations += ["%s: %s is a name of %s; choose another" % (path, n, headers[n]) for n in sorted(names(part) & set(headers))]
    return violations, len(paths)


PLANTED = [
    ({"io/a.h": "inline constexpr int kMax = 2;\n", "io/b.cc": "namespace {\n\nconstexpr int64_t kMax = 1;\n}\n"}, ["io/b.cc: kMax is a name of io/a.h"]),
    ({"io/a.h": "struct Header {\n};\nTANDEM_API int f(int x);\n", "io/b.cc": "namespace {\nclass Header {\n};\nint f() { return 1; }\n}  // namespace\n"},
     ["Header", "f is"]),
    ({"io/a.h": "int f(int x);\n", "data/b.cc": "namespace {\nint f() {\n}\n}\n", "io/c.cc": "int f(int x) {}\nnamespace {\nint g() {\n  f(1);\n}\n}\n"}, []),
    ({"ops/a.h": "int f(int x);\n", "ops/b_cpu.cc": "namespace {\nint f() {\n}\n}\n"}, []),
]

if __name__ == "__main__":
    common.run(check, PLANTED, at_least=300)
