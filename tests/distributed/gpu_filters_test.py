#!/usr/bin/python3 -B
"""tools/gpu_check with programs of the emulation: collected, packed, unpacked in an empty folder, and run on one emulated GPU.

    gpu_filters_test.py NAME=PROGRAM...

What it chooses on one GPU and on two passes on so many: no test takes more than there are.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tools"))
from gpu_checks import collect, smoke  # pylint: disable=wrong-import-position

PROGRAMS = dict(argument.split("=") for argument in sys.argv[1:])


class OnEmulatedGpus(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = folder.name
        self.build = os.path.join(self.top, "build")
        shutil.copytree(os.path.join(TOP, "tools"), os.path.join(self.build, "tools"))
        os.makedirs(os.path.join(self.build, os.path.dirname(collect.TORCH_STEP)))
        shutil.copy(os.path.join(TOP, collect.TORCH_STEP), os.path.join(self.build, collect.TORCH_STEP))
        with open(os.path.join(self.top, "code"), "wb") as file:
            file.write(collect.CONTAINER)  # an emulated program has no code for GPUs
        for name, path in collect.PROGRAMS.items():
            built = os.path.join(self.build, "out/bin", path)
            os.makedirs(os.path.dirname(built), exist_ok=True)
            subprocess.run(["objcopy", "--add-section", f".nv_fatbin={self.top}/code", PROGRAMS[name], built], check=True)
        os.makedirs(os.path.join(self.top, "machine"))
        with open(os.path.join(self.top, "machine/nvidia-smi"), "w", encoding="ascii") as file:
            file.write("#!/bin/sh\necho 'emulated, 580.65, 512 MiB, 1000 MHz, 9.0'\n")
        os.chmod(os.path.join(self.top, "machine/nvidia-smi"), 0o755)

    def run_on_one(self):
        """The report of smoke and of speed's first step on the smallest case, by the file that travels alone."""
        subprocess.run([os.path.join(self.build, "tools/gpu_check"), "--collect", os.path.join(self.top, "gpu_check.pyz")], check=True)
        shutil.rmtree(self.build)
        empty = os.path.join(self.top, "empty")
        os.makedirs(empty)
        shutil.move(os.path.join(self.top, "gpu_check.pyz"), empty)
        environment = {"PATH": f"{self.top}/machine:/usr/bin:/bin", "TANDEM_EMULATED_GPUS": "1"}
        done = subprocess.run([sys.executable, "gpu_check.pyz", "--parts", "smoke,speed", "--only",
                               "properties,*: list,gpu_tests *,gpu_*_test *,mlp,mlp: weights"], cwd=empty, env=environment, text=True,
                              check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with open(os.path.join(empty, "gpu_report.json"), encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual(sorted(os.listdir(empty)), ["gpu_check.pyz", "gpu_report.json"])
        # Everything passes, except that this build has only the suite Cuda of gpu_tests.
        self.assertEqual(report["not_run"], [
            "tests that need more than 1 GPU(s)", *(f"{program} {suite}: suite not found" for program, suite in smoke.FIRST
                                                    if program == "gpu_tests" and suite != "Cuda"),
            "PyTorch: not installed, or without a GPU", "bandwidth of collectives, and scaling: they need two GPUs"], done.stdout)
        return report

    def run_on_two(self):
        """How many tests of each program passed."""
        passed = {}
        for name, tests in smoke.test_filters(2).items():
            done = subprocess.run([PROGRAMS[name], f"--gtest_filter={tests}"], text=True, check=False, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, env=dict(os.environ, TANDEM_EMULATED_GPUS="2"))
            self.assertEqual(done.returncode, 0, f"{name} on 2 GPU(s):\n{done.stdout}")
            passed[name] = int(re.search(r"^\[  PASSED  \] (\d+) test", done.stdout, re.M).group(1))
        return passed

    def test_it_passes_on_one_and_two_run_more(self):
        report = self.run_on_one()
        self.assertEqual(report["properties"]["name"], "tandem emulated GPU")
        self.assertEqual(report["properties"]["l2_bytes"], 50 << 20)
        self.assertGreater(report["properties"]["shared_bytes_per_block_optin"], 48 << 10)
        two = self.run_on_two()
        self.assertEqual(list(report["tests"]), list(two))
        for name, one in report["tests"].items():
            self.assertEqual((one["status"], one["failed"]), (0, []), one)
            self.assertGreater(one["passed"], 0, name)
            self.assertLess(one["passed"], two[name], name)
        [step] = report["train_step"]
        self.assertEqual((step["case"], step["device"], len(step["losses"])), ("mlp", "cuda", 10))
        counts = {(row["phase"], row["op"]): row["count"] for row in step["operations"]}
        self.assertEqual(counts["forward", "linear"] + counts.get(("forward", "linear_relu"), 0), 3)
        self.assertEqual(counts["forward", "cross_entropy"], 1)
        self.assertAlmostEqual(sum(row["ms"] for row in step["operations"]), step["operations_ms"], delta=0.01)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
