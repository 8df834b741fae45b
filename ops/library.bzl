"""The macro of the BUILD files in ops/."""

load("//tools/build:tandem.bzl", "tandem_cc_library")

_DEPS = ["//autograd", "//base", "//ops:interface", "//ops/common", "//ops/common:cast", "//tensor"]

def _order(label):
    return "%d%s" % (":/@".find(label[0]), label.replace(":", " "))

def op_library(name, srcs = [], exclude = [], deps = [], **kwargs):
    """A library of operations.

    Args:
      name: of the target
      srcs: .cc files; without srcs and hdrs, the library has all files of the folder, *_cuda.cc and *_cuda.cu in CUDA
        builds
      exclude: patterns of the files that are not of this library
      deps: besides those that all operations have
      **kwargs: as for tandem_cc_library
    """
    if not srcs and "hdrs" not in kwargs:
        kwargs["cuda_srcs"] = native.glob(["*_cuda.cc", "*_cuda.cu"], exclude = exclude)
        kwargs["hdrs"] = native.glob(["*.h"], exclude = exclude)
        srcs = native.glob(["*.cc"], exclude = exclude + ["*_cuda.cc"])
    tandem_cc_library(
        name = name,
        srcs = srcs,
        deps = sorted(deps + _DEPS, key = _order),
        **kwargs
    )
