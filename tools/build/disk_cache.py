#!/usr/bin/env python3
"""Prints the folder of Bazel's disk cache for this machine's compiler and libraries, and prunes all such folders to a limit.

bazelw calls it with TANDEM_DISK_CACHE=1. The cache keys of Bazel 4.2.3 contain neither the system's headers nor the compiler, so
Bazel would reuse outdated objects after an upgrade. Therefore the folder's name is a hash of the versions of CUDA's toolkit and of
all installed packages with compilers, headers or libraries.
"""

import argparse
import hashlib
import os
import pathlib
import subprocess
import sys

LIMIT = 10 << 30
_PACKAGES = ("*-dev", "g++*", "gcc*", "cpp*", "binutils*", "libstdc++*", "libc6", "bazel*")


def versions():
    """The versions of the installed software that compiled files depend on."""
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *_PACKAGES], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
    toolkit = pathlib.Path(os.environ.get("TANDEM_CUDA_HOME", "/usr/local/cuda"), "version.json")
    return done.stdout + (toolkit.read_text(encoding="utf-8") if toolkit.is_file() else "")


def prune(top, limit):
    """Removes the least recently used files until the total size is within the limit (bytes)."""
    files = []
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            try:
                status = os.stat(path)
            except FileNotFoundError:  # removed by another Bazel
                continue
            files.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    excess = sum(size for _, size, _ in files) - limit
    for _, size, path in sorted(files):
        if excess <= 0:
            break
        pathlib.Path(path).unlink(missing_ok=True)
        excess -= size


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=LIMIT, help="total bytes of all folders")
    args = parser.parse_args()
    found = versions()
    if not found:
        sys.exit("disk_cache.py: dpkg-query lists no packages, so the versions of compiler and libraries are unknown; "
                 "unset TANDEM_DISK_CACHE")
    top = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "tandem", "bazel")
    folder = top / hashlib.sha256(found.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    prune(top, args.limit)
    print(folder)


if __name__ == "__main__":
    main()
