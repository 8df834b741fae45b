#!/usr/bin/python3 -B
"""A short run of //benchmarks/two_hosts: its output, and its check of the link. Needs root, ip and tc."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.abspath("benchmarks/two_hosts"))
import two_hosts

LINK = r"link  [0-9.]+ Mbit/s of payload in each direction, both at once\n"
COLLECTIVE = (r"%s bfloat16 16 MiB  [0-9.]+ ms = [0-9.]+ of [0-9.]+ ms at the link's rate; "
              r"host 0 sent [0-9.]+ MiB\n")
STEP = r"mlp  step [0-9.]+ ms = [0-9.]+ of max\(.*, the link carried [0-9.]+ MiB a step\n"


class TwoHostsBenchmarkTest(unittest.TestCase):
    def check_run(self, kinds, *flags):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "lines")
            done = subprocess.run(["benchmarks/two_hosts/two_hosts", "--case", "mlp", "--steps", "4", "--rounds", "1",
                                   "--collectives", ",".join(kinds), "--dtypes", "bfloat16", "--mib", "16", "--timeout", "60", "--json", path, *flags],
                                  capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
        collectives = "".join(COLLECTIVE % kind for kind in kinds)
        self.assertIsNotNone(re.fullmatch(LINK + collectives + LINK + STEP, done.stdout), done.stdout)
        # The interface's counter, which the benchmark itself compares with the payload.
        self.assertEqual([line["kind"] for line in lines if "bytes_on_link" in line], [*kinds, "ddp"])

    def test_one_rank_on_each(self):
        self.check_run(["all_reduce"])

    def test_two_ranks_on_each(self):
        self.check_run(["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce"], "--ranks-per-host", "2")

    def test_three_ranks_and_one(self):
        self.check_run(["reduce_scatter", "all_gather"], "--ranks-per-host", "3+1")

    def test_another_link_or_too_few_or_too_many_bytes_are_failures(self):
        log = "group 'default': 2 hosts x 1: gloo over eth0\n"
        payload = 10 << 20

        def check(log, on_link, ranks_per_host=1):
            two_hosts.check_link_was_used(log, [{"payload_bytes": payload, "bytes_on_link": on_link}], ranks_per_host)

        check(log, payload)
        check(log, 1.12 * payload)
        two_hosts.check_link_was_used(log.replace("2 hosts", "mpi (Open MPI v4.1.4), calls compared on 2 hosts"), [
            {"payload_bytes": payload, "bytes_on_link": 2 * payload, "dtype": "bfloat16"}], 1, by_mpi=True)
        for wrong in (lambda: check(log.replace("eth0", "lo"), payload), lambda: check(log, payload, 2),
                      lambda: check(log, payload - 1), lambda: check(log, 1.13 * payload)):
            self.assertRaises(two_hosts.Failure, wrong)


if __name__ == "__main__":
    two_hosts.namespaces.exit_on_signals()
    unittest.main(verbosity=2)
