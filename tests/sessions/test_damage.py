"""Databases with changed bytes are refused or reported, or nothing visible changed."""

import hashlib
import random
from contextlib import suppress
from pathlib import Path

import pytest

from sessions import Store, StoreError
from tests.sessions.helpers import Filled


def contents(store: Store) -> str:
    """Return a hash of every document, context, session and turn."""
    rows = [*map(repr, [*store.documents.all(), *store.contexts.all(), *store.sessions.all()])]
    rows += [repr(turn) for session in store.sessions.all() for turn in store.turns.all(session.id)]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, str]:
    """A home, the bytes of its database and the hash of its contents."""
    home = tmp_path_factory.mktemp("damaged") / "home"
    with Store(home) as store:
        filled = Filled(store)
        for number in range(3):
            session = store.sessions.add(filled.context(filled.document(f"{number:064}", f"Book {number}")).id)
            for _ in range(4):
                filled.answered(session, f"Who was there, in book {number}?", "Nobody but the keeper was there. " * 8)
        expected = contents(store)
    return home, (home / "stockpot.db").read_bytes(), expected


@pytest.mark.parametrize("seed", range(40))
def test_changed_bytes_are_noticed(written: tuple[Path, bytes, str], seed: int) -> None:
    home, data, expected = written
    chance, damaged = random.Random(seed), bytearray(data)
    for _ in range(chance.choice([1, 1, 4, 32])):
        damaged[chance.randrange(len(damaged))] ^= chance.randrange(1, 256)
    for name in ("stockpot.db-wal", "stockpot.db-shm"):
        (home / name).unlink(missing_ok=True)
    (home / "stockpot.db").write_bytes(damaged)
    with suppress(StoreError), Store(home) as store:  # refused in words: any other error fails
        assert contents(store) == expected or [*store.damage()]


@pytest.mark.parametrize("length", [1, 15, 99])
def test_a_truncated_database_is_not_taken_for_a_new_one(tmp_path: Path, length: int) -> None:
    """A file of one byte opened as an empty home."""
    (tmp_path / "stockpot.db").write_bytes(b"S" * length)
    with pytest.raises(StoreError, match="cut short"):
        Store(tmp_path)
    assert (tmp_path / "stockpot.db").read_bytes() == b"S" * length
