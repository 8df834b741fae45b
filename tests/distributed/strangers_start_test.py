#!/usr/bin/python3 -B
"""Jobs on two hosts start while another user attacks every port that listens there.  Needs root, ip and tc."""

import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.abspath("benchmarks/two_hosts"))
import namespaces

PROGRAM = os.path.abspath("tests/distributed/two_hosts_program")
STRANGER = os.path.abspath("tests/distributed/stranger.py")
NOBODY = 65534
START_SECONDS = 120  # for a start that hangs


class Strangers:
    """One on each host, from the first connection on until the end of the block."""

    def __init__(self, hosts, mode):
        self.all = [hosts.start(host, [STRANGER, mode, str(NOBODY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True) for host in (0, 1)]
        self.connections = 0

    def __enter__(self):
        for stranger in self.all:
            stranger.stdout.readline()
        return self

    def __exit__(self, *_):
        for stranger in self.all:
            self.connections += int(stranger.communicate()[0])


class StrangersStartTest(unittest.TestCase):
    def start(self, hosts, ranks_per_host):
        """Runs one job; what its ranks have printed, by rank."""
        logs = [tempfile.TemporaryFile("w+") for _ in range(2 * ranks_per_host)]
        ranks = []
        try:
            for rank, log in enumerate(logs):
                ranks.append(hosts.start_rank(rank, [PROGRAM, "join"], ranks_per_host, stdin=subprocess.DEVNULL, stdout=log,
                                              stderr=log))
            deadline = time.monotonic() + START_SECONDS
            statuses = [rank.wait(max(0.01, deadline - time.monotonic())) for rank in ranks]
            texts = []
            for log in logs:
                log.seek(0)
                texts.append(log.read())
            return statuses, texts
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
            for log in logs:
                log.close()

    def check(self, mode, starts):
        for ranks_per_host in (1, 3):
            failed, warnings = [], []
            with namespaces.TwoHosts(rate=None) as hosts, Strangers(hosts, mode) as strangers:
                begin = time.monotonic()
                for _ in range(starts):
                    statuses, texts = self.start(hosts, ranks_per_host)
                    if any(statuses):
                        failed.append("\n".join(texts))
                    warnings += re.findall("(store|gloo): dropped the connection from (.*)", "\n".join(texts))
                took = time.monotonic() - begin
            at_gloo = [who for where, who in warnings if where == "gloo"]
            print(f"{mode}, {ranks_per_host} a host: {starts - len(failed)} of {starts} starts, {took / starts:.2f} s each, "
                  f"{strangers.connections} connections, {len(warnings)} warnings, {len(at_gloo)} of them from gloo",
                  flush=True)
            self.assertEqual(failed, [])
            self.assertGreaterEqual(strangers.connections, starts)
            if mode == "garbage":
                self.assertTrue(any(f"(user {NOBODY}): " in who for _, who in warnings), warnings)

    def test_garbage_at_every_port_ends_no_start(self):
        self.check("garbage", 20)

    def test_connections_that_close_at_once_end_no_start(self):
        self.check("close", 5)

    def test_silent_connections_end_no_start(self):
        self.check("silent", 5)

    def test_a_flood_of_connections_ends_no_start(self):
        self.check("flood", 5)


if __name__ == "__main__":
    namespaces.exit_on_signals()
    unittest.main(verbosity=2)
