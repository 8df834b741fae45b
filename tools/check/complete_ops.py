#!/usr/bin/python3
"""Every operation has a test that names it and a row in the table of operations.

An operation is a line marked TANDEM_OP in a header of ops/.  Its test is in tests/ops: a string that is its name, or begins
with it as error texts do.  Its row is in benchmarks/ops/rows_*.cc, named as Rows::add says; a view, which computes nothing,
needs none.
"""

import re
import sys

sys.dont_write_bytecode = True
import common

OP = re.compile(r"^TANDEM_OP [\w:<>, ]*?[ &*](\w+)\(", re.M)
# What does no work in proportion to the size of a tensor.
VIEWS = {"view", "reshape", "flatten", "transpose", "t", "permute", "slice", "select", "expand", "squeeze", "unsqueeze",
         "split", "chunk", "contiguous"}


def names_in(root, paths):
    names = set()
    for path in paths:
        names.update(re.findall(r'"(\w+)(?=["\s:])', common.read(root, path)))
    return names


def check(root):
    headers = [p for p in common.files(root, ("ops",), (".h",))]
    tested = names_in(root, [p for p in common.files(root, ("tests",), (".cc",)) if p.startswith("tests/ops/")])
    rows = names_in(root, [p for p in common.files(root, ("benchmarks",), (".cc",))
                           if p.startswith("benchmarks/ops/rows_")])
    violations = []
    ops = 0
    for path in headers:
        for op in sorted(set(OP.findall(common.read(root, path)))):
            ops += 1
            if op not in tested:
                violations.append("%s: %s has no test in tests/ops" % (path, op))
            if op not in rows and op not in VIEWS:
                violations.append("%s: %s has no row in benchmarks/ops" % (path, op))
    return violations, ops


PLANTED = [
    ({"ops/wave.h": "TANDEM_OP Tensor wave(Tensor input);\nTANDEM_OP std::vector<Tensor> waves(const Tensor& a);\n",
      "tests/ops/wave_test.cc": 'op.name = "wave";\nEXPECT_EQ(text, "waves: too many");\n',
      "benchmarks/ops/rows_wave.cc": 'rows.add("wave", f);\nrows.add("waves long", f);\n'}, []),
    ({"ops/wave.h": "TANDEM_OP Tensor wave(\n    Tensor input);\n",
      "tests/nn/wave_test.cc": '"wave"\n',
      "benchmarks/ops/other.cc": '"wave"\n'},
     ["ops/wave.h: wave has no test", "ops/wave.h: wave has no row"]),
]

if __name__ == "__main__":
    common.run(check, PLANTED, at_least=40)
