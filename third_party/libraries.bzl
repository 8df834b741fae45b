"""Repositories of the libraries that Debian provides; use them in deps as "@zlib" or "@googletest//:gtest_main"."""

load("//third_party:cuda.bzl", "cuda_toolkit")
load("//tools/build:system_library.bzl", "system_library")

_LIBRARIES = {
    "cli11": dict(
        apt = "libcli11-dev",
        headers = ["CLI"],
    ),
    "eigen": dict(
        apt = "libeigen3-dev",
        prefix = "/usr/include/eigen3",
        headers = ["Eigen"],
        lib_defines = ["EIGEN_MPL2_ONLY"],
    ),
    "fmt": dict(
        apt = "libfmt-dev",
        headers = ["fmt"],
        linkopts = ["-lfmt"],
        lib_defines = ["FMT_SHARED"],
    ),
    "googletest": dict(
        apt = "libgtest-dev libgmock-dev",
        headers = ["gtest", "gmock"],
        linkopts = ["-lgmock", "-lgtest", "-pthread"],
        mains = ["gtest_main", "gmock_main"],
    ),
    "jpeg": dict(
        apt = "libjpeg62-turbo-dev",
        headers = ["jerror.h", "jmorecfg.h", "jpeglib.h"],
        linkopts = ["-ljpeg"],
    ),
    "nlohmann_json": dict(
        apt = "nlohmann-json3-dev",
        headers = ["nlohmann"],
    ),
    "openmpi": dict(
        apt = "libopenmpi-dev",
        prefix = "/usr/lib/x86_64-linux-gnu/openmpi/include",
        headers = ["mpi.h", "mpi_portable_platform.h"],
        linkopts = ["-lmpi"],
        lib_defines = ["OMPI_SKIP_MPICXX"],
    ),
    "png": dict(
        apt = "libpng-dev",
        headers = ["png.h", "pngconf.h", "pnglibconf.h"],
        linkopts = ["-lpng"],
    ),
    "spdlog": dict(
        apt = "libspdlog-dev libfmt-dev",
        headers = ["spdlog", "fmt"],
        linkopts = ["-lspdlog", "-lfmt", "-pthread"],
        lib_defines = ["SPDLOG_SHARED_LIB", "SPDLOG_COMPILED_LIB", "SPDLOG_FMT_EXTERNAL", "FMT_SHARED"],
    ),
    "zlib": dict(
        apt = "zlib1g-dev",
        headers = ["zlib.h", "zconf.h"],
        linkopts = ["-lz"],
    ),
}

def system_libraries():
    """Declares a repository for each library, except those that the calling workspace declares."""
    have = native.existing_rules()
    for name, attributes in _LIBRARIES.items():
        if name not in have:
            system_library(name = name, **attributes)
    if "cuda_toolkit" not in have:
        cuda_toolkit(name = "cuda_toolkit")
