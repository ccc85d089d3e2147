"""Finished cells as JSON lines: a killed run continues, and finished cells are not measured again."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine import Method, Model

Cell = dict[str, Any]


def signature(model: Model, method: Method, tokens: int, seed: int, text: str) -> str:
    """Return a digest of everything that determines a cell: weights, settings, length, seed, and the text's digest."""
    return digest(
        [model.fingerprint, method.name, method.settings(), method.weights_digest(model.spec), tokens, seed, text]
    )


def digest(facts: list[Any]) -> str:
    """Return a digest of the facts that determine a cell."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]


class Cells:
    """The cells of a file, each measured once; without a file none is kept for later runs."""

    def __init__(self, out: Path | None) -> None:
        """Take the cells that are in the file."""
        self.out, self.known = out, load(out) if out else {}

    def get(self, mark: str, measured: Callable[[], Cell]) -> Cell:
        """Return the cell with a signature. measured: makes it, without its signature, if it is not known."""
        if mark not in self.known:
            cell = {"signature": mark, **measured()}
            if self.out:
                append(self.out, cell)
            self.known[mark] = cell
        return self.known[mark]


def load(out: Path) -> dict[str, Cell]:
    """Return the cells of a file by signature; a line cut short by a kill is skipped."""
    cells: dict[str, Cell] = {}
    if out.exists():
        for line in out.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError, LookupError, TypeError):
                cell = json.loads(line)
                cells[cell["signature"]] = cell
    return cells


def append(out: Path, cell: Cell) -> None:
    """Append a cell to a file, on a new line even if the last one was cut short."""
    out.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(cell, ensure_ascii=False) + "\n"
    with out.open("ab+") as file:
        if file.tell():
            file.seek(-1, 2)
            line = line if file.read() == b"\n" else "\n" + line
        file.write(line.encode())
