#!/usr/bin/python3
"""What tools/gpu_check runs on one GPU and on two passes on so many emulated ones: no test takes more than there are.

    gpu_filters_test.py NAME=PROGRAM...
"""

import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
LOADER = importlib.machinery.SourceFileLoader("gpu_check", os.path.join(TOP, "tools", "gpu_check"))
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", LOADER))
LOADER.exec_module(gpu_check)
PROGRAMS = dict(argument.split("=") for argument in sys.argv[1:])


class Filters(unittest.TestCase):
    def run_on(self, num_gpus):
        """How many tests of each program passed."""
        passed = {}
        for name, tests in gpu_check.test_filters(num_gpus).items():
            done = subprocess.run([PROGRAMS[name], f"--gtest_filter={tests}"], text=True, check=False, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, env=dict(os.environ, TANDEM_EMULATED_GPUS=str(num_gpus)))
            self.assertEqual(done.returncode, 0, f"{name} on {num_gpus} GPU(s):\n{done.stdout}")
            passed[name] = int(re.search(r"^\[  PASSED  \] (\d+) test", done.stdout, re.M).group(1))
            self.assertGreater(passed[name], 0, name)
        return passed

    def test_more_gpus_run_more(self):
        one, two = self.run_on(1), self.run_on(2)
        print(one, two)
        for name in PROGRAMS:
            self.assertLess(one[name], two[name], name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
