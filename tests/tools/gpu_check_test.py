#!/usr/bin/python3
"""tools/gpu_check where there is no GPU: scripts stand for nvidia-smi and for the programs that were built."""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

TOOL = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "tools", "gpu_check")
TESTS = ["gpu_tests", "gpu_ops_test", "gpu_ddp_test", "gpu_ddp_failure_test", "gpu_group_test", "gpu_lane_test"]
PASSES = "echo '[  PASSED  ] 7 tests.'"
# What two processes that share a GPU take for NCCL, and nobody else.
SHARED = {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0",
          "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2"}
STEPS = """case "$*" in *--save*) touch "$4" ;; *) echo '{"step_ms": 2.5}' ;; esac"""
SPOKEN = ["epoch 1  step 50/300  loss 2.1  700 tokens/s  0:01 left", "epoch 1  step 300/300  loss 2.0  900 tokens/s  0:00 left",
          "accuracy 90.5 % after 300 steps"]
BUILT = {
    "tests/gpu": "gpu_tests",
    "benchmarks/gpu/gpu": "rows",
    "benchmarks/train_step": "train_step",
    "examples/mnist/mnist": "mnist",
    "examples/gpt_char/gpt_char": "gpt_char",
    "examples/resnet_cifar/resnet_cifar": "resnet_cifar",
    "benchmarks/collectives/collectives": "collectives",
    **{f"tests/distributed/{name}": name for name in TESTS[1:]},
}


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(path, mode)


class OnAMachine(unittest.TestCase):
    """A folder as --collect makes it, and a machine with one GPU where all is well, until a test changes something."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        shutil.copy(TOOL, self.folder)
        write(self.path("collected.json"), '{"architectures": {"gpu_tests": ["sm_90a"]}}')
        write(self.path("packages/nvidia/cublas/lib/libcublasLt.so.13.1.0"), "")
        self.gpus(1)
        for name in TESTS:
            self.program(name, PASSES)
        self.program("rows", """echo 'copies:'; echo '{"name": "copy", "ms": 0.5}'""")
        self.program("train_step", STEPS)
        for name in ("mnist", "gpt_char", "resnet_cifar"):
            self.program(name, "echo 'epoch 1  step 50/300  loss 2.1  700 tokens/s  0:01 left'\n"
                               "echo 'epoch 1  step 300/300  loss 2.0  900 tokens/s  0:00 left'\necho 'accuracy 90.5 % after 300 steps'")
        self.program("collectives", """while [ "$1" != --json ]; do shift; done
echo '# all_reduce, nccl'; echo '{"op": "all_reduce", "busbw_gbs": 350.5}' >> $2""")
        self.program("machine/compute-sanitizer", "echo 'ERROR SUMMARY: 0 errors'")

    def path(self, name):
        return os.path.join(self.folder, name)

    def program(self, name, script):
        write(self.path(name), f"""#!/bin/sh
echo "{name} $* $(env | grep ^NCCL_ | sort | tr '\\n' ' ')$TANDEM_TEST_DEVICE $LD_LIBRARY_PATH" >> {self.path('calls')}
{script}
""", 0o755)

    def gpus(self, count):
        self.program("machine/nvidia-smi", "echo 'NVIDIA H200, 580.65, 143771 MiB, 1980 MHz, 9.0'\n" * count)

    def check(self, *arguments):
        """Status, what was said, and the report."""
        environment = {"PATH": f"{self.path('machine')}:/usr/bin:/bin", "PYTHONPATH": self.path("packages")}
        done = subprocess.run([sys.executable, self.path("gpu_check"), "--out", self.path("report.json"), *arguments],
                              env=environment, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        report = None
        if os.path.exists(self.path("report.json")):
            with open(self.path("report.json"), encoding="utf-8") as file:
                report = json.load(file)
        return done, report

    def calls(self, name):
        with open(self.path("calls"), encoding="utf-8") as file:
            return [line for line in file if line.startswith(name + " ")]


class Report(OnAMachine):
    def test_all_is_well(self):
        done, report = self.check()
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("all is well", done.stdout)
        self.assertEqual(report["gpus"], [{"name": "NVIDIA H200", "driver_version": "580.65", "memory.total": "143771 MiB",
                                           "clocks.max.sm": "1980 MHz", "compute_cap": "9.0"}])
        self.assertIn("libcublasLt.so.13.1.0", report["libraries"])
        self.assertEqual(report["collected"], {"architectures": {"gpu_tests": ["sm_90a"]}})
        self.assertEqual(list(report["tests"]), TESTS)
        for result in report["tests"].values():
            self.assertEqual((result["passed"], result["failed"], result["status"]), (7, [], 0))
        self.assertEqual(report["rows"], [{"name": "copy", "ms": 0.5}])
        self.assertEqual([(row["name"], row["device"], row["status"], row["end"]) for row in report["examples"]],
                         [(name, device, 0, SPOKEN) for name in ("mnist", "gpt_char") for device in ("cuda", "cpu")])
        self.assertEqual(report["train_step"], [{"step_ms": 2.5}] * 42)  # seven models, each in three ways, usual and captured
        self.assertEqual([kind["status"] for kind in report["compute_sanitizer"].values()], [0, 0])
        self.assertEqual(report["not_run"], ["tests that take more than 1 GPU(s)",
                                             "bandwidth of collectives, and scaling: they take two GPUs",
                                             "PyTorch: not installed, or without a GPU"])
        self.assertLess(report["seconds"], 60)

    def test_programs_find_the_libraries_and_test_the_gpu(self):
        self.check()
        for name in TESTS:
            [call] = self.calls(name)
            self.assertIn(" cuda ", call)
            self.assertIn(f" {self.path('lib')}:{self.path('packages/nvidia/cublas/lib')}:", call)

    def test_what_failed_is_told_and_the_rest_is_run(self):
        self.program("gpu_ops_test", """echo '[  FAILED  ] 2 tests, listed below:'
echo '[  FAILED  ] World/GpuOps.EachIsRightAmongProcesses/Of2, where GetParam() = 2'
echo '[  FAILED  ] World/GpuOps.EachIsRightAmongThreads/Of1, where GetParam() = 1 (3 ms)'
exit 1""")
        self.program("gpu_ddp_test", "kill -SEGV $$")
        self.program("gpu_group_test", "echo '[  PASSED  ] 0 tests.'")
        self.program("rows", """echo '{"name": "copy", "ms": 0.5}'; echo no more memory; exit 3""")
        done, report = self.check()
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("FAILED", done.stdout)
        result = report["tests"]["gpu_ops_test"]
        self.assertEqual(result["failed"],
                         ["World/GpuOps.EachIsRightAmongProcesses/Of2", "World/GpuOps.EachIsRightAmongThreads/Of1"])
        self.assertEqual((result["passed"], result["status"]), (0, 1))
        self.assertIn("2 tests, listed below", result["output"])
        self.assertEqual(report["tests"]["gpu_ddp_test"]["status"], -11)
        self.assertIn("0 tests", report["tests"]["gpu_group_test"]["output"])  # nothing was proved
        self.assertEqual(report["rows"][0], {"name": "copy", "ms": 0.5})
        self.assertEqual((report["rows"][1]["failed"], report["rows"][1]["status"]), ("rows", 3))
        self.assertIn("no more memory", report["rows"][1]["output"])
        self.assertEqual(len(report["train_step"]), 42)

    def test_each_kind_of_program_counts(self):
        for name, script in {"gpu_group_test": "echo '[  PASSED  ] 0 tests.'", "rows": "exit 1", "mnist": "exit 1",
                             "train_step": "exit 1", "machine/compute-sanitizer": "exit 9"}.items():
            with self.subTest(name):
                self.setUp()
                self.program(name, script)
                done, _ = self.check()
                self.assertEqual(done.returncode, 1, done)

    def test_results_that_should_be_equal_are_compared(self):
        ends = """case "$*" in *cuda*) echo "test %s after 30 steps" ;; *) echo "test %s after 30 steps" ;; esac"""
        for name, gpu, cpu, differ in (("mnist", "accuracy 96.10 %", "accuracy 95.20 %", False),
                                       ("mnist", "accuracy 94.10 %", "accuracy 95.20 %", True),
                                       ("gpt_char", "loss 1.5000", "loss 1.4600", False),
                                       ("gpt_char", "loss 1.4000", "loss 1.4600", True), ("gpt_char", "loss nan", "loss 1.4", True)):
            with self.subTest(name, gpu=gpu):
                self.setUp()
                self.program(name, ends % (gpu, cpu))
                done, report = self.check()
                self.assertEqual(done.returncode, int(differ), done)
                self.assertEqual(len(report["differences"]), int(differ))
                if differ:
                    self.assertIn(name, report["differences"][0])

    def test_losses_are_compared_with_pytorchs(self):
        for theirs, differ in (("[2.0, 1.0]", 0), ("[2.0, 1.002]", 9), ("[2.0]", 27), ("[2.0, NaN]", 27)):
            with self.subTest(theirs):
                self.setUp()
                write(self.path("packages/torch.py"), "class cuda:\n    is_available = staticmethod(lambda: True)\n")
                # With its own libraries.
                write(self.path("torch_step.py"),
                      f"import os\nassert 'LD_LIBRARY_PATH' not in os.environ\nprint('{{\"losses\": {theirs}}}')")
                self.program("train_step", """case "$*" in *--save*) touch "$4" ;; *) echo '{"losses": [2.0, 1.0]}' ;; esac""")
                done, report = self.check()
                self.assertEqual(len(report["differences"]), differ, report["differences"])
                self.assertEqual(done.returncode, int(differ > 0))

    def test_a_missing_program_is_named(self):
        os.remove(self.path("rows"))
        done, report = self.check()
        self.assertEqual(done.returncode, 1)
        self.assertIn("rows: ./rows does not start: No such file or directory", report["not_run"])
        self.assertEqual(len(report["examples"]), 4)


class Time(OnAMachine):
    def test_what_hangs_is_ended_with_what_it_started_and_the_rest_has_no_time(self):
        self.program("gpu_tests", f"echo half; sleep 100 & echo $! > {self.path('child')}; wait")
        begin = time.monotonic()
        done, report = self.check("--seconds", "7")
        self.assertLess(time.monotonic() - begin, 12)
        self.assertEqual(done.returncode, 1)
        self.assertIn("gpu_tests: not done after 7 s; its output ended with half\n", report["not_run"])
        for name in TESTS[1:] + ["rows", "mnist on cuda", "compute-sanitizer memcheck"]:
            self.assertIn(f"{name}: no time left", report["not_run"])
        with open(self.path("child"), encoding="ascii") as file:
            status = f"/proc/{file.read().strip()}/status"
        if os.path.exists(status):  # nobody has waited for it yet
            with open(status, encoding="ascii") as file:
                self.assertIn("State:\tZ", file.read())

    def test_what_had_no_time_is_no_failure(self):
        self.program("gpu_tests", PASSES + "; sleep 3")
        done, report = self.check("--seconds", "7")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(list(report["tests"]), ["gpu_tests"])
        self.assertIn("rows: no time left", report["not_run"])


class Gpus(OnAMachine):
    def filters(self):
        done, report = self.check()
        self.assertEqual(done.returncode, 0, done)
        for name in TESTS:
            self.assertIn(f" --gtest_filter={report['tests'][name]['filter']} ", self.calls(name)[-1])
        return [report["tests"][name]["filter"] for name in ("gpu_tests", "gpu_ops_test", "gpu_lane_test")]

    def test_one(self):
        self.assertEqual(self.filters(), ["-TwoGpus*", "*Of1*:*Processes*-*Of4*", "*Of1*"])
        variables = " ".join(f"{name}={value}" for name, value in sorted(SHARED.items()))
        for name in TESTS:
            self.assertIn(f" {variables} cuda ", self.calls(name)[0])

    def test_two_and_three(self):
        for count in (2, 3):
            self.gpus(count)
            self.assertEqual(self.filters(), ["*", "-*Of4*", "-*Emulated*"])
            for name in TESTS:
                self.assertNotIn(" NCCL_", self.calls(name)[-1])

    def test_four(self):
        self.gpus(4)
        self.assertEqual(self.filters(), ["*", "*", "-*Emulated*"])

    def test_several_exchange_and_scale(self):
        self.gpus(4)
        for _ in range(2):  # rows of an earlier run are not taken for this one's
            _, report = self.check()
        self.assertIn(" --backend nccl --world 4 ", self.calls("collectives")[0])
        self.assertEqual(report["collectives"], {"status": 0, "table": ["# all_reduce, nccl"],
                                                 "rows": [{"op": "all_reduce", "busbw_gbs": 350.5}]})
        self.assertEqual(report["scaling"], [{"name": name, "ranks": ranks, "status": 0, "rate": 900, "of": "tokens"}
                                             for name in ("gpt_char", "resnet_cifar") for ranks in (1, 4)])
        for name, script in {"resnet_cifar": "echo no rate", "collectives": "exit 1"}.items():
            with self.subTest(name):
                self.setUp()
                self.gpus(4)
                self.program(name, script)
                self.assertEqual(self.check()[0].returncode, 1)

    def none(self):
        done, report = self.check()
        self.assertEqual((done.returncode, report, done.stdout), (1, None, ""))
        return done.stderr.splitlines()[-1]

    def test_none(self):
        self.program("machine/nvidia-smi", "echo 'No devices were found'; exit 6")
        self.assertEqual(self.none(), "gpu_check: no GPU: nvidia-smi says: No devices were found")

    def test_no_driver(self):
        os.remove(self.path("machine/nvidia-smi"))
        self.assertEqual(self.none(), "gpu_check: no GPU: nvidia-smi: nvidia-smi does not start: No such file or directory")

    def test_no_folder_of_programs(self):
        os.remove(self.path("collected.json"))
        self.assertEqual(self.none(),
                         f"gpu_check: {self.folder} has no programs: --collect makes the folder to run it in; see --help")


def container(*entries):
    """What nvcc puts into .nv_fatbin: entries of (kind, chip, flags), each with a few bytes of code."""
    body = b"".join(struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, 24, 0, 0, 0, 0, chip, 0, 0, flags, 0, 0) + b"code" * 6
                    for kind, chip, flags in entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


class Collect(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = folder.name
        os.makedirs(os.path.join(self.top, "tools"))
        shutil.copy(TOOL, os.path.join(self.top, "tools"))
        write(os.path.join(self.top, "benchmarks/vs_pytorch/torch_step.py"), "")
        self.library("libother.so.1", "int other(void) { return 3; }")
        self.library("libnccl.so.2", "int nccl(void) { return 4; }")
        write(os.path.join(self.top, "main.c"), "int other(void); int nccl(void); int main(void) { return other() + nccl() - 7; }")
        subprocess.run(["cc", "main.c", "system/libother.so.1", "system/libnccl.so.2", "-o", "program",
                        f"-Wl,-rpath,{self.top}/system"], cwd=self.top, check=True)
        for path in BUILT:
            self.build(path, container((2, 80, 0x11), (1, 80, 0x8011)) + bytes(40) + container((2, 90, 0x100011)))

    def build(self, path, code):
        program = os.path.join(self.top, "out/bin", path)
        os.makedirs(os.path.dirname(program), exist_ok=True)
        with open(os.path.join(self.top, "code"), "wb") as file:
            file.write(code)
        added = ["--add-section", f".nv_fatbin={self.top}/code"] if code else []
        subprocess.run(["objcopy", *added, os.path.join(self.top, "program"), program], check=True)

    def library(self, name, code):
        write(os.path.join(self.top, "library.c"), code)
        os.makedirs(os.path.join(self.top, "system"), exist_ok=True)
        subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "library.c", "-o", f"system/{name}"], cwd=self.top,
                       check=True)

    def collect(self):
        command = [sys.executable, os.path.join(self.top, "tools/gpu_check"), "--collect", os.path.join(self.top, "to")]
        return subprocess.run(command, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_programs_and_the_chips_that_they_are_for(self):
        done = self.collect()
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(set(os.listdir(os.path.join(self.top, "to"))),
                         {"gpu_check", "collected.json", "torch_step.py", "lib", *BUILT.values()})
        with open(os.path.join(self.top, "to/collected.json"), encoding="ascii") as file:
            self.assertEqual(json.load(file)["architectures"], {name: ["compute_80", "sm_80", "sm_90a"] for name in BUILT.values()})
        self.assertEqual(subprocess.run([os.path.join(self.top, "to/rows")], check=False).returncode, 0)

    def test_libraries_that_another_machine_may_lack_come_along(self):
        self.assertEqual(self.collect().returncode, 0)
        self.assertEqual(os.listdir(os.path.join(self.top, "to/lib")), ["libother.so.1"])  # C's and NVIDIA's are of the machine
        os.remove(os.path.join(self.top, "system/libother.so.1"))
        program = os.path.join(self.top, "to/rows")
        self.assertNotEqual(subprocess.run([program], stderr=subprocess.DEVNULL, check=False).returncode, 0)
        environment = {"LD_LIBRARY_PATH": os.path.join(self.top, "to/lib")}
        self.assertEqual(subprocess.run([program], env=environment, check=False).returncode, 0)
        done = self.collect()
        self.assertEqual((done.returncode, done.stdout), (1, "gpu_check: not found: libother.so.1\n"))

    def test_programs_without_code_for_gpus_are_refused(self):
        self.build("tests/gpu", b"")
        self.build("benchmarks/train_step", bytes(64))  # the section is there, and nothing in it
        done = self.collect()
        self.assertEqual((done.returncode, done.stdout), (1, "gpu_check: no code for GPUs in tests/gpu benchmarks/train_step: "
                                                             "built without --config=cuda; see --help\n"))
        self.assertFalse(os.path.exists(os.path.join(self.top, "to")))

    def test_programs_that_are_not_built_are_named(self):
        os.remove(os.path.join(self.top, "out/bin/tests/gpu"))
        done = self.collect()
        self.assertEqual((done.returncode, done.stdout), (1, "gpu_check: not built: tests/gpu; see --help\n"))


if __name__ == "__main__":
    unittest.main()
