"""Questions over `qa/`: each with the passage that holds its evidence, for use in a longer text.

Half of the documents, by a checksum of their names, are used here. The other half is free for training heads of real
models. The pocket model was trained with all of the tales.
"""

from __future__ import annotations

import functools
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.scoring import contains
from benchmarks.suite.needles import Names
from benchmarks.suite.tasks import LIST, Asked, Needles
from training.pocket.prose import split_sentences

TALES, PAPERS, RECORDS = "fairytaleqa_dev.jsonl.xz", "covidqa_dev.json.xz", "kv_retrieval_dev.jsonl.xz"
TALE_QUESTIONS, TALE_WORDS, ANSWER_WORDS = 2, 200, 8
PAPER_CHARACTERS, PAPER_TITLE = 900, 200
SHORTEST, LONGEST = 6, 60  # characters of answers over papers
TOKENS_PER_RECORD, FEWEST_RECORDS = 640, 6


@dataclass(frozen=True)
class Source:
    """A family of questions over a file of `qa/`. `draw` makes a passage and its questions for a text of N tokens."""

    family: str
    file: str
    draw: Callable[[Names, Path, int], Needles]

    def is_there(self, data: Path) -> bool:
        """Return whether its file is in the data folder."""
        return (data / "qa" / self.file).is_file()


def is_measured(name: str) -> bool:
    """Return whether a document of `qa/` is used here, and must not be trained on."""
    return zlib.crc32(name.encode()) % 2 == 0


@functools.cache
def tales(file: Path) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Return (title, passage, questions) of sections with enough questions with short, explicit answers."""
    found = []
    for tale in filter(lambda tale: is_measured(tale["id"]), _lines(file)):
        sections: dict[str, list[dict[str, Any]]] = {}
        for question in tale["questions"]:
            text = _about_tale(_title(tale), question["question"])
            if question["explicit"] == "explicit" and _is_fair(text, question["answers"]):
                sections.setdefault(question["section"], []).append(question)
        for section, questions in sections.items():
            passage = tale["sections"][int(section) - 1] if section.isdigit() else ""
            if 0 < len(passage.split()) <= TALE_WORDS and len(questions) >= TALE_QUESTIONS:
                found.append((_title(tale), " ".join(passage.split()), questions))
    return found


def _title(tale: dict[str, Any]) -> str:
    return str(tale["id"]).replace("-", " ")


def _about_tale(title: str, question: str) -> str:
    return f"About the tale “{title}”: {question}"


def _is_fair(question: str, answers: list[str]) -> bool:
    """Return whether all answers are short and none is in the question."""
    short = all(0 < len(answer.split()) <= ANSWER_WORDS for answer in answers)
    return short and not any(contains(question, answer) for answer in answers)


def tale(names: Names, file: Path, tokens: int) -> Needles:
    """Return a section of a fairy tale with questions."""
    title, passage, questions = names.pick(tales(file))
    statement = f"\n\nFrom the tale “{title}”: {passage}\n\n"
    asked = [
        Asked(
            "tales",
            _about_tale(title, question["question"]),
            tuple(dict.fromkeys(question["answers"])),
            (statement,),
            any_of=True,
        )
        for question in names.rng.sample(questions, TALE_QUESTIONS)
    ]
    return Needles([statement], asked)


@functools.cache
def _papers(file: Path) -> list[tuple[str, str, str, str]]:
    """Return (title, passage, full question, answer) for short answers.

    A passage is the sentences around its answer.
    """
    with lzma.open(file, "rt", encoding="utf-8") as text:
        data = json.load(text)["data"]
    found = []
    for paragraph in (paragraph for paper in data for paragraph in paper["paragraphs"]):
        title = paragraph["context"].split("\n")[0].strip()
        if not is_measured(title) or len(title) > PAPER_TITLE:
            continue
        for question in paragraph["qas"]:
            answer = question["answers"][0]
            said = " ".join(answer["text"].split()).strip(" .,;[(")
            passage = _around(paragraph["context"], answer["answer_start"], len(answer["text"]))
            put = f"From the paper “{title}”: {question['question'].strip()}"
            if SHORTEST <= len(said) <= LONGEST and said in passage and not contains(put, said):
                found.append((title, passage, put, said))
    return found


def _around(text: str, start: int, length: int) -> str:
    """Return about PAPER_CHARACTERS characters around a place, cut at sentences."""
    first = max(0, start - (PAPER_CHARACTERS - length) // 2)
    sentences = split_sentences(text[first : first + PAPER_CHARACTERS])
    whole = sentences[1 if first else 0 : -1]  # the first and last ones are cut
    return " ".join("".join(whole).split())


def paper(names: Names, file: Path, tokens: int) -> Needles:
    """Return a passage of a medical paper with a question."""
    title, passage, question, answer = names.pick(_papers(file))
    statement = f"\n\nFrom the paper “{title}”: {passage}\n\n"
    return Needles([statement], [Asked("papers", question, (answer,), (statement,), True)])


@functools.cache
def _record_sets(file: Path) -> list[list[list[str]]]:
    return [each["ordered_kv_records"] for each in _lines(file) if is_measured(each["ordered_kv_records"][0][0])]


def records(names: Names, file: Path, tokens: int) -> Needles:
    """Return random keys and values, more of them in a longer text; one value is asked for."""
    held = names.pick(_record_sets(file))
    held = held[: max(FEWEST_RECORDS, tokens // TOKENS_PER_RECORD)]
    statement = "\n\n{" + ",\n ".join(f'"{key}": "{value}"' for key, value in held) + "}\n\n"
    key, value = names.rng.choice(held)
    question = f'What is the value of the key "{key}"?'
    return Needles([statement], [Asked("records", question, (value,), (statement,), True, LIST)])


SOURCES = (Source("tales", TALES, tale), Source("papers", PAPERS, paper), Source("records", RECORDS, records))


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)
