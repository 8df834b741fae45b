#!/usr/bin/env python3
"""Compiles, links and runs a program by g++ FILE $(pkg-config --cflags --libs tandem)."""

import os
import sys

sys.dont_write_bytecode = True
import installed


def main():
    args = installed.arguments()
    prefix = installed.install(args)
    env = {"PKG_CONFIG_PATH": os.path.join(prefix, "lib", "pkgconfig")}
    flags = installed.run("pkg-config", "--cflags", "--libs", "tandem", env=env).split()
    folder = os.path.dirname(os.path.realpath(__file__))
    source = os.path.join(folder, "pkg_config_consumer.cc")
    own = os.path.join(os.path.dirname(folder), "optim", "own_optimizer.h")
    program = os.path.join(prefix, "program")
    installed.run("g++", "-Wall", "-Wextra", "-Werror", "-include", own, source, "-o", program, *flags)
    printed = installed.run(program)
    expected = "gradient 8, ranks 2\n"  # 4 rows x 2 outputs
    if printed != expected:
        sys.exit("expected %r, printed %r" % (expected, printed))
    version = installed.run("pkg-config", "--modversion", "tandem", env=env)
    if version != "0.1.0\n":
        sys.exit("pkg-config printed version %r, expected 0.1.0" % version)


if __name__ == "__main__":
    main()
