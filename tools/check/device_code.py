#!/usr/bin/env -S python3 -B
"""Checks that code for GPUs uses only those names of the standard library that CUDA's compiler is known to compile correctly. nvcc
13.0 compiles std::advance of libstdc++ 12 to nothing, without a warning, and so std::upper_bound and other algorithms give wrong
results (docs/decisions/029-first-run-on-a-gpu.md). The emulation of GPUs cannot show this, because another compiler compiles it."""

import re

import common

_MARK = re.compile(r"\b(?:__device__|__global__|TANDEM_HOST_DEVICE)\b")
_DEFINITION_OF_MARK = re.compile(r"^[ \t]*#[ \t]*define[ \t]+TANDEM_HOST_DEVICE\b.*", re.MULTILINE)
# Kernels may call constexpr functions without a mark.
_CONSTEXPR_FUNCTION = re.compile(r"(?<!if )\bconstexpr\b[^=;{}()]*\([^;{}]*\)[^=;{}()]*(?=\{)")
_USING = re.compile(r"\busing\s+std::(\w+)")
_MORE = re.compile(r"\s*[{,]")  # after the initializer of a member, before the body of a constructor
_STD = re.compile(r"\bstd::(\w+)")
# Types, constants, and functions of numbers. Tests have passed on a GPU with all of them.
ALLOWED = {
    "abs", "acos", "array", "asin", "atan", "atan2", "bit_cast", "conditional_t", "copysign", "cos", "cosh", "erf", "erfc",
    "exp", "exp2", "expm1", "fabs", "floor", "fmax", "fmod", "index_sequence", "is_floating_point_v", "is_integral_v",
    "is_same_v", "isinf", "log", "log10", "log1p", "log2", "make_index_sequence", "make_signed_t", "make_unsigned_t", "min",
    "nearbyint", "numbers", "numeric_limits", "pow", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "type_identity_t"
}


def _end_of(text, start):
    """The end of the function whose declaration contains `start`: its closing brace, or the `;` of a declaration."""
    parens = braces = 0
    for i in range(start, len(text)):
        c = text[i]
        parens += {"(": 1, ")": -1}.get(c, 0)
        if c == ";" and parens == 0 and braces == 0:
            return i
        if c == "{":
            braces += 1
        elif c == "}":
            braces -= 1
            if braces == 0 and parens == 0 and not _MORE.match(text, i + 1):
                return i
    return len(text)


def uses(text):
    """(line, name) of each name of the standard library in code for GPUs that is not allowed."""
    text = _DEFINITION_OF_MARK.sub("", common.strip_comments_and_strings(text))
    starts = sorted(m.end() for pattern in (_MARK, _CONSTEXPR_FUNCTION) for m in pattern.finditer(text))
    names = list(_USING.finditer(text))
    end = 0
    for start in starts:
        if start >= end:
            end = _end_of(text, start)
            names += _STD.finditer(text, start, end)
    return sorted({(text.count("\n", 0, m.start()) + 1, m.group(1)) for m in names if m.group(1) not in ALLOWED})


def check(root):
    checked = [(path, common.read(root, path)) for path in common.files(root, common.LIBRARY_PACKAGES, (".h", ".cu"))]
    checked = [(path, text) for path, text in checked if _MARK.search(text)]
    violations = ["%s:%d: std::%s in code for GPUs" % (path, line, name) for path, text in checked for line, name in uses(text)]
    return violations, len(checked)


PLANTED = [
    ({"ops/a.cu": "#include <algorithm>\n"
                  "int host(const int* p) { return *std::upper_bound(p, p + 3, 1); }\n"
                  "__device__ int f(const int* p) {\n  // std::upper_bound\n  return *std::lower_bound(p, p + 3, 1);\n}\n"
                  "struct F {\n  TANDEM_HOST_DEVICE F() : a{1} { std::swap(a, a); }\n  __device__ int operator()(int* p) const {\n"
                  "    const auto g = [&](int n) { std::advance(p, n); };\n    g(2);\n    return *p;\n  }\n  int a;\n};\n"
                  "__global__ void k(int);\n"
                  "void more(int* p) { std::advance(p, 1); }\n"
                  "__global__ void k(int n) { n = std::gcd(n, 3); }\n"
                  "constexpr int next(int n) { return std::lcm(n, 2); }\n"
                  "#define LAST(p) TANDEM_HOST_DEVICE int last() { return *std::prev(p); }\n"
                  "using std::find;\n"},
     ["ops/a.cu:5: std::lower_bound", "ops/a.cu:8: std::swap", "ops/a.cu:10: std::advance", "ops/a.cu:18: std::gcd",
      "ops/a.cu:19: std::lcm", "ops/a.cu:20: std::prev", "ops/a.cu:21: std::find"]),
    ({"tensor/a.h": "#define TANDEM_HOST_DEVICE __host__ __device__\n"
                    "inline void host(int* p) {\n  constexpr int kMost = std::max(1, 2);\n"
                    "  if constexpr (kMost > 1) { std::advance(p, kMost); }\n}\n"
                    "template <class T> TANDEM_HOST_DEVICE T f(T x) { return std::is_same_v<T, int> ? x : std::sqrt(x); }\n"},
     []),
]

if __name__ == "__main__":
    common.run(check, PLANTED, at_least=50)
