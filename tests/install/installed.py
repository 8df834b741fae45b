"""What the tests of //:install share: an installed tandem in a folder of its own, and running commands."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile


def arguments(*more):
    """The command line: where install.sh and its tree are, and paths of the test's own."""
    parser = argparse.ArgumentParser()
    for name in ("install", "tree") + more:
        parser.add_argument("--" + name, required=True, type=os.path.abspath)
    return parser.parse_args()


def folder():
    """A new folder, below the test's own where Bazel runs it."""
    return tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))


def run(*command, cwd=None, env=None):
    """Runs a command that must succeed; returns its standard output."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode != 0:
        sys.exit("%s\nstatus %d\n%s" % (" ".join(command), done.returncode, done.stdout))
    return done.stdout


def install(args):
    """Installs and then moves it: nothing may remember where it was installed."""
    place = folder()
    run(args.install, "--tree", args.tree, "--prefix", os.path.join(place, "first"))
    prefix = os.path.join(place, "moved")
    shutil.move(os.path.join(place, "first"), prefix)
    return prefix
