"""Files of the common formats broken: each must be refused in a sentence, or read whole, or read with a warning.

A file is made of numbered words, so that it is known which of them are lost. A format of plain text without an end of
its own cannot show that it was cut off; those are cut within their markup or encoding only.
"""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.trust.common import Tally
from ingest import IngestError
from ingest.subprocess import ingest_in_subprocess

WORDS = 1500
LEAST_LOST = 8
"""Fewest words in a row whose loss counts: a changed byte may change a word or two, which nobody can notice."""
_WORD = re.compile(r"\bword(\d{5})\b")


def run(folder: Path, trials: int, seed: int) -> Tally:
    """Break files so many times, and read each in the process that the app reads in."""
    return break_files(list(_originals(folder)), folder, trials, seed)


def break_files(originals: list[Path], folder: Path, trials: int, seed: int) -> Tally:
    """Break these files so many times, and read each."""
    chance, tally = random.Random(seed), Tally()
    for _ in range(trials):
        original = chance.choice(originals)
        name, data = chance.choice(WAYS)(original.read_bytes(), chance)
        file = folder / f"broken{original.suffix}"
        file.write_bytes(data)
        try:
            document = ingest_in_subprocess(file, ocr=False)
        except IngestError as error:
            crashed = "ended with" in str(error) or "please report it" in str(error)
            tally.add(original.suffix[1:], "crashed" if crashed else "refused", f"{name}: {error}"[:250])
            continue
        lost = _longest_gap({int(found) for found in _WORD.findall(document.text)})
        warned = bool(document.warnings) or any(page.quality.warnings for page in document.pages)
        outcome = "same" if lost < LEAST_LOST else "warned" if warned else "lost without a word"
        tally.add(original.suffix[1:], outcome, f"{name}: {lost} words in a row")
    return tally


def _longest_gap(found: set[int]) -> int:
    """Return how many words in a row are lost at most."""
    longest = here = 0
    for number in range(WORDS):
        here = 0 if number in found else here + 1
        longest = max(longest, here)
    return longest


def _originals(folder: Path) -> Iterator[Path]:
    """Yield a file of each common format, made by the makers of the tests."""
    makers: Any = importlib.import_module("tests.ingest.makers")
    ole: Any = importlib.import_module("tests.ingest.ole_makers")
    lines = numbered_lines()
    marked = "".join(f"<p>{line}</p>\n" for line in lines)
    half = len(lines) // 2
    whole = f"<html><head><title>Words</title></head><body>\n{marked}</body></html>"
    yield from office_originals(folder)
    yield makers.epub(
        folder / "a.epub",
        {
            "a.xhtml": "".join(f"<p>{line}</p>" for line in lines[:half]),
            "b.xhtml": "".join(f"<p>{line}</p>" for line in lines[half:]),
        },
    )
    yield makers.mobi(folder / "a.mobi", whole, packed=True)
    yield makers.pdf(
        folder / "a.pdf",
        [
            [(20, 30 + 18 * row, line) for row, line in enumerate(lines[at : at + 30])]
            for at in range(0, len(lines), 30)
        ],
        deflate=True,
    )
    yield ole.outlook(folder / "a.msg", {"001A": "IPM.Note", "0037": "Words", "0C1A": "A", "1000": "\n\n".join(lines)})
    text = {
        "html": whole,
        "fb2": f'<?xml version="1.0"?><FictionBook xmlns="http://www.gribuser.ru/xml/fictionbook/2.0"><body><section>'
        f"{marked}</section></body></FictionBook>",
        "eml": f"From: a@example.org\nSubject: Words\nMIME-Version: 1.0\nContent-Type: text/html\n\n{whole}",
    }
    for suffix, content in text.items():
        (folder / f"a.{suffix}").write_text(content)
        yield folder / f"a.{suffix}"


def office_originals(folder: Path) -> Iterator[Path]:
    """Yield files of Word, Excel and PowerPoint."""
    office: Any = importlib.import_module("tests.ingest.office_makers")
    lines = numbered_lines()
    yield office.word(folder / "a.docx", "".join(f"<w:p><w:r><w:t>{line}</w:t></w:r></w:p>" for line in lines))
    yield office.workbook(folder / "a.xlsx", lambda book: [book.active.append(line.split()) for line in lines])
    yield office.slides(folder / "a.pptx", *(_slide(office, lines[at : at + 10]) for at in range(0, len(lines), 10)))


def numbered_lines() -> list[str]:
    """Return lines of ten numbered words each."""
    words = [f"word{number:05}" for number in range(WORDS)]
    return [" ".join(words[start : start + 10]) for start in range(0, WORDS, 10)]


def _slide(office: Any, lines: list[str]) -> Callable[[Any], None]:
    def fill(slide: Any) -> None:
        for row, line in enumerate(lines):
            office.text_box(slide.shapes, line, 0.5, 0.5 + row * 0.6, 9)

    return fill


def _flip(data: bytes, chance: random.Random) -> tuple[str, bytes]:
    broken = bytearray(data)
    for _ in range(chance.choice([1, 4, 32])):
        broken[chance.randrange(len(data))] ^= chance.randrange(1, 256)
    return "bytes flipped", bytes(broken)


def _cut(data: bytes, chance: random.Random) -> tuple[str, bytes]:
    return "cut off", data[: chance.randrange(len(data) // 10, len(data))]


def _zeros(data: bytes, chance: random.Random) -> tuple[str, bytes]:
    size = chance.choice([512, 4096])
    start = chance.randrange(max(1, len(data) - size))
    return "zeros", data[:start] + bytes(min(size, len(data) - start)) + data[start + size :]


def _nonsense(data: bytes, chance: random.Random) -> tuple[str, bytes]:
    size = chance.choice([16, 512])
    start = chance.randrange(max(1, len(data) - size))
    return "nonsense", data[:start] + chance.randbytes(size) + data[start + size :]


def _inserted(data: bytes, chance: random.Random) -> tuple[str, bytes]:
    start = chance.randrange(len(data))
    return "put in", data[:start] + chance.randbytes(chance.choice([1, 64, 2048])) + data[start:]


WAYS: tuple[Callable[[bytes, random.Random], tuple[str, bytes]], ...] = (
    _flip,
    _cut,
    _cut,
    _zeros,
    _nonsense,
    _inserted,
)
