#!/usr/bin/env -S python3 -B
"""Checks what //:deb writes, and builds and runs examples/template on two ranks with the package's files and with the tarball."""

import glob
import gzip
import os
import sys
import tarfile

import installed

# Replaces the template's find_package.
FETCH = "include(FetchContent)\nFetchContent_Declare(tandem %s OVERRIDE_FIND_PACKAGE)\n"
BAZELW = '#!/bin/sh\n[ "$*" = "run --config=x //:install -- $5" ] && cp -r %s "$5"\n'


def expect(condition, text):
    if not condition:
        sys.exit(text)


def only(pattern):
    found = glob.glob(pattern)
    expect(len(found) == 1, "%s: %s" % (pattern, found))
    return found[0]


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, 0o755)


def main():
    args = installed.arguments()
    out = installed.folder()
    installed.run(args.deb, "libtandem-dev", args.install, args.tree, args.changelog, args.cmake, "out",
                  env={"BUILD_WORKING_DIRECTORY": out, "SOURCE_DATE_EPOCH": "1700000000"})
    deb = only(out + "/out/libtandem-dev_0.1.0+deb*_*.deb")
    tarball = only(out + "/out/tandem-0.1.0-debian*-*.tar.gz")

    depends = installed.run("dpkg-deb", "--field", deb, "Depends")
    for package in "libfmt-dev", "libspdlog-dev", "zlib1g-dev", "libstdc++6 (>= ":
        expect(package in depends, "%s is not in Depends: %s" % (package, depends))
    with tarfile.open(tarball) as tar:
        for file in tar:
            expect((file.mtime, file.uid, file.gid) == (1700000000, 0, 0), "%s: %s" % (file.name, file.get_info()))
    root = out + "/root"
    installed.run("dpkg-deb", "--raw-extract", deb, root)
    installed.run("md5sum", "--check", "--quiet", "DEBIAN/md5sums", cwd=root)
    documents = root + "/usr/share/doc/libtandem-dev"
    with gzip.open(documents + "/changelog.gz", "rt", encoding="utf-8") as f:
        expect(f.readline().startswith("tandem (0.1.0+deb"), "changelog.gz")
    with open(documents + "/copyright", encoding="utf-8") as f:
        expect("Files: Eigen\n" in f.read(), "copyright")

    # A version that CHANGELOG.md does not have.
    write(out + "/old.md", "## [0.0.9] - 2025-01-01\n")
    text = installed.run("sh", "-c", '! "$@" 2>&1', "sh", args.deb, "libtandem-dev", args.install, args.tree, out + "/old.md", args.cmake, out)
    expect("base/version.h has version 0.1.0, but the newest version of CHANGELOG.md is 0.0.9" in text, text)

    os.mkdir(out + "/source")
    installed.run("cp", args.cmake, out + "/source/CMakeLists.txt")
    write(out + "/source/bazelw", BAZELW % (root + "/usr"))
    write(out + "/source.cmake", FETCH % ("SOURCE_DIR " + out + "/source"))
    write(out + "/tarball.cmake", FETCH % ("URL " + tarball))
    fetch = "-DCMAKE_PROJECT_TOP_LEVEL_INCLUDES=%s/%s.cmake"
    for name, flags in (("deb", ["-DCMAKE_PREFIX_PATH=" + root + "/usr"]), ("tarball", [fetch % (out, "tarball")]),
                        ("source", [fetch % (out, "source"), "-DTANDEM_BAZEL_FLAGS=--config=x"])):
        build = os.path.join(out, name)
        installed.run("cmake", "-S", documents + "/template", "-B", build, *flags)
        if name == "source":
            continue  # found; would be built as with the package
        installed.run("cmake", "--build", build)
        for command in (["./train", "--nproc", "2"], [root + "/usr/bin/tandem-run", "--nproc-per-node", "2", "./train"]):
            text = installed.run(*command, cwd=build)
            expect("epoch 2: loss 0." in text and "128 over all ranks" in text, text)
            installed.run("rm", "-r", "results", cwd=build)


if __name__ == "__main__":
    main()
