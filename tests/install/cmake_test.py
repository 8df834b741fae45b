#!/usr/bin/env -S python3 -B
"""Configures, builds and runs the program of tests/extension and that of examples/custom_op, in a CMake project with find_package(tandem)."""

import os
import sys

import installed


def main():
    args = installed.arguments()
    prefix = installed.install(args)
    source = os.path.join(os.path.dirname(os.path.realpath(__file__)), "cmake_consumer")
    build = os.path.join(prefix, "build")
    installed.run("cmake", "-S", source, "-B", build, "-DCMAKE_PREFIX_PATH=" + prefix,
                  "-DEXTENSION=" + installed.EXTENSION, "-DCUSTOM_OP=" + installed.CUSTOM_OP, "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
    installed.run("cmake", "--build", build, "--parallel", "2")
    program = os.path.join(build, "extension")
    installed.run(program, "--nproc", "2")
    if os.path.exists(os.path.join(prefix, "lib", "libtandem_mpi.a")) and "libmpi.so" not in installed.run("ldd", program):
        sys.exit("the program is not linked with MPI")
    installed.run(os.path.join(build, "custom_op", "custom_op"), "--nproc", "2", "--max-steps", "10", "--out", os.path.join(build, "results"))


if __name__ == "__main__":
    main()
