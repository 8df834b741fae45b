"""Summarizes pairs of runs: medians, speedups and their range; checks that losses are equal."""

import json
import os
import statistics

CASES = ("mlp", "lenet", "resnet18", "gpt-small", "gpt-384", "mobilenet-v2", "dcgan", "unet", "lstm")
TOLERANCE = 1e-4


class LossesDiffer(Exception):
    pass


def compare_losses(case, tandem, pytorch):
    """Returns the largest relative difference. Raises LossesDiffer if it exceeds TOLERANCE or if the numbers of losses differ."""
    if len(tandem) != len(pytorch) or not tandem:
        raise LossesDiffer(f"{case}: {len(tandem)} losses, but {len(pytorch)} of PyTorch")
    worst = 0.0
    for step, (a, b) in enumerate(zip(tandem, pytorch)):
        difference = abs(a - b) / max(abs(b), 1e-12)
        if not difference <= TOLERANCE:
            raise LossesDiffer(f"{case}: the loss of step {step} is {a:.7g}, PyTorch's is {b:.7g}: "
                               f"relative difference {difference:.1e}, allowed {TOLERANCE:.0e}")
        worst = max(worst, difference)
    return worst


def summarize(case, threads, configuration, pairs):
    """Returns one entry of the results file. `pairs`: the JSON objects of (tandem, PyTorch) for each pair of runs."""
    ratios = sorted(pytorch["step_ms"] / tandem["step_ms"] for tandem, pytorch in pairs)
    return {
        "case": case,
        "threads": threads,
        "tandem_ms": statistics.median(tandem["step_ms"] for tandem, _ in pairs),
        "pytorch_ms": statistics.median(pytorch["step_ms"] for _, pytorch in pairs),
        "speedup": statistics.median(ratios),
        "speedup_min": ratios[0],
        "speedup_max": ratios[-1],
        "pairs": len(pairs),
        "tandem_mb": max(tandem["rss_mb"] for tandem, _ in pairs),
        "pytorch_mb": max(pytorch["rss_mb"] for _, pytorch in pairs),
        "loss_difference": max(compare_losses(case, tandem["losses"], pytorch["losses"]) for tandem, pytorch in pairs),
        "pytorch_configuration": configuration,
        "pytorch_version": pairs[0][1]["version"],
        "cpu": pairs[0][0]["cpu"],
    }


def merge(path, entries):
    """Replaces the file's entries of the same cases and threads, keeps its other entries, and returns all entries."""
    kept = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
    key = lambda entry: (entry["case"], entry["threads"])
    new = {key(entry) for entry in entries}
    entries = [entry for entry in kept if key(entry) not in new] + entries
    entries.sort(key=lambda entry: (entry["threads"], CASES.index(entry["case"])))
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n")
    return entries
