#!/usr/bin/python3 -B
"""Tests tools/check/machine_code.py with example kernels; //tests/tools:kernels_machine_code_test checks real ones."""

import os
import subprocess
import sys
import tempfile
import types
import unittest

CHECKS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "tools", "check")
sys.path.insert(0, CHECKS)
import machine_code  # pylint: disable=wrong-import-position
from machine_code_limits import Promise  # pylint: disable=wrong-import-position

FINE = machine_code.Kernel("a/f<BFloat16>", registers=32, shared=0, local=0, loads=2, stores=1, divisions=0, bytes=1000)
SASS = """
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/              @!P0 LDG.E.128.CONSTANT R8, desc[UR4][R6.64] ;
        /*0030*/                   LDG.E.64 R8, desc[UR4][R6.64] ;
        /*0040*/                   LDS.128 R8, [R6] ;
        /*0050*/                   STG.E.EF.128 desc[UR4][R2.64], R4 ;
        /*0060*/                   STG.E.U16 desc[UR4][R2.64], R4 ;
        /*0070*/                   CALL.REL.NOINC `($__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath) ;
        /*0080*/                   CALL.REL.NOINC `($__internal_1_$__cuda_sm20_sqrt_rn_f32_slowpath) ;
        /*0090*/                   CALL.REL.NOINC `($__internal_2_$__cuda_sm20_dsqrt_rn_f64_mediumpath_v1) ;
        /*00a0*/                   CALL.REL.NOINC `($__internal_3_$__cuda_sm20_rcp_rn_f32_slowpath) ;
        /*00b0*/                   CALL.REL.NOINC `($__internal_4_$__cuda_sm20_div_s64) ;
"""


def rules(**changed):
    values = {"HOT": {"a/f<BFloat16>": Promise(256, 64, loads=2, stores=1)}, "LOCAL": {}, "DIVISIONS": {}, "CODE_KIB": {"*": 1},
              "FATBIN_KIB": 10}
    return types.SimpleNamespace(**{**values, **changed})


class MachineCodeTest(unittest.TestCase):
    def violations(self, kernel=FINE, fatbin_bytes=0, **changed):
        return machine_code.check([machine_code.Object("a", [kernel], kernel.bytes, fatbin_bytes)], rules(**changed))

    def assert_one(self, part, violations):
        self.assertEqual(len(violations), 1, violations)
        self.assertIn(part, violations[0])

    def test_kernel_within_the_limits_passes(self):
        self.assertEqual(self.violations(), [])

    def test_warps_are_limited_by_each_resource(self):
        for registers, shared, threads, warps in [(32, 0, 256, 64), (33, 0, 256, 48), (40, 0, 256, 48), (41, 0, 256, 40), (127, 0, 256, 16),
                                                  (183, 26112, 256, 8), (255, 0, 256, 8), (32, 0, 32, 32), (32, 48 * 1024, 128, 16),
                                                  (32, 0, 1024, 64), (40, 0, 512, 48), (16, 113 * 1024, 256, 16), (16, 114 * 1024, 256, 8)]:
            self.assertEqual(machine_code.warps_of(registers, shared, threads), warps, (registers, shared, threads))

    def test_fewer_warps_than_promised(self):
        self.assert_one("48 warps per multiprocessor (33 registers", self.violations(FINE._replace(registers=33)))
        self.assert_one("56 warps", self.violations(FINE._replace(shared=31000)))

    def test_missing_wide_accesses(self):
        self.assert_one("1 loads of 16 bytes; at least 2", self.violations(FINE._replace(loads=1)))
        self.assert_one("0 stores of 16 bytes; at least 1", self.violations(FINE._replace(stores=0)))

    def test_local_memory_without_exception(self):
        self.assert_one("8 bytes of local memory; at most 0", self.violations(FINE._replace(local=8)))
        self.assertEqual(self.violations(FINE._replace(local=8), LOCAL={"a/*": 8}), [])
        self.assert_one("16 bytes of local memory; at most 8", self.violations(FINE._replace(local=16), LOCAL={"a/*": 8}))

    def test_divisions_of_hot_half_kernels(self):
        self.assert_one("3 calls of an IEEE division", self.violations(FINE._replace(divisions=3)))
        self.assertEqual(self.violations(FINE._replace(divisions=3), DIVISIONS={"a/f<BFloat16>": 3}), [])
        single = FINE._replace(name="a/f<float>", divisions=3)
        self.assertEqual(self.violations(single, HOT={"a/f<float>": Promise(256, 64)}), [])

    def test_exceptions_can_only_shrink(self):
        self.assert_one("exception a/*: at most 8 bytes", self.violations(FINE._replace(local=8), LOCAL={"a/*": 16}))
        self.assert_one("exception b/*: at most 0 bytes", self.violations(LOCAL={"b/*": 16}))
        self.assert_one("at most 1 calls", self.violations(FINE._replace(divisions=1), DIVISIONS={"a/f<BFloat16>": 2}))

    def test_promise_without_kernel(self):
        self.assert_one("a/g<float>: no such kernel", self.violations(HOT={"a/g<float>": Promise(256, 64)}))

    def test_sizes(self):
        self.assert_one("a: 2 KiB of machine code; at most 1", self.violations(FINE._replace(bytes=2048)))
        self.assertEqual(self.violations(FINE._replace(bytes=2048), CODE_KIB={"a": 2, "*": 1}), [])
        self.assert_one("11 KiB of compressed code; at most 10", self.violations(fatbin_bytes=11 * 1024))

    def test_reads_disassembly(self):
        self.assertEqual(machine_code.accesses_of(SASS), (2, 1, 4))

    def test_short_names(self):
        for text, name in [
            ("void tandem::v0::cuda::(anonymous namespace)::f<tandem::v0::BFloat16, 1>(long, float const*)", "f<BFloat16, 1>"),
            ("void tandem::v0::cuda::f<2, tandem::v0::cuda::(anonymous namespace)::Copy<float, int> >(long)", "f<2, Copy<float, int>>"),
            ("void tandem::v0::cuda::f<(tandem::v0::ScatterOp)1>(long)", "f<(ScatterOp)1>"),
            ("tandem::v0::cuda::(anonymous namespace)::write_kernel(int, double*)", "write_kernel"),
        ]:
            self.assertEqual(machine_code.short_name(text), name)

    def test_missing_disassembler_is_explained(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {k: v for k, v in os.environ.items() if k != "TANDEM_CUDA_EXTRAS"}
            ended = subprocess.run([sys.executable, "-B", os.path.join(CHECKS, "machine_code.py"), "--tools", folder, "a.o"],
                                   capture_output=True, text=True, check=False, env=environment)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("cuobjdump and nvdisasm not found in " + folder, ended.stderr)
        self.assertIn("tools/cuda_toolkit --extras DIR", ended.stderr)


if __name__ == "__main__":
    unittest.main()
