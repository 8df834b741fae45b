#!/usr/bin/python3 -B
"""Checks that every #include follows the dependencies between the packages, and that third-party headers are only included where
they are allowed.

    base <- tensor <- autograd <- ops <- nn <- models, train <- examples, benchmarks
"""

import fnmatch
import re

import common

# Package -> the other packages whose headers it may include. A file belongs to the longest of these paths that contains
# it. The umbrella header, examples, benchmarks, tests and tools may include everything.
DEPENDS = {
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
    "text": {"base", "tensor", "data"},
    "models": {"base", "tensor", "autograd", "ops", "nn", "io"},
    "train": {"base", "tensor", "autograd", "ops", "nn", "optim", "data", "io", "distributed", "profile", "text"},
}

# Folders of ops/ and distributed/ and the other folders that they may include; all of them include the public headers
# above them. Only their own package, tests and benchmarks include their headers.
_OPS = {
    "common": set(),
    "elementwise": {"common"},
    "view": {"common"},
    "index": {"common", "elementwise"},
    "scan": {"common", "index"},
    "reduce": {"common", "index", "scan"},
    "sort": {"common", "index", "reduce"},
    "matmul": {"common", "elementwise"},
    "linalg": {"common"},
    "softmax": {"common", "elementwise"},
    "attention": {"common", "elementwise", "matmul", "random", "softmax"},
    "loss": {"common", "elementwise", "index", "softmax"},
    "pool": {"common", "index", "softmax"},
    "resize": {"common", "pool"},
    "norm": {"common", "elementwise"},
    "embedding": {"common", "index"},
    "random": {"common", "elementwise", "index"},
    "conv": {"common", "elementwise", "matmul"},
    "move": {"common"},
    "recurrent": {"common", "elementwise", "matmul"},
}
_DISTRIBUTED = {
    "rendezvous": set(),
    "backends": {"rendezvous"},
    "backends/shm": {"backends", "rendezvous"},
    "backends/network": {"backends", "rendezvous"},
    "backends/hierarchical": {"backends", "rendezvous"},
    "backends/mpi": {"backends", "rendezvous"},
    "backends/nccl": {"backends", "rendezvous"},
    "group": {"rendezvous", "backends", "backends/shm", "backends/network", "backends/hierarchical", "backends/nccl"},
    "launch": {"group", "rendezvous"},
    "collectives": set(),
    "ddp": {"group"},
}
for _top, _folders in (("ops", _OPS), ("distributed", _DISTRIBUTED)):
    for _folder, _others in _folders.items():
        DEPENDS[_top + "/" + _folder] = DEPENDS[_top] | {_top} | {_top + "/" + other for other in _others}

# Files that may include more than their package, with the reason.
EXCEPTIONS = [
    ("optim/muon.*", {"ops"}, "its update is made of matrix products"),
    ("nn/sync_batch_norm*", {"distributed"}, "its statistics are reduced over the group"),
    ("distributed/collectives/*", {"autograd", "ops", "io"}, "they are operations with gradients, and states as bytes"),
    ("distributed/ddp/*", {"autograd"}, "DistributedDataParallel is built on leaf hooks and gradient slots"),
    ("distributed/ddp/power_sgd.*", {"ops"}, "its products and sums are ops"),
    ("distributed/distributed_data_parallel.h", {"autograd", "distributed/ddp"}, "a thin template over the reducer"),
    ("distributed/backends/nccl/*", {"distributed/group"}, "it launches the queue's operations itself"),
]

INTRINSICS = ("*intrin.h", "cpuid.h")
CUDA = ("cuda*", "cub/*", "thrust/*", "nccl*", "cudnn*", "cublas*", "curand*", "nvToolsExt*", "nvtx3/*",
        "cooperative_groups*", "nvml*", "nvrtc*")
# (headers, files that may include them, text of the violation)
THIRD_PARTY = [
    (("Eigen/*", "unsupported/Eigen/*", "oneapi/*", "dnnl*"), ("*_cpu.cc",), "only *_cpu.cc include Eigen or oneDNN"),
    (CUDA, ("*_cuda.*", "tensor/cuda/*", "distributed/backends/nccl/*", "tests/cuda_emulation/*"),
     "only *_cuda.*, tensor/cuda and distributed/backends/nccl include CUDA or NCCL"),
    (("mpi.h",), ("distributed/backends/mpi/*", "tests/distributed/mpi/*"),
     "only the backend mpi and its tests include MPI"),
    (("gtest/*", "gmock/*"), ("tests/*",), "only tests include GoogleTest"),
    (("spdlog/*", "fmt/*", "nlohmann/*", "CLI/*", "zlib.h", "zconf.h", "jerror.h", "jpeglib.h", "png*.h"),
     ("*.cc", "*.cu", "tests/*", "benchmarks/*", "examples/*", "tools/*"),
     "only .cc files include it, so that users of the headers do not depend on it"),
    (INTRINSICS, ("*_avx*.cc",), "only *_avx*.cc include intrinsics"),
]

# Headers that a file for wider instruction sets may include, directly or through its own header: none has inline
# functions.
PLAIN = ("cstdint", "cstddef", "version") + INTRINSICS

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")', re.MULTILINE)
_PRIVATE = ("*_kernels.h", "*_avx*.h")


def _matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, p) for p in patterns)


def _package(path):
    """The longest package that contains the file; the top folder's name where no package does."""
    folder = path.rpartition("/")[0]
    while folder and folder not in DEPENDS and "/" in folder:
        folder = folder.rpartition("/")[0]
    return folder


def _may_include(path, package):
    own = _package(path)
    return package == own or package in DEPENDS[own] or any(
        fnmatch.fnmatchcase(path, p) and package in others for p, others, _ in EXCEPTIONS)


def _check_tandem(path, target, violations):
    own, package = _package(path), _package(target)
    top = package.split("/")[0]
    if package not in DEPENDS:
        if top not in ("", "tests", "examples", "benchmarks", "tools"):
            violations.append("%s: <tandem/%s> does not belong to a package" % (path, target))
        elif own in DEPENDS:
            violations.append("%s: a library must not include <tandem/%s>, which depends on it" % (path, target))
    elif own in DEPENDS and not _may_include(path, package):
        violations.append("%s: %s/ must not depend on %s/: <tandem/%s>" % (path, own, package, target))
    elif (package != top or _matches(target, _PRIVATE)) and path.split("/")[0] not in (top, "tests", "benchmarks"):
        violations.append("%s: <tandem/%s> is private to %s/" % (path, target, top))


def _check_wide(path, includes, violations):
    """Checks that a file *_avx*.cc includes only intrinsics and its own header, which must not include other headers."""
    stem = path[:path.index("_avx", path.rfind("/") + 1)]
    todo, seen = {path}, set()
    while todo:
        file = todo.pop()
        seen.add(file)
        for target in includes.get(file, []):
            header = target.removeprefix("tandem/")
            if header != target and (file != path or header.startswith(stem)):
                todo |= {header} - seen
            elif not _matches(target, PLAIN):
                violations.append("%s: %s may include only intrinsics and the file's own header, not <%s>; its inline functions "
                                  "would be compiled for the wider instruction set" % (path, file, target))


def check(root):
    paths = common.files(root, ("",) + common.LIBRARY_PACKAGES + common.OTHER_FOLDERS, common.CXX)
    includes = {}
    violations = []
    for path in paths:
        includes[path] = []
        for system, quoted in _INCLUDE.findall(common.read(root, path)):
            # These are programs outside of tandem.
            if quoted and not path.startswith(("examples/custom_op/", "tests/consumer/", "tests/extension/")):
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
    # Dependencies and their exceptions.
    (_one("base/a.h", "tandem/base/b.h", "string"), []),
    (_one("tests/cuda_emulation/a_test.cc", "cuda_runtime.h"), []),
    (_one("base/a.h", "tandem/tensor/tensor.h"), ["base/ must not depend on tensor/"]),
    (_one("nn/linear.cc", "tandem/distributed/group.h"), ["nn/ must not depend on distributed/"]),
    (_one("nn/sync_batch_norm.cc", "tandem/distributed/group.h", "tandem/ops/norm.h"), []),
    (_one("distributed/ddp/gradient_reducer.cc", "tandem/ops/matmul.h"), ["distributed/ddp/ must not depend on ops/"]),
    (_one("distributed/ddp/power_sgd.cc", "tandem/ops/matmul.h"), []),
    # Folders of ops/ and distributed/.
    (_one("ops/conv/conv.cc", "tandem/ops/matmul/matmul_kernels.h", "tandem/ops/reduce.h", "tandem/base/error.h"), []),
    (_one("ops/matmul/matmul.cc", "tandem/ops/conv/im2col.h"), ["ops/matmul/ must not depend on ops/conv/"]),
    (_one("ops/conv.h", "tandem/ops/conv/im2col.h"), ["ops/ must not depend on ops/conv/"]),
    (_one("nn/conv.cc", "tandem/ops/conv/im2col.h"), ["nn/ must not depend on ops/conv/"]),
    (_one("examples/a.cc", "tandem/ops/conv/im2col.h"), ["is private to ops/"]),
    (_one("distributed/backends/shm/a.cc", "tandem/distributed/backends/network/frame.h"),
     ["distributed/backends/shm/ must not depend on distributed/backends/network/"]),
    (_one("distributed/backends/network/detail/a.cc", "tandem/distributed/rendezvous/store.h"), []),
    (_one("nn/a.cc", "tandem/tandem.h"), ["which depends on it"]),
    (_one("nn/a.cc", "tandem/tests/support/op_case.h"), ["which depends on it"]),
    (_one("tests/nn/a.cc", "tandem/tandem.h", "tandem/ops/softmax/softmax_kernels.h", "gtest/gtest.h"), []),
    (_one("tests/nn/a.cc", "tandem/nowhere/a.h"), ["does not belong to a package"]),
    (_one("nn/a.cc", "tandem/tensor/primitives_kernels.h"), ["is private to tensor/"]),
    # Quoted includes, and a comment that looks like one.
    ({"ops/a.cc": '  #  include  "a.h"\n// #include "b.h"\n'}, ['#include "a.h"']),
    # Third-party headers.
    (_one("ops/conv/conv.cc", "oneapi/dnnl/dnnl.hpp"), ["only *_cpu.cc"]),
    (_one("ops/conv/conv_cpu.cc", "oneapi/dnnl/dnnl.hpp", "Eigen/Core"), []),
    (_one("tensor/copy.cc", "cuda_runtime.h"), ["only *_cuda.*"]),
    (_one("ops/conv/conv_cuda.cu", "cuda_runtime.h"), []),
    (_one("base/log.h", "spdlog/spdlog.h"), ["only .cc files include it"]),
    (_one("base/log.cc", "spdlog/spdlog.h"), []),
    (_one("io/a.cc", "gtest/gtest.h"), ["only tests"]),
    (_one("ops/add_cpu.cc", "immintrin.h"), ["only *_avx*.cc"]),
    # Files for wider instruction sets.
    ({**_one("ops/add_avx512.cc", "immintrin.h", "cstdint", "tandem/ops/add_avx512.h"),
      **_one("ops/add_avx512.h", "cstdint")}, []),
    (_one("ops/add_avx512.cc", "immintrin.h", "algorithm"), ["not <algorithm>"]),
    (_one("ops/add_avx512.cc", "immintrin.h", "tandem/base/half.h"), ["not <tandem/base/half.h>"]),
    ({**_one("ops/add_avx512.cc", "tandem/ops/add_avx512.h"), **_one("ops/add_avx512.h", "tandem/base/b.h"),
      **_one("base/b.h", "vector")}, ["base/b.h may include only intrinsics and the file's own header, not <vector>"]),
]

if __name__ == "__main__":
    common.run(check, PLANTED, at_least=30)
