"""Questions over real passages, answered in words of the passage: FairytaleQA, XQuAD (English), Natural Questions."""

import json
import lzma
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Passages:
    """Passages with questions and answers; empty if the data folder has no question sets."""

    def __init__(self, items: list[tuple[str, list[tuple[str, str]]]]) -> None:
        self.items = items

    def __bool__(self) -> bool:
        return bool(self.items)

    def draw(self, rng: random.Random, characters: int) -> tuple[str, list[tuple[str, str]]]:
        """Return a passage of at most about `characters` characters and up to four of its questions."""
        for _ in range(20):
            passage, asked = rng.choice(self.items)
            if len(passage) <= characters:
                break
        return passage[:characters], rng.sample(asked, min(4, len(asked)))


def _literal(passage: str, asked: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(q.strip()[:1].upper() + q.strip()[1:], a) for q, a in asked if a and a in passage and len(a) < 80]


def load_passages(data: Path) -> Passages:
    """Load all passages with at least one literal answer from the sets under `data`/qa."""
    found: list[tuple[str, list[tuple[str, str]]]] = []
    for item in _objects(data / "qa" / "nq_oracle_dev.jsonl.xz"):
        found.append((item["passage"], [(item["question"] + "?", a) for a in item["answers"][:1]]))
    for whole in _objects(data / "qa" / "xquad_en_dev.json.xz"):
        for article in whole["data"]:
            for paragraph in article["paragraphs"]:
                asked = [(q["question"], q["answers"][0]["text"]) for q in paragraph["qas"]]
                found.append((paragraph["context"], asked))
    for story in _objects(data / "qa" / "fairytaleqa_dev.jsonl.xz"):
        found.extend(_fairytale(story))
    kept = [(passage, _literal(passage, asked)) for passage, asked in found]
    return Passages([item for item in kept if item[1]])


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a compressed file (one a line in .jsonl); none if there is no such file."""
    if path.is_file():
        with lzma.open(path, "rt", encoding="utf-8") as file:
            yield from map(json.loads, file if ".jsonl" in path.name else [file.read()])


def _fairytale(story: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return one item per section, without questions over several sections."""
    items = []
    for number, section in enumerate(story["sections"], start=1):
        asked = [
            (q["question"], q["answers"][0]) for q in story["questions"] if q["section"] == str(number) and q["answers"]
        ]
        items.append((section, asked))
    return items
