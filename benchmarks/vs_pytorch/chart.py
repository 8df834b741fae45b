#!/usr/bin/python3
"""The results of vs_pytorch as a chart (SVG, for light and dark pages) or as a table (Markdown).

    chart.py svg RESULTS.json > chart.svg
    chart.py table RESULTS.json
"""

import html
import json
import sys

WIDTH, LEFT, RIGHT, TOP = 760, 120, 200, 78
BAR, GAP, GROUP_GAP = 15, 3, 22
OURS, THEIRS, INK, FAINT, PAPER = "#2e6da4", "#c9ced6", "#222222", "#6b7280", "#ffffff"
DARK = {OURS: "#58a6ff", THEIRS: "#484f58", INK: "#e6edf3", FAINT: "#9198a1", PAPER: "#0d1117"}
STYLE = "".join(f'[fill="{light}"] {{ fill: {dark} }} ' for light, dark in DARK.items())


def text(x, y, words, size=12, anchor="start", color=INK, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{color}" '
            f'font-weight="{weight}">{html.escape(words)}</text>')


def bar(x, y, width, color):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{BAR}" rx="2" fill="{color}"/>'


def milliseconds(value):
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


def title(entries):
    threads = sorted({entry["threads"] for entry in entries})
    return "one thread" if threads == [1] else f"{threads[0]} threads" if len(threads) == 1 else "by threads"


def draw(entries):
    """Bar lengths are step times, scaled so that the longer bar of each case spans the chart."""
    if not entries:
        raise ValueError("there are no results to draw")
    room = WIDTH - LEFT - RIGHT
    group = 2 * BAR + GAP + GROUP_GAP
    height = TOP + len(entries) * group + 22
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="system-ui, sans-serif">',
        f"<style>@media (prefers-color-scheme: dark) {{ {STYLE}}}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>',
        text(20, 28, f"One float32 training step, {title(entries)}", 16, weight="bold"),
        bar(20, 42, BAR, OURS), text(42, 54, "tandem"),
        bar(110, 42, BAR, THEIRS), text(132, 54, f'PyTorch {entries[0]["pytorch_version"].split("+")[0]}, its fastest configuration'),
        text(WIDTH - 20, 54, "shorter is better", color=FAINT, anchor="end"),
    ]
    several = len({entry["threads"] for entry in entries}) > 1
    for index, entry in enumerate(entries):
        y = TOP + index * group
        longest = max(entry["tandem_ms"], entry["pytorch_ms"])
        name = entry["case"] + (f' ({entry["threads"]})' if several else "")
        out.append(text(LEFT - 12, y + BAR + 6, name, 13, "end", weight="bold"))
        for row, (side, color) in enumerate((("tandem", OURS), ("pytorch", THEIRS))):
            top = y + row * (BAR + GAP)
            width = room * entry[f"{side}_ms"] / longest
            out.append(bar(LEFT, top, width, color))
            label = f'{milliseconds(entry[f"{side}_ms"])}, {entry[f"{side}_mb"]:.0f} MB'
            out.append(text(LEFT + width + 7, top + BAR - 3.5, label, 11, color=FAINT))
        out.append(text(WIDTH - 20, y + BAR + 7, f'{entry["times_faster"]:.2f} x', 16, "end", OURS, "bold"))
    out.append(text(20, height - 8, f'{entries[0]["cpu"]}; medians of alternating runs; MB: peak resident memory', 10, color=FAINT))
    out.append("</svg>")
    return "\n".join(out) + "\n"


def table(entries):
    """A row per case: step times, the median ratio with its range over the pairs, peak memory."""
    out = ["| case | tandem | PyTorch | times as fast (range) | memory of tandem, PyTorch | PyTorch configuration |",
           "|---|---|---|---|---|---|"]
    for entry in entries:
        out.append(f'| {entry["case"]} | {milliseconds(entry["tandem_ms"])} | {milliseconds(entry["pytorch_ms"])} '
                   f'| {entry["times_faster"]:.2f} ({entry["times_faster_least"]:.2f} to {entry["times_faster_most"]:.2f}) '
                   f'| {entry["tandem_mb"]:.0f} MB, {entry["pytorch_mb"]:.0f} MB | {entry["pytorch_configuration"]} |')
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    forms = {"svg": draw, "table": table}
    if len(sys.argv) != 3 or sys.argv[1] not in forms:
        sys.exit(__doc__)
    with open(sys.argv[2], encoding="utf-8") as results:
        print(forms[sys.argv[1]](json.load(results)), end="")
