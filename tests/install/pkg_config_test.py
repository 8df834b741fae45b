#!/usr/bin/env -S python3 -B
"""Compiles, links and runs the program of tests/extension, with the operation of examples/custom_op and the flags of pkg-config: by g++,
and its kernels by nvcc if tandem has GPU kernels."""

import os
import shutil
import sys

import installed


def main():
    args = installed.arguments()
    prefix = installed.install(args)
    env = {"PKG_CONFIG_PATH": os.path.join(prefix, "lib", "pkgconfig")}
    cflags = installed.run("pkg-config", "--cflags", "tandem", env=env).split()
    libs = installed.run("pkg-config", "--libs", "tandem", env=env).split()
    cflags.append("-I" + installed.CUSTOM_OP)
    files = [os.path.join(installed.EXTENSION, name) for name in ("program.cc", "sign_sgd.cc")]
    files.append(os.path.join(installed.CUSTOM_OP, "snake.cc"))
    if "-DTANDEM_WITH_CUDA" in cflags:
        nvcc = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
        for folder, name in (installed.EXTENSION, "sign_sgd_cuda"), (installed.CUSTOM_OP, "snake_cuda"):
            files.append(os.path.join(prefix, name + ".o"))
            installed.run(nvcc, "-arch=sm_90", "--expt-relaxed-constexpr", *cflags, "-c", os.path.join(folder, name + ".cu"), "-o",
                          files[-1])
    program = os.path.join(prefix, "program")
    installed.run("g++", "-Wall", "-Wextra", "-Werror", *files, "-o", program, *cflags, *libs)
    programs = [program]
    if os.path.exists(os.path.join(prefix, "lib", "libtandem_mpi.a")):
        with_mpi = installed.run("pkg-config", "--libs", "tandem_mpi", env=env).split()
        installed.run("g++", *files, "-o", program + "_mpi", *cflags, *with_mpi)
        programs.append(program + "_mpi")
        if "libmpi.so" not in installed.run("ldd", programs[-1]):
            sys.exit("the program is not linked with MPI")
    runs = [((path, "--nproc", "2"), "learned on 2 ranks\n") for path in programs]
    for command, expected in runs + [(("pkg-config", "--modversion", "tandem"), "0.1.0\n")]:
        printed = installed.run(*command, env=env)
        if printed != expected:
            sys.exit("%s printed %r, expected %r" % (" ".join(command), printed, expected))


if __name__ == "__main__":
    main()
