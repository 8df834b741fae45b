"""Helpers of the tests of //:install: install into a new folder, run commands."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile


_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))  # in runfiles too
EXTENSION = os.path.join(_ROOT, "tests", "extension")
CUSTOM_OP = os.path.join(_ROOT, "examples", "custom_op")


def arguments():
    """Parses the command line: paths."""
    parser = argparse.ArgumentParser()
    for name in "changelog", "cmake", "deb", "install", "tree":
        parser.add_argument("--" + name, required=True, type=os.path.abspath)
    return parser.parse_args()


def folder():
    """Creates a new folder, below TEST_TMPDIR under Bazel."""
    return tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))


def run(*command, cwd=None, env=None):
    """Runs a command that must succeed; returns its standard output."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode != 0:
        sys.exit("%s\nstatus %d\n%s" % (" ".join(command), done.returncode, done.stdout))
    return done.stdout


def install(args):
    """Installs tandem and moves the folder, because installed files must not depend on the prefix. Returns the new prefix."""
    parent = folder()
    run(args.install, "--tree", args.tree, "--prefix", os.path.join(parent, "first"))
    prefix = os.path.join(parent, "moved")
    shutil.move(os.path.join(parent, "first"), prefix)
    return prefix
