#!/usr/bin/env python3
"""Draws computation and communication of each rank in one training step of a trace as an SVG, for light and dark pages.

    tools/overlap_svg.py TRACE.json STEP > overlap.svg

STEP counts the steps in the trace from 0.
"""

import html
import json
import sys

WIDTH, LEFT, ROW, GAP, RANK_GAP, TOP = 960, 150, 30, 8, 26, 64
FOREGROUND, GRAY, AXIS, BACKGROUND, TRACK, BUCKET = "#222222", "#555555", "#888888", "#ffffff", "#f4f4f4", "#a85d1a"
DARK = {FOREGROUND: "#e6edf3", GRAY: "#9198a1", BACKGROUND: "#0d1117", TRACK: "#21262d", BUCKET: "#f0b27a"}
STYLE = "".join(f'[fill="{light}"] {{ fill: {dark} }} ' for light, dark in DARK.items())
COLORS = {
    "forward": "#7fb3d5",
    "backward": "#2e6da4",
    "comm": "#e08e45",
    "wait": "#c0392b",
    "optimizer": "#6aa84f",
}
LEGEND = [
    ("forward", "forward"),
    ("backward", "backward"),
    ("comm", "all-reduce of gradients"),
    ("wait", "waiting for gradients"),
    ("optimizer", "optimizer"),
]


def load(path):
    with open(path, encoding="utf-8") as file:
        return [e for e in json.load(file)["traceEvents"] if e["ph"] != "M"]


def step_window(events, step):
    steps = sorted((e for e in events if e["cat"] == "step" and e["pid"] == 0), key=lambda e: e["ts"])
    if step >= len(steps):
        sys.exit(f"the trace has {len(steps)} steps")
    return steps[step]["ts"], steps[step]["ts"] + steps[step]["dur"]


def outermost(spans):
    """Spans that are not nested in another span of the same category and track."""
    result = []
    for span in sorted(spans, key=lambda e: (e["ts"], -e["dur"])):
        if not result or span["ts"] >= result[-1]["ts"] + result[-1]["dur"]:
            result.append(span)
    return result


def text(x, y, words, size=12, anchor="start", color=FOREGROUND, weight="normal"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{color}" '
        f'font-weight="{weight}">{html.escape(words)}</text>'
    )


def draw(events, step):
    begin, end = step_window(events, step)
    scale = (WIDTH - LEFT - 20) / (end - begin)
    x_of = lambda us: LEFT + (us - begin) * scale
    ranks = sorted({e["pid"] for e in events})
    rows = [(r, t) for r in ranks for t in (0, 1)]
    y_of = lambda index: TOP + index * (ROW + GAP) + index // 2 * RANK_GAP  # RANK_GAP: for the bucket marks above each rank
    height = y_of(len(rows)) - RANK_GAP + 40
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif">',
        f"<style>@media (prefers-color-scheme: dark) {{ {STYLE}}}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="{BACKGROUND}"/>',
    ]
    x = LEFT
    for category, label in LEGEND:
        out.append(f'<rect x="{x}" y="14" width="14" height="14" rx="2" fill="{COLORS[category]}"/>')
        out.append(text(x + 20, 26, label))
        x += 34 + 7 * len(label)
    for index, (rank, thread) in enumerate(rows):
        y = y_of(index)
        out.append(text(LEFT - 10, y + 20, f"rank {rank}  " + ("compute" if thread == 0 else "communication"), anchor="end"))
        out.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 20}" height="{ROW}" fill="{TRACK}"/>')
        row_events = [e for e in events if e["pid"] == rank and e["tid"] == thread and e["ts"] < end and e["ts"] + e.get("dur", 0) > begin]
        # "comm" spans of the compute thread are part of its "wait" spans, so they are not drawn.
        for category in ("forward", "backward", "wait", "optimizer") if thread == 0 else ("comm",):
            spans = outermost([e for e in row_events if e["cat"] == category and e["ph"] == "X"])
            for span in spans:
                x0, x1 = max(x_of(span["ts"]), LEFT), min(x_of(span["ts"] + span["dur"]), WIDTH - 20)
                out.append(
                    f'<rect x="{x0:.1f}" y="{y + 2}" width="{max(x1 - x0, 0.8):.1f}" height="{ROW - 4}" rx="2" '
                    f'fill="{COLORS[category]}"><title>{html.escape(span["name"])}, {span["dur"] / 1000:.2f} ms</title></rect>'
                )
        for event in row_events:
            if event["ph"] == "i" and event["name"].startswith("launch bucket"):
                x0 = x_of(event["ts"])
                number = event["name"].split()[2]
                out.append(f'<path d="M {x0:.1f} {y - 1} l -4 -7 h 8 z" fill="{COLORS["comm"]}"/>')
                out.append(text(x0, y - 10, number, 10, "middle", BUCKET))
    axis = y_of(len(rows)) - RANK_GAP + 4
    out.append(f'<line x1="{LEFT}" y1="{axis}" x2="{WIDTH - 20}" y2="{axis}" stroke="{AXIS}"/>')
    milliseconds = (end - begin) / 1000
    tick = next(t for t in (0.5, 1, 2, 5, 10, 20, 50, 100, 1000) if milliseconds / t <= 12)
    for i in range(int(milliseconds / tick) + 1):
        x0 = x_of(begin + i * tick * 1000)
        out.append(f'<line x1="{x0:.1f}" y1="{axis}" x2="{x0:.1f}" y2="{axis + 5}" stroke="{AXIS}"/>')
        out.append(text(x0, axis + 18, f"{i * tick:g} ms", 11, "middle", GRAY))
    out.append("</svg>")
    return "\n".join(out)


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        sys.exit(__doc__)
    print(draw(load(sys.argv[1]), int(sys.argv[2])))
