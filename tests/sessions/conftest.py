"""Fixtures: a fresh home for every test, and another process that uses it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessions import Store, TensorFolder
from tests.sessions.helpers import ROOT, Filled, part


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


@pytest.fixture
def folder(tmp_path: Path) -> TensorFolder:
    """A tensor folder that does not exist yet."""
    return TensorFolder(tmp_path / "state")


@pytest.fixture
def grown(filled: Filled) -> Any:
    """Three sessions of one conversation, over one, two and seven documents."""
    documents = [filled.document(sha256=str(n) * 64, title=f"Letter *{n}*") for n in range(7)]
    contexts = [filled.context(*documents[:count]) for count in (1, 2, 7)]
    first = filled.store.sessions.add(contexts[0].id)
    filled.answered(first, "Who is Emma?", "That is not in the text.")
    second = filled.store.sessions.branch(first.id, 1, contexts[1].id)
    filled.answered(second, "And now?", "A handsome woman.")
    third = filled.store.sessions.branch(second.id, 2, contexts[2].id)
    filled.answered(third, "And all?", "A person.")
    return filled.store, (first, second, third)


@pytest.fixture
def kept(filled: Filled, tmp_path: Path) -> Store:
    """A store with an original file, two contexts that share files, and a session with tensors of its own."""
    document, other = filled.document(file=Path(__file__)), filled.document("b" * 64, "Persuasion")
    short = filled.context(document, status="reading")
    filled.store.contexts.state(short.id).save({"slab": part(1, sealed=True, size=9000)}, {"n": 1}, "print")
    short = filled.store.contexts.update(short.id, status="ready")
    ids = [document.id, other.id]
    fields: dict[str, Any] = {"settings": {}, "budget": None, "fingerprint": "print", "tokens": 1, "base": short}
    longer = filled.store.contexts.add(model="pocket", method="exact", document_ids=ids, **fields)
    filled.store.contexts.update(longer.id, status="ready")
    session = filled.store.sessions.add(longer.id)
    filled.answered(session, "Who is Emma?", "A handsome woman.")
    filled.store.sessions.state(session.id).save({"tail": part(3)}, {}, "print")
    return filled.store
