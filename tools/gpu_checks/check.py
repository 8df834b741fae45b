"""Runs commands within a time limit and keeps a report, which is written after each of them."""

import contextlib
import fnmatch
import glob
import json
import os
import signal
import subprocess
import sys
import threading
import time

LEAST_SECONDS = 5  # with less left, nothing new is begun


def library_folders():
    """Where CUDA's libraries may be: PyPI's packages, the toolkit's folder, the system's."""
    folders = []
    for base in sys.path:
        folders += glob.glob(os.path.join(base, "nvidia", "*", "lib"))
    return folders + glob.glob("/usr/local/cuda*/lib64") + glob.glob("/usr/lib/x86_64-linux-gnu")


def environment_of(folder):
    """In which the folder's programs find each other, their libraries and CUDA's."""
    libraries = [os.path.join(folder, "lib"), *library_folders(), os.environ.get("LD_LIBRARY_PATH", "")]
    return dict(os.environ, TANDEM_TEST_DEVICE="cuda", LD_LIBRARY_PATH=":".join(libraries),
                PATH=f"{folder}:{os.environ.get('PATH', '')}")


class Check:
    """`folder`: of the programs.  `out`: the report's path.  `only`: patterns of the steps to run.  Threads may share it."""

    def __init__(self, folder, out, only=("*",)):
        self.folder, self.out, self.only = folder, out, only
        self.end = 0  # of the part that is run, on the monotonic clock
        self.failed = False
        self.report = {"not_run": [], "differences": [], "running": [], "steps": []}
        self.environment = environment_of(folder)
        self.lock = threading.Lock()

    def save(self):
        """Replaces the report's file at once: what kills this process leaves the last one whole."""
        with self.lock:
            with open(f"{self.out}.new", "w", encoding="utf-8") as file:
                json.dump(self.report, file, indent=1)
            os.replace(f"{self.out}.new", self.out)

    def differ(self, text):
        """Two results that should be equal are not."""
        self.failed = True
        self.report["differences"].append(text)

    def wants(self, what):
        """Whether a step is among those asked for."""
        return any(fnmatch.fnmatchcase(what, pattern) for pattern in self.only)

    def run(self, what, command, seconds, variables=None):
        """A command that has ended, with its status and output.  None where it has not: `not_run` says why, unless it is not among
        the steps asked for."""
        if not self.wants(what):
            return None
        left = self.end - time.monotonic()
        if left < LEAST_SECONDS:
            self.report["not_run"].append(f"{what}: no time left")
            self.save()
            return None
        print(f"gpu_check: {what}", file=sys.stderr, flush=True)
        self.report["running"].append(what)
        self.save()
        begin = time.monotonic()
        done = self.run_command(what, command, min(seconds, left), variables)
        self.report["running"].remove(what)
        self.report["steps"].append({"step": what, "seconds": round(time.monotonic() - begin, 1)})
        self.save()
        return done

    def run_command(self, what, command, seconds, variables):
        # PyTorch brings its libraries, and knows where they are.
        environment = {**(os.environ if command[0] == sys.executable else self.environment), **(variables or {})}
        try:
            process = subprocess.Popen(command, env=environment, cwd=self.folder, start_new_session=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        except OSError as error:
            self.failed = True
            self.report["not_run"].append(f"{what}: {command[0]} does not start: {error.strerror}")
            return None
        with process:
            try:
                output, _ = process.communicate(timeout=seconds)
                return subprocess.CompletedProcess(command, process.returncode, output)
            except subprocess.TimeoutExpired:
                self.failed = True
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with what it has started
            output, _ = process.communicate(timeout=10)
            self.report["not_run"].append(f"{what}: not done after {seconds:.0f} s; its output ended with {output[-1500:]}")
            return None

    def lines(self, what, command, seconds, variables=None):
        """The JSON lines that a program prints; a failure is one of them."""
        done = self.run(what, command, seconds, variables)
        if done is None:
            return []
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{") and line.endswith("}")]
        if done.returncode != 0:
            self.failed = True
            found.append({"failed": what, "status": done.returncode, "output": done.stdout[-2000:]})
        return found
