"""What all ways to fetch a model share: their result, their progress, and the sentence on how to bring a file."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.formatting import byte_size, duration
from app.home import MODELS


@dataclass(frozen=True)
class Fetched:
    """A model that is complete.

    name: name that `--model` takes.
    path: its folder, or its (first) GGUF file.
    bytes: size of all its files.
    fetched_bytes: bytes downloaded just now.
    """

    name: str
    path: str
    bytes: int
    fetched_bytes: int


class Show(Protocol):
    """A function that shows progress. Its exceptions end the work; what has come stays."""

    def __call__(self, line: str, done: int = 0, total: int = 0) -> None:
        """Take a line for people, and the bytes that are here and in all, if they are known."""


class Pace:
    """The speed of a download since it began.

    came: bytes downloaded just now.
    """

    def __init__(self) -> None:
        """Begin now."""
        self.came = 0
        self._started = time.monotonic()

    def line(self, name: str, done: int, total: int) -> str:
        """Return a line of progress: the bytes that are here and in all, speed and time left."""
        rate = self.came / max(time.monotonic() - self._started, 1e-3)
        left = duration(max(total - done, 0) / rate) if rate else "?"
        return f"Fetching {name}: {byte_size(done)} of {byte_size(total)}, {byte_size(rate)}/s, about {left} left"


def how_to_bring(home: Path) -> str:
    """Return a sentence on how to use a model without a network."""
    return f"To bring a model, put a .gguf file from another computer into {home / MODELS}, and choose it as the model."
