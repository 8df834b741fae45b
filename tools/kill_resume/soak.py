#!/usr/bin/python3 -B
"""Trains again and again on two emulated hosts while ranks and launchers are killed or stopped and the link loses, delays or
holds packets. Each training must end with the bytes of an undisturbed one. Needs root, ip, tc and nft.

    tools/kill_resume/soak.py [--minutes N] [--ranks-per-host N] [--seed N] TANDEM_RUN PROGRAM FLAG...

PROGRAM is a training example. This program sets its flags --out, --save-every, --log-every and --resume.
"""

import argparse
import collections
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "benchmarks", "two_hosts"))
import kill_resume
import namespaces

LONGEST_SILENCE_S = 180  # without a line of rank 0, while a job runs
LOSS = """table ip soak {}
delete table ip soak
table ip soak {
  chain in {
    type filter hook input priority 0
    numgen random mod 1000 < %d drop
  }
}
"""


class Soak:
    def __init__(self, hosts, options, folder):
        self.hosts, self.options, self.folder = hosts, options, folder
        self.rng = random.Random(options.seed)
        self.counts = collections.Counter()
        self.launchers = []

    def start(self):
        """Starts the launchers of a job on both hosts."""
        with open(f"{self.folder}/log", "w", encoding="utf-8") as log:
            self.launchers = [
                self.hosts.start(host, [self.options.tandem_run, "--nnodes", "2", "--node-rank", str(host), "--rdzv-endpoint",
                                        self.hosts.address(0), "--nproc-per-node", str(self.options.ranks_per_host), "--max-restarts",
                                        "1000", *self.options.program, "--resume", "--save-every", "5", "--log-every", "1", "--out",
                                        f"{self.folder}/out"], stdout=log, stderr=log) for host in (0, 1)]
        self.may_end = False  # whether a launcher was killed or cut off

    def log(self):
        with open(f"{self.folder}/log", encoding="utf-8", errors="replace") as f:
            return f.read()

    def signal_rank(self, number):
        ranks = kill_resume.ranks_of(self.rng.choice(self.launchers).pid)
        if ranks:
            os.kill(rank := self.rng.choice(ranks), number)
            return rank
        return None

    def kill_rank(self):
        self.signal_rank(signal.SIGKILL)

    def stop_rank(self):
        if rank := self.signal_rank(signal.SIGSTOP):
            time.sleep(self.rng.uniform(0.1, 3))
            os.kill(rank, signal.SIGCONT)

    def kill_launcher(self):
        self.may_end = True
        kill_resume.kill(self.rng.choice(self.launchers).pid)

    def lose_packets(self):
        for host in (0, 1):
            subprocess.run(self.hosts.inside(host, ["nft", "-f", "-"]), input=LOSS % self.rng.choice([0, 5, 20, 50]), text=True, check=True)

    def delay_packets(self):
        """Up to 100 ms in the queue of a slow link, which drops what does not fit."""
        rate = self.rng.choice(["10mbit", "50mbit", "1gbit"])
        for host in (0, 1):
            subprocess.run(self.hosts.inside(host, ["tc", "qdisc", "replace", "dev", namespaces.INTERFACE, "root", "tbf", "rate", rate,
                                                    "burst", "256kb", "latency", "100ms"]), check=True)

    def hold_link(self):
        self.may_end = True
        self.hosts.cut(1)
        time.sleep(self.rng.uniform(0.1, 5))
        namespaces.ip("-n", self.hosts.names[1], "link", "set", namespaces.INTERFACE, "up")

    def train(self):
        """One training to its end."""
        actions = [self.kill_rank, self.kill_rank, self.stop_rank, self.kill_launcher, self.lose_packets, self.delay_packets, self.hold_link]
        self.start()
        seen, since, disturb_at = 0, time.monotonic(), time.monotonic() + self.rng.uniform(1, 8)
        while True:
            time.sleep(0.1)
            codes = [launcher.poll() for launcher in self.launchers]
            now = time.monotonic()
            size = os.path.getsize(f"{self.folder}/log")
            if size != seen:
                seen, since = size, now
            if now - since > LONGEST_SILENCE_S:
                kill_resume.fail(f"no line for {LONGEST_SILENCE_S} s; exit statuses {codes}", self.log())
            if None not in codes:
                text = self.log()
                self.counts["restarts"] += text.count("\nrestart ")
                self.counts["resumptions"] += text.count("resumed from ")
                if codes == [0, 0]:
                    return
                if not self.may_end:
                    kill_resume.fail(f"the job ended with {codes}", text)
                self.counts["jobs started again"] += 1
                self.start()
                seen, since = 0, now
            elif now > disturb_at:
                action = self.rng.choice(actions)
                action()
                self.counts[action.__name__] += 1
                disturb_at = time.monotonic() + self.rng.uniform(1, 8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--ranks-per-host", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("tandem_run", metavar="TANDEM_RUN")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM FLAG...")
    options = parser.parse_args()
    options.tandem_run, options.program[0] = (os.path.abspath(path) for path in (options.tandem_run, options.program[0]))
    namespaces.exit_on_signals()
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder, namespaces.TwoHosts() as hosts:
        _, total = kill_resume.Job([*options.program, "--nproc", str(2 * options.ranks_per_host), "--log-every", "1", "--out",
                                    f"{folder}/undisturbed"]).run()
        expected = kill_resume.read(f"{folder}/undisturbed")
        soak = Soak(hosts, options, folder)
        trainings = 0
        while time.monotonic() < end:
            soak.train()
            trainings += 1
            if kill_resume.read(f"{folder}/out") != expected:
                kill_resume.fail(f"training {trainings}: model.safetensors differs from the undisturbed run's", soak.log())
            subprocess.run(["rm", "-r", f"{folder}/out"], check=True)
            print(f"{trainings} trainings of {total} steps with equal bytes: {dict(soak.counts)}", flush=True)


if __name__ == "__main__":
    main()
