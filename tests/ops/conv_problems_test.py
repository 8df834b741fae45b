#!/usr/bin/python3
"""Compares conv_problems.txt, for which cudnn_plans_test asks cuDNN, with the convolutions that the tests give to cuDNN."""

import os
import re
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
RUNS = [("without_cudnn_test", "*Passes/conv*"), ("families_test", "*Conv*")]


class ConvProblemsTest(unittest.TestCase):
    def test_the_list_is_that_of_the_tests(self):
        environment = {**os.environ, "TANDEM_LOG": "debug"}
        environment.pop("TANDEM_TEST_FULL", None)  # further sizes
        found = set()
        for program, tests in RUNS:
            run = subprocess.run([os.path.join(HERE, program), "--gtest_filter=" + tests], env=environment,
                                 check=True, capture_output=True, text=True)
            found.update(re.findall(r"cuDNN's engine \d+ computes conv2d (.*)", run.stderr))
        with open(os.path.join(HERE, "conv_problems.txt"), encoding="utf-8") as file:
            listed = file.read().splitlines()
        if sorted(found) != listed:
            print("the new list:", *sorted(found), sep="\n", file=sys.stderr)
        self.assertEqual(sorted(found), listed)


if __name__ == "__main__":
    unittest.main()
