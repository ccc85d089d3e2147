"""Questions that a person asks of novels, papers, a meeting, contracts and minutes, with answers and places.

Each JSON file is one text. `ask`: the question; `accepted`: wordings of its answer, any one will do; `places`:
passages of the text that hold the answer, any one will do. A question without `accepted` asks for something that is
not in the text. Texts of our own lie here (`texts`); the others are stretches of the data folder, found by `file`,
`item`, the words at their `start` and their length in `letters`.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ASIDE = re.compile(r"\{[a-z]+\}|<[^>]*>")  # noises and gaps in a transcript of a meeting


@dataclass(frozen=True)
class Question:
    """A question about a text.

    Attributes:
        ask: as a person puts it.
        accepted: wordings of the answer; none if it is not in the text.
        places: (start, end) in letters of the text; each holds the answer.
    """

    ask: str
    accepted: tuple[str, ...]
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Read:
    """A text and its questions. kind: novel, essay, paper, meeting, or contracts and minutes."""

    title: str
    kind: str
    text: str
    questions: tuple[Question, ...]


def texts(data: Path) -> Iterator[Read]:
    """Yield all texts whose files are there. data: folder of books/ and qa/."""
    for file in sorted(HERE.glob("*.json")):
        described = json.loads(file.read_text(encoding="utf-8"))
        if "file" not in described or (data / described["file"]).exists():
            text = text_of(described, data)
            questions = tuple(_question(each, text) for each in described["questions"])
            yield Read(described["title"], described["kind"], text, questions)


def whole_books(data: Path) -> Iterator[Read]:
    """Yield whole books, with the questions about stretches of them. data: folder of books/."""
    for file in sorted(HERE.glob("*.json")):
        described = json.loads(file.read_text(encoding="utf-8"))
        if described.get("file", "").startswith("books") and (data / described["file"]).exists():
            book, stretch = _item(data / described["file"], described["item"]), text_of(described, data)
            before = book.index(described["start"])
            asked = (_question(each, stretch) for each in described["questions"])
            questions = tuple(
                replace(each, places=tuple((before + start, before + end) for start, end in each.places))
                for each in asked
            )
            yield Read(described["title"], described["kind"], book, questions)


def text_of(described: dict[str, Any], data: Path) -> str:
    """Return the text that a file describes."""
    if "texts" in described:
        return "\n\n\n".join((HERE / name).read_text(encoding="utf-8").strip() for name in described["texts"])
    whole = _item(data / described["file"], described["item"])
    start = whole.index(described["start"])
    return whole[start : start + described["letters"]]


def _question(described: dict[str, Any], text: str) -> Question:
    places = []
    for quote in described.get("places", ()):
        found = [match.span() for match in re.finditer(r"\s+".join(map(re.escape, quote.split())), text)]
        if not found:
            raise ValueError(f"{quote!r} is not in the text.")
        places += found
    return Question(described["ask"], tuple(described.get("accepted", ())), tuple(places))


def _item(file: Path, item: str | int) -> str:
    """Return a book by its id, or a paper or meeting by its number."""
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        if file.name.startswith("books"):
            book: str = next(book["text"] for book in map(json.loads, lines) if book["id"] == item)
            return book
        if file.name.endswith(".json.xz"):
            paper: str = json.load(lines)["data"][item]["paragraphs"][0]["context"]
            return paper
        return _transcript(json.loads(next(line for at, line in enumerate(lines) if at == item)))


def _transcript(meeting: dict[str, Any]) -> str:
    """Return what was said, a line for each turn, with the marks of the transcript left out."""
    said = []
    for turn in meeting["meeting_transcripts"]:
        words = re.sub(r"\s+([.,?!;:])", r"\1", ASIDE.sub("", turn["content"]))
        words = " ".join(re.sub(r" '(s|re|ve|ll|d|m|t)\b", r"'\1", words).split())
        if re.search(r"\w", words):
            said.append(f"{turn['speaker']}: {words}")
    return "\n".join(said)
