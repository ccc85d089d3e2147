"""Curves of a training log: one panel per column, few points, only numbers from the log."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from training.curves import HEIGHT, POINTS, WIDTH, draw_curves

SVG = "{http://www.w3.org/2000/svg}"


def drawn(folder: Path, lines: list[dict[str, float]], columns: dict[str, str]) -> ElementTree.Element:
    log, out = folder / "log.jsonl", folder / "curves.svg"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    draw_curves(log, out, columns)
    return ElementTree.parse(out).getroot()


def points(panel: ElementTree.Element) -> list[tuple[float, ...]]:
    line = panel.find(f"{SVG}polyline")
    assert line is not None
    return [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]


def test_a_panel_for_each_column(tmp_path: Path) -> None:
    lines = [{"step": n + 1, "loss": 4.0 - n, "overlap": 0.25 * n, "rate": 1.0} for n in range(5)]
    root = drawn(tmp_path, lines, {"loss": "loss <here>", "overlap": "found"})
    first, second = root.findall(f"{SVG}g")
    assert [text.text for text in first.findall(f"{SVG}text")] == ["loss <here>", "4", "0", "step 1", "5"]
    steps = [WIDTH * n / 4 for n in range(5)]
    assert points(first) == [(x, HEIGHT * n / 4) for n, x in enumerate(steps)]
    assert points(second) == [(x, HEIGHT * (1 - n / 4)) for n, x in enumerate(steps)]


def test_many_steps_are_few_points(tmp_path: Path) -> None:
    lines = [{"loss": float(n % 2)} for n in range(10 * POINTS)]
    (panel,) = drawn(tmp_path, lines, {"loss": "loss"}).findall(f"{SVG}g")
    assert points(panel) == [(round(WIDTH * n / (POINTS - 1), 1), 0.0) for n in range(POINTS)]


def test_a_log_of_one_step_or_of_nothing_but_zeros(tmp_path: Path) -> None:
    for lines in ([{"loss": 2.0}], [{"loss": 0.0}] * 3):
        (panel,) = drawn(tmp_path, lines, {"loss": "loss"}).findall(f"{SVG}g")
        assert len(points(panel)) == len(lines)
