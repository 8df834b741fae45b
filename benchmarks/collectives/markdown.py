#!/usr/bin/env python3
"""Formats the --json file of //benchmarks:collectives as Markdown, one table per operation, world size and dtype.

    benchmarks/collectives/markdown.py out.json [--place in|out|best] > table.md

A cell has the time and the bandwidth (GB/s) of the operation; the median if a size was measured several times. A peer's
cell has its time and, in brackets, its time divided by the fastest of tandem's. Needs Python's standard library only.
"""
import argparse
import collections
import json
import statistics
import sys

PEERS = {"mpi_us": "OpenMPI", "torch_us": "PyTorch gloo"}


def size_text(num_bytes):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if num_bytes >= unit and num_bytes % unit == 0:
            return "%d %s" % (num_bytes // unit, name)
    return "%d B" % num_bytes


def time_text(us):
    return "%.3g us" % us if us < 1000 else "%.3g ms" % (us / 1000)


def cell(us, num_bytes):
    return time_text(us) if num_bytes < 65536 else "%s, %.3g GB/s" % (time_text(us), num_bytes / us * 1e-3)


def tables(rows, place):
    """Yields the lines of all tables. `place`: rows in place, rows out of place, or the faster of both."""
    grouped = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
    for row in rows:
        if row["wrong"] != 0:
            raise SystemExit("%s %s: %d wrong elements" % (row["op"], row["backend"], row["wrong"]))
        if place == "best" or row["in_place"] == (place == "in"):
            key = (row["op"], row["world"], row["dtype"])
            grouped[key][row["bytes"]][row["backend"]].append(row)
    for (op, world, dtype), sizes in grouped.items():
        backends = list(dict.fromkeys(b for of_size in sizes.values() for b in of_size))
        peers = [p for p in PEERS if any(p in r for of_size in sizes.values() for rs in of_size.values() for r in rs)]
        yield "### %s, %d ranks, %s" % (op, world, dtype)
        yield ""
        yield "| size | " + " | ".join(backends + [PEERS[p] for p in peers]) + " |"
        yield "|---" * (1 + len(backends) + len(peers)) + "|"
        for num_bytes, of_size in sorted(sizes.items()):
            cells, tandem_us = [], []
            for backend in backends:
                by_form = collections.defaultdict(list)
                for row in of_size.get(backend, []):
                    by_form[row["in_place"]].append(row["us"])
                best = min((statistics.median(us) for us in by_form.values()), default=None)
                cells.append("-" if best is None else cell(best, num_bytes))
                if best is not None:
                    tandem_us.append(best)
            for peer in peers:
                times = [r[peer] for rs in of_size.values() for r in rs if peer in r]
                cells.append("%s (%.2f)" % (time_text(statistics.median(times)), statistics.median(times) / min(tandem_us))
                             if times else "-")
            yield "| %s | %s |" % (size_text(num_bytes), " | ".join(cells))
        yield ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("json", help="file with one JSON object per line")
    parser.add_argument("--place", choices=("in", "out", "best"), default="best",
                        help="times in place, out of place, or the better of both (default)")
    args = parser.parse_args()
    with open(args.json) as f:
        rows = [json.loads(line) for line in f if line.strip()]
    sys.stdout.write("\n".join(tables(rows, args.place)) + "\n")


if __name__ == "__main__":
    main()
