"""The command line; see the package's docstring."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.llama_cpp import chat_answers
from benchmarks.options import count, file, run
from benchmarks.report import machine, table
from benchmarks.way_in import browser
from benchmarks.way_in.questions import NOVEL, PAPER, Question

STOCKPOT, LLAMA = "stockpot", "llama.cpp"
COLUMNS = ["model", "text", "tokens", "tool", "right", "cited", "first", "asked", "first_right_cited_cpu_sec"]


def main() -> int:
    """Measure what is not measured yet, and print all of it."""
    parser = argparse.ArgumentParser(description="From dropping in a text to the first right, cited answer.")
    parser.add_argument("--model", default="smollm2", help="as `stockpot --model` takes it (default: %(default)s)")
    parser.add_argument("--name", required=True, help="name of the model in the results, with its quantisation")
    parser.add_argument("--book", type=Path, required=True, help="The Great Gatsby as plain text, from chapter I on")
    parser.add_argument("--characters", type=count, default=24_000, help="of the book (default: %(default)s)")
    parser.add_argument("--paper", type=Path, required=True, help="the first two pages of arXiv:2004.04906, as PDF")
    parser.add_argument("--llama-cpp-python", type=Path, help="an interpreter that has this package")
    parser.add_argument("--gguf", type=Path, help="the model's file for llama.cpp")
    parser.add_argument("--window", type=count, default=8192, help="tokens that the model may see (default: 8192)")
    parser.add_argument("--most", type=count, default=64, help="tokens of an answer (default: %(default)s)")
    parser.add_argument("--threads", type=count, default=2, help="CPU threads (default: %(default)s)")
    parser.add_argument("--out", type=file, required=True, help="file of the results; what it has is not done again")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    rows = json.loads(chosen.out.read_text())["rows"] if chosen.out.exists() else []
    for text, questions in (("novel", NOVEL), ("paper", PAPER)):
        if not any((row["model"], row["text"]) == (chosen.name, text) for row in rows):
            rows += _measure(chosen, text, questions)
            chosen.out.parent.mkdir(parents=True, exist_ok=True)
            facts = {"benchmark": "way-in", "model": chosen.name, "beside": {}, "machine": machine()}
            chosen.out.write_text(json.dumps({**facts, "rows": rows}, indent=1, ensure_ascii=False) + "\n")
    print(table([row for row in rows if row["model"] == chosen.name], COLUMNS))
    return 0


def _measure(chosen: argparse.Namespace, text: str, questions: tuple[Question, ...]) -> list[dict[str, Any]]:
    """Return the row of the page, and that of llama.cpp if it is to be asked, about one text."""
    known = {"model": chosen.name, "text": text, "most": chosen.most}
    with tempfile.TemporaryDirectory() as folder:
        file = _text(chosen, text, Path(folder))
        began = time.monotonic()
        with (
            browser.server(chosen.model, Path(folder) / "home", chosen.threads) as (address, process),
            browser.browser_page(address) as page,
        ):
            reading, answers = browser.read(page, address, file), []
            for each, (said, passages) in zip(questions, browser.ask(page, questions, chosen.most), strict=True):
                used = sum(process.cpu_times()[:2])
                answers.append(graded(each, said, passages, time.monotonic() - began, used))
        took = {"read_sec": reading.seconds, "tokens": reading.tokens}
        rows = [{**known, **took, "tool": STOCKPOT, **counted(answers)}]
    if chosen.llama_cpp_python and chosen.gguf:
        rows.append({**known, "tool": LLAMA, **_llama(chosen, "\n\n".join(reading.pages), questions)})
    return rows


def _text(chosen: argparse.Namespace, text: str, folder: Path) -> Path:
    """Return the file of a text; of the book, its beginning alone."""
    if text == "paper":
        return Path(shutil.copy(chosen.paper, folder / "Dense Passage Retrieval.pdf"))
    file = folder / "The Great Gatsby.txt"
    beginning = chosen.book.read_text(encoding="utf-8")[: chosen.characters]
    file.write_text(beginning.rpartition("\n\n")[0], encoding="utf-8")
    return file


def _llama(chosen: argparse.Namespace, text: str, questions: tuple[Question, ...]) -> dict[str, Any]:
    chats = [([{"role": "user", "content": f"{text}\n\n{each.text}"}], chosen.most) for each in questions]
    asked = chat_answers(chosen.llama_cpp_python, chosen.gguf, chats, chosen.window, chosen.threads)
    answers, tokens = [], 0
    for question, said in zip(questions, asked, strict=True):
        answers.append(graded(question, said["answer"], [], said["seconds"], said["cpu"]))
        tokens = max(tokens, said["tokens"])
    return {"tokens": tokens, **counted(answers)}


def graded(question: Question, answer: str, passages: list[str], seconds: float, cpu_sec: float) -> dict[str, Any]:
    """Return an answer with its times, and whether it is right, cited, and cited first.

    Args:
        question: the question.
        answer: the answer.
        passages: the passages shown with it.
        seconds: time since the program was started.
        cpu_sec: processor time that the program has used.
    """
    places = [number for number, passage in enumerate(passages) if question.is_in(passage)]
    return {
        "question": question.text,
        "answer": answer,
        "right": question.is_right(answer),
        "cited": bool(places),
        "first": bool(places) and places[0] == 0,
        "seconds": round(seconds, 1),
        "cpu_sec": round(cpu_sec, 1),
    }


def counted(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many answers are right and cited, with the answers themselves."""
    right = [each for each in answers if each["right"]]
    cited = [each for each in right if each["cited"]]
    times = {
        f"{name}_{unit}": found[0][key] if found else None
        for name, found in (("first_answer", answers), ("first_right", right), ("first_right_cited", cited))
        for unit, key in (("sec", "seconds"), ("cpu_sec", "cpu_sec"))
    }
    counts = {name: sum(each[name] for each in answers) for name in ("right", "cited", "first")}
    return {"asked": len(answers), **counts, **times, "answers": answers}


if __name__ == "__main__":
    run(main)
