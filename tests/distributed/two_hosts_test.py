#!/usr/bin/python3 -B
"""Ranks on two hosts: network namespaces joined by a link.  Needs root, ip and tc."""

import os
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.abspath("benchmarks/two_hosts"))
import namespaces

PROGRAM = os.path.abspath("tests/distributed/two_hosts_program")
KILLED_SECONDS = 1.5  # noticed within one; half of another to end
LOST_SECONDS = 12  # a host that vanishes is noticed within ten, on both sides; and then they end
ENDED_SECONDS = 60


class Job:
    """The ranks of one job, and what each has printed."""

    def __init__(self, test, hosts, what, ranks_per_host):
        test.addCleanup(self.close)
        self.logs = [tempfile.TemporaryFile("w+") for _ in range(2 * ranks_per_host)]
        self.ranks = []
        for rank, log in enumerate(self.logs):
            self.ranks.append(hosts.start_rank(rank, [PROGRAM, what], ranks_per_host, environment={"TANDEM_LOG": "info"},
                                               stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def close(self):
        for rank, log in zip(self.ranks, self.logs):
            rank.kill()
            rank.wait()
            log.close()

    def text(self, rank):
        self.logs[rank].seek(0)
        return self.logs[rank].read()

    def wait(self, ranks, seconds):
        """Their exit statuses; a rank that runs on is an error."""
        deadline = time.monotonic() + seconds
        return [self.ranks[rank].wait(max(0.01, deadline - time.monotonic())) for rank in ranks]

    def wait_until_running(self):
        deadline = time.monotonic() + 30
        while "running" not in self.text(0):
            if time.monotonic() > deadline or any(rank.poll() is not None for rank in self.ranks):
                raise AssertionError("the ranks do not run:\n" + "\n".join(map(self.text, range(len(self.ranks)))))
            time.sleep(0.01)


class TwoHostsTest(unittest.TestCase):
    def check_training(self, ranks_per_host, grouping):
        with namespaces.TwoHosts() as hosts:
            before = hosts.bytes_sent(1)
            job = Job(self, hosts, "train", ranks_per_host)
            everyone = range(2 * ranks_per_host)
            statuses = job.wait(everyone, 60)
            for rank in everyone:
                self.assertEqual(statuses[rank], 0, job.text(rank))
                self.assertIn(f"rank {rank} agrees", job.text(rank))
            self.assertIn(grouping, job.text(0))
            # Two sums of 40 MiB: each crosses the link once, for any number of ranks.
            self.assertGreater(hosts.bytes_sent(1) - before, 2 * 40 << 20)
            self.assertLess(hosts.bytes_sent(1) - before, 2.2 * 40 * (1 << 20))

    def test_loopback_interface_that_cannot_be_used_is_an_error(self):
        cases = (("true", "the loopback interface lo is down\n  enable it: ip link set lo up\n"),
                 ("ip link set lo up; ip address del 127.0.0.1/8 dev lo",
                  "the loopback interface lo does not have this address\n  add it: ip address add 127.0.0.1/8 dev lo\n"))
        for prepare, advice in cases:
            job = subprocess.run(["unshare", "--net", "sh", "-c", f"{prepare}; {PROGRAM} train --nproc 2"],
                                 stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=ENDED_SECONDS)
            self.assertEqual(job.stderr, "store: cannot listen on 127.0.0.1:0: " + advice)
            self.assertEqual(job.returncode, 1)

    def test_one_rank_on_each_trains_as_one_process(self):
        self.check_training(1, "group 'default': 2 hosts x 1: gloo over eth0\n")

    def test_two_ranks_on_each_train_as_one_process(self):
        self.check_training(2, "group 'default': 2 hosts x 2: shm inside, gloo over eth0 across (2 flows)\n")

    def seconds_to_end(self, ranks_per_host, lose, cut_off):
        """Until the ranks of host 0 have ended by themselves, naming a rank of host 1, and those that are `cut_off`."""
        survivors = list(range(ranks_per_host))
        with namespaces.TwoHosts() as hosts:
            job = Job(self, hosts, "exchange", ranks_per_host)
            job.wait_until_running()
            start = time.monotonic()
            lose(hosts)
            statuses = job.wait(survivors + cut_off, ENDED_SECONDS)
            took = time.monotonic() - start
            print(f"{ranks_per_host} a host: ended after {took:.2f} s")
            for rank, status in zip(survivors + cut_off, statuses):
                self.assertEqual(status, 1, job.text(rank))
            for rank in survivors:
                self.assert_names(job.text(rank), range(ranks_per_host, 2 * ranks_per_host))
            for rank in cut_off:  # lost the store's host, and with it all that it knew
                self.assertRegex(job.text(rank), "store|rank [01]: ")
            return took

    def check_loss(self, ranks_per_host, lose, cut_off, within):
        """Twice more at most where it took too long: the machine may have stood still."""
        for _ in range(3):
            took = self.seconds_to_end(ranks_per_host, lose, cut_off)
            if took < within:
                return
        self.fail(f"{ranks_per_host} a host: {took:.2f} s")

    def assert_names(self, text, ranks):
        self.assertTrue(any(f"rank {rank}: " in text for rank in ranks), text)

    def test_processes_killed_on_a_host_are_named_and_all_ended_within_one_and_a_half_seconds(self):
        for ranks_per_host in (1, 2):
            self.check_loss(ranks_per_host, lambda hosts: hosts.kill(1), [], KILLED_SECONDS)

    def test_a_host_that_vanishes_is_named_and_all_ended_within_twelve_seconds(self):
        for ranks_per_host in (1, 2):
            cut_off = list(range(ranks_per_host, 2 * ranks_per_host))
            self.check_loss(ranks_per_host, lambda hosts: hosts.cut(1), cut_off, LOST_SECONDS)


if __name__ == "__main__":
    namespaces.exit_on_signals()
    unittest.main(verbosity=2)
