#!/usr/bin/python3
"""Tests of //benchmarks/ops --python: the table, its summary, and errors. A script that answers with fixed times replaces
PyTorch."""
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.join("benchmarks", "ops", "ops")
SIZES = {"bool": 1, "uint8": 1, "int32": 4, "int64": 8, "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}
FAKE = """#!{python}
import json, math, sys
SIZES = {sizes}
print(json.dumps({{"version": "9.9"}}), flush=True)
for line in sys.stdin.buffer:
    request = json.loads(line)
    for entry in request.get("inputs", []):
        sys.stdin.buffer.read(math.prod(entry["shape"]) * SIZES[entry["dtype"]])
    {answer}
"""
TIMES = 'print(json.dumps({{}} if "inputs" in request else {{"ms": {ms}}}), flush=True)'


class Comparison(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.python = os.path.join(folder.name, "python")

    def write(self, text):
        with open(self.python, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(self.python, 0o755)

    def fake(self, answer):
        self.write(FAKE.format(python=sys.executable, sizes=SIZES, answer=answer))

    def run_program(self, *flags, filter_="masked_fill"):
        return subprocess.run([PROGRAM, "--seconds", "0", "--filter", filter_, "--python", self.python, *flags],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=250, check=False)

    def failure(self, **arguments):
        result = self.run_program(**arguments)
        self.assertEqual(result.returncode, 2, result.stderr)
        return result.stderr

    def test_rows_have_two_sizes_with_forward_and_backward(self):
        self.fake(TIMES.format(ms=1e9))
        result = self.run_program()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout.startswith("PyTorch 9.9;"), result.stdout)
        rows = [line for line in result.stdout.splitlines() if line.startswith("| masked_fill |")]
        self.assertEqual([row.count("**") for row in rows], [4, 4], result.stdout)
        self.assertIn("2 rows, 4 ratios; geometric mean ", result.stdout)
        self.assertTrue(result.stdout.endswith("; below 1: 0\n"), result.stdout)

    def test_slower_rows_are_listed(self):
        self.fake(TIMES.format(ms=1e-9))
        lines = self.run_program().stdout.splitlines()
        start = next(i for i, line in enumerate(lines) if line.endswith("; below 1: 4"))
        self.assertEqual([line.split(":")[0] for line in lines[start + 1:]],
                         ["  masked_fill", "  masked_fill, with backward"] * 2)

    def test_missing_program_is_named(self):
        self.assertEqual(self.failure(),
                         f"--python: program '{self.python}' cannot be started: No such file or directory\n")

    def test_interpreter_without_torch_is_rejected(self):
        self.write("#!/bin/sh\necho '{\"error\": \"ImportError: no torch\"}'\n")
        self.assertEqual(self.failure(), f"--python: {self.python} cannot import torch (ImportError: no torch); give an "
                                         "interpreter with PyTorch: --python /path/to/python\n")

    def test_failed_call_is_named(self):
        self.fake('print(json.dumps({"error": "RuntimeError: no"}), flush=True)')
        self.assertRegex(self.failure(), r"^PyTorch failed in '[^']*masked_fill[^']*': RuntimeError: no\n$")

    def test_interpreter_that_dies_is_an_error(self):
        self.write("#!/bin/sh\necho '{\"version\": \"9.9\"}'\n")
        self.assertRegex(self.failure(), "the process ended without an answer\n$")

    def test_filter_without_a_row_is_rejected(self):
        self.fake(TIMES.format(ms=1))
        self.assertEqual(self.failure(filter_="no such"), "--filter: no row's name contains 'no such'\n")


if __name__ == "__main__":
    unittest.main()
