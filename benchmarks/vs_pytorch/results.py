"""Figures of the pairs: ratios, their spread, equal losses."""

import json
import os
import statistics

CASES = ("mlp", "lenet", "resnet18", "gpt-small", "gpt-384")
TOLERANCE = 1e-4


class LossesDiffer(Exception):
    pass


def compare_losses(case, ours, theirs):
    """The largest relative difference; throws LossesDiffer above the tolerance or for different numbers of losses."""
    if len(ours) != len(theirs) or not ours:
        raise LossesDiffer(f"{case}: {len(ours)} losses against PyTorch's {len(theirs)}")
    worst = 0.0
    for step, (a, b) in enumerate(zip(ours, theirs)):
        difference = abs(a - b) / max(abs(b), 1e-12)
        if not difference <= TOLERANCE:
            raise LossesDiffer(f"{case}: at step {step} the loss is {a:.7g}, PyTorch's {b:.7g}: "
                               f"{difference:.1e} apart, allowed {TOLERANCE:.0e}")
        worst = max(worst, difference)
    return worst


def summarize(case, threads, configuration, pairs):
    """One entry of the results; `pairs` holds what both sides printed, ours first."""
    ratios = sorted(theirs["step_ms"] / ours["step_ms"] for ours, theirs in pairs)
    return {
        "case": case,
        "threads": threads,
        "tandem_ms": statistics.median(ours["step_ms"] for ours, _ in pairs),
        "pytorch_ms": statistics.median(theirs["step_ms"] for _, theirs in pairs),
        "times_faster": statistics.median(ratios),
        "times_faster_least": ratios[0],
        "times_faster_most": ratios[-1],
        "pairs": len(pairs),
        "tandem_mb": max(ours["rss_mb"] for ours, _ in pairs),
        "pytorch_mb": max(theirs["rss_mb"] for _, theirs in pairs),
        "loss_difference": max(compare_losses(case, ours["losses"], theirs["losses"]) for ours, theirs in pairs),
        "pytorch_configuration": configuration,
        "pytorch_version": pairs[0][1]["version"],
        "cpu": pairs[0][0]["cpu"],
    }


def merge(path, entries):
    """Writes the entries into the file, in place of those it has for the same cases and threads; returns all of them."""
    kept = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
    key = lambda entry: (entry["case"], entry["threads"])
    new = {key(entry) for entry in entries}
    entries = [entry for entry in kept if key(entry) not in new] + entries
    entries.sort(key=lambda entry: (entry["threads"], CASES.index(entry["case"])))
    with open(path, "w", encoding="utf-8") as file:
        json.dump(entries, file, indent=1)
        file.write("\n")
    return entries
