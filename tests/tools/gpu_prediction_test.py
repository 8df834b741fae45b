#!/usr/bin/python3
"""Tests of tools/gpu_prediction with invented machine code and work."""

import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
TOOLS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "tools")
sys.path[:0] = [os.path.join(TOOLS, "gpu_prediction"), os.path.join(TOOLS, "check")]
import loops  # pylint: disable=wrong-import-position
import predict  # pylint: disable=wrong-import-position

# Six instructions outside of loops. A loop with 2 loads and a store, whose slow path of 2 instructions is skipped; and a
# loop within it that reads 5 words of shared memory.
SASS = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/                   S2R R0, SR_TID.X ;
        /*0020*/              @P0 EXIT ;
.L_x_3:
        /*0030*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0040*/                   LDG.E.128 R8, desc[UR4][R2.64+0x10] ;
.L_x_1:
        /*0050*/                   LDS.128 R12, [R6] ;
        /*0060*/                   LDS R16, [R6+0x10] ;
        /*0070*/                   FFMA R4, R4, R8, R12 ;
        /*0080*/                   FFMA R5, R5, R9, R13 ;
        /*0090*/              @P1 BRA `(.L_x_1) ;
        /*00a0*/              @!P2 BRA `(.L_x_2) ;
        /*00b0*/                   MUFU.RCP R5, R5 ;
        /*00c0*/                   CALL.REL.NOINC `($__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath) ;
.L_x_2:
        /*00d0*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*00e0*/                   IADD3 R0, R0, 0x1, RZ ;
        /*00f0*/               @P0 BRA `(.L_x_3) ;
        /*0100*/                   NOP ;
        /*0110*/                   NOP ;
        /*0120*/                   EXIT ;
"""


class LoopsTest(unittest.TestCase):
    def test_instructions_belong_to_the_innermost_loop(self):
        mix = loops.mix_of(SASS)
        self.assertEqual(mix.straight, 6)
        self.assertEqual(mix.global_, {16: (6, 3)})  # LDG, LDG, BRA, STG, IADD3, BRA
        self.assertEqual(mix.loads, {16: 2})
        self.assertEqual(mix.shared, (5, 5))

    def test_skipped_code_counts_if_it_accesses_memory(self):
        mix = loops.mix_of(SASS.replace("MUFU.RCP R5, R5", "STG.E.128 desc[UR4][R2.64], R5"))
        self.assertEqual(mix.global_, {16: (8, 4)})

    def test_widths(self):
        self.assertEqual([loops.width_of(op) for op in ("LDG.E.128.CONSTANT", "LDS.64", "STG.E", "LDG.E.U16", "STG.E.U8")], [16, 8, 4, 2, 1])


def work(blocks, threads, reads, writes, width, traffic=None, least=None):
    """A launch whose requests of 32 threads access `width` bytes each, coalesced unless other traffic is given."""
    used = (reads + writes) * 32 * width
    return {"name": "f<float>", "op": "copy", "backward": False, "blocks": blocks, "threads": threads, "reads": reads, "writes": writes,
            "traffic": traffic or used, "least": least or used, "wavefronts": 0, "least_wavefronts": 0,
            "widths": [(reads + writes) * 32 if w == width else 0 for w in (1, 2, 4, 8, 16)]}


def kernel(registers=32, instructions=10, in_flight=1.0):
    return predict.Kernel(registers, 0, loops.Mix({4: (instructions, 1), 16: (instructions, 1)}, {4: in_flight, 16: in_flight}, (0, 0), 0))


class KernelTimeTest(unittest.TestCase):
    def test_large_packed_copy_is_bound_by_memory(self):
        seconds, bound = predict.kernel_time(work(1 << 18, 256, 1 << 21, 1 << 21, 16), kernel(in_flight=2))
        self.assertEqual(bound, "memory")
        self.assertAlmostEqual(seconds, (2 << 21) * 512 / predict.DRAM_BANDWIDTH)

    def test_few_registers_more_warps_less_time(self):
        narrow = work(1 << 18, 256, 1 << 21, 1 << 21, 4)
        self.assertEqual(predict.kernel_time(narrow, kernel())[1], "latency")
        self.assertGreater(predict.kernel_time(narrow, kernel(registers=128))[0], 3.9 * predict.kernel_time(narrow, kernel())[0])

    def test_more_loads_in_flight_less_time(self):
        one = predict.kernel_time(work(24, 512, 1 << 20, 0, 4), kernel(instructions=0))[0]
        four = predict.kernel_time(work(24, 512, 1 << 20, 0, 4), kernel(instructions=0, in_flight=4))[0]
        self.assertAlmostEqual(one / four, 4)

    def test_one_block_uses_one_multiprocessor(self):
        one = predict.kernel_time(work(1, 512, 1 << 16, 0, 4), kernel())[0]
        many = predict.kernel_time(work(128, 512, 1 << 16, 0, 4), kernel())[0]
        self.assertAlmostEqual(one / many, 128)

    def test_shared_memory_is_that_of_the_multiprocessors_in_use(self):
        for blocks, used in ((1, 1), (24, 24), (132 * 64, 132)):
            busy = {**work(blocks, 512, blocks, 0, 4), "wavefronts": 1 << 28, "least_wavefronts": 1 << 28}
            self.assertEqual(predict.kernel_time(busy, kernel()), ((1 << 28) / used / predict.CLOCK, "shared memory"))

    def test_many_instructions(self):
        seconds, bound = predict.kernel_time(work(132 * 64, 1024, 1 << 21, 0, 4), kernel(instructions=1000))
        self.assertEqual(bound, "instructions")
        self.assertAlmostEqual(seconds / (1000 * (1 << 21) / (132 * 4 * predict.CLOCK)), 1, places=2)

    def test_uncoalesced_accesses_are_bound_by_the_l2_cache(self):
        seconds, bound = predict.kernel_time(work(1 << 18, 256, 1 << 21, 1 << 21, 4, traffic=1 << 32, least=1 << 32), kernel(in_flight=8))
        self.assertEqual((seconds, bound), ((1 << 32) / predict.L2_BANDWIDTH, "L2 cache"))

    def test_small_kernels_take_the_time_of_a_launch(self):
        self.assertEqual(predict.kernel_time(work(1, 32, 1, 0, 4), kernel()), (predict.LEAST_KERNEL, "launch"))


class StepTest(unittest.TestCase):
    def step(self, *works):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "work")
            with open(path, "w", encoding="utf-8") as file:
                for line in ({"case": "mlp", "amp": True, "items": 128}, *works):
                    file.write(json.dumps(line) + "\n")
            return predict.step_of(path, {"f<float>": kernel()})

    def test_products_run_at_the_rate_of_their_type(self):
        product = {"name": "product, bfloat16", "op": "linear", "backward": True, "flops": 1e12, "bytes": 1e6}
        step = self.step(product, product)
        self.assertAlmostEqual(step.gpu, 2e12 / predict.PRODUCT["bfloat16"])
        self.assertEqual(step.rows, [predict.Row("backward", "linear", "product, bfloat16", step.gpu, 2, "products")])

    def test_step_takes_the_larger_of_gpu_and_host_and_a_captured_one_a_single_launch(self):
        step = self.step(*[work(1, 32, 1, 0, 4)] * 10)
        self.assertIn("| mlp | bfloat16 | 10 | 0.0250 | 0.0800 | 0.0800 | - | 0.0330 | - |", predict.markdown([step], 1, {}))
        self.assertIn("| mlp, bfloat16 | forward | copy | `f<float>` | 10 | 0.0250 | 100.0 % | launch | - |",
                      predict.markdown([step], 1, {}))

    def test_measured_times_are_beside_the_predicted_ones(self):
        step = self.step(*[work(1, 32, 1, 0, 4)] * 10)
        measured = {("mlp", "bfloat16"): {"step_ms": 0.0912, "captured_ms": 0.0412, "operations": {"forward copy": 0.0312}}}
        tables = predict.markdown([step], 1, measured)
        self.assertIn("| 0.0800 | 0.0912 | 0.0330 | 0.0412 |", tables)
        self.assertIn("| 100.0 % | launch | 0.0312 |", tables)
        self.assertIn(("gpt2-124m-64", "bfloat16"), predict.measured_steps())

    def test_missing_machine_code_is_named(self):
        with self.assertRaisesRegex(SystemExit, "predict: no machine code of g<int>"):
            self.step({**work(1, 32, 1, 0, 4), "name": "g<int>"})

    def test_tables_in_a_document_are_replaced(self):
        old, new = (predict.markdown([self.step(*[work(1, 32, 1, 0, 4)] * count)], 1, {}) for count in (10, 20))
        self.assertNotEqual(old, new)
        document = "before\n\n%s\n\nafter\n\n| another | table |\n"
        self.assertEqual(predict.with_tables(document % old, new), document % new)


class NamesTest(unittest.TestCase):
    def test_names_of_emulation_and_machine_code_are_equal(self):
        self.assertEqual(predict.kernel_name("copy/k<2, optim::Rule<float> >"), predict.kernel_name("k<2, Rule<float>>"))


if __name__ == "__main__":
    unittest.main()
