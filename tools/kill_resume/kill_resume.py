#!/usr/bin/python3
"""Proves that a training that is killed and resumed ends with the same bytes as an uninterrupted one.

    tools/kill_resume/kill_resume.py [--trials N] [--kills N] [--restarts] [--seed N] [--save-every N] -- PROGRAM FLAG...

PROGRAM is a training example. It runs once uninterrupted. Each trial then starts it again, kills it with SIGKILL at a random
step (one rank, or all ranks and the launcher), resumes it, and repeats this --kills times before the last resumption runs to
the end. Its model.safetensors, and averaged.safetensors, returns.svg and the last picture in samples/ if PROGRAM writes them, must be
equal to the uninterrupted run's, byte for byte. With --restarts only ranks are killed, and the launcher restarts them
(--max-restarts). Steps and killed ranks are random (--seed). This program sets the flags --out, --save-every, --log-every, --resume
and --max-restarts of PROGRAM.
"""

import argparse
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

STEP = re.compile(r"  step (\d+)/(\d+)  ")
TIMEOUT_S = 60  # in which all processes of a killed job must have ended


def fail(message, output=""):
    sys.exit(f"kill_resume: {message}\n{output}")


def proc(pid, name):
    """The text of a file of /proc/PID; "" if the process has ended."""
    try:
        with open(f"/proc/{pid}/{name}", encoding="ascii", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def ranks_of(pid):
    """The launcher's children, without its guard process, which kills the ranks if the launcher dies."""
    return [int(child) for child in proc(pid, f"task/{pid}/children").split() if proc(child, "comm") != "tandem-guard\n"]


def is_running(pid):
    return proc(pid, "stat").rpartition(")")[2].split()[:1] not in ([], ["Z"], ["X"])


def kill(pid):
    with contextlib.suppress(ProcessLookupError):  # ended already
        os.kill(pid, signal.SIGKILL)


class Job:
    """One start of the program."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.output = ""

    def lines(self):
        for line in self.process.stdout:
            self.output += line
            yield line

    def run(self, steps=(), choose=None):
        """Kills the rank choose(ranks) at each of the steps; the launcher restarts all ranks. Waits until the program ends. Returns
        the reached steps and the number of steps of the training."""
        total, reached = 0, []
        awaits_restart = False
        for line in self.lines():
            awaits_restart = awaits_restart and not line.startswith("restart ")
            if match := STEP.search(line):
                total = int(match[2])
                if not awaits_restart and len(reached) < len(steps) and int(match[1]) >= steps[len(reached)]:
                    if ranks := ranks_of(self.process.pid):
                        reached.append(int(match[1]))
                        kill(choose(ranks))
                        awaits_restart = True
        if self.process.wait() != 0:
            fail(f"{self.process.args} exited with status {self.process.returncode}", self.output)
        return reached, total

    def kill_at(self, step, choose):
        """Kills the processes choose(ranks, all processes) when `step` is reported. Returns the reached step, or None if the
        training ended before."""
        reached = None
        for line in self.lines():
            match = STEP.search(line)
            if match and reached is None and int(match[1]) >= step:
                reached = int(match[1])
                ranks = ranks_of(self.process.pid) or [self.process.pid]
                job = sorted({*ranks, self.process.pid})
                for pid in choose(ranks, job):
                    kill(pid)
        if self.process.wait() == 0:
            return None
        if reached is None:
            fail(f"{self.process.args} failed before step {step}", self.output)
        deadline = time.monotonic() + TIMEOUT_S
        while any(is_running(pid) for pid in job):
            if time.monotonic() > deadline:
                fail(f"processes {job} are still running {TIMEOUT_S} s after their job was killed", self.output)
            time.sleep(0.01)
        return reached


def read(folder):
    """The bytes of the outputs by their paths in the folder."""
    root = pathlib.Path(folder)
    others = [*root.glob("averaged.safetensors"), *root.glob("returns.svg"), *sorted(root.glob("samples/*"))[-1:]]
    return {str(file.relative_to(root)): file.read_bytes() for file in [root / "model.safetensors", *others]}


def trial(number, options, command, total, rng):
    resumed = 0
    begin = 1
    for _ in range(options.kills):
        step = rng.randint(begin, max(begin, 3 * total // 4))
        kind = rng.choice(["one rank", "one rank", "the whole job"])
        pick = rng.random()

        def choose(ranks, job):
            return job if kind == "the whole job" else [ranks[int(pick * len(ranks))]]

        job = Job(command)
        reached = job.kill_at(step, choose)
        resumed += "resumed from " in job.output
        if reached is None:
            print(f"trial {number}: the training ended before step {step}", flush=True)
            break
        print(f"trial {number}: killed {kind} at step {reached} of {total}", flush=True)
        command = command if "--resume" in command else command + ["--resume"]
        begin = min(step + 1, 3 * total // 4)
    job = Job(command)
    job.run()
    return resumed + ("resumed from " in job.output)


def trial_with_restarts(number, options, command, total, rng):
    steps = sorted(rng.randint(1, max(1, 3 * total // 4)) for _ in range(options.kills))
    job = Job(command + ["--resume", "--max-restarts", str(options.kills)])
    for step in job.run(steps, rng.choice)[0]:
        print(f"trial {number}: killed one rank at step {step} of {total}", flush=True)
    restarts = len(re.findall(r"^restart \d+ of ", job.output, re.MULTILINE))
    if restarts != job.output.count("failed (killed by SIGKILL)"):
        fail(f"trial {number}: {restarts} restarts do not match the kills", job.output)
    return job.output.count("resumed from ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--kills", type=int, default=2, help="kills per trial")
    parser.add_argument("--restarts", action="store_true", help="let the launcher restart the ranks")
    parser.add_argument("--seed", type=int, default=1, help="seed of steps and killed ranks")
    parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints")
    parser.add_argument("program", nargs="+", metavar="PROGRAM FLAG...")
    options = parser.parse_args()
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))  # the user's folder under `bazelw run`
    options.program[0] = os.path.abspath(options.program[0])

    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        uninterrupted = os.path.join(folder, "uninterrupted")
        _, total = Job(options.program + ["--out", uninterrupted, "--log-every", "1"]).run()
        print(f"uninterrupted: {total} steps", flush=True)
        if total < 4:
            fail(f"the training has {total} steps; expected at least 4")
        expected = read(uninterrupted)
        rng = random.Random(options.seed)
        resumed = 0
        for number in range(1, options.trials + 1):
            out = os.path.join(folder, f"trial-{number}")
            run_trial = trial_with_restarts if options.restarts else trial
            command = options.program + ["--out", out, "--save-every", str(options.save_every), "--log-every", "1"]
            resumed += run_trial(number, options, command, total, rng)
            if (outputs := read(out)) != expected:
                differing = [name for name in expected if outputs.get(name) != expected[name]]
                fail(f"trial {number}: {differing} differ from the uninterrupted run's")
            shutil.rmtree(out)
        if resumed == 0:
            fail("no trial resumed from a checkpoint; choose a smaller --save-every")
        print(f"{options.trials} trials, {resumed} resumptions: all bytes equal")


if __name__ == "__main__":
    main()
