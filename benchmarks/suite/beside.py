"""The suite's questions, asked of kvpress's presses and of llama.cpp, with the texts of the same seeds.

    python -m benchmarks.suite.beside --model DIR --presses snapkv,random --out suite.jsonl
    python -m benchmarks.suite.beside --model DIR --llama-cpp-python PATH_TO_PYTHON --gguf FILE.gguf --out suite.jsonl

A press keeps as many entries as a method's budget. `full` is kvpress without a press, to check that only the choice of
entries differs. llama.cpp gets the whole text in the same chat template. Lines go to the file of `stockpot bench
suite`, and a killed run goes on from there. Perplexity is not measured.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import options as shared
from benchmarks.llama_cpp import chat_answers
from benchmarks.presses import PRESSES, Neighbours
from benchmarks.report import machine
from benchmarks.suite.command import LENGTH, READINGS, budgets, entries, note, publish
from benchmarks.suite.store import Cell, Cells, digest
from benchmarks.suite.tasks import Asked
from benchmarks.suite.texts import ROOM, Text, Texts
from engine import Model
from engine.models.chat import INSTRUCTION

FULL = "full"
Answers = Callable[[Text], Iterable[str]]
"""Returns the answers to the questions of a text, in order."""


def with_press(model: Model, neighbours: Neighbours, press: str, kept: int, text: Text) -> Iterable[str]:
    """Yield the answers from the entries that a press keeps of a text; with FULL from the whole text."""
    ids = torch.cat([torch.tensor(model.chat.prefix), text.ids])
    pressed, _ = neighbours.read(None if press == FULL else press, ids, kept)
    for asked in text.asked:
        tokens, _ = pressed.answer(model.chat.turn(asked.text), asked.most)
        yield model.decode(tokens)


def with_llama(model: Model, chosen: argparse.Namespace, tokens: int, text: Text) -> Iterable[str]:
    """Yield llama.cpp's answers, with the whole text in the system message."""
    told = {"role": "system", "content": INSTRUCTION + model.decode(text.ids.tolist())}
    chats = [([told, {"role": "user", "content": asked.text}], asked.most) for asked in text.asked]
    window = tokens + ROOM  # the text may have more tokens where it is encoded again
    for said in chat_answers(chosen.llama_cpp_python, chosen.gguf, chats, window, torch.get_num_threads()):
        yield said["answer"]


def scored(asked: Asked, answer: str) -> dict[str, Any]:
    """Return an answer with its scores, as a cell holds it."""
    found = {"family": asked.family, "question": asked.text, "references": asked.references, "answer": answer}
    return {**found, **asked.scores(answer)}


def measure(model: Model, method: str, tokens: int, seed: int, text: Text, answers: Answers) -> Cell:
    """Return the cell of a text."""
    started = time.perf_counter()
    questions = [scored(asked, answer) for asked, answer in zip(text.asked, answers(text), strict=True)]
    seconds = round(time.perf_counter() - started, 1)
    note(f"{method} at {tokens:,} tokens, seed {seed}: {seconds} s")
    return {
        "model": model.name,
        "weights": model.fingerprint[:12],
        "method": method,
        "settings": {},
        "looks": None,
        "tokens": tokens,
        "seed": seed,
        "questions": questions,
        "seconds": {"all": seconds},
        "machine": machine(),
    }


def wanted(chosen: argparse.Namespace, model: Model, tokens: int) -> Iterable[tuple[str, Answers]]:
    """Yield the name of each row for a length, and what answers its questions."""
    if chosen.presses:
        neighbours = Neighbours(model, shared.model_source(chosen), model.network.dtype)
        for press in chosen.presses:
            for kept in [tokens] if press == FULL else [entries(budget, tokens) for budget in chosen.budgets]:
                name = f"kvpress {press}" + ("" if press == FULL else f":entries={kept}")
                yield name, partial(with_press, model, neighbours, press, kept)
    if chosen.llama_cpp_python:
        yield f"llama.cpp {chosen.gguf.name}", partial(with_llama, model, chosen, tokens)


def main(argv: list[str] | None = None) -> int:
    """Measure the cells that are not in the file yet; print a table of all, and one line of JSON."""
    parser = shared.parser("The suite's questions, asked of kvpress and llama.cpp, with the texts of the same seeds.")
    parser.add_argument(
        "--presses", type=shared.words, default=[], help=f"separated by commas: {FULL}, {', '.join(PRESSES)}"
    )
    parser.add_argument("--budgets", type=budgets, default=["1/4"], help="entries, or a share (default: 1/4)")
    parser.add_argument("--llama-cpp-python", type=Path, help="an interpreter with this package")
    parser.add_argument("--gguf", type=Path, help="the model's file for llama.cpp")
    parser.add_argument("--tokens", type=shared.lengths, default=[LENGTH], help="lengths (default: 4K)")
    parser.add_argument("--readings", type=shared.count, default=READINGS, help=f"texts (default: {READINGS})")
    chosen = parser.parse_args(argv)
    if unknown := [press for press in chosen.presses if press not in (FULL, *PRESSES)]:
        parser.error(f"there is no press {unknown[0]!r}: choose from {FULL}, {', '.join(PRESSES)}")
    if bool(chosen.llama_cpp_python) != bool(chosen.gguf):
        parser.error("llama.cpp needs both --llama-cpp-python and --gguf")
    model = shared.open_model(chosen)
    texts, kept, cells = Texts(model, chosen.data), Cells(chosen.out), list[Cell]()
    for tokens in chosen.tokens:
        for method, answers in wanted(chosen, model, tokens):
            for seed in range(chosen.seed, chosen.seed + chosen.readings):
                text = texts.make(tokens, seed)
                mark = digest(["beside", model.fingerprint, method, tokens, seed, text.digest()])
                cells.append(kept.get(mark, partial(measure, model, method, tokens, seed, text, answers)))
    publish(cells, [], chosen.json)
    return 0


if __name__ == "__main__":
    shared.run(main)
