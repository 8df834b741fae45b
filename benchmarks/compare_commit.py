#!/usr/bin/python3
"""Times a benchmark of an earlier commit and of this checkout in alternating pairs of runs.

    benchmarks/compare_commit.py TARGET [--pairs N] [--time FIELD,..] [--commit COMMIT] [--folder FOLDER] [-- FLAG...]
    benchmarks/compare_commit.py //benchmarks/collectives --time us -- --world 4 --sizes 4K,1M --rounds 1

TARGET is a program with the flag --json. The commit is built once in FOLDER, a copy of its tree; later calls use the programs
there. Each time that TARGET reports is one line: medians of both builds, median and range of the pairs' ratios (new / old), and
the range of the ratios of successive runs of the old build. A median inside this last range is not a difference.

Exit status: 0 success, 1 a build or a run failed, 2 wrong arguments.
"""

import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "tandem", "commits")


class Failure(Exception):
    pass


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **options)
    if done.returncode != 0:
        last = "\n  ".join(done.stderr.decode(errors="replace").strip().splitlines()[-5:])
        raise Failure(f"{' '.join(map(str, command))} ends with status {done.returncode}:\n  {last}")
    return done.stdout


def program(top, target):
    package, _, name = target.removeprefix("//").partition(":")
    return top / "out" / "bin" / package / (name or pathlib.Path(package).name)


def build_commit(commit, folder, target):
    """Builds the target in the folder, unless the folder's stamp (commit, targets) names it. Locked: callers may share it."""
    commit = run("git", "-C", TOP, "rev-parse", "--verify", commit + "^{commit}").decode().strip()
    folder = folder or CACHE / commit[:12]
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / ".built"
    with open(folder / ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = stamp.read_text(encoding="ascii").split() if stamp.exists() else []
        if built[:1] not in ([], [commit]):
            raise Failure(f"--folder: {folder} has commit {built[0][:12]} (expected {commit[:12]}); give another folder")
        if target not in built:
            if not built:
                run("tar", "-x", "-C", folder, input=run("git", "-C", TOP, "archive", commit))
                with contextlib.suppress(FileNotFoundError):
                    shutil.copy(TOP / "user.bazelrc", folder)
            run("./bazelw", "build", target, cwd=folder)
            run("./bazelw", "shutdown", cwd=folder)  # its server would keep its memory during the measurement
            stamp.write_text("\n".join((built or [commit]) + [target]) + "\n", encoding="ascii")
    return program(folder, target)


def measure(path, flags):
    """Runs a program; returns the objects that it writes to --json."""
    with tempfile.TemporaryDirectory() as folder:
        rows = pathlib.Path(folder, "rows.json")
        run(path, "--json", rows, *flags)
        return [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]


def alternate(old, new, pairs):
    """Calls both `pairs` times; the order within pairs alternates. Returns (results of old, results of new)."""
    found = {old: [], new: []}
    for pair in range(pairs):
        for side in (old, new) if pair % 2 == 0 else (new, old):
            found[side].append(side())
    return found[old], found[new]


def compare(olds, news, fields):
    """Yields one line per time. `olds`, `news`: lists of runs, each a list of rows. Rows are named by the fields that are equal
    in all runs and differ between rows."""
    if len({len(rows) for rows in olds + news}) != 1:
        raise Failure("the two builds report different numbers of rows")
    first = olds[0]
    names = [name for name in first[0] if len({str(row.get(name)) for row in first}) > 1 and
             all(rows[i].get(name) == first[i].get(name) for rows in olds + news for i in range(len(first)))]
    for i, row in enumerate(first):
        for field in [name for name in row if (name in fields if fields else re.search(r"(^|_)(us|ms)$", name))]:
            old, new = ([rows[i][field] for rows in runs] for runs in (olds, news))
            ratios = sorted(b / a for a, b in zip(old, new))
            own = sorted(b / a for a, b in zip(old, old[1:]))
            yield (f"{' '.join(f'{name}={row[name]}' for name in names)} {field}: "
                   f"old {statistics.median(old):.4g}, new {statistics.median(new):.4g}, "
                   f"new/old {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}), "
                   f"old/old {own[0]:.3f} to {own[-1]:.3f}").strip()


def main(arguments):
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="compare_commit", description=__doc__.splitlines()[0])
    parser.add_argument("target", help="a program with the flag --json: //benchmarks:ddp; flags for it follow after --")
    parser.add_argument("--pairs", type=int, default=10, help="pairs of runs, at least 2")
    parser.add_argument("--time", default="", help="fields to compare, separated by commas; without it all in us and ms")
    parser.add_argument("--commit", default="df3bb7cc", help="commit of the old build")
    parser.add_argument("--folder", type=pathlib.Path, help=f"folder of the old build; without it in {CACHE}")
    args = parser.parse_args(arguments[:split])
    if args.pairs < 2:
        parser.error("--pairs must be at least 2")
    try:
        old = build_commit(args.commit, args.folder and args.folder.resolve(), args.target)
        run("./bazelw", "build", args.target, cwd=TOP)
        new, flags = program(TOP, args.target), arguments[split + 1:]
        for line in compare(*alternate(lambda: measure(old, flags), lambda: measure(new, flags), args.pairs),
                            args.time.split(",") if args.time else []):
            print(line)
    except (Failure, OSError) as failure:
        print(f"compare_commit: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
