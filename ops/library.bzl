"""The macro of the BUILD files in ops/."""

load("//tools/build:tandem.bzl", "tandem_cc_library")

_DEPS = ["//autograd", "//base", "//ops:interface", "//ops/common", "//ops/common:cast", "//tensor"]

def _order(label):
    return "%d%s" % (":/@".find(label[0]), label.replace(":", " "))

def op_library(name, deps = [], **kwargs):
    """A library of operations.

    Args:
      name: of the target
      deps: besides those that all operations have
      **kwargs: as for tandem_cc_library
    """
    tandem_cc_library(
        name = name,
        deps = sorted(deps + _DEPS, key = _order),
        **kwargs
    )
