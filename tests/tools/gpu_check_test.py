#!/usr/bin/python3 -B
"""Tests of tools/gpu_check without a GPU: scripts replace nvidia-smi and the packed programs."""

import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "tools")
sys.path.insert(0, TOOLS)
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from gpu_check_collect_test import write  # pylint: disable=wrong-import-position
from gpu_checks import collect, smoke  # pylint: disable=wrong-import-position

# Test programs and their suites.
SUITES = {
    "gpu_tests": ["Softmax", "Conv2d", "Cuda", "Optimizer", "Matmul", "Linear"],
    "gpu_ops_test": ["World/GpuOps"],
    "gpu_ddp_test": ["GpuDdp", "GpuDdpWorldSizes"],
    "gpu_ddp_failure_test": ["GpuDdpProcesses"],
    "gpu_ddp_graph_test": ["GpuGraphProcesses"],
    "gpu_ddp_graph_failure_test": ["GpuGraphFailureProcesses"],
    "gpu_group_test": ["GpuProcesses"],
    "gpu_nccl_backend_test": ["NcclBackendOf1"],
    "gpu_messages_test": ["GpuMessageProcesses"],
    "gpu_messages_failure_test": ["GpuMessageFailureProcesses"],
}
TESTS = list(SUITES)
PASSES = "echo '[  PASSED  ] 7 tests.'"
# NCCL settings that only processes which share one GPU must get.
SHARED = {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0",
          "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2"}
STEPS = """[ -z "$TANDEM_TUNING_WRITE" ] || echo 'product = 1' >> "$TANDEM_TUNING_WRITE"
case "$*" in *--save*) touch "$4" ;; *) echo '{"step_ms": 2.5}' ;; esac"""
LAST_LINES = ["epoch 1  step 50/300  loss 2.1  700 tokens/s  0:01 left", "epoch 1  step 300/300  loss 2.0  900 tokens/s  0:00 left",
              "accuracy 90.5 % after 300 steps"]


class GpuCheckTest(unittest.TestCase):
    """A packed file and a machine with one GPU on which all steps succeed, until a test replaces a program."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        write(self.path("packages/nvidia/cublas/lib/libcublasLt.so.13.1.0"), "")
        self.gpus(1)
        for name in TESTS:
            self.add_tests(name, PASSES)
        self.program("gpu_benchmark", """case "$*" in
*--properties*) echo '{"multiprocessors": 132, "cudnn": 91900}' ;; *) echo 'copies:'; echo '{"name": "copy", "ms": 0.5}' ;; esac""")
        self.program("train_step", STEPS)
        for name in ("mnist", "language_model", "resnet_cifar"):
            self.program(name, "echo 'epoch 1  step 50/300  loss 2.1  700 tokens/s  0:01 left'\n"
                               "echo 'epoch 1  step 300/300  loss 2.0  900 tokens/s  0:00 left'\necho 'accuracy 90.5 % after 300 steps'")
        self.program("collectives", """while [ "$1" != --json ]; do shift; done
echo '# all_reduce, nccl'; echo '{"op": "all_reduce", "busbw_gbs": 350.5}' >> $2""")
        self.program("machine/compute-sanitizer", PASSES + "; echo 'ERROR SUMMARY: 0 errors'")

    def path(self, name):
        return os.path.join(self.folder, name)

    def program(self, name, script):
        """Creates a program of the machine (a name with a folder) or a packed program."""
        write(self.path(name if "/" in name else f"packed/{name}"), f"""#!/bin/sh
echo "{name} $* $(env | grep ^NCCL_ | sort | tr '\\n' ' ')$TANDEM_TEST_DEVICE $LD_LIBRARY_PATH" >> {self.path('calls')}
{script}
""", 0o755)

    def add_tests(self, name, script):
        """Creates a test program with two tests in each of its suites."""
        listing = "".join(f"{suite}.\\n  One\\n  Two/0  # GetParam() = 4\\n" for suite in SUITES[name])
        self.program(name, f"""case "$*" in *--gtest_list_tests*) printf '{listing}'; exit ;; esac
{script}""")

    def gpus(self, count):
        self.program("machine/nvidia-smi", "echo 'NVIDIA H200, 580.65, 143771 MiB, 1980 MHz, 9.0'\n" * count)

    def start(self, *arguments):
        collect.pack(self.path("packed"), self.path("gpu_check.pyz"))
        environment = {"PATH": f"{self.path('machine')}:/usr/bin:/bin", "PYTHONPATH": self.path("packages")}
        return subprocess.Popen([sys.executable, self.path("gpu_check.pyz"), "--out", self.path("report.json"), *arguments],
                                env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def check(self, *arguments):
        """Runs gpu_check; returns its CompletedProcess and the report."""
        with self.start(*arguments) as process:
            out, err = process.communicate()
        done = subprocess.CompletedProcess(arguments, process.returncode, out, err)
        report = None
        if os.path.exists(self.path("report.json")):
            with open(self.path("report.json"), encoding="utf-8") as file:
                report = json.load(file)
        return done, report

    def calls(self, name):
        with open(self.path("calls"), encoding="utf-8") as file:
            return [line for line in file if line.startswith(name + " ")]


class Report(GpuCheckTest):
    def test_successful_run_reports_every_part(self):
        done, report = self.check()
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("gpu_check: PASSED, report: ", done.stdout)
        self.assertEqual(report["gpus"], [{"name": "NVIDIA H200", "driver_version": "580.65", "memory.total": "143771 MiB",
                                           "clocks.max.sm": "1980 MHz", "compute_cap": "9.0"}])
        self.assertIn("libcublasLt.so.13.1.0", report["libraries"])
        self.assertEqual(list(report["tests"]), TESTS)
        for result in report["tests"].values():
            self.assertEqual((result["failed"], result["status"]), ([], 0))
            self.assertEqual({suite["passed"] for suite in result["suites"].values()}, {7})
        self.assertEqual({name: set(result["suites"]) for name, result in report["tests"].items()},
                         {name: set(suites) for name, suites in SUITES.items()})
        self.assertEqual(report["tests"]["gpu_ddp_test"]["passed"], 14)
        self.assertEqual(report["properties"], {"multiprocessors": 132, "cudnn": 91900})
        self.assertEqual(report["gpu_benchmark"], [{"name": "copy", "ms": 0.5}])
        self.assertEqual([(row["name"], row["device"], row["status"], row["end"]) for row in report["examples"]],
                         [(name, device, 0, LAST_LINES) for name in ("mnist", "language_model") for device in ("cuda", "cpu")])
        # Seven cases in float32, TF32 and bfloat16, the largest without float32, and ResNet-50 in bfloat16; each eager and captured.
        self.assertEqual(report["train_step"], [{"step_ms": 2.5}] * 48)
        self.assertEqual([kind["status"] for kind in report["compute_sanitizer"].values()], [0, 0])
        self.assertEqual(set(report["compute_sanitizer"]["racecheck"]["suites"]),
                         {"LayerNorm", "Reduce", "CrossEntropy", "NllLoss", "MseLoss", "Attention",
                          *(f"cases of {family}" for family in ("attention", "loss", "norm", "reduce", "softmax"))})
        self.assertEqual(report["tuning"], {"file": "report.tuning", "products": 24, "train_step": [{"step_ms": 2.5}] * 2})
        with open(self.path("report.tuning"), encoding="ascii") as file:
            self.assertEqual(file.read(), "product = 1\n" * 24)
        self.assertEqual(report["running"], [])
        self.assertEqual(report["not_run"], ["tests that need more than 1 GPU(s)",
                                             "PyTorch: not installed, or without a GPU",
                                             "bandwidth of collectives, and scaling: they need two GPUs"])
        self.assertEqual(list(report["seconds"]), ["smoke", "speed", "tune", "sanitize"])

    def test_programs_get_library_path_and_test_device(self):
        self.check("--parts", "smoke")
        for name in TESTS:
            self.assertEqual(len(self.calls(name)), 1 + len(SUITES[name]))
            for call in self.calls(name):
                self.assertIn(" cuda ", call)
                self.assertRegex(call, f" /[^ :]+/lib:{self.path('packages/nvidia/cublas/lib')}:")

    def test_failures_are_reported_and_other_steps_run(self):
        self.add_tests("gpu_ops_test", """echo '[  FAILED  ] 2 tests, listed below:'
echo '[  FAILED  ] World/GpuOps.CollectivesMatchClosedFormsAcrossProcesses/Of2, where GetParam() = 2'
echo '[  FAILED  ] World/GpuOps.CollectivesMatchClosedFormsAcrossThreads/Of1, where GetParam() = 1 (3 ms)'
exit 1""")
        self.add_tests("gpu_tests", f"""case "$*" in
*Matmul*) kill -SEGV $$ ;;
*Softmax*) echo '[ RUN      ] Softmax.One'; echo '0.25, expected 0.5'; echo '[  FAILED  ] Softmax.One (3 ms)'
echo '[ RUN      ] Softmax.Two/0'; echo '[       OK ] Softmax.Two/0 (1 ms)'; exit 1 ;; esac
{PASSES}""")
        self.add_tests("gpu_group_test", "echo '[  PASSED  ] 0 tests.'")
        self.program("gpu_ddp_test", "printf 'GpuDdp.\\n  One\\n'; echo cannot open libcudnn.so.9; exit 127")
        self.program("gpu_benchmark", """echo '{"name": "copy", "ms": 0.5}'; echo no more memory; exit 3""")
        os.remove(self.path("packed/mnist"))
        done, report = self.check()
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("FAILED", done.stdout)
        result = report["tests"]["gpu_ops_test"]
        self.assertEqual(result["failed"],
                         ["World/GpuOps.CollectivesMatchClosedFormsAcrossProcesses/Of2", "World/GpuOps.CollectivesMatchClosedFormsAcrossThreads/Of1"])
        self.assertEqual((result["passed"], result["status"]), (0, 1))
        self.assertIn("2 tests, listed below", result["suites"]["World/GpuOps"]["output"])
        result = report["tests"]["gpu_tests"]
        self.assertEqual({name: suite["status"] for name, suite in result["suites"].items()},
                         {name: {"Matmul": -11, "Softmax": 1}.get(name, 0) for name in SUITES["gpu_tests"]})
        self.assertEqual((result["status"], result["passed"]), (-11, 28))
        self.assertEqual(result["suites"]["Softmax"]["messages"],
                         {"Softmax.One": "0.25, expected 0.5\n[  FAILED  ] Softmax.One (3 ms)\n"})
        self.assertIn("0 tests", report["tests"]["gpu_group_test"]["suites"]["GpuProcesses"]["output"])  # no test passed
        self.assertEqual((report["tests"]["gpu_ddp_test"]["status"], report["tests"]["gpu_ddp_test"]["suites"]), (127, {}))
        self.assertIn("cannot open libcudnn", report["tests"]["gpu_ddp_test"]["output"])
        self.assertEqual(report["gpu_benchmark"][0], {"name": "copy", "ms": 0.5})
        self.assertEqual((report["gpu_benchmark"][1]["failed"], report["gpu_benchmark"][1]["status"]), ("gpu_benchmark", 3))
        self.assertIn("no more memory", report["gpu_benchmark"][1]["output"])
        self.assertIn("mnist on cuda: cannot start ./mnist: No such file or directory", report["not_run"])
        self.assertEqual((len(report["examples"]), len(report["train_step"])), (2, 48))

    def test_failure_of_any_program_gives_status_1(self):
        for name, script, part in (("gpu_group_test", "echo '[  PASSED  ] 0 tests.'", "smoke"), ("gpu_group_test", "exit 1", "smoke"),
                                   ("gpu_benchmark", "exit 1", "smoke"), ("gpu_benchmark", "exit 1", "speed"),
                                   ("mnist", "exit 1", "smoke"),
                                   ("train_step", "exit 1", "speed"), ("train_step", "exit 1", "tune"),
                                   ("train_step", "echo '{}'", "tune"), ("machine/compute-sanitizer", "exit 9", "sanitize"),
                                   ("machine/compute-sanitizer", "echo '[  PASSED  ] 0 tests.'", "sanitize")):
            with self.subTest(name, script=script):
                self.setUp()
                self.program(name, script)
                done, _ = self.check("--parts", part)
                self.assertEqual(done.returncode, 1, done)

    def test_gpu_and_cpu_results_are_compared(self):
        ends = """case "$*" in *cuda*) echo "test %s after 30 steps" ;; *) echo "test %s after 30 steps" ;; esac"""
        for name, gpu, cpu, differ in (("mnist", "accuracy 96.10 %", "accuracy 95.20 %", False),
                                       ("mnist", "accuracy 94.10 %", "accuracy 95.20 %", True),
                                       ("language_model", "loss 1.5000", "loss 1.4600", False),
                                       ("language_model", "loss 1.4000", "loss 1.4600", True), ("language_model", "loss nan", "loss 1.4", True)):
            with self.subTest(name, gpu=gpu):
                self.setUp()
                self.program(name, ends % (gpu, cpu))
                done, report = self.check("--parts", "smoke")
                self.assertEqual(done.returncode, int(differ), done)
                self.assertEqual(len(report["differences"]), int(differ))
                if differ:
                    self.assertIn(name, report["differences"][0])

    def test_losses_are_compared_with_pytorchs(self):
        for theirs, steps, differ in (("[2.0, 1.0]", "lenet*", 0), ("[2.0, 1.002]", "*", 8), ("[2.0]", "*", 30), ("[2.0, NaN]", "lenet*", 3)):
            with self.subTest(theirs):
                self.setUp()
                write(self.path("packages/torch.py"), "class cuda:\n    is_available = staticmethod(lambda: True)\n")
                # PyTorch must run without the archive's library path.
                write(self.path("packed/torch_step.py"),
                      f"import os\nassert 'LD_LIBRARY_PATH' not in os.environ\nprint('{{\"losses\": {theirs}}}')")
                self.program("train_step", """case "$*" in *--save*) touch "$4" ;; *) echo '{"losses": [2.0, 1.0]}' ;; esac""")
                done, report = self.check("--parts", "speed", "--only", steps)
                self.assertEqual(len(report["differences"]), differ, report["differences"])
                self.assertEqual(done.returncode, int(differ > 0))


class Suites(GpuCheckTest):
    def test_long_suites_run_in_several_processes(self):
        names = [f"attention_with_a_long_name_{i}_gradients" for i in range(7000)]
        write(self.path("packed/list"), "All/OpCaseTest.\n" + "".join(f"  Passes/{name}  # GetParam()\n" for name in names))
        self.program("gpu_tests", f"""case "$*" in *--gtest_list_tests*) cat list; exit ;; esac
{PASSES}""")
        _, report = self.check("--parts", "smoke", "--only", "gpu_tests*")
        run = re.findall(r"All/OpCaseTest.Passes/(\w+)", "".join(self.calls("gpu_tests")))
        self.assertEqual(sorted(run), sorted(names))
        self.assertEqual(len(report["tests"]["gpu_tests"]["suites"]), 24)
        self.assertEqual(report["tests"]["gpu_tests"]["suites"]["All/OpCaseTest 24 of 24"]["passed"], 7)

    def test_most_important_suites_run_first(self):
        _, report = self.check("--parts", "smoke")
        steps = [step["step"] for step in report["steps"]]
        lists = [f"{name}: list" for name in TESTS]
        self.assertEqual(steps[: len(lists) + 6], ["properties", *lists, "gpu_tests Cuda", "gpu_tests Matmul", "gpu_tests Linear", "gpu_tests Conv2d",
                                      "gpu_ops_test World/GpuOps"])
        self.assertEqual(steps[-4:], ["mnist on cuda", "mnist on cpu", "language_model on cuda", "language_model on cpu"])

    def test_missing_first_suite_is_a_failure(self):
        self.program("gpu_tests", f"""case "$*" in *--gtest_list_tests*) printf 'Cuda.\\n  One\\n'; exit ;; esac
{PASSES}""")
        done, report = self.check("--parts", "smoke")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("gpu_tests Matmul: suite not found", report["not_run"])

    def test_sanitizer_runs_each_suite_separately(self):
        self.program("machine/compute-sanitizer", f"""case "$*" in *racecheck*CrossEntropy*) echo race; exit 9 ;; esac
{PASSES}""")
        done, report = self.check("--parts", "sanitize")
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual({kind: result["status"] for kind, result in report["compute_sanitizer"].items()},
                         {"memcheck": 0, "racecheck": 9})
        self.assertEqual([suite for suite, result in report["compute_sanitizer"]["racecheck"]["suites"].items() if result["status"]],
                         ["CrossEntropy"])
        calls = self.calls("machine/compute-sanitizer")
        self.assertEqual(len(calls), 22)
        self.assertIn(" --tool memcheck --error-exitcode 9 ./gpu_tests --gtest_color=no --gtest_filter=LayerNorm.* ", calls[0])
        self.assertIn(" --gtest_filter=*/softmax_*_values:*/softmax_*_threads ", calls[10])


class Fallbacks(GpuCheckTest):
    def test_warnings_are_counted(self):
        problem = "cuDNN does not compute conv2d forward float32 [1, 2, 3, 3], 4 filters 1x1 (CUDNN_STATUS_NOT_SUPPORTED)"
        self.add_tests("gpu_tests", f"""echo "12:00 warning {problem}: tandem's own kernels do, which may be slower" >&2
{PASSES}""")
        _, report = self.check("--parts", "smoke", "--only", "gpu_tests*")
        self.assertEqual(report["fallbacks"], {problem: len(SUITES["gpu_tests"])})


class ExampleResults(unittest.TestCase):
    def test_accuracy_or_loss_of_last_line_is_found(self):
        self.assertEqual(smoke.result_of("epoch 2: test accuracy 98.00 %\n"
                                         "test loss 0.0354, test accuracy 99.05 % after 624 steps\nsaved model\n"), 99.05)
        self.assertEqual(smoke.result_of("validation loss 0.6202, validation perplexity 1.8594 after 500 steps\n"), 0.6202)
        self.assertIsNone(smoke.result_of("step 500: loss 0.5\n"))


class SuiteNames(unittest.TestCase):
    def test_listed_suites_exist(self):
        found = set()
        for folder in ("ops", "tensor/cuda"):
            for path in glob.glob(os.path.join(os.path.dirname(TOOLS), "tests", folder, "*_test.cc")):
                with open(path, encoding="utf-8") as file:
                    found.update(re.findall(r"^TEST(?:_P|_F)?\((\w+),", file.read(), re.M))
        named = [suite for program, suite in smoke.FIRST if program == "gpu_tests"] + smoke.SANITIZED
        self.assertEqual([suite for suite in named if suite not in found], [])


class Steps(GpuCheckTest):
    def test_large_cases_in_bfloat16_and_pytorch_run_first(self):
        write(self.path("packages/torch.py"), "class cuda:\n    is_available = staticmethod(lambda: True)\n")
        write(self.path("packed/torch_step.py"), "print('{}')")
        _, report = self.check("--parts", "speed")
        steps = [step["step"] for step in report["steps"]]
        leading = [f"{case}{step}" for case, flags in (
            ("gpt2-124m-64", "--fused"), ("gpt2-124m-4", "--fused"), ("resnet50-256", "--fused --channels-last")) for step in (
            ": weights", " --amp", f" --amp in PyTorch {flags}", f" --amp in PyTorch {flags} --compile", " --amp, captured")]
        self.assertEqual(steps[:16], [*leading, "gpu_benchmark"])
        self.assertEqual(steps[16:20], ["mlp: weights", "mlp", "mlp in PyTorch --fused", "mlp, captured"])
        self.assertNotIn("gpt2-124m-64", steps)
        self.assertIn("gpt2-124m-64 --tf32", steps)
        self.assertEqual(len(steps), len(set(steps)))
        self.assertIn(" --losses --operations ", self.calls("train_step")[1])

    def test_steps_with_the_tuning_file(self):
        write(self.path("report.tuning"), "product = stale\n")
        self.program("train_step", """echo "{\\"tuning\\": \\"$TANDEM_TUNING_FILE\\"}"
[ -z "$TANDEM_TUNING_WRITE" ] || echo 'product = 1' >> "$TANDEM_TUNING_WRITE\"""")
        done, report = self.check("--parts", "tune")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(report["tuning"]["products"], 24)
        self.assertEqual(report["tuning"]["train_step"], [{"tuning": self.path("report.tuning")}] * 2)


class Time(GpuCheckTest):
    def test_hanging_program_is_killed_with_its_children(self):
        self.add_tests("gpu_tests", f"echo half; sleep 100 & echo $! > {self.path('child')}; wait")
        begin = time.monotonic()
        done, report = self.check("--seconds", "7", "--parts", "smoke")
        self.assertLess(time.monotonic() - begin, 12)
        self.assertEqual(done.returncode, 1)
        self.assertTrue([text for text in report["not_run"]
                         if re.match(r"gpu_tests Cuda: not finished after [67] s; end of its output: half\n", text)], report["not_run"])
        for name in ["gpu_tests Matmul", "gpu_tests Softmax", "gpu_ops_test World/GpuOps", "mnist on cuda"]:
            self.assertIn(f"{name}: no time left", report["not_run"])
        with open(self.path("child"), encoding="ascii") as file:
            status = f"/proc/{file.read().strip()}/status"
        if os.path.exists(status):  # a zombie until its new parent waits for it
            with open(status, encoding="ascii") as file:
                self.assertIn("State:\tZ", file.read())

    def test_steps_without_time_are_not_failures(self):
        self.add_tests("gpu_tests", PASSES + "; sleep 3")
        done, report = self.check("--seconds", "7", "--parts", "smoke,speed", "--only", "gpu_tests*,mnist*,gpu_benchmark")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(list(report["tests"]["gpu_tests"]["suites"]), ["Cuda"])
        self.assertIn("mnist on cuda: no time left", report["not_run"])
        self.assertEqual(report["gpu_benchmark"], [{"name": "copy", "ms": 0.5}])

    def test_killed_check_leaves_report_of_finished_steps(self):
        self.program("train_step", f"""case "$*" in *--save*) touch "$4" ;; *) touch {self.path('begun')}; sleep 100 ;; esac""")
        with self.start("--parts", "smoke,speed", "--only", "gpu_tests*,gpt2*") as process:
            deadline = time.monotonic() + 60
            while not os.path.exists(self.path("begun")) and time.monotonic() < deadline:
                time.sleep(0.05)
            with open(self.path("report.json"), encoding="utf-8") as file:
                report = json.load(file)
            process.send_signal(signal.SIGINT)
            process.communicate()
        self.assertEqual(report["running"], ["gpt2-124m-64 --amp"])
        self.assertEqual(report["tests"]["gpu_tests"]["passed"], 42)
        self.assertEqual(report["steps"][-1]["step"], "gpt2-124m-64: weights")


class Parts(GpuCheckTest):
    def test_only_selects_steps(self):
        done, report = self.check("--parts", "speed,smoke", "--only", "lenet --amp,lenet: weights,gpu_nccl_backend_test*")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual([step["step"] for step in report["steps"]],
                         ["lenet: weights", "lenet --amp", "gpu_nccl_backend_test: list", "gpu_nccl_backend_test NcclBackendOf1"])

    def test_unknown_part_is_rejected(self):
        done, report = self.check("--parts", "smoke,sped")
        self.assertEqual((done.returncode, report), (2, None))
        self.assertIn("'sped' is not one of smoke, speed, tune, sanitize", done.stderr)

    def test_run_starts_one_program(self):
        self.program("gpu_benchmark", 'echo "$0 $*"; exit 3')
        done, _ = self.check("--run", "gpu_benchmark", "--divisor", "8")
        self.assertEqual(done.returncode, 3, done)
        self.assertRegex(done.stdout, r"/gpu_benchmark --divisor 8\n")
        self.assertRegex(self.calls("gpu_benchmark")[0], f" /[^ :]+/lib:{self.path('packages/nvidia/cublas/lib')}:")


class Gpus(GpuCheckTest):
    def filters(self):
        with open(self.path("calls"), "w", encoding="ascii"):
            pass
        done, report = self.check("--parts", "smoke")
        self.assertEqual(done.returncode, 0, done)
        for name in TESTS:
            self.assertIn(f" --gtest_list_tests --gtest_filter={report['tests'][name]['filter']} ", self.calls(name)[0])
        return [report["tests"][name]["filter"] for name in ("gpu_tests", "gpu_ops_test", "gpu_nccl_backend_test")]

    def test_one_gpu_is_shared_by_two_ranks(self):
        self.assertEqual(self.filters(), ["-TwoGpus*", "*Of1*:*Processes*-*Of4*", "*Of1*"])
        variables = " ".join(f"{name}={value}" for name, value in sorted(SHARED.items()))
        for name in TESTS:
            self.assertIn(f" {variables} cuda ", self.calls(name)[-1])
        self.assertIn(" --gtest_filter=World/GpuOps.One:World/GpuOps.Two/0 ", self.calls("gpu_ops_test")[-1])

    def test_two_and_three_gpus_exclude_tests_of_four(self):
        for count in (2, 3):
            self.gpus(count)
            self.assertEqual(self.filters(), ["*", "-*Of4*", "-*Emulated*"])
            for name in TESTS:
                self.assertNotIn(" NCCL_", self.calls(name)[-1])

    def test_four_gpus_run_all_tests(self):
        self.gpus(4)
        self.assertEqual(self.filters(), ["*", "*", "-*Emulated*"])

    def test_several_gpus_report_collectives_and_scaling(self):
        self.gpus(4)
        for _ in range(2):  # the second run must not report the rows of the first
            _, report = self.check("--parts", "speed")
        self.assertIn(" --backend nccl --world 4 ", self.calls("collectives")[0])
        self.assertEqual(report["collectives"], {"status": 0, "table": ["# all_reduce, nccl"],
                                                 "rows": [{"op": "all_reduce", "busbw_gbs": 350.5}]})
        self.assertEqual(report["scaling"], [{"name": name, "ranks": ranks, "status": 0, "rate": 900, "unit": "tokens/s"}
                                             for name in ("language_model", "resnet_cifar") for ranks in (1, 4)])
        for name, script in {"resnet_cifar": "echo no rate", "collectives": "exit 1"}.items():
            with self.subTest(name):
                self.setUp()
                self.gpus(4)
                self.program(name, script)
                self.assertEqual(self.check("--parts", "speed")[0].returncode, 1)

    def last_error_line(self):
        done, report = self.check()
        self.assertEqual((done.returncode, report, done.stdout), (1, None, ""))
        return done.stderr.splitlines()[-1]

    def test_missing_gpu_is_an_error(self):
        self.program("machine/nvidia-smi", "echo 'No devices were found'; exit 6")
        self.assertEqual(self.last_error_line(), "gpu_check: no GPU: nvidia-smi printed: No devices were found")

    def test_missing_driver_is_an_error(self):
        os.remove(self.path("machine/nvidia-smi"))
        self.assertEqual(self.last_error_line(),
                         "gpu_check: no GPU: nvidia-smi: cannot start nvidia-smi: No such file or directory")

    def test_script_without_programs_is_an_error(self):
        done = subprocess.run([sys.executable, os.path.join(TOOLS, "gpu_check")], text=True, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stderr), (1, f"gpu_check: {TOOLS}/gpu_check contains no programs; create a packed "
                                                             "file with --collect (see --help)\n"))


if __name__ == "__main__":
    unittest.main()
