"""Sections about models that other people trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean, median

from benchmarks.freshness import Row
from benchmarks.pages.markup import FEW, conditions, length, markdown, share
from benchmarks.report import hardware
from benchmarks.suite.store import Cell
from benchmarks.suite.tables import ALL, NEEDLES, READING, rows_of

QUOTED = 20  # words of a long quotation
SHOWN = (NEEDLES, "single", READING)
TEXTS = {"novel": "the beginning of *The Great Gatsby*", "paper": "two pages of a paper"}


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
        perplexity = _perplexity(own["perplexity"]) if "perplexity" in own else "–"
        lines.append([model, name, length(tokens), *cell, perplexity])
    note = (
        f"{conditions(machines)} Needles pool all kinds of questions but those about stories and papers (`qa`). "
        "One text of 32K tokens has three sets of questions. "
        "Retaining heads, for `locret` and `recall`: `stockpot train locret --steps 240 --labels turn`, with rows "
        "of `python -m benchmarks.training_rows`. llama.cpp reads the whole text, asked by "
        "`python -m benchmarks.suite.beside`."
    )
    header = ["model", "method", "tokens", "needles", "`single`", "`qa`", "perplexity"]
    return ["## Real models: the suite", note, markdown(header, lines)]


def wordings(cells: Iterable[Cell]) -> list[str]:
    """Return the accuracy with other words around the text and the question, with full attention."""
    measured = list(cells)
    rows = [row for row in rows_of(measured) if row["family"] == ALL]
    machines = [{"model": cell["model"], "machine": hardware(cell["machine"])} for cell in measured]
    lines = [
        [
            row["method"],
            length(row["tokens"]),
            _share(row),
            f"{row['f1']:.3f} [{row['f1_95'][0]:.3f}–{row['f1_95'][1]:.3f}]",
        ]
        for row in rows
    ]
    note = (
        f"{conditions(machines)} All questions of the suite, with full attention. `now` is what Stockpot uses; "
        "`benchmarks/suite/wordings.py` has the words of each. No other is better by more than chance, so it stays."
    )
    return ["## Real models: words around a question", note, markdown(["words", "tokens", "right", "F1"], lines)]


def drafts(rows: list[Row]) -> list[str]:
    """Return how much sooner answers end with drafts, by the kind of question."""
    kinds: dict[str, Callable[[Row], bool]] = {
        "asks for a quotation": lambda row: row["kind"] == "quoting",
        f"any, answered with {QUOTED} words of the text or more": lambda row: row["quoted"] >= QUOTED,
        "does not": lambda row: row["kind"] == "ordinary",
    }
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        for kind, is_one in kinds.items():
            if not (own := [row for row in rows if row["model"] == model and is_one(row)]):
                continue
            ratios = sorted(row["ratio"] for row in own)
            ratio = f"{fmean(ratios):.2f} [{ratios[0]:.2f}–{ratios[-1]:.2f}]"
            alike = f"{sum(row['same'] for row in own)} of {len(own)}"
            lines.append([model, kind, str(len(own)), ratio, f"{median(row['tokens'] for row in own):.0f}", alike])
    wide = ", ".join(sorted({f"{row['passes']['9']:.2f}" for row in rows}))
    note = (
        f"{conditions(rows)} Greedy answers about texts of some 2,000 tokens, with `full`: the processor's time for a "
        "token without drafts, divided by that with them; mean [least–most]. A pass of nine tokens takes "
        f"{wide} times as long as one of one token."
    )
    header = ["model", "question", "n", "times as fast", "tokens, median", "same answer"]
    return ["## Real models: drafts", note, markdown(header, lines)]


def _share(row: Row) -> str:
    low, high = row["contained_95"]
    text = f"{100 * row['contained']:.0f} [{100 * low:.0f}–{100 * high:.0f}] of {row['n']}"
    return f"*{text}*" if row["n"] < FEW else text


def _perplexity(row: Row) -> str:
    low, high = row["perplexity_95"]
    return f"{row['perplexity']:.1f} [{low:.1f}–{high:.1f}] of {row['n']:,}"


def quantised(rows: list[Row]) -> list[str]:
    """Return the perplexity with quantised weights, beside that with plain ones."""
    lines = []
    for row in rows:
        name = row["weights"]
        if name == "int4":
            name += f", groups of {row['group']}" + (", fitted" if row["fitted"] else "")
            name = f"plain, the head in {name}" if row.get("head") else name
        low, high = row["ratio_95"]
        more = "–" if name == "plain" else f"{row['ratio']:.3f} [{low:.3f}–{high:.3f}]"
        count = row["windows"] * row["window"]
        alike = "–" if name == "plain" else share(round(row["same_successor"] * count), count)
        lines.append([name, f"{row['perplexity']:.2f}", more, alike])
    note = (
        f"{conditions(rows)} Perplexity of {rows[0]['tokens']:,} tokens of four novels, in {rows[0]['windows']} "
        "windows read by themselves; its ratio to that with plain weights, with an interval over windows; and tokens "
        "with the same most likely successor, in %. The plain weights are those of a GGUF file in 4 bits, whose "
        "channels were put into another order, so that no group is one of the file's. Only linear layers are "
        "quantised, and in the last row only the head."
    )
    return [
        "## Real models: quantised weights",
        note,
        markdown(["weights", "perplexity", "ratio", "same successor"], lines),
    ]


def file_weights(rows: list[Row]) -> list[str]:
    """Return the perplexity of GGUF files in each form of their weights, beside that of their numbers in float32."""
    lines = []
    for row in rows:
        count, (low, high) = row["windows"] * row["window"], row["ratio_95"]
        first = row["quantize"] == "none" and row["dtype"] == "float32"
        more = "–" if first else f"{row['ratio']:.4f} [{low:.3f}–{high:.3f}]"
        alike = "–" if first else share(round(row["same_successor"] * count), count)
        weights = {"none": "plain"}.get(row["quantize"], row["quantize"])
        lines.append([f"`{row['file']}`", weights, row["dtype"], f"{row['perplexity']:.2f}", more, alike])
    note = (
        f"{conditions(rows)} Perplexity of novels in windows of {rows[0]['window']} tokens, each read by itself in one "
        "pass; its ratio to that of the file's numbers in float32, with an interval over windows; and tokens with the "
        "same most likely successor, in %. `blocks` rounds activations to 8 bits in float32, and in bfloat16 where a "
        "pass has fewer than 64 tokens. `int4` keeps codes of 4 bits (Q4_0, Q4_1, Q4_K), and rounds the others; the "
        "head is in 8 bits with `int8` and `int4`."
    )
    header = ["file", "weights", "computed in", "perplexity", "ratio", "same successor"]
    return ["## Real models: weights of GGUF files", note, markdown(header, lines)]


def gguf(rows: list[Row]) -> list[str]:
    """Return how far the tokens that we predict from a GGUF file are from llama.cpp's."""
    lines = []
    for row in rows:
        alike = share(round(row["top_1_agreement"] * row["tokens"]), row["tokens"])
        weights = "widened to float32" if row["weights"] == "float32" else "as in the file"
        lines.append([f"`{row['file']}`", weights, alike, f"{row['mean_kl']:.2g}"])
    note = (
        f"{conditions(rows)} The same file read by llama.cpp: tokens with the same most likely successor, in %, and "
        "the mean KL divergence. Our weights are float32. llama.cpp rounds activations to eight bits where a weight is "
        "quantised; with the same weights as float32 it rounds only keys and values, to float16."
    )
    header = ["file", "llama.cpp's weights", "same successor", "KL divergence"]
    return ["## Real models: GGUF files", note, markdown(header, lines)]


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
        "the median of the rounds and their range. Rows in `blocks` are of a processor with AVX2, the others of "
        "one with AVX-512."
    )
    header = ["file", "method", "our weights", "tokens", "reading", "first token", "answering"]
    return ["## Real models: speed beside llama.cpp", note, markdown(header, lines)]


def _beside(speed: Row) -> str:
    ratios = speed["ratios"]
    spread = f"×{median(ratios):.2f} [{ratios[0]:.2f}–{ratios[-1]:.2f}]"
    ours, theirs = (f"{each:,.0f}" if each >= 100 else f"{each:.3g}" for each in (speed["ours"], speed["theirs"]))
    return f"{ours} / {theirs}: {spread}"


def way_in(rows: list[Row]) -> list[str]:
    """Return how many questions about a text are answered and cited rightly, and when the first is."""
    lines = []
    for row in rows:
        ours = row["tool"] == "stockpot"
        lines.append(
            [
                row["model"],
                row["text"],
                f"{row['tokens']:,}",
                "Stockpot, through its page" if ours else "llama.cpp, whole text",
                share(row["right"], row["asked"]),
                share(row["cited"], row["asked"]) if ours else "–",
                share(row["first"], row["asked"]) if ours else "–",
                _seconds(row["first_right_cited_cpu_sec"] if ours else row["first_right_cpu_sec"]),
            ]
        )
    note = (
        f"{conditions(rows)} A browser drops in a text, reads it, and asks ten questions about it, each in a new chat; "
        "llama.cpp gets the whole text before each question and keeps what it has read of it. Texts: "
        f"{' and '.join(TEXTS[name] for name in dict.fromkeys(row['text'] for row in rows))}. Right: the answer "
        "contains an accepted one. Cited: a passage shown with the answer says it; first: the first passage does. "
        "Time: of processors, from the start of the program to the first right answer, for Stockpot to the first that "
        "is right and cited. The machine was shared and busy, so clocks tell little. `python -m benchmarks.way_in` "
        "measures it."
    )
    header = ["model", "text", "tokens", "program", "right", "cited", "first", "first right answer"]
    return ["## Real models: the way in", note, markdown(header, lines)]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} s"
