#!/usr/bin/python3 -B
"""Tests of //benchmarks:vs_pytorch: arguments, choice of configuration, detection of other load, summary and chart."""

import contextlib
import io
import json
import os
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(TOP, "benchmarks", "vs_pytorch"))
import chart
import machine
import results
import vs_pytorch


def side(ms, losses=(2.0, 1.0), mb=40.0):
    return {"step_ms": ms, "losses": list(losses), "rss_mb": mb, "version": "2.9.1+cpu", "cpu": "Some <CPU> & more"}


def entry(case="mlp", ours=10.0, theirs=15.0, threads=1):
    return results.summarize(case, threads, "eager", [(side(ours), side(theirs, mb=700))])


class Arguments(unittest.TestCase):
    def test_defaults_are_all_cases_on_one_thread(self):
        args = vs_pytorch.parse([])
        self.assertEqual(args.case, list(results.CASES))
        self.assertEqual((args.threads, args.pairs), (1, 5))

    def test_cases_are_separated_by_commas(self):
        self.assertEqual(vs_pytorch.parse(["--case", "gpt-384,mlp"]).case, ["gpt-384", "mlp"])

    def test_wrong_arguments_exit_with_status_2(self):
        for arguments, words in ((["--case", "mlp,vgg"], "unknown case 'vgg'; expected one of mlp, lenet"), (["--threads", "0"], "must be at least 1")):
            errors = io.StringIO()
            with self.assertRaises(SystemExit) as caught, contextlib.redirect_stderr(errors):
                vs_pytorch.parse(arguments)
            self.assertEqual(caught.exception.code, 2)
            self.assertIn(words, errors.getvalue())

    def test_python_without_torch_is_rejected(self):
        with tempfile.TemporaryDirectory() as folder:
            python = os.path.join(folder, "python")
            with open(python, "w", encoding="ascii") as file:
                file.write("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1\n")
            os.chmod(python, 0o755)
            with self.assertRaises(vs_pytorch.Failure) as caught:
                vs_pytorch.check_torch(python)
        self.assertEqual(str(caught.exception),
                         f"--python: {python} cannot import torch (ModuleNotFoundError: No module named 'torch'); "
                         "give an interpreter with PyTorch: --python /path/to/python")
        self.assertEqual(caught.exception.status, 1)

    def test_missing_python_is_rejected(self):
        with self.assertRaises(vs_pytorch.Failure) as caught:
            vs_pytorch.check_torch("/nonexistent/python")
        self.assertEqual(str(caught.exception), "--python: program '/nonexistent/python' not found")


class Output(unittest.TestCase):
    def test_last_json_line_is_parsed(self):
        self.assertEqual(vs_pytorch.last_json('{"a": 1}\nsome words\n{"a": 2}\n'), {"a": 2})

    def test_output_without_json_is_an_error(self):
        with self.assertRaisesRegex(vs_pytorch.Failure, "no JSON line in the output: nothing"):
            vs_pytorch.last_json("nothing")

    def test_failure_shows_last_lines_of_stderr(self):
        with self.assertRaises(vs_pytorch.Failure) as caught:
            vs_pytorch.run(["/bin/sh", "-c", "for i in 1 2 3 4 5 6; do echo line $i >&2; done; exit 3"])
        self.assertEqual(str(caught.exception), "sh failed:\n  line 2\n  line 3\n  line 4\n  line 5\n  line 6")

    def test_environment_variables_are_passed(self):
        self.assertEqual(vs_pytorch.run(["/bin/sh", "-c", "echo $GIVEN"], GIVEN="7"), "7\n")


class FastestConfiguration(unittest.TestCase):
    def find(self, case, times):
        measured = []

        def measure(options):
            measured.append(options)
            return times.get(options, 50.0)

        return vs_pytorch.find_best(case, measure), measured

    def test_fused_and_huge_pages_are_added_to_the_fastest_mode(self):
        times = {(): 20.0, ("--compile",): 15.0, ("--compile", "--fused"): 14.0}
        best, measured = self.find("mlp", times)
        self.assertEqual(best, (14.0, ("--compile", "--fused")))
        self.assertEqual(measured, [(), ("--compile",), ("--compile", "--fused"), ("--compile", "--fused", "huge-pages")])

    def test_convolution_cases_also_try_channels_last(self):
        best, measured = self.find("lenet", {("--channels-last",): 9.0, ("--channels-last", "huge-pages"): 8.0})
        self.assertEqual(best, (8.0, ("--channels-last", "huge-pages")))
        self.assertIn(("--channels-last", "--compile"), measured)

    def test_number_of_steps_is_clamped(self):
        self.assertEqual(vs_pytorch.steps_for(2.0, 10), 200)
        self.assertEqual(vs_pytorch.steps_for(2.0, 1000), 5)
        self.assertEqual(vs_pytorch.steps_for(2.0, 0.1), 500)


class OtherLoad(unittest.TestCase):
    def at(self, busy, steal, wall, own=0.0):
        return machine.Cpu(busy, steal, wall, own)

    def test_proc_stat_line_is_parsed(self):
        ticks = os.sysconf("SC_CLK_TCK")
        line = "cpu  " + " ".join(str(n * ticks) for n in (1, 2, 4, 800, 900, 8, 16, 32, 64, 128))
        cpu = machine.Cpu.parse(line, 5.0, 7.0)
        self.assertEqual((cpu.busy, cpu.steal, cpu.wall, cpu.own), (31.0, 32.0, 5.0, 7.0))

    def test_own_cpu_time_is_not_counted(self):
        before, after = self.at(100, 3, 10, 50), self.at(104, 3, 14, 53.9)
        self.assertAlmostEqual(machine.other_load(before, after)[0], 0.025)
        self.assertEqual(machine.describe_load(before, after, 0.1), "")

    def test_other_processes_and_steal_are_described(self):
        before, after = self.at(100, 3, 10, 50), self.at(107, 4, 14, 51)
        self.assertEqual(machine.describe_load(before, after, 0.1),
                         "other processes kept 1.50 processors busy and the host took 0.25 processors away")
        self.assertEqual(machine.describe_load(before, after, 0.3), "other processes kept 1.50 processors busy")

    def test_now_increases_monotonically(self):
        before = machine.Cpu.now()
        sum(range(300000))
        after = machine.Cpu.now()
        self.assertGreater(after.wall, before.wall)
        self.assertGreaterEqual(after.busy, before.busy)
        self.assertGreaterEqual(after.own, before.own)


class Pairs(unittest.TestCase):
    def measure(self, loads_while_idle=(), loads_in_pairs=(), count=3):
        idle, busy, order = list(loads_while_idle), list(loads_in_pairs), []

        def run_tandem():
            order.append("tandem")
            return len(order)

        def run_pytorch():
            order.append("pytorch")
            return len(order)

        with contextlib.redirect_stderr(io.StringIO()):
            pairs = vs_pytorch.measure_pairs(run_tandem, run_pytorch, count, lambda: idle.pop(0) if idle else "", lambda: 0,
                                             lambda before, after: busy.pop(0) if busy else "")
        return pairs, order

    def test_order_within_pairs_alternates(self):
        pairs, order = self.measure()
        self.assertEqual(order, ["tandem", "pytorch", "pytorch", "tandem", "tandem", "pytorch"])
        self.assertEqual(pairs, [(1, 2), (4, 3), (5, 6)])  # (tandem, PyTorch) in each

    def test_pairs_with_other_load_are_repeated(self):
        pairs, order = self.measure(["noise"], ["noise", ""])
        self.assertEqual(len(pairs), 3)
        self.assertEqual(len(order), 8)

    def test_permanent_other_load_is_an_error(self):
        with self.assertRaises(vs_pytorch.Failure) as caught:
            self.measure([], ["others"] * 6)
        self.assertEqual(str(caught.exception),
                         "too much other load for reliable times: others; stop it, or raise --busy-limit")
        self.assertEqual(caught.exception.status, vs_pytorch.STATUS_BUSY)


class Results(unittest.TestCase):
    def test_summary_has_medians_and_ranges(self):
        pairs = [(side(10), side(15)), (side(12, mb=44), side(15)), (side(10), side(16))]
        found = results.summarize("lenet", 2, "compile fused", pairs)
        self.assertEqual(found["speedup"], 1.5)
        self.assertEqual((found["speedup_min"], found["speedup_max"]), (1.25, 1.6))
        self.assertEqual((found["tandem_ms"], found["pytorch_ms"]), (10, 15))
        self.assertEqual((found["tandem_mb"], found["pytorch_mb"]), (44, 40))
        self.assertEqual((found["case"], found["threads"], found["pairs"]), ("lenet", 2, 3))
        self.assertEqual(found["loss_difference"], 0)

    def test_largest_loss_difference_is_returned(self):
        self.assertAlmostEqual(results.compare_losses("mlp", [2.0, 1.00005], [2.0, 1.0]), 5e-5)

    def test_different_losses_are_an_error(self):
        with self.assertRaises(results.LossesDiffer) as caught:
            results.compare_losses("mlp", [2.0, 1.0003], [2.0, 1.0])
        self.assertEqual(str(caught.exception),
                         "mlp: the loss of step 1 is 1.0003, PyTorch's is 1: relative difference 3.0e-04, allowed 1e-04")
        for ours, theirs in (([float("nan")], [1.0]), ([1.0], [float("nan")]), ([], []), ([1.0], [1.0, 1.0])):
            with self.assertRaises(results.LossesDiffer):
                results.compare_losses("mlp", ours, theirs)

    def test_merge_replaces_equal_cases_and_keeps_others(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.json")
            results.merge(path, [entry("gpt-384"), entry("mlp")])
            results.merge(path, [entry("mlp", threads=2)])
            entries = results.merge(path, [entry("mlp", ours=5.0), entry("lenet")])
            with open(path, encoding="utf-8") as file:
                self.assertEqual(json.load(file), entries)
        self.assertEqual([(e["case"], e["threads"], e["tandem_ms"]) for e in entries],
                         [("mlp", 1, 5.0), ("lenet", 1, 10.0), ("gpt-384", 1, 10.0), ("mlp", 2, 10.0)])


class Chart(unittest.TestCase):
    def bars(self, entries):
        """Widths of the bars by color, below the legend."""
        widths = {}
        for rect in xml.fromstring(chart.draw(entries)).iter("{http://www.w3.org/2000/svg}rect"):
            if float(rect.get("y", 0)) >= chart.TOP:
                widths.setdefault(rect.get("fill"), []).append(float(rect.get("width")))
        return widths

    def test_bar_lengths_are_proportional_to_times(self):
        widths = self.bars([entry("mlp", 10, 20), entry("lenet", 30, 24)])
        full_width = chart.WIDTH - chart.LEFT - chart.RIGHT
        self.assertEqual(widths[chart.TANDEM_COLOR], [full_width / 2, full_width])
        self.assertEqual(widths[chart.PYTORCH_COLOR], [full_width, full_width * 0.8])

    def test_texts(self):
        texts = re.findall(r">([^<>]+)</text>", chart.draw([entry("mlp", 10, 20), entry("resnet18", 700, 1051)]))
        for words in ("One float32 training step, one thread", "mlp", "2.00 x", "10.0 ms, 40 MB", "20.0 ms, 700 MB", "1051 ms, 700 MB",
                      "PyTorch 2.9.1, its fastest configuration",
                      "Some &lt;CPU&gt; &amp; more; medians of alternating runs; MB: peak resident memory"):
            self.assertIn(words, texts)

    def test_empty_results_are_an_error(self):
        with self.assertRaises(ValueError):
            chart.draw([])


if __name__ == "__main__":
    unittest.main()
