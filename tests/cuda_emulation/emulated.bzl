"""A macro for tests that contain kernels."""

load("//tools/build:tandem.bzl", "EMULATED_CUDA_COPTS", "tandem_cc_test")

def emulated_cuda_test(name, deps = [], copts = [], **kwargs):
    """A GoogleTest whose .cc file holds kernels.

    Args:
      name: of the target and of its file
      deps: besides the emulator
      copts: besides those of kernels
      **kwargs: as for tandem_cc_test
    """
    tandem_cc_test(
        name = name,
        copts = EMULATED_CUDA_COPTS + copts,
        deps = [
            "//tests/cuda_emulation",
            "//tests/cuda_emulation:test_support",
            "@googletest",
        ] + deps,
        **kwargs
    )
