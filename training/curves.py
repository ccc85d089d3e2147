"""Curves of a training log as an SVG file, drawn without a plotting package."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 560, 150  # frame of a panel, in pixels
LEFT, ABOVE, BELOW = 64, 28, 34  # margins of the frame
POINTS = 280  # most points of a curve; each is the mean of consecutive steps


def draw_curves(log: Path, out: Path, columns: Mapping[str, str]) -> None:
    """Draw columns of a log.jsonl over its steps, one panel below another.

    Args:
        log: a log.jsonl, one object a line.
        out: the SVG file.
        columns: keys of the log's lines, with a title for each.
    """
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    height = ABOVE + HEIGHT + BELOW
    panels = [
        f'<g transform="translate({LEFT} {number * height + ABOVE})">{_panel(title, [line[key] for line in lines])}</g>'
        for number, (key, title) in enumerate(columns.items())
    ]
    size = f'width="{LEFT + WIDTH + 16}" height="{height * len(panels)}"'
    style = 'font-family="sans-serif" font-size="12" style="background: white"'
    body = "\n".join(panels)
    out.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{body}\n</svg>\n', encoding="utf-8")


def _panel(title: str, values: Sequence[float]) -> str:
    """Return a frame with a curve over all steps, scaled from 0 to its largest point."""
    means = _means(values)
    most = max(means, default=0.0) or 1.0
    across = WIDTH / max(1, len(means) - 1)
    points = " ".join(f"{number * across:.1f},{HEIGHT * (1 - mean / most):.1f}" for number, mean in enumerate(means))
    return (
        f'<text y="-8">{escape(title)}</text>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>'
        f'<text x="-6" y="10" text-anchor="end">{most:.3g}</text>'
        f'<text x="-6" y="{HEIGHT}" text-anchor="end">0</text>'
        f'<text y="{HEIGHT + 16}">step 1</text>'
        f'<text x="{WIDTH}" y="{HEIGHT + 16}" text-anchor="end">{len(values):,}</text>'
        f'<polyline points="{points}" fill="none" stroke="#1565c0" stroke-width="1.5"/>'
    )


def _means(values: Sequence[float]) -> list[float]:
    """Return the means of at most POINTS equal parts."""
    count = min(POINTS, len(values))
    ends = [len(values) * number // count for number in range(count + 1)] if count else []
    return [sum(values[begin:end]) / (end - begin) for begin, end in itertools.pairwise(ends)]
