#!/usr/bin/env python3
"""Predicts the time of training steps on an H200 from counted work, and prints it as Markdown.

    predict.py [--tools DIR] --objects OBJECT... --work FILE...
    predict.py ... --document FILE [--check]

The first prints the tables; the second replaces them in a document, or fails if the document has others.

A FILE is the output of //tests/benchmarks:gpu_work for one case: the work of the GPU by kernel, product, convolution and copy. An
OBJECT is a *.cu file compiled for Hopper: its machine code tells how many instructions a kernel needs per memory access, and how
many warps a multiprocessor holds. DIR has cuobjdump and nvdisasm ($TANDEM_CUDA_EXTRAS/bin replaces it). docs/gpu_performance.md
explains the formulas. The tables also have the times that train_step measured on an H200 (measured_h200.json).
"""

import argparse
import collections
import concurrent.futures
import difflib
import glob
import json
import math
import os
import re
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "check"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import loops
import machine_code

# An H200. Bandwidth and the rates of libraries are what large copies and products reach.
MULTIPROCESSORS, CLOCK = 132, 1.755e9
DRAM_BANDWIDTH, L2_BANDWIDTH = 4.3e12, 5.5e12  # bytes/s
L1_BANDWIDTH = 128 * CLOCK  # bytes/s of a multiprocessor
DRAM_LATENCY, L2_LATENCY, L1_LATENCY = 650e-9, 270e-9, 20e-9  # s
L2_BYTES = 30e6  # a launch that touches less finds it in the L2 cache, which has 60 MB
SCHEDULERS = 4  # instructions of different warps per cycle
ISSUE_CYCLES = 3  # between two instructions of a warp, on average
LEAST_KERNEL = 2.5e-6  # s, of a kernel without work
HOST_TASK = 8e-6  # s of the host per kernel, copy or call of a library
PRODUCT = {"bfloat16": 790e12 * 0.86, "float16": 790e12 * 0.86, "float32": 67e12 * 0.8, "tf32": 395e12 * 0.8, "float64": 67e12 * 0.8}
CONVOLUTION = {"bfloat16": 790e12 * 0.46, "float16": 790e12 * 0.46, "float32": 67e12 * 0.5}
ATTENTION = {"bfloat16": 790e12 * 0.37, "float16": 790e12 * 0.37}
ATTENTION_BACKWARD = {"bfloat16": 790e12 * 0.26, "float16": 790e12 * 0.26}
RATES = {"product": PRODUCT, "convolution": CONVOLUTION, "attention": ATTENTION, "attention backward": ATTENTION_BACKWARD}

Kernel = collections.namedtuple("Kernel", "registers shared mix")


def kernel_name(name):
    """Equal for the names that the emulation and the machine code give a kernel."""
    return re.sub(r"\s+", "", re.sub(r"(\(anonymous namespace\)|\b[A-Za-z_]\w*)::", "", name.split("/", 1)[-1]))


def read_object(path, tools):
    """name -> Kernel of an object file."""
    kernels = {}
    path = os.path.abspath(path)
    with tempfile.TemporaryDirectory() as folder:
        machine_code.output(tools + "cuobjdump", "-xelf", "sm_90a", path, cwd=folder)
        for cubin in glob.glob(folder + "/*.cubin"):
            resources = machine_code.resources_of(cubin, tools)
            sections = machine_code.sections_of(cubin, tools)
            for symbol, (name, registers, shared, _) in resources.items():
                kernels[kernel_name(name)] = Kernel(registers, shared, loops.mix_of(sections.get(symbol, "")))
    return kernels


def nearest(table, width):
    """The value of the width in the table that is nearest to this one."""
    return table[min(table, key=lambda w: abs(math.log2(w) - math.log2(width)))]


def instructions_of(work, mix):
    """Instructions of warps of a launch."""
    accesses = sum(work["widths"])
    requests = work["reads"] + work["writes"]
    total = mix.straight * work["blocks"] * math.ceil(work["threads"] / 32)
    if mix.global_ and accesses:
        for width, count in zip((1, 2, 4, 8, 16), work["widths"]):
            instructions, static = nearest(mix.global_, width) if count else (0, 1)
            total += requests * count / accesses * instructions / static
    instructions, words = mix.shared
    return total + (work["least_wavefronts"] * instructions / words if words else 0)


def kernel_time(work, kernel):
    """Seconds of a launch, and what bounds it."""
    warps = math.ceil(work["threads"] / 32)
    resident = machine_code.warps_of(kernel.registers, kernel.shared, work["threads"]) // warps  # blocks
    resident = min(resident, math.ceil(work["blocks"] / MULTIPROCESSORS))
    multiprocessors = min(work["blocks"], MULTIPROCESSORS)
    rounds = work["blocks"] / (resident * multiprocessors)
    if rounds < 8:
        rounds = math.ceil(rounds)

    warps_in_all = work["blocks"] * warps
    instructions = instructions_of(work, kernel.mix)
    issue = instructions / work["blocks"] * resident / SCHEDULERS / CLOCK
    # The sampled blocks touch different sectors: a sector that blocks share, using different parts of it, is read from
    # memory once and from the L2 cache by each block.
    used = min(work["least"], sum(width * count for width, count in zip((1, 2, 4, 8, 16), work["widths"])))
    is_in_l2 = used < L2_BYTES
    beyond_l1 = min(1, work["least"] / work["traffic"]) if work["traffic"] else 0
    latency = beyond_l1 * (L2_LATENCY if is_in_l2 else DRAM_LATENCY) + (1 - beyond_l1) * L1_LATENCY
    accesses = sum(work["widths"])
    in_flight = sum(nearest(kernel.mix.loads, width) * count for width, count in zip((1, 2, 4, 8, 16), work["widths"])
                    if count) / accesses if accesses and kernel.mix.loads else 1
    warp = work["reads"] / warps_in_all / in_flight * latency + instructions / warps_in_all * ISSUE_CYCLES / CLOCK
    bounds = {
        "latency": rounds * warp,
        "instructions": rounds * issue,
        "memory": 0 if is_in_l2 else used / DRAM_BANDWIDTH,
        "L2 cache": work["least"] / L2_BANDWIDTH,
        "L1 cache": work["traffic"] / multiprocessors / L1_BANDWIDTH,
        "shared memory": work["wavefronts"] / multiprocessors / CLOCK,
    }
    bound = max(bounds, key=bounds.get)
    return (bounds[bound], bound) if bounds[bound] > LEAST_KERNEL else (LEAST_KERNEL, "launch")


def work_time(work, kernels):
    """Seconds of a record, and what bounds it."""
    if "blocks" in work:
        kernel = kernels.get(kernel_name(work["name"]))
        if kernel is None:
            sys.exit("predict: no machine code of %s" % work["name"])
        return kernel_time(work, kernel)
    kind, _, dtype = work["name"].partition(", ")
    rates = RATES.get(kind)
    bounds = {"memory": work["bytes"] / DRAM_BANDWIDTH, "launch": LEAST_KERNEL}
    if rates:
        bounds["products"] = work["flops"] / rates[dtype]
    bound = max(bounds, key=bounds.get)
    return bounds[bound], bound


Row = collections.namedtuple("Row", "phase op work seconds tasks bound")
Step = collections.namedtuple("Step", "case precision items tasks gpu host rows")


def step_of(path, kernels):
    """The Step of a file of gpu_work. Rows: seconds by phase, operation and kernel, the longest first."""
    with open(path, encoding="utf-8") as file:
        header, *works = [json.loads(line) for line in file]
    seconds, tasks = collections.Counter(), collections.Counter()
    bounds = collections.defaultdict(collections.Counter)
    for work in works:
        phase = "backward" if work["backward"] else "optimizer" if work["op"].startswith("optimizer") else "forward"
        key = phase, work["op"] or "other", work["name"]
        time, bound = work_time(work, kernels)
        seconds[key] += time
        tasks[key] += 1
        bounds[key][bound] += time
    rows = [Row(*key, time, tasks[key], bounds[key].most_common(1)[0][0]) for key, time in seconds.most_common()]
    return Step(header["case"], "bfloat16" if header["amp"] else "float32", header["items"], len(works), seconds.total(),
                len(works) * HOST_TASK, rows)


def number(value):
    """Three significant digits."""
    return "%d" % round(value) if value >= 100 else "%.*f" % (max(0, 2 - math.floor(math.log10(value))), value)


def measured_steps():
    """The times that train_step measured on an H200, by case and precision."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "measured_h200.json"), encoding="utf-8") as file:
        return {(step["case"], step["precision"]): step for step in json.load(file)}


def measured_cell(measured, step, *keys):
    """A measured time, or a dash."""
    value = measured.get((step.case, step.precision), {})
    for key in keys:
        value = value.get(key, {})
    return number(value) if value else "-"


def markdown(steps, num_rows, measured):
    """The steps as a table, and the longest rows of each as another one. `measured`: as returned by measured_steps."""
    lines = ["| case | precision | tasks | GPU, ms, predicted | host, ms, predicted | step, ms, predicted | step, ms, measured |"
             " captured step, ms, predicted | captured step, ms, measured |",
             "|---|---|---|---|---|---|---|---|---|"]
    for step in steps:
        lines.append("| %s | %s | %d | %s | %s | %s | %s | %s | %s |" % (
            step.case, step.precision, step.tasks, number(step.gpu * 1e3), number(step.host * 1e3),
            number(max(step.gpu, step.host) * 1e3), measured_cell(measured, step, "step_ms"),
            number((step.gpu + HOST_TASK) * 1e3), measured_cell(measured, step, "captured_ms")))
    lines += ["", "| step | phase | operation | kernel or library | tasks | ms, predicted | of the GPU's time | bound |"
              " whole operation, ms, measured |",
              "|---|---|---|---|---|---|---|---|---|"]
    for step in steps:
        for row in step.rows[:num_rows]:
            is_kernel = row.work.partition(", ")[0] not in RATES and not row.work.startswith(("copy", "fill"))
            work = "`%s`" % row.work.replace("> >", ">>") if is_kernel else row.work
            lines.append("| %s, %s | %s | %s | %s | %d | %s | %.1f %% | %s | %s |" % (
                step.case, step.precision, row.phase, row.op, work, row.tasks, number(row.seconds * 1e3),
                100 * row.seconds / step.gpu, row.bound, measured_cell(measured, step, "operations", f"{row.phase} {row.op}")))
    return "\n".join(lines)


def with_tables(text, tables):
    """The text of a document with these tables in place of its own."""
    start = text.index("| case | precision |")
    end = text.index("\n\n", text.index("| step | phase |", start))
    return text[:start] + tables + text[end:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", metavar="DIR", default="/usr/local/cuda/bin")
    parser.add_argument("--objects", nargs="+", required=True)
    parser.add_argument("--work", nargs="+", required=True)
    parser.add_argument("--rows", type=int, default=8, help="rows of each step in the second table")
    parser.add_argument("--document", help="write the tables into this Markdown file")
    parser.add_argument("--check", action="store_true", help="compare with the document instead")
    arguments = parser.parse_args()
    extras = os.environ.get("TANDEM_CUDA_EXTRAS")
    tools = os.path.join(os.path.abspath(extras + "/bin" if extras else arguments.tools), "")
    if any(shutil.which(tools + name) is None for name in ("cuobjdump", "nvdisasm")):
        sys.exit("predict: " + machine_code.GET_TOOLS % tools)
    kernels = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lambda path: read_object(path, tools), arguments.objects):
            kernels.update(found)
    tables = markdown([step_of(path, kernels) for path in arguments.work], arguments.rows, measured_steps())
    if not arguments.document:
        print(tables)
        return
    with open(arguments.document, encoding="utf-8") as file:
        old = file.read()
    new = with_tables(old, tables)
    if not arguments.check:
        with open(arguments.document, "w", encoding="utf-8") as file:
            file.write(new)
    elif new != old:
        sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), arguments.document, "predicted"))
        sys.exit("predict: %s has other tables; tools/gpu_prediction/update writes them" % arguments.document)


if __name__ == "__main__":
    main()
