"""Short ways to fill a store and a tensor folder."""

from pathlib import Path
from typing import Any

import torch

from sessions import ContextRow, DocumentRow, Part, SessionRow, Store, TensorFolder, stamp

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SEC = 240.0
"""A process that takes longer hangs."""


class Filled:
    """A store with ways to add rows that a test does not care about in detail."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def document(self, sha256: str = "a" * 64, title: str = "Emma", **more: object) -> DocumentRow:
        fields: dict = {"format": "txt", "pages": 3, "characters": 12, "content": {"pages": ["one", "two"]}, **more}
        return self.store.documents.add(sha256=sha256, title=title, **fields)

    def context(self, *documents: DocumentRow, status: str = "ready", fingerprint: str = "print") -> ContextRow:
        row = self.store.contexts.add(
            model="pocket",
            method="exact",
            settings={"top_k": 64},
            budget=512,
            fingerprint=fingerprint,
            document_ids=[document.id for document in documents or (self.document(),)],
            tokens=1000,
        )
        return self.store.contexts.update(row.id, status=status)

    def session(self, title: str | None = None) -> SessionRow:
        return self.store.sessions.add(self.context().id, title)

    def answered(self, session: SessionRow, question: str, answer: str) -> str:
        turn = self.store.turns.add(session.id, question)
        self.store.turns.finish(turn.id, answer=answer)
        return turn.id


def dead_stamp() -> str:
    """Return the stamp of a dead process: the PID of this one, with another start time."""
    return stamp().rpartition("|")[0] + "|1"


def part(value: float, sealed: bool = False, size: int = 8) -> Part:
    """Return a part whose tensor "k" has this value everywhere."""
    return Part({"k": torch.full((2, size), value), "v": torch.arange(size)}, sealed)


def values(folder: TensorFolder) -> dict[str, float]:
    """Return the value of "k" in every saved part."""
    parts, _ = folder.load()
    return {name: tensors["k"][0, 0].item() for name, tensors in parts.items()}


def begun(folder: TensorFolder, path: Path) -> TensorFolder:
    """Return a folder that shares the parts of another and has one of its own."""
    longer = TensorFolder(path)
    longer.begin_like(folder)
    longer.save({"own": part(4.0)}, {"more": True}, "other", beside=True)
    return longer


def flip(file: Path, at: int) -> None:
    """Flip the lowest bit of one byte of a file."""
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def contents(store: Store) -> list[Any]:
    """Return all documents, contexts, sessions, turns, texts and states."""
    states = [store.contexts.state(row.id) for row in store.contexts.all()]
    states += [store.sessions.state(row.id) for row in store.sessions.all()]
    return [
        store.documents.all(),
        store.contexts.all(),
        store.sessions.all(),
        [store.turns.all(row.id) for row in store.sessions.all()],
        [store.documents.content(row.id) for row in store.documents.all()],
        [(values(state), state.load()[1]) for state in states if state.exists()],
    ]
