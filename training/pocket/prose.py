"""Real prose, split into sentences and tokenised once.

Books come from `<data>/books/books.jsonl.xz` (one JSON object a line: id, title, author, text). Sentences keep their
leading space or blank line, so that their tokens joined are the tokens of the text.
"""

import collections
import json
import lzma
import random
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerFast

from engine import SettingsError

# kept out of the training of model and tokenizer; the prose of every measurement
HELD_OUT_BOOKS = (
    "george-eliot_middlemarch",
    "jack-london_martin-eden",
    "edith-wharton_the-house-of-mirth",
    "rudyard-kipling_kim",
)
_ABBREVIATIONS = "".join(f"(?<!\\b{a}\\.)" for a in ("Mr", "Mrs", "Dr", "St", "Capt", "Col", "Prof", "No", "Esq"))
_SENTENCE_END = re.compile(r"(?:(?<=[.!?…])|(?<=[.!?…][”’\"')]))" + _ABBREVIATIONS + r"\s+(?=[“‘\"(]?[A-Z0-9])")


class DataMissing(SettingsError):
    """A file that training needs is not in the data folder."""


def read_books(data: Path) -> list[tuple[str, str]]:
    """Return (id, text) of every book.

    Raises:
        DataMissing: no books.jsonl.xz under `data`.
    """
    path = data / "books" / "books.jsonl.xz"
    if not path.is_file():
        raise DataMissing(
            f"There is no {path}: name the folder that holds books/ and qa/ with --data-dir (docs/models.md says what "
            f"must be in it)."
        )
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [(book["id"], book["text"]) for book in map(json.loads, lines)]


def split_sentences(text: str) -> list[str]:
    """Return the sentences of `text`, each with its leading space or blank line; joined they give the text, spaces
    tidied.
    """
    sentences = []
    for paragraph in re.split(r"\n\s*\n", text):
        paragraph = " ".join(paragraph.split())
        if paragraph:
            first, *rest = _SENTENCE_END.split(paragraph)
            sentences.append("\n\n" + first)
            sentences.extend(" " + sentence for sentence in rest)
    return sentences


def common_nouns(texts: list[str], count: int) -> list[str]:
    """Return the `count` most frequent words after "the" that end a noun phrase; nearly all are nouns."""
    found: collections.Counter[str] = collections.Counter()
    for text in texts:
        found.update(re.findall(r"\bthe ([a-z]{4,11})(?= of\b|[,.;!?])", text))
    return [word for word, _ in found.most_common(count)]


@dataclass
class Prose:
    """Tokenised sentences.

    Attributes:
        tokens: uint16, all sentences one after another.
        starts: int64 [sentences + 1], start of each sentence in `tokens`.
        texts: the sentences.
        counts: number of occurrences of each lower-case word.
    """

    tokens: np.ndarray
    starts: np.ndarray
    texts: list[str]
    counts: dict[str, int]

    def __len__(self) -> int:
        return len(self.texts)

    def sentence(self, index: int) -> list[int]:
        """Return the token ids of one sentence."""
        ids: list[int] = self.tokens[self.starts[index] : self.starts[index + 1]].tolist()
        return ids

    def run(self, rng: random.Random, room: int) -> range:
        """Return consecutive sentences from a random start whose tokens fit into `room`."""
        if room <= 0:
            return range(0)
        first = rng.randrange(len(self))
        limit = int(self.starts[first]) + room
        last = int(np.searchsorted(self.starts, limit, side="right")) - 1
        return range(first, max(first, min(last, len(self))))

    def save(self, path: Path) -> None:
        """Write to `path` (.npz)."""
        blob = "\x1e".join(self.texts)
        np.savez(path, tokens=self.tokens, starts=self.starts, text=np.frombuffer(blob.encode(), dtype=np.uint8))

    @classmethod
    def load(cls, path: Path) -> "Prose":
        """Load prose that `save` wrote."""
        with np.load(path) as file:
            texts = file["text"].tobytes().decode().split("\x1e")
            return cls(file["tokens"], file["starts"], texts, word_counts(texts))


def word_counts(texts: list[str]) -> dict[str, int]:
    """Count every lower-cased word of three letters or more."""
    found: collections.Counter[str] = collections.Counter()
    for text in texts:
        found.update(re.findall(r"[a-z]{3,}", text.lower()))
    return dict(found)


def tokenise(texts: list[str], tokenizer: PreTrainedTokenizerFast) -> Prose:
    """Tokenise sentences from `split_sentences` and return them as `Prose`."""
    encoded: list[np.ndarray] = []
    for start in range(0, len(texts), 4096):
        batch = tokenizer(texts[start : start + 4096], add_special_tokens=False)["input_ids"]
        encoded.extend(np.asarray(ids, dtype=np.uint16) for ids in batch)
    starts = np.concatenate([[0], np.cumsum([len(ids) for ids in encoded])]).astype(np.int64)
    return Prose(np.concatenate(encoded), starts, texts, word_counts(texts))
