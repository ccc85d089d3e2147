"""Sections about models that other people trained."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from benchmarks.freshness import Row
from benchmarks.pages.markup import FEW, conditions, length, markdown, share
from benchmarks.report import hardware
from benchmarks.suite.store import Cell
from benchmarks.suite.tables import NEEDLES, READING, rows_of

SHOWN = (NEEDLES, "single", READING)


def suite(cells: Iterable[Cell]) -> list[str]:
    """Return the accuracy of the suite's families, and the perplexity, by model, method and length."""
    measured = list(cells)
    rows = rows_of(measured)
    machines = [{"model": cell["model"], "machine": hardware(cell["machine"])} for cell in measured]
    lines = []
    for key in dict.fromkeys((row["model"], row["method"], row["looks"], row["tokens"]) for row in rows):
        own = {row["family"]: row for row in rows if key == (row["model"], row["method"], row["looks"], row["tokens"])}
        model, method, looks, tokens = key
        name = method + (f", {looks} looks" if looks and looks > 1 else "")
        cell = [_share(own[family]) if family in own else "–" for family in SHOWN]
        lines.append([model, name, length(tokens), *cell, _perplexity(own["perplexity"])])
    note = f"{conditions(machines)} Needles pool all kinds of questions but those about stories and papers (`qa`)."
    header = ["model", "method", "tokens", "needles", "`single`", "`qa`", "perplexity"]
    return ["## Real models: the suite", note, markdown(header, lines)]


def _share(row: Row) -> str:
    low, high = row["contained_95"]
    text = f"{100 * row['contained']:.0f} [{100 * low:.0f}–{100 * high:.0f}] of {row['n']}"
    return f"*{text}*" if row["n"] < FEW else text


def _perplexity(row: Row) -> str:
    low, high = row["perplexity_95"]
    return f"{row['perplexity']:.1f} [{low:.1f}–{high:.1f}] of {row['n']:,}"


def gguf(rows: list[Row]) -> list[str]:
    """Return how far the tokens that we predict from a GGUF file are from llama.cpp's."""
    lines = []
    for row in rows:
        alike = share(round(row["top_1_agreement"] * row["tokens"]), row["tokens"])
        lines.append([f"`{row['file']}`", alike, f"{row['mean_kl']:.4f}"])
    note = (
        f"{conditions(rows)} The same file read by llama.cpp: tokens with the same most likely successor, in %, and "
        "the mean KL divergence."
    )
    return ["## Real models: GGUF files", note, markdown(["file", "same successor", "KL divergence"], lines)]


def llama_cpp(rows: list[Row]) -> list[str]:
    """Return speeds beside llama.cpp's, with the ratios of each round."""
    lines = []
    for row in rows:
        weights = "bfloat16" if row["quantize"] == "none" else row["quantize"]
        speeds = [_beside(row[name]) for name in ("reading", "first_token", "answering")]
        lines.append([f"`{row['file']}`", row["method"], weights, length(row["tokens"]), *speeds])
    note = (
        f"{conditions(rows)} The same file read by llama.cpp, in turn. Reading and answering in tokens a second; the "
        "first token of a later question in seconds. Ours / llama.cpp's, medians; ×: how many times as fast we are, "
        "the median of the rounds and their range."
    )
    header = ["file", "method", "our weights", "tokens", "reading", "first token", "answering"]
    return ["## Real models: speed beside llama.cpp", note, markdown(header, lines)]


def _beside(speed: Row) -> str:
    ratios = speed["ratios"]
    spread = f"×{median(ratios):.2f} [{ratios[0]:.2f}–{ratios[-1]:.2f}]"
    return f"{speed['ours']:.3g} / {speed['theirs']:.3g}: {spread}"
