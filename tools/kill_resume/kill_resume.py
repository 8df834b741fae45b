#!/usr/bin/python3
"""Proves that a training which is killed and resumed ends in the same bytes as one that is not.

    tools/kill_resume/kill_resume.py [--trials N] [--kills N] [--restarts] [--seed N] [--save-every N] [--folder DIR]
        -- PROGRAM FLAG...

PROGRAM is an example. It is run once undisturbed. Then, in each trial, it is started again, killed with SIGKILL at a random
step (one of its ranks, or all of them and the launcher), resumed, killed again, .. and in the end left alone; its
model.safetensors must then be equal, byte for byte, to the undisturbed run's. With --restarts only ranks are killed, and it
is the launcher that starts the training again (--max-restarts). Steps and victims are drawn from --seed. The flags --out,
--save-every, --log-every, --resume and --max-restarts are this program's to give.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

STEP = re.compile(r"  step (\d+)/(\d+)  ")
BOUND_S = 60  # for what a killed job leaves behind to end


def fail(message, output=""):
    sys.exit(f"kill_resume: {message}\n{output}")


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def ranks_of(pid):
    """The launcher's children but for its guard, which kills the ranks' process groups when the launcher has died."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(child) for child in file.read().split() if name_of(child) != "tandem-guard"]
    except FileNotFoundError:
        return []


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has just ended


class Job:
    """One start of the program."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.output = ""

    def lines(self):
        for line in self.process.stdout:
            self.output += line
            yield line

    def run(self):
        """To its end; returns the number of steps that the training has."""
        total = 0
        for line in self.lines():
            if match := STEP.search(line):
                total = int(match[2])
        if self.process.wait() != 0:
            fail(f"{self.process.args} ended with {self.process.returncode}", self.output)
        return total

    def kill_at(self, step, choose):
        """Kills ranks as soon as that step is reported. Returns the step that was reached, None where the training ended first."""
        reached = None
        for line in self.lines():
            match = STEP.search(line)
            if match and reached is None and int(match[1]) >= step:
                reached = int(match[1])
                ranks = ranks_of(self.process.pid) or [self.process.pid]
                job = sorted({*ranks, self.process.pid})
                for victim in choose(ranks, job):
                    kill(victim)
        if self.process.wait() == 0:
            return None
        if reached is None:
            fail(f"{self.process.args} failed before it was killed", self.output)
        deadline = time.monotonic() + BOUND_S
        while any(is_running(pid) for pid in job):
            if time.monotonic() > deadline:
                fail(f"processes {job} outlive their job by {BOUND_S} s", self.output)
            time.sleep(0.01)
        return reached


    def kill_ranks_at(self, steps, choose):
        """Kills a rank at each of these steps; the launcher starts all again. Returns the steps that were reached."""
        reached = []
        awaits_restart = False
        for line in self.lines():
            awaits_restart = awaits_restart and not line.startswith("restart ")
            match = STEP.search(line)
            if match and not awaits_restart and len(reached) < len(steps) and int(match[1]) >= steps[len(reached)]:
                if ranks := ranks_of(self.process.pid):
                    reached.append(int(match[1]))
                    kill(choose(ranks))
                    awaits_restart = True
        if self.process.wait() != 0:
            fail(f"{self.process.args} ended with {self.process.returncode}", self.output)
        return reached


def read(folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        return file.read()


def trial(number, options, total, folder, random_numbers):
    command = options.program + ["--out", folder, "--save-every", str(options.save_every), "--log-every", "1"]
    resumed = 0
    begin = 1
    for _ in range(options.kills):
        step = random_numbers.randint(begin, max(begin, 3 * total // 4))
        kind = random_numbers.choice(["one rank", "one rank", "the whole job"])
        pick = random_numbers.random()

        def choose(ranks, job):
            return job if kind == "the whole job" else [ranks[int(pick * len(ranks))]]

        job = Job(command)
        reached = job.kill_at(step, choose)
        resumed += "resumed from " in job.output
        if reached is None:
            print(f"trial {number}: the training ended before step {step} was seen", flush=True)
            break
        print(f"trial {number}: killed {kind} at step {reached} of {total}", flush=True)
        command = command if "--resume" in command else command + ["--resume"]
        begin = min(step + 1, 3 * total // 4)
    job = Job(command)
    job.run()
    return resumed + ("resumed from " in job.output)


def trial_with_restarts(number, options, total, folder, random_numbers):
    command = options.program + ["--out", folder, "--save-every", str(options.save_every), "--log-every", "1"]
    command += ["--resume", "--max-restarts", str(options.kills)]
    steps = sorted(random_numbers.randint(1, max(1, 3 * total // 4)) for _ in range(options.kills))
    job = Job(command)
    reached = job.kill_ranks_at(steps, random_numbers.choice)
    for step in reached:
        print(f"trial {number}: killed one rank at step {step} of {total}", flush=True)
    restarts = len(re.findall(r"^restart \d+ of ", job.output, re.MULTILINE))
    if restarts != job.output.count("failed (killed by SIGKILL)"):
        fail(f"trial {number}: {restarts} restarts do not match the kills", job.output)
    return job.output.count("resumed from ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--kills", type=int, default=2, help="per trial")
    parser.add_argument("--restarts", action="store_true", help="let the launcher start the ranks again")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--folder", default=os.environ.get("TEST_TMPDIR"), help="for results; default: a temporary one")
    parser.add_argument("program", nargs="+", metavar="PROGRAM FLAG...")
    options = parser.parse_args()
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))  # under `bazelw run`: where the user is
    options.program[0] = os.path.abspath(options.program[0])

    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        whole = os.path.join(folder, "whole")
        total = Job(options.program + ["--out", whole, "--log-every", "1"]).run()
        print(f"undisturbed: {total} steps", flush=True)
        if total < 4:
            fail("the training is too short to be killed inside of it")
        expected = read(whole)
        random_numbers = random.Random(options.seed)
        resumed = 0
        for number in range(1, options.trials + 1):
            out = os.path.join(folder, f"trial-{number}")
            run_trial = trial_with_restarts if options.restarts else trial
            resumed += run_trial(number, options, total, out, random_numbers)
            if read(out) != expected:
                fail(f"trial {number}: model.safetensors differs from the undisturbed run's")
            shutil.rmtree(out)
        if resumed == 0:
            fail("no trial went on from a checkpoint: choose a smaller --save-every")
        print(f"{options.trials} trials, {resumed} resumptions: all bytes equal")


if __name__ == "__main__":
    main()
