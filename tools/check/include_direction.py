#!/usr/bin/python3
"""Every #include follows the arrows between the rooms, and third-party headers stay where they belong.

    base <- tensor <- autograd <- ops <- nn <- examples, benchmarks
"""

import fnmatch
import re
import sys

sys.dont_write_bytecode = True
import common

# room -> the other rooms it may look into.  The top (umbrella header, examples, benchmarks, tests, tools) sees everything.
SEES = {
    "base": set(),
    "tensor": {"base"},
    "autograd": {"base", "tensor"},
    "ops": {"base", "tensor", "autograd"},
    "nn": {"base", "tensor", "autograd", "ops"},
    "optim": {"base", "tensor", "autograd"},
    "data": {"base", "tensor"},
    "io": {"base", "tensor"},
    "distributed": {"base", "tensor"},
    "profile": {"base"},
}

# Files that see more than their room, with the reason.
EXCEPTIONS = [
    ("nn/sync_batch_norm*", {"distributed"}, "its statistics are summed over the group"),
    ("distributed/gradient_reducer*", {"autograd"}, "it stands on leaf hooks and gradient slots"),
    ("distributed/distributed_data_parallel*", {"autograd"}, "a thin template over the reducer"),
]

INTRINSICS = ("*intrin.h", "cpuid.h")
CUDA = ("cuda*", "cub/*", "thrust/*", "nccl*", "cudnn*", "cublas*", "curand*", "nvToolsExt*", "nvtx3/*",
        "cooperative_groups*", "nvml*", "nvrtc*")
# (headers, files that may include them, what is said)
THIRD_PARTY = [
    (("Eigen/*", "unsupported/Eigen/*", "oneapi/*", "dnnl*"), ("*_cpu.cc",), "only *_cpu.cc include Eigen or oneDNN"),
    (CUDA, ("*_cuda.*", "tensor/cuda/*", "distributed/nccl/*", "tests/cuda_emulation/*"),
     "only *_cuda.*, tensor/cuda and distributed/nccl include CUDA or NCCL"),
    (("gloo/*",), ("distributed/gloo/*",), "only distributed/gloo includes Gloo"),
    (("gtest/*", "gmock/*"), ("tests/*",), "only tests include GoogleTest"),
    (("spdlog/*", "fmt/*", "nlohmann/*", "CLI/*", "zlib.h", "zconf.h"), ("*.cc", "*.cu", "tests/*", "benchmarks/*", "examples/*", "tools/*"),
     "headers do not pass these on to users"),
    (INTRINSICS, ("*_avx*.cc",), "intrinsics stand in *_avx*.cc alone"),
]

# A file for wider instructions may see these and nothing with inline functions, directly or through its own header.
PLAIN = ("cstdint", "cstddef") + INTRINSICS

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")', re.MULTILINE)
_PRIVATE = ("*_kernels.h", "*_avx*.h")


def _matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, p) for p in patterns)


def _room(path):
    return path.split("/")[0] if "/" in path else ""


def _may_see(path, room):
    own = _room(path)
    if own not in SEES or room == own:
        return True
    return room in SEES[own] or any(fnmatch.fnmatchcase(path, p) and room in rooms for p, rooms, _ in EXCEPTIONS)


def _check_tandem(path, target, violations):
    room = _room(target)
    if room not in SEES and room not in ("", "tests", "examples", "benchmarks", "tools"):
        violations.append("%s: <tandem/%s> is in no room" % (path, target))
    elif _room(path) in SEES and room not in SEES:
        violations.append("%s: a library does not include <tandem/%s>, which stands above it" % (path, target))
    elif not _may_see(path, room):
        violations.append("%s: %s/ does not look into %s/: <tandem/%s>" % (path, _room(path), room, target))
    elif _matches(target, _PRIVATE) and _room(path) not in (room, "tests", "benchmarks"):
        violations.append("%s: <tandem/%s> is private to %s/" % (path, target, room))


def _check_wide(path, includes, violations):
    """*_avx*.cc: own header and intrinsics, and own header leads to nothing else."""
    stem = path[:path.index("_avx", path.rfind("/") + 1)]
    todo = []
    for target in includes[path]:
        if target.startswith("tandem/" + stem):
            todo.append(target[len("tandem/"):])
        elif not _matches(target, PLAIN):
            violations.append("%s: only intrinsics and its own header, not <%s>" % (path, target))
    seen = set()
    while todo:
        header = todo.pop()
        if header in seen:
            continue
        seen.add(header)
        for target in includes.get(header, []):
            if target.startswith("tandem/"):
                todo.append(target[len("tandem/"):])
            elif not _matches(target, PLAIN):
                violations.append("%s: sees <%s> through %s; inline functions would be compiled twice" %
                                  (path, target, header))


def check(root):
    paths = common.files(root, ("",) + common.LIBRARY_ROOMS + common.TOP_ROOMS, common.CXX)
    includes = {}
    violations = []
    for path in paths:
        includes[path] = []
        for system, quoted in _INCLUDE.findall(common.read(root, path)):
            if quoted:
                violations.append('%s: #include "%s"; write <tandem/...>' % (path, quoted))
                continue
            includes[path].append(system)
            if system.startswith("tandem/"):
                _check_tandem(path, system[len("tandem/"):], violations)
            for headers, allowed, text in THIRD_PARTY:
                if _matches(system, headers) and not _matches(path, allowed):
                    violations.append("%s: <%s>: %s" % (path, system, text))
    for path in paths:
        if fnmatch.fnmatchcase(path, "*_avx*.cc"):
            _check_wide(path, includes, violations)
    return violations, len(paths)


def _one(path, *includes):
    return {path: "".join("#include <%s>\n" % i for i in includes)}


PLANTED = [
    # The arrows, and both named exceptions.
    (_one("base/a.h", "tandem/base/b.h", "string"), []),
    (_one("tests/cuda_emulation/a_test.cc", "cuda_runtime.h"), []),
    (_one("tests/ops/a_test.cc", "cuda_runtime.h"), ["include CUDA or NCCL"]),
    (_one("base/a.h", "tandem/tensor/tensor.h"), ["base/ does not look into tensor/"]),
    (_one("tensor/a.cc", "tandem/ops/relu.h"), ["tensor/ does not look into ops/"]),
    (_one("autograd/engine.cc", "tandem/ops/relu.h"), ["autograd/ does not look into ops/"]),
    (_one("optim/sgd.cc", "tandem/nn/module.h"), ["optim/ does not look into nn/"]),
    (_one("profile/report.cc", "tandem/tensor/tensor.h"), ["profile/ does not look into tensor/"]),
    (_one("io/checkpoint.cc", "tandem/distributed/group.h"), ["io/ does not look into distributed/"]),
    (_one("nn/linear.cc", "tandem/distributed/group.h"), ["nn/ does not look into distributed/"]),
    (_one("nn/sync_batch_norm.cc", "tandem/distributed/group.h", "tandem/ops/norm.h"), []),
    (_one("distributed/shm/group.cc", "tandem/autograd/node.h"), ["distributed/ does not look into autograd/"]),
    (_one("distributed/gradient_reducer.cc", "tandem/autograd/node.h"), []),
    (_one("distributed/gradient_reducer.cc", "tandem/nn/module.h"), ["distributed/ does not look into nn/"]),
    (_one("nn/a.cc", "tandem/tandem.h"), ["which stands above it"]),
    (_one("nn/a.cc", "tandem/tests/support/op_case.h"), ["which stands above it"]),
    (_one("tests/nn/a.cc", "tandem/tandem.h", "tandem/ops/softmax_kernels.h", "gtest/gtest.h"), []),
    (_one("tests/nn/a.cc", "tandem/nowhere/a.h"), ["is in no room"]),
    (_one("nn/a.cc", "tandem/ops/softmax_kernels.h"), ["is private to ops/"]),
    # Quotes, and lines that only look like includes.
    ({"ops/a.cc": '#include "tensor/tensor.h"\n'}, ['#include "tensor/tensor.h"']),
    ({"ops/a.cc": '  #  include  "a.h"\n// #include "b.h"\n'}, ['#include "a.h"']),
    # Third-party headers.
    (_one("ops/conv/conv.cc", "oneapi/dnnl/dnnl.hpp"), ["only *_cpu.cc"]),
    (_one("ops/conv/conv_kernels.h", "Eigen/Core"), ["only *_cpu.cc"]),
    (_one("ops/conv/conv_cpu.cc", "oneapi/dnnl/dnnl.hpp", "Eigen/Core"), []),
    (_one("tensor/copy.cc", "cuda_runtime.h"), ["only *_cuda.*"]),
    (_one("ops/conv/conv_cuda.cu", "cuda_runtime.h"), []),
    (_one("distributed/group.cc", "gloo/context.h"), ["only distributed/gloo"]),
    (_one("base/log.h", "spdlog/spdlog.h"), ["do not pass these on"]),
    (_one("base/log.cc", "spdlog/spdlog.h"), []),
    (_one("tandem.h", "nlohmann/json.hpp"), ["do not pass these on"]),
    (_one("tests/support/json.h", "nlohmann/json.hpp"), []),
    (_one("io/a.cc", "gtest/gtest.h"), ["only tests"]),
    (_one("ops/add_cpu.cc", "immintrin.h"), ["alone"]),
    # Files for wider instructions.
    ({**_one("ops/add_avx512.cc", "immintrin.h", "cstdint", "tandem/ops/add_avx512.h"),
      **_one("ops/add_avx512.h", "cstdint")}, []),
    (_one("ops/add_avx512.cc", "immintrin.h", "algorithm"), ["not <algorithm>"]),
    (_one("ops/add_avx512.cc", "immintrin.h", "tandem/base/half.h"), ["not <tandem/base/half.h>"]),
    ({**_one("ops/add_avx512.cc", "tandem/ops/add_avx512.h"), **_one("ops/add_avx512.h", "tandem/base/b.h"),
      **_one("base/b.h", "vector")}, ["sees <vector> through base/b.h"]),
]

if __name__ == "__main__":
    common.run(check, PLANTED, at_least=30)
