"""A macro for the programs of the examples."""

load("//tools/build:tandem.bzl", "tandem_cc_binary")

def example(name, deps = ["//examples/support"]):
    """The program of an example, main.cc.

    Args:
      name: of the target
      deps: besides the library
    """
    tandem_cc_binary(
        name = name,
        srcs = ["main.cc"],
        deps = ["//:tandem"] + deps,
    )
