#!/usr/bin/env -S python3 -B
"""Checks the CUDA kernels' machine code for sm_90a against tools/check/machine_code_limits.py.

    machine_code.py [--table] [--tools DIR] OBJECT...   # objects of *.cu files; --table prints the hot kernels as Markdown

Local memory, registers and shared memory (as resident warps), accesses of 16 bytes, calls of IEEE divisions and square roots, and
code sizes are checked. An exception that is no longer needed is a violation too, so the exceptions only shrink. DIR has cuobjdump
and nvdisasm; $TANDEM_CUDA_EXTRAS/bin replaces it if the environment has that variable.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import machine_code_limits as limits

# A multiprocessor of compute capability 9.0. Registers and warps are divided among four schedulers.
REGISTERS, REGISTER_UNIT, SCHEDULERS = 65536, 256, 4
MAX_WARPS, MAX_BLOCKS = 64, 32
SHARED_BYTES, SHARED_UNIT, SHARED_OF_SYSTEM = 228 * 1024, 128, 1024

Kernel = collections.namedtuple("Kernel", "name registers shared local loads stores divisions bytes")  # loads, stores: of 16 bytes
Object = collections.namedtuple("Object", "name kernels code_bytes fatbin_bytes")

_SLOW = re.compile(r"__cuda_\w*?(?:_div_rn|_d?sqrt_rn|_rcp_rn|_dblrcp_rn)_")  # not the divisions of integers
_RESOURCES = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_WIDE = re.compile(r"\b(LDG|STG)\.E[.\w]*\.128\b")
_SYMBOL = re.compile(r"^ *(\d+): [0-9a-f]+ +(\w+) FUNC .* (\S+)$", re.MULTILINE)
_CALL = re.compile(r"\bCALL[.\w]* `\(([^)]+)\)")
_NAMESPACES = re.compile(r"\(anonymous namespace\)::|\b(?:tandem|v0|cuda|optim|functions|primitives)::")
GET_TOOLS = ("cuobjdump and nvdisasm not found in %s; install them with tools/cuda_toolkit --extras DIR and set "
             "TANDEM_CUDA_EXTRAS=DIR (in Bazel --test_env=TANDEM_CUDA_EXTRAS=DIR)")


def warps_of(registers, shared, threads):
    """Resident warps of a multiprocessor for blocks with these threads and bytes of shared memory."""
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    by_registers = REGISTERS // SCHEDULERS // of_warp * SCHEDULERS
    of_block = -(-(shared + SHARED_OF_SYSTEM) // SHARED_UNIT) * SHARED_UNIT
    return warps * min(by_registers // warps, MAX_WARPS // warps, MAX_BLOCKS, SHARED_BYTES // of_block)


def short_name(demangled):
    """void tandem::v0::cuda::f<tandem::v0::Half>(long) -> f<Half>"""
    name = _NAMESPACES.sub("", demangled)
    depth = 0
    for i, c in enumerate(name):
        if c == "(" and depth == 0:
            name = name[:i]
            break
        depth += {"<": 1, ">": -1, "(": 1, ")": -1}.get(c, 0)
    return re.sub(r"> (?=>)", ">", name.removeprefix("void "))


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def accesses_of(code):
    """(loads of 16 bytes, stores of 16 bytes, calls of slow subroutines) in the output of nvdisasm -c."""
    wide = _WIDE.findall(code)
    return wide.count("LDG"), wide.count("STG"), len([callee for callee in _CALL.findall(code) if _SLOW.search(callee)])


def symbols_of(cubin):
    """symbol -> (index, bytes of code)"""
    return {symbol: (index, int(size, 0)) for index, size, symbol in _SYMBOL.findall(output("readelf", "-sW", cubin))}


def resources_of(cubin, tools):
    """symbol -> (name, registers, bytes of shared memory, bytes of local memory)"""
    found = _RESOURCES.findall(output(tools + "cuobjdump", "-res-usage", cubin))
    names = output("c++filt", input="\n".join(f[0] for f in found)).splitlines()
    return {symbol: (short_name(name), int(registers), max(0, int(shared) - SHARED_OF_SYSTEM), int(stack) + int(local))
            for (symbol, registers, stack, shared, local), name in zip(found, names)}


def sections_of(cubin, tools, indices):
    """symbol -> nvdisasm's text, of the functions with these indices"""
    code = output(tools + "nvdisasm", "-c", "-fun", ",".join(indices), cubin)
    return dict(part.split(":\n", 1) for part in code.split("\n.text.")[1:])


def read_cubin(cubin, prefix, tools):
    """The kernels of a file of machine code. Only the hot ones are disassembled, because that takes long."""
    symbols = symbols_of(cubin)
    resources = {symbol: (prefix + name, *rest) for symbol, (name, *rest) in resources_of(cubin, tools).items()}
    hot = [symbols[symbol][0] for symbol, (name, *_) in resources.items() if any(fnmatch.fnmatchcase(name, p) for p in limits.HOT)]
    sections = sections_of(cubin, tools, hot) if hot else {}
    return [Kernel(name, registers, shared, local, *accesses_of(sections.get(symbol, "")), symbols[symbol][1])
            for symbol, (name, registers, shared, local) in resources.items()]


def read(path, tools):
    """The facts about one object file."""
    name = os.path.basename(path).removesuffix(".cu.pic.o").removesuffix("_cuda")
    path = os.path.abspath(path)
    kernels = []
    with tempfile.TemporaryDirectory() as folder:
        output(tools + "cuobjdump", "-xelf", "sm_90a", path, cwd=folder)
        for cubin in sorted(glob.glob(folder + "/*.cubin")):
            kernels += read_cubin(cubin, name + "/", tools)
    others = [line for line in output(tools + "cuobjdump", "-lelf", "-lptx", path).splitlines() if "sm_90a" not in line]
    fatbin = re.search(r"^\.nv_fatbin +(\d+)", output("size", "-A", "-d", path), re.MULTILINE)
    return Object(name, kernels, sum(k.bytes for k in kernels), 0 if others else int(fatbin[1]))


def matching(kernels, pattern):
    return [k for k in kernels if fnmatch.fnmatchcase(k.name, pattern)]


def is_half(kernel):
    return re.search(r"\b(Half|BFloat16)\b", kernel.name) is not None


def check_exceptions(kernels, field, exceptions, what):
    """Kernels whose field is not 0, except for those of the exceptions: pattern -> the maximum."""
    violations = []
    for kernel in kernels:
        allowed = [most for pattern, most in exceptions.items() if fnmatch.fnmatchcase(kernel.name, pattern)]
        if getattr(kernel, field) > max(allowed, default=0):
            violations.append("%s: %d %s; at most %d" % (kernel.name, getattr(kernel, field), what, max(allowed, default=0)))
    for pattern, most in exceptions.items():
        used = max((getattr(k, field) for k in matching(kernels, pattern)), default=0)
        if used < most:
            violations.append("exception %s: at most %d %s are left; lower or remove the exception" % (pattern, used, what))
    return violations


def check(objects, rules):
    """Violations of the rules, a module like machine_code_limits."""
    kernels = [k for o in objects for k in o.kernels]
    violations = check_exceptions(kernels, "local", rules.LOCAL, "bytes of local memory")
    hot_halves = []
    for pattern, promise in rules.HOT.items():
        found = matching(kernels, pattern)
        if not found:
            violations.append("%s: no such kernel" % pattern)
        hot_halves += [k for k in found if is_half(k) and k not in hot_halves]
        for kernel in found:
            warps = warps_of(kernel.registers, kernel.shared, promise.threads)
            if warps < promise.warps:
                violations.append("%s: %d warps per multiprocessor (%d registers, %d bytes of shared memory, %d threads per block); "
                                  "at least %d" % (kernel.name, warps, kernel.registers, kernel.shared, promise.threads, promise.warps))
            for kind, number, least in (("loads", kernel.loads, promise.loads), ("stores", kernel.stores, promise.stores)):
                if number < least:
                    violations.append("%s: %d %s of 16 bytes; at least %d" % (kernel.name, number, kind, least))
    violations += check_exceptions(hot_halves, "divisions", rules.DIVISIONS, "calls of an IEEE division or square root")
    for o in objects:
        most = rules.CODE_KIB.get(o.name, rules.CODE_KIB["*"])
        if o.code_bytes > most * 1024:
            violations.append("%s: %d KiB of machine code; at most %d" % (o.name, o.code_bytes // 1024, most))
    fatbin_kib = sum(o.fatbin_bytes for o in objects) // 1024
    if fatbin_kib > rules.FATBIN_KIB:
        violations.append("all objects: %d KiB of compressed code; at most %d" % (fatbin_kib, rules.FATBIN_KIB))
    return violations


def table(objects, rules):
    """Markdown: a line for each hot kernel."""
    rows = [("kernel", "threads", "registers", "shared bytes", "local bytes", "warps per SM", "16-byte loads", "16-byte stores",
             "divisions", "code bytes")]
    rows.append(("---",) * len(rows[0]))
    for pattern, promise in rules.HOT.items():
        for k in matching([k for o in objects for k in o.kernels], pattern):
            rows.append(("`%s`" % k.name, promise.threads, k.registers, k.shared, k.local,
                         warps_of(k.registers, k.shared, promise.threads), k.loads, k.stores, k.divisions, k.bytes))
    return "\n".join("| %s |" % " | ".join(str(cell) for cell in row) for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", metavar="DIR", default="/usr/local/cuda/bin")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("objects", nargs="+")
    arguments = parser.parse_args()
    extras = os.environ.get("TANDEM_CUDA_EXTRAS")
    tools = extras + "/bin" if extras else arguments.tools
    if any(shutil.which(os.path.join(tools, name)) is None for name in ("cuobjdump", "nvdisasm")):
        sys.exit("machine_code: " + GET_TOOLS % tools)
    largest_first = sorted(arguments.objects, key=os.path.getsize, reverse=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = sorted(pool.map(lambda path: read(path, os.path.join(os.path.abspath(tools), "")), largest_first))
    if arguments.table:
        print(table(objects, limits))
        return 0
    violations = check(objects, limits)
    for violation in violations:
        print(violation)
    print("%d kernels in %d objects, %d KiB compressed, %d violations" % (
        sum(len(o.kernels) for o in objects), len(objects), sum(o.fatbin_bytes for o in objects) // 1024, len(violations)))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
