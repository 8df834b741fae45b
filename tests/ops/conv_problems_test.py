#!/usr/bin/python3
"""Compares conv_problems.txt, for which cudnn_plans_test asks cuDNN, with the convolutions that the tests give to cuDNN."""

import collections
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
        found = collections.defaultdict(set)
        for program, tests in RUNS:
            run = subprocess.run([os.path.join(HERE, program), "--gtest_filter=" + tests], env=environment,
                                 check=True, capture_output=True, text=True)
            for use, geometry in re.findall(r"cuDNN's engine \d+ computes conv2d (.*?) (\[.*)", run.stderr):
                found[geometry].add(use)
        with open(os.path.join(HERE, "conv_problems.txt"), encoding="utf-8") as file:
            listed = file.read().splitlines()
        lines = ["%s: %s" % (geometry, ", ".join(sorted(uses))) for geometry, uses in sorted(found.items())]
        if lines != listed:
            print("the new list:", *lines, sep="\n", file=sys.stderr)
        self.assertEqual(lines, listed)


if __name__ == "__main__":
    unittest.main()
