"""Draws results as an SVG: per case the time of a training step beside PyTorch's."""

import html

WIDTH, LEFT, RIGHT, TOP = 760, 120, 200, 78
BAR, GAP, GROUP_GAP = 15, 3, 22
OURS, THEIRS, INK, FAINT = "#2e6da4", "#c9ced6", "#222222", "#6b7280"


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
    """Bars are as long as the step takes, the longer one of each case across the chart."""
    if not entries:
        raise ValueError("there are no results to draw")
    room = WIDTH - LEFT - RIGHT
    group = 2 * BAR + GAP + GROUP_GAP
    height = TOP + len(entries) * group + 22
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="system-ui, sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
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
