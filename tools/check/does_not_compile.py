#!/usr/bin/env python3
"""Checks that lines which could only be mistakes do not compile, what the compiler says about each, and that a test assigns to
the results of all functions."""

import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import common
import public_headers

PRELUDE = """#include <tandem/tandem.h>
namespace td = tandem;
struct Net : td::nn::Layer { td::Tensor forward(const td::Tensor& x) override { return x; } };
extern td::Tensor x;
extern const td::Tensor y;
extern Net net;
extern td::optim::SGD sgd;
extern td::data::DigitsDataset digits;
extern std::shared_ptr<td::distributed::ProcessGroup> group;
"""
# A line, and a part of the compiler's message about it.
LINES = [
    # A variable refers to another tensor after an assignment, which a constant one or a number cannot do.
    ("y = x;", "passing 'const tandem::v0::Tensor' as 'this' argument discards qualifiers"),
    ("x = 1.5;", "use of deleted function 'tandem::v0::Tensor& tandem::v0::Tensor::operator=(tandem::v0::Scalar) &'"),
    ("for (td::Tensor row : x.unbind()) row = 0;", "use of deleted function 'tandem::v0::Tensor& tandem::v0::Tensor::operator=(tandem::v0::Scalar) &'"),
    # Temporary handles cannot be exchanged.
    ("std::swap(x[0], x[1]);", "no matching function for call to 'swap("),
    # Objects that are kept by reference.
    ("td::data::DataLoader loader(digits, td::data::SequentialSampler(9));", "cannot bind non-const lvalue reference"),
    ("td::DistributedDataParallel ddp(Net(), group);", "class template argument deduction failed"),
    ("td::optim::StepLR schedule(td::optim::SGD(net.parameters(), {.lr = 1}), {.step_size = 1});", "cannot bind non-const lvalue reference"),
]


def check(root, lines=LINES, prelude=PRELUDE):
    source = prelude + "".join("void line%d() { %s }\n" % (i, line) for i, (line, _) in enumerate(lines))
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(root, os.path.join(folder, "tandem"))
        done = subprocess.run(["g++", "-std=c++20", "-fsyntax-only", "-I", folder, "-x", "c++", "-"], input=source, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "LC_ALL": "C"})
    errors = re.findall(r"^<stdin>:(\d+):\d+: error: (.*)", done.stdout, re.MULTILINE)
    violations = []
    for i, (line, part) in enumerate(lines):
        found = [text for number, text in errors if int(number) == prelude.count("\n") + i + 1]
        if not any(part in text for text in found):
            violations.append("%s: expected %r, found %s" % (line, part, found or "no error"))
    return violations, len(lines)


def assigned(root):
    """Each function that returns a new tensor has a row in tests/assignment_test.cc; those of ops/ have their own test."""
    rows = common.read(root, "tests/assignment_test.cc")
    names = {}
    for path in public_headers.installed_headers(root):
        if not path.startswith(("ops/", "tensor/cuda")):
            names.update((name, path) for name in re.findall(r"^TANDEM_API (?:inline )?Tensor (\w+)\(", common.read(root, path), re.MULTILINE))
    views = ["from_blob", "make_view"]  # in tests/ops/in_place_test.cc
    return ["tests/assignment_test.cc: no row for %s of %s" % (name, path) for name, path in names.items()
            if '{"%s"' % name not in rows and name not in views], len(names)


if __name__ == "__main__":
    common.self_test(lambda root: check(root, [("int x = f();", "'f' was not declared"), ("int y;", "error"), ("int z = g();", "zzz")], ""),
                     [({}, ["int y;: expected 'error', found no error", "int z = g();: expected 'zzz', found ["])])
    common.run(lambda root: [a + b for a, b in zip(check(root), assigned(root))], [], at_least=40)
