"""Needle in a haystack: how much of a text each method can still answer about.

    stockpot bench needle --methods exact,infinipot --budgets 512,1024 --tokens 2K,32K --kinds facts --trials 20

Answers come from memory alone, unless --read-again allows passages to be read again, or --page names the page of the
answer with each question. With --parts a text is read in several readings, each added to the one before, as documents
are. A generated answer is right if it contains the expected one (for two pass keys: both numbers, in order, and no
other). For right answers, the share whose first source holds the fact is counted too.

With --out every cell is written when it is done. An interrupted run continues there. If the file has fewer trials, only
the missing ones are run, provided that weights and settings are the same.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import options as shared
from benchmarks.asking import answer_to, read, read_on
from benchmarks.freshness import Row, is_earlier
from benchmarks.haystack import KINDS, SPREAD, Haystack, Question, Trial
from benchmarks.report import named, publish, write
from engine import Context, Conversation, Finder, LoadedParts, Method, Model, Reader, ReadText, extended
from engine.records import Parts

CELL = ("method", "budget", "tokens", "depth", "kind", "read_again", "page", "parts")


class Readings:
    """Readings of one cell's trials. A beginning that all documents share, as in filler, is read once."""

    def __init__(self, model: Model, method: Method, parts: int | None = None) -> None:
        """Start without a reading.

        `parts` is the number of readings per document, each added to the one before; None for one.
        """
        self.model, self.method, self.parts = model, method, parts
        self._begun: tuple[LoadedParts, dict[str, Any]] | None = None

    def read(self, trial: Trial) -> Context:
        """Read a trial's document to its end.

        Passes begin at the same places as without sharing, so results are the same.
        """
        if self.parts is not None:
            return self._in_parts(trial.ids, self.parts)
        if self._begun is not None:
            reader = Reader.resume(self.model, self.method, trial.ids, *self._begun)
        else:
            reader = Reader(self.model, self.method, trial.ids)
            alike = trial.alike + reader.total - len(trial.ids)  # with the model's prefix, without cut tokens
            longest = reader.chunk + self.method.pass_multiple()  # longest pass
            if alike >= longest:
                next(step for step in reader.run() if step.tokens_done > alike - longest)
                parts, meta = reader.state()
                self._begun = _copied(parts), meta
        return read_on(reader).context()

    def _in_parts(self, ids: Tensor, parts: int) -> Context:
        ends = [len(ids) * number // parts for number in range(1, parts + 1)]
        context = read(self.model, self.method, ids[: ends[0]]).context()
        for end in ends[1:]:
            saved, meta = context.state()
            facts = extended(self.model, self.method, ids[:end], meta)
            context = read_on(Reader.resume(self.model, self.method, ids[:end], _copied(saved), facts)).context()
        return context


def _copied(parts: Parts) -> LoadedParts:
    return {name: {key: tensor.clone() for key, tensor in part.tensors.items()} for name, part in parts.items()}


def page_of(question: Question, tokens: int, page: int) -> Tensor:
    """Return the tokens, int64 [N], of the pages (`page` tokens each) that state a question's answer."""
    end = -(-question.end // page) * page
    return torch.arange(question.start // page * page, min(end, tokens))


def ask(
    context: Context, trial: Trial, read_again: bool = False, page: int | None = None
) -> tuple[int, int, dict[str, int]]:
    """Ask a trial's questions in turn.

    Args:
        context: a finished reading of the trial's text.
        trial: text and questions.
        read_again: passages may be read again.
        page: tokens of the page that is named with each question; None to name none.

    Returns:
        Right answers, right ones with a right source, and the bytes of the finished reading by tier.
    """
    conversation = Conversation(context)
    finder = Finder(trial.ids, context.model.decode) if read_again or page else None
    right = sourced = 0
    for question in trial.questions:
        named = page_of(question, len(trial.ids), page) if page else None
        text = ReadText(trial.ids, finder, named) if finder else None
        answer = answer_to(conversation, question.text, text=text)
        if question.is_right(answer.text):
            right += 1
            first = answer.passages[0] if answer.passages else None
            sourced += first is not None and first.start < question.end and question.start < first.end
    return right, sourced, context.usage().bytes


def measure(haystack: Haystack, cell: Row, seed: int, trials: int, before: Row | None = None) -> Row:
    """Return the row of a cell: counts of asked, right, and right with a right source, over consecutive seeds.

    Args:
        haystack: makes the trials.
        cell: method, budget, tokens, depth, kind, and the passages to read again.
        seed: of the first trial.
        trials: number of trials in the whole row.
        before: row of the first trials, which are not repeated.
    """
    method = shared.variant(cell["method"], cell["budget"])
    row = before or {**cell, "settings": method.settings(), "trials": 0, "asked": 0, "correct": 0, "sourced": 0}
    readings = Readings(haystack.model, method, cell["parts"])
    started, seconds = time.perf_counter(), row.get("seconds", 0.0)
    for number in range(row["trials"], trials):
        trial = haystack.trial(cell["kind"], cell["tokens"], cell["depth"] or 0.0, seed + number)
        right, found, row["kv_bytes"] = ask(readings.read(trial), trial, cell["read_again"], cell["page"])
        row["trials"] += 1
        row["asked"] += len(trial.questions)
        row["correct"] += right
        row["sourced"] += found
        row["seconds"] = round(seconds + time.perf_counter() - started, 1)
    return row


def unfinished(out: Path) -> Path:
    """Return the path for rows of an unfinished run."""
    return out.with_name(f"{out.name}.part")


def taken(out: Path, now: dict[str, Any]) -> dict[tuple[Any, ...], Row]:
    """Return the rows, by cell, that a file and its unfinished part hold for the same weights, settings and scores."""
    rows: dict[tuple[Any, ...], Row] = {}
    for path in (out, unfinished(out)):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # missing or not a result: start anew
            result = json.loads(path.read_text())
            if (result["benchmark"], result["model"], result.get("seed", 0)) != ("needle", now["model"], now["seed"]):
                continue
            if result.get("scored") != now["scored"]:
                continue
            for row in result["rows"]:
                if "settings" in row and not is_earlier(result, row, now):
                    row = {"read_again": False, "page": None, "parts": None, "trials": result["trials"], **row}
                    rows[tuple(row[key] for key in CELL)] = row
    return rows


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser(
        "Needle in a haystack: accuracy by method, budget, length, depth and kind of document.", "stockpot bench needle"
    )
    parser.add_argument("--methods", type=shared.words, default=["exact"], help=f"{shared.SEPARATED} (default: exact)")
    parser.add_argument("--budgets", type=shared.sizes, default=[1024], help="entries (default: 1024)")
    parser.add_argument("--tokens", type=shared.lengths, default=[2048], help="lengths such as 2K,32K,1M (default: 2K)")
    parser.add_argument("--depths", type=shared.depths, default=[0.1, 0.5, 0.9], help="0 to 1 (default: 0.1,0.5,0.9)")
    parser.add_argument("--kinds", type=shared.words, default=["facts"], help=f"of {', '.join(KINDS)} (default: facts)")
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--read-again", action="store_true", help="let passages be read again before an answer")
    again.add_argument("--page", type=shared.count, metavar="N", help="name the page, of so many tokens, of each fact")
    parser.add_argument(
        "--parts", type=shared.count, metavar="N", help="read a text in so many readings, one added to the other"
    )
    parser.add_argument("--trials", type=shared.count, default=5, help="documents per cell (default: 5)")
    chosen = parser.parse_args(argv)
    unknown = set(chosen.kinds) - set(KINDS)
    if unknown:
        parser.error(f"unknown kind {', '.join(sorted(unknown))}: choose of {', '.join(KINDS)}")
    shared.check_methods(parser, chosen.methods, chosen.budgets)
    model = shared.open_model(chosen)
    haystack = Haystack(model, chosen.data)
    facts = {**named(model), "seed": chosen.seed, "trials": chosen.trials} if chosen.out else {}
    before = taken(chosen.out, facts) if chosen.out else {}
    rows: list[Row] = []
    for name, budget in itertools.product(chosen.methods, chosen.budgets):
        if name == "full" and budget != chosen.budgets[0]:
            continue  # `full` has no budget, so once is enough
        for kind, tokens in itertools.product(chosen.kinds, chosen.tokens):
            for depth in [None] if kind in SPREAD else chosen.depths:
                cell = {"method": name, "budget": None if name == "full" else budget}
                cell |= {"tokens": tokens, "depth": depth, "kind": kind}
                cell |= {"read_again": chosen.read_again, "page": chosen.page, "parts": chosen.parts}
                earlier = before.get(tuple(cell[key] for key in CELL))
                rows.append(measure(haystack, cell, chosen.seed, chosen.trials, earlier))
                print(rows[-1], file=sys.stderr, flush=True)
                if chosen.out is not None:
                    write("needle", rows, unfinished(chosen.out), **facts)
    publish("needle", rows, chosen.out, chosen.json, **facts)
    if chosen.out is not None:
        unfinished(chosen.out).unlink()
    return 0


if __name__ == "__main__":
    shared.run(main)
