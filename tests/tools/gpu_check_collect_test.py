#!/usr/bin/python3 -B
"""Tests of gpu_checks.collect, which packs the programs that tools/gpu_check runs."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "tools")
sys.path.insert(0, TOOLS)
from gpu_checks import collect  # pylint: disable=wrong-import-position

# Path of each program in the build, and its name in the archive.
BUILT = {
    "tests/gpu": "gpu_tests",
    "benchmarks/gpu/gpu": "gpu_benchmark",
    "benchmarks/train_step": "train_step",
    "examples/mnist/mnist": "mnist",
    "examples/language_model/language_model": "language_model",
    "examples/resnet_cifar/resnet_cifar": "resnet_cifar",
    "benchmarks/collectives/collectives": "collectives",
    **{f"tests/distributed/gpu_{name}_test": f"gpu_{name}_test"
       for name in ("ops", "ddp", "ddp_failure", "ddp_graph", "ddp_graph_failure", "group", "nccl_backend", "messages",
                    "messages_failure")},
}


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(path, mode)


class Collect(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = folder.name
        shutil.copytree(TOOLS, os.path.join(self.top, "tools"))
        write(os.path.join(self.top, "benchmarks/vs_pytorch/torch_step.py"), "")
        self.library("libother.so.1", "int other(void) { return 3; }")
        self.library("libnccl.so.2", "int nccl(void) { return 4; }")
        write(os.path.join(self.top, "main.c"), "int other(void); int nccl(void); int main(void) { return other() + nccl() - 7; }")
        subprocess.run(["cc", "main.c", "system/libother.so.1", "system/libnccl.so.2", "-o", "program",
                        f"-Wl,-rpath,{self.top}/system"], cwd=self.top, check=True)
        for path in BUILT:
            self.build(path, collect.CONTAINER + b"code")

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

    def collect(self, *arguments):
        """Runs gpu_check --collect, and unpacks the archive if it succeeds."""
        command = [sys.executable, os.path.join(self.top, "tools/gpu_check"), "--collect", os.path.join(self.top, "gpu_check.pyz"),
                   *arguments]
        done = subprocess.run(command, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode == 0:
            collect.unpack(os.path.join(self.top, "gpu_check.pyz"), os.path.join(self.top, "to"))
        return done

    def test_archive_has_programs(self):
        done = self.collect()
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(set(os.listdir(os.path.join(self.top, "to"))),
                         {"torch_step.py", "lib", *BUILT.values()})
        self.assertEqual(subprocess.run([os.path.join(self.top, "to/gpu_benchmark")], check=False).returncode, 0)

    def test_archive_has_required_libraries(self):
        self.assertEqual(self.collect().returncode, 0)
        self.assertEqual(os.listdir(os.path.join(self.top, "to/lib")), ["libother.so.1"])  # without the C library and NVIDIA's libraries
        os.remove(os.path.join(self.top, "system/libother.so.1"))
        program = os.path.join(self.top, "to/gpu_benchmark")
        self.assertNotEqual(subprocess.run([program], stderr=subprocess.DEVNULL, check=False).returncode, 0)
        environment = {"LD_LIBRARY_PATH": os.path.join(self.top, "to/lib")}
        self.assertEqual(subprocess.run([program], env=environment, check=False).returncode, 0)
        done = self.collect()
        self.assertEqual((done.returncode, done.stdout), (1, "gpu_check: libraries not found: libother.so.1\n"))

    def test_programs_without_gpu_code_are_rejected(self):
        self.build("tests/gpu", b"")
        self.build("benchmarks/train_step", bytes(64))  # a section without containers
        done = self.collect()
        self.assertEqual((done.returncode, done.stdout), (1, "gpu_check: no GPU code in tests/gpu benchmarks/train_step; "
                                                             "build with --config=cuda (--help has the build command)\n"))
        self.assertFalse(os.path.exists(os.path.join(self.top, "gpu_check.pyz")))

    def test_missing_programs_are_listed(self):
        os.remove(os.path.join(self.top, "out/bin/tests/gpu"))
        done = self.collect()
        self.assertEqual((done.returncode, done.stdout), (1, "gpu_check: not built: tests/gpu; --help has the build command\n"))

    def test_archive_above_limit_is_an_error_with_largest_members(self):
        self.build("examples/mnist/mnist", collect.CONTAINER + os.urandom(1 << 20))
        done = self.collect("--limit-mib", "0.5")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"^gpu_check: /\S+/gpu_check.pyz would have 1\.\d MiB \(limit 0\.5 MiB\); the largest members, before "
                                      r"compression: mnist 1\.0 MiB, ")
        self.assertFalse(os.path.exists(os.path.join(self.top, "gpu_check.pyz")))
        self.assertEqual(self.collect("--limit-mib", "2").returncode, 0)


class Archive(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = folder.name
        os.makedirs(os.path.join(self.top, "files/lib"))

    def pack(self, name):
        collect.pack(os.path.join(self.top, "files"), os.path.join(self.top, name))
        with open(os.path.join(self.top, name), "rb") as file:
            return file.read()

    def test_equal_content_is_stored_once(self):
        noise = os.urandom(9 << 20)  # larger than the dictionary of xz's preset 0
        for name in ("one", "two", "three"):
            with open(os.path.join(self.top, "files", name), "wb") as file:
                file.write(noise)
        self.assertLess(len(self.pack("packed")), 10 << 20)

    def test_unpack_restores_files_and_modes(self):
        write(os.path.join(self.top, "files/program"), "#!/bin/sh\necho runs\n", 0o755)
        write(os.path.join(self.top, "files/lib/library"), "text")
        self.pack("packed")
        collect.unpack(os.path.join(self.top, "packed"), os.path.join(self.top, "to"))
        self.assertEqual(sorted(os.listdir(os.path.join(self.top, "to"))), ["lib", "program"])
        self.assertEqual(subprocess.check_output([os.path.join(self.top, "to/program")]), b"runs\n")
        with open(os.path.join(self.top, "to/lib/library"), encoding="ascii") as file:
            self.assertEqual(file.read(), "text")


if __name__ == "__main__":
    unittest.main()
