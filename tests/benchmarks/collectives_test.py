#!/usr/bin/env -S python3 -B
"""Tests that //benchmarks:collectives runs every operation on every backend without wrong elements and prints all rows."""
import json
import os
import subprocess
import tempfile
import unittest

PROGRAM = os.path.join("benchmarks", "collectives", "collectives")

FORMS = {"all_reduce": 2, "reduce": 1, "broadcast": 1, "gather": 1, "all_gather": 2, "scatter": 1, "reduce_scatter": 2,
         "all_to_all": 1, "sendrecv": 1}


def run(*flags):
    return subprocess.run([PROGRAM] + list(flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Tables(unittest.TestCase):
    def rows_of(self, *flags):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.json")
            result = run("--json", path, "--rounds", "1", "--step-bytes", "1", *flags)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(path) as f:
                return result.stdout, [json.loads(line) for line in f]

    def check(self, world, backends, dtypes):
        out, rows = self.rows_of("--op", "all", "--world", str(world), "--backend", ",".join(backends), "--dtype",
                                 ",".join(dtypes), "--min", "4", "--max", "600", "--factor", "12")
        tables = len(backends) * len(dtypes)
        self.assertEqual(len(rows), tables * (3 * sum(FORMS.values()) + 1))
        for op, forms in FORMS.items():
            self.assertEqual(sum(r["op"] == op for r in rows), tables * 3 * forms, op)
        for row in rows:
            self.assertEqual(row["wrong"], 0, row)
            self.assertGreater(row["us"], 0)
            self.assertLessEqual(row["p50_us"], row["p99_us"])
            self.assertEqual(row["world"], world)
        self.assertEqual(out.count("# all_reduce, "), tables)
        reduced = [r for r in rows if r["op"] == "all_reduce"]
        self.assertEqual([r["bytes"] for r in reduced[:6]], [4, 4, 48, 48, 576, 576])
        for row in reduced:
            self.assertAlmostEqual(row["busbw_gbs"], row["algbw_gbs"] * 2 * (world - 1) / world)


class GpuCollectives(Tables):
    def test_processes_and_threads(self):
        self.check(2, ["nccl", "nccl_threads"], ["float32", "bfloat16"])


class Collectives(Tables):
    def test_processes_and_threads(self):
        self.check(2, ["shm", "threads"], ["float32", "bfloat16"])

    def test_three_ranks(self):
        self.check(3, ["threads"], ["float32"])

    def test_gloo(self):
        self.check(2, ["gloo"], ["float32"])

    def test_sizes_accept_units(self):
        _, rows = self.rows_of("--sizes", "1K,20,2KiB", "--backend", "threads")
        self.assertEqual([r["bytes"] for r in rows[::2]], [1024, 20, 2048])

    def test_peer_times_are_matched_by_size(self):
        with tempfile.TemporaryDirectory() as folder:
            python = os.path.join(folder, "python")
            with open(python, "w") as f:  # a fake interpreter that prints lines like peer_torch.py
                f.write('#!/bin/sh\nshift 4\nfor size; do echo "$size out 8 8 8 0"; done\n')
            os.chmod(python, 0o700)
            for sizes in (["--min", "8", "--max", "64", "--factor", "8"], ["--sizes", "1K,20"]):
                _, rows = self.rows_of("--op", "gather,barrier", "--backend", "threads", "--python", python, *sizes)
                self.assertEqual([(r["op"], r.get("torch_us")) for r in rows],
                                 [("gather", 8), ("gather", 8), ("barrier", 8)])

    def test_wrong_flags_are_errors(self):
        self.assertEqual(run("--op", "sum").returncode, 2)
        result = run("--min", "8", "--max", "4")
        self.assertEqual((result.returncode, result.stderr), (1, "--min 8 and --max 4: expected 1 <= min <= max\n"))


if __name__ == "__main__":
    unittest.main()
