#!/usr/bin/env python3
"""Creates the folder that //:install copies; tree.bzl describes its content.

It contains the public headers: tandem/tandem.h, the headers given by --public-header, and all headers that these include, directly
or indirectly.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys

_INCLUDE = re.compile(r"^\s*#\s*include\s*<(tandem/[^>]+)>", re.MULTILINE)
_VERSION = re.compile(r'kVersion = "(([0-9]+\.[0-9]+\.[0-9]+)[^"]*)"')


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def reachable(headers, start):
    """Sorted names of the headers `start` and of all headers that they include. `headers`: name -> path."""
    found = set()
    ahead = list(start)
    while ahead:
        name = ahead.pop()
        if name in found:
            continue
        if name not in headers:
            sys.exit("header %s is not in a target that the library depends on" % name)
        found.add(name)
        ahead += _INCLUDE.findall(read(headers[name]))
    return sorted(found)


def with_folder(*path):
    """The joined path, whose folder exists afterwards."""
    path = os.path.join(*path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def make_archive(ar, objects, path):
    # q: packages may have objects of the same name. D: without times and owners, so that equal objects give equal
    # bytes.
    list_file = path + ".list"
    with open(list_file, "w", encoding="utf-8") as f:
        f.write("\n".join(objects))
    subprocess.run([ar, "qcsD", path, "@" + list_file], check=True)
    os.remove(list_file)


def main():
    parser = argparse.ArgumentParser(fromfile_prefix_chars="@")
    parser.add_argument("--out", required=True)
    parser.add_argument("--ar", required=True)
    parser.add_argument("--header", action="append", help="tandem/ops/math.h=PATH")
    parser.add_argument("--public-header", action="append", default=[], help="tandem/optim/define_optimizer.h")
    parser.add_argument("--object", action="append")
    parser.add_argument("--mpi-object", action="append", default=[])
    parser.add_argument("--define", action="append", default=[], help="macro that programs are compiled with")
    parser.add_argument("--link-flag", action="append", default=[])
    parser.add_argument("--program", action="append", default=[])
    parser.add_argument("--document", action="append", default=[])
    parser.add_argument("--template", action="append", nargs=2, default=[], metavar=("PATH", "SOURCE"))
    args = parser.parse_args()

    headers = dict(h.split("=", 1) for h in args.header)
    for name in reachable(headers, ["tandem/tandem.h", *args.public_header]):
        shutil.copyfile(headers[name], with_folder(args.out, "include", name))

    make_archive(args.ar, args.object, with_folder(args.out, "lib", "libtandem.a"))
    if args.mpi_object:
        make_archive(args.ar, args.mpi_object, with_folder(args.out, "lib", "libtandem_mpi.a"))

    version = _VERSION.search(read(headers["tandem/base/version.h"]))
    values = {"VERSION": version.group(2), "DEFINE_FLAGS": "".join(" -D" + d for d in args.define), "DEFINE_LIST": ";".join(args.define),
              "LINK_FLAGS": " ".join(args.link_flag), "LINK_LIST": ";".join(args.link_flag)}
    for path, source in args.template:
        text = re.sub("@([A-Z_]+)@", lambda match: values[match.group(1)], read(source))
        with open(with_folder(args.out, path), "w", encoding="utf-8") as f:
            f.write(text)

    for program in args.program:
        shutil.copyfile(program, with_folder(args.out, "bin", os.path.basename(program)))
    for document in args.document:
        path = document if document.startswith("docs/") else os.path.basename(document)
        shutil.copyfile(document, with_folder(args.out, "share", "doc", "tandem", path))


if __name__ == "__main__":
    main()
