"""Runs commands within a time limit and collects a report, which is written after each command."""

import contextlib
import fnmatch
import glob
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

# As written by ops/common/library_fallback.h.
FALLBACK = re.compile(r"(cuBLASLt|cuDNN) does not compute .*\)(?=: tandem's own kernels do)")
MIN_SECONDS = 5  # no command is started with less time left


def library_folders():
    """Folders that may contain CUDA's libraries: of PyPI packages, of the toolkit, of the system."""
    folders = []
    for base in sys.path:
        folders += glob.glob(os.path.join(base, "nvidia", "*", "lib"))
    return folders + glob.glob("/usr/local/cuda*/lib64") + glob.glob("/usr/lib/x86_64-linux-gnu")


def environment_of(folder):
    """The environment in which programs of the folder find each other, their libraries and CUDA's."""
    libraries = [os.path.join(folder, "lib"), *library_folders(), os.environ.get("LD_LIBRARY_PATH", "")]
    return dict(os.environ, TANDEM_TEST_DEVICE="cuda", LD_LIBRARY_PATH=":".join(libraries),
                PATH=f"{folder}:{os.environ.get('PATH', '')}")


class Check:
    """Runs steps and collects the report. `folder`: of the programs. `out`: path of the report. `only`: patterns of the steps to
    run. Thread-safe."""

    def __init__(self, folder, out, only=("*",)):
        self.folder, self.out, self.only = folder, out, only
        self.end = 0  # deadline of the current part, on the monotonic clock
        self.failed = False
        self.report = {"not_run": [], "differences": [], "fallbacks": {}, "running": [], "steps": []}
        self.environment = environment_of(folder)
        self.lock = threading.Lock()

    def save(self):
        """Replaces the report's file atomically, so that a killed process leaves a complete report."""
        with self.lock:
            with open(f"{self.out}.new", "w", encoding="utf-8") as file:
                json.dump(self.report, file, indent=1)
            os.replace(f"{self.out}.new", self.out)

    def report_difference(self, text):
        """Adds a failed comparison to the report."""
        self.failed = True
        self.report["differences"].append(text)

    def selects(self, step):
        """Whether a step matches --only."""
        return any(fnmatch.fnmatchcase(step, pattern) for pattern in self.only)

    def run(self, step, command, seconds, variables=None):
        """Runs a command; returns its CompletedProcess. Returns None if the step is not selected, or if the command did not end,
        with the reason in the report's `not_run`."""
        if not self.selects(step):
            return None
        left = self.end - time.monotonic()
        if left < MIN_SECONDS:
            self.report["not_run"].append(f"{step}: no time left")
            self.save()
            return None
        print(f"gpu_check: {step}", file=sys.stderr, flush=True)
        self.report["running"].append(step)
        self.save()
        begin = time.monotonic()
        done = self.run_command(step, command, min(seconds, left), variables)
        if done is not None:
            self.count_fallbacks(done.stdout)
        self.report["running"].remove(step)
        self.report["steps"].append({"step": step, "seconds": round(time.monotonic() - begin, 1)})
        self.save()
        return done

    def count_fallbacks(self, output):
        """Counts the problems that tandem's own kernels computed because a library failed, by their warnings."""
        for line in output.splitlines():
            found = FALLBACK.search(line)
            if found:
                with self.lock:
                    self.report["fallbacks"][found.group()] = self.report["fallbacks"].get(found.group(), 0) + 1

    def run_command(self, step, command, seconds, variables):
        # Python runs with the original environment, because PyTorch has its own libraries.
        environment = {**(os.environ if command[0] == sys.executable else self.environment), **(variables or {})}
        try:
            process = subprocess.Popen(command, env=environment, cwd=self.folder, start_new_session=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        except OSError as error:
            self.failed = True
            self.report["not_run"].append(f"{step}: cannot start {command[0]}: {error.strerror}")
            return None
        with process:
            try:
                output, _ = process.communicate(timeout=seconds)
                return subprocess.CompletedProcess(command, process.returncode, output)
            except subprocess.TimeoutExpired:
                self.failed = True
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # the process and its children
            output, _ = process.communicate(timeout=10)
            self.report["not_run"].append(f"{step}: not finished after {seconds:.0f} s; end of its output: {output[-1500:]}")
            return None

    def lines(self, step, command, seconds, variables=None):
        """Runs a program that prints JSON lines; returns the objects, and after them an object that describes a failure."""
        done = self.run(step, command, seconds, variables)
        if done is None:
            return []
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{") and line.endswith("}")]
        if done.returncode != 0:
            self.failed = True
            found.append({"failed": step, "status": done.returncode, "output": done.stdout[-2000:]})
        return found
