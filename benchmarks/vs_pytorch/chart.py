#!/usr/bin/python3
"""Draws the results of vs_pytorch as an SVG chart for light and dark pages, or prints them as a Markdown table.

    chart.py svg RESULTS.json > chart.svg
    chart.py table RESULTS.json
"""

import html
import json
import sys

WIDTH, LEFT, RIGHT, TOP = 760, 120, 200, 78
BAR, GAP, GROUP_GAP = 15, 3, 22
TANDEM_COLOR, PYTORCH_COLOR, FOREGROUND, GRAY, BACKGROUND = "#2e6da4", "#c9ced6", "#222222", "#6b7280", "#ffffff"
DARK = {TANDEM_COLOR: "#58a6ff", PYTORCH_COLOR: "#484f58", FOREGROUND: "#e6edf3", GRAY: "#9198a1", BACKGROUND: "#0d1117"}
STYLE = "".join(f'[fill="{light}"] {{ fill: {dark} }} ' for light, dark in DARK.items())


def text(x, y, words, size=12, anchor="start", color=FOREGROUND, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{color}" '
            f'font-weight="{weight}">{html.escape(words)}</text>')


def bar(x, y, width, color):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{BAR}" rx="2" fill="{color}"/>'


def milliseconds(value):
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


def title(entries):
    threads = sorted({entry["threads"] for entry in entries})
    return "one thread" if threads == [1] else f"{threads[0]} threads" if len(threads) == 1 else "by number of threads"


def draw(entries):
    """Returns the SVG. Bar lengths are proportional to step times; the longer bar of each case has the full width."""
    if not entries:
        raise ValueError("draw: no results; run vs_pytorch first")
    full_width = WIDTH - LEFT - RIGHT
    group = 2 * BAR + GAP + GROUP_GAP
    height = TOP + len(entries) * group + 22
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="system-ui, sans-serif">',
        f"<style>@media (prefers-color-scheme: dark) {{ {STYLE}}}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="{BACKGROUND}"/>',
        text(20, 28, f"One float32 training step, {title(entries)}", 16, weight="bold"),
        bar(20, 42, BAR, TANDEM_COLOR), text(42, 54, "tandem"),
        bar(110, 42, BAR, PYTORCH_COLOR), text(132, 54, f'PyTorch {entries[0]["pytorch_version"].split("+")[0]}, its fastest configuration'),
        text(WIDTH - 20, 54, "shorter is better", color=GRAY, anchor="end"),
    ]
    several = len({entry["threads"] for entry in entries}) > 1
    for index, entry in enumerate(entries):
        y = TOP + index * group
        longest = max(entry["tandem_ms"], entry["pytorch_ms"])
        name = entry["case"] + (f' ({entry["threads"]})' if several else "")
        out.append(text(LEFT - 12, y + BAR + 6, name, 13, "end", weight="bold"))
        for row, (side, color) in enumerate((("tandem", TANDEM_COLOR), ("pytorch", PYTORCH_COLOR))):
            top = y + row * (BAR + GAP)
            width = full_width * entry[f"{side}_ms"] / longest
            out.append(bar(LEFT, top, width, color))
            label = f'{milliseconds(entry[f"{side}_ms"])}, {entry[f"{side}_mb"]:.0f} MB'
            out.append(text(LEFT + width + 7, top + BAR - 3.5, label, 11, color=GRAY))
        out.append(text(WIDTH - 20, y + BAR + 7, f'{entry["speedup"]:.2f} x', 16, "end", TANDEM_COLOR, "bold"))
    out.append(text(20, height - 8, f'{entries[0]["cpu"]}; medians of alternating runs; MB: peak resident memory', 10, color=GRAY))
    out.append("</svg>")
    return "\n".join(out) + "\n"


def table(entries):
    """Returns a table with one row per case: step times, the median speedup and its range over the pairs, peak memory."""
    out = ["| case | tandem | PyTorch | speedup (range) | memory of tandem, PyTorch | PyTorch configuration |",
           "|---|---|---|---|---|---|"]
    for entry in entries:
        out.append(f'| {entry["case"]} | {milliseconds(entry["tandem_ms"])} | {milliseconds(entry["pytorch_ms"])} '
                   f'| {entry["speedup"]:.2f} ({entry["speedup_min"]:.2f} to {entry["speedup_max"]:.2f}) '
                   f'| {entry["tandem_mb"]:.0f} MB, {entry["pytorch_mb"]:.0f} MB | {entry["pytorch_configuration"]} |')
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    forms = {"svg": draw, "table": table}
    if len(sys.argv) != 3 or sys.argv[1] not in forms:
        sys.exit(__doc__)
    with open(sys.argv[2], encoding="utf-8") as results:
        print(forms[sys.argv[1]](json.load(results)), end="")
