"""A fresh home for every test, and short ways to fill it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sessions import ContextRow, DocumentRow, SessionRow, Store

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


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "home") as made:
        yield made


@pytest.fixture
def filled(store: Store) -> Filled:
    return Filled(store)


@pytest.fixture
def other_process(tmp_path: Path) -> Callable[..., subprocess.Popen]:
    """Run a piece of Python with `home` set, in a process of its own."""

    def run(code: str) -> subprocess.Popen:
        code = f"from pathlib import Path\nhome = Path({str(tmp_path / 'home')!r})\nfrom sessions import Store\n{code}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            [sys.executable, "-c", code],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return run
