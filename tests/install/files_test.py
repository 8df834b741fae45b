#!/usr/bin/env -S python3 -B
"""Checks the installed files, their modes, that they contain no build paths, and the flags of install.sh."""

import os
import re
import subprocess
import sys

import installed

OTHER_FILES = {
    "bin/tandem-run",
    "lib/cmake/tandem/tandemConfig.cmake",
    "lib/cmake/tandem/tandemConfigVersion.cmake",
    "lib/libtandem.a",
    "lib/pkgconfig/tandem.pc",
    "share/doc/tandem/LICENSE",
    "share/doc/tandem/README.md",
    "share/doc/tandem/copyright",
    "share/doc/tandem/template/CMakeLists.txt",
    "share/doc/tandem/template/main.cc",
}
BUILD_PATH = re.compile(rb"bazel-out|/_include/tandem/|/execroot/|/sandbox/")
# A template variable that was not replaced. Compressed kernels may contain its bytes by chance.
VARIABLE = re.compile(rb"@[A-Z_]+@")
failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)


def files_below(prefix):
    return {os.path.relpath(os.path.join(folder, name), prefix) for folder, _, names in os.walk(prefix) for name in names}


def read(path):
    with open(path, "rb") as f:
        return f.read()


def check_files(prefix):
    found = files_below(prefix)
    headers = {f for f in found if f.startswith("include/")}
    pages = {f for f in found if re.fullmatch(r"share/doc/tandem/docs/[a-z0-9_]+\.md", f)}
    mpi = {"lib/libtandem_mpi.a", "lib/pkgconfig/tandem_mpi.pc"}  # where OpenMPI is installed
    others = found - headers - pages
    expect(others in (OTHER_FILES, OTHER_FILES | mpi), "other files than headers and pages: %s" % sorted(others))
    expect(all(re.fullmatch(r"include/tandem/([a-z0-9_]+/)*[a-z0-9_]+\.h", h) for h in headers), "invalid names of headers: %s" % headers)

    # Exactly these headers, and all headers that they include directly or indirectly, are installed.
    models = "dcgan ddpm_unet gpt2 lenet llama lstm mlp mobilenet resnet unet vision_transformer".split()
    included = {"include/tandem/%s.h" % name for name in ("tandem", "base/file", "optim/define_optimizer", "train/metrics", "train/plot",
                                                          "train/progress", "train/trainer", *("models/" + model for model in models))}
    if b"TANDEM_WITH_CUDA" in read(os.path.join(prefix, "lib/pkgconfig/tandem.pc")):
        included |= {"include/tandem/%s.h" % name for name in ("optim/define_optimizer_cuda", "tensor/cuda/launch", "tensor/cuda/strided")}
    named = set()
    for header in headers:
        text = read(os.path.join(prefix, header)).decode()
        included |= {"include/" + name for name in re.findall(r"#include <(tandem/[^>]+)>", text)}
        named |= {"share/doc/tandem/" + page for page in re.findall(r"docs/\w+\.md", text)}
    expect(named and named <= pages, "pages that headers name are not installed: %s" % sorted(named - pages))
    expect(included == headers, "missing: %s; unexpected: %s" % (sorted(included - headers), sorted(headers - included)))
    for name in ("base/error.h", "ops/matmul.h", "nn/module.h", "distributed/process_group.h", "tensor/storage.h", "train/metrics.h", "train/trainer.h"):
        expect("include/tandem/" + name in headers, "not installed: " + name)
    for name in ("ops/common/common.h", "ops/elementwise/elementwise_kernels.h", "distributed/backends/backend.h",
                 "distributed/backends/shm/segment.h", "train/history.h"):
        expect("include/tandem/" + name not in headers, "private header is installed: " + name)

    for name in found:
        path = os.path.join(prefix, name)
        mode = 0o755 if name.startswith("bin/") else 0o644
        expect(os.stat(path).st_mode & 0o777 == mode, "%s has mode %o" % (name, os.stat(path).st_mode & 0o777))
        build_folder = os.path.realpath(os.getcwd()).encode()
        content = read(path)
        match = BUILD_PATH.search(content) or re.search(re.escape(build_folder), content)
        if name.endswith((".cmake", ".pc")):
            match = match or VARIABLE.search(content)
        expect(match is None, "%s contains %s" % (name, match and match.group(0)))


def check_flags(args):
    def status(*flags, **env):
        done = subprocess.run([args.install, *flags], env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        return done.returncode, done.stdout

    tree = ("--tree", args.tree)
    usage = "./bazelw run //:install -- PREFIX"
    expect(status(*tree) == (2, "install: no prefix given; usage: %s\n" % usage), "no prefix")
    expect(status(*tree, "--what") == (2, "install: unknown flag '--what'; usage: %s\n" % usage), "wrong flag")
    expect(status(*tree, "--prefix") == (2, "install: --prefix needs a folder\n"), "flag without value")
    expect(status(*tree, "/a", "/b") == (2, "install: expected one prefix, got '/a' and '/b'\n"), "two prefixes")
    expect(status("--tree", "/nowhere", "/a") == (2, "install: --tree: '/nowhere' is not a folder\n"), "no tree")
    expect(status(*tree, "--help")[0] == 0, "--help")

    # A relative prefix is relative to the user's folder; DESTDIR is prepended; old headers are removed.
    folder = installed.folder()
    old = os.path.join(folder, "usr/include/tandem/old.h")
    os.makedirs(os.path.dirname(old))
    with open(old, "w", encoding="utf-8"):
        pass
    code, text = status(*tree, "usr", BUILD_WORKING_DIRECTORY=folder)
    expect((code, text) == (0, "installed in %s/usr\n" % folder), text)
    expect(not os.path.exists(old), "an old header is not removed")
    code, text = status(*tree, "--prefix=/usr", DESTDIR=folder + "/image")
    expect((code, text) == (0, "installed in %s/image/usr\n" % folder), text)
    expect(files_below(folder + "/image/usr") == files_below(folder + "/usr"), "DESTDIR")


if __name__ == "__main__":
    arguments = installed.arguments()
    check_files(installed.install(arguments))
    check_flags(arguments)
    sys.exit("\n".join(failures) if failures else 0)
