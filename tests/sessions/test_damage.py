"""Databases with changed bytes are refused or reported, or nothing visible changed."""

import hashlib
import random
from contextlib import suppress
from pathlib import Path

import pytest

from sessions import Store, StoreCorrupt, StoreError
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


def test_an_altered_answer_says_that_it_is(filled: Filled) -> None:
    session = filled.session()
    good = filled.answered(session, "Who is Emma?", "A handsome woman.")
    altered = filled.answered(session, "Who is Mr. Elton?", "A vicar.")
    with filled.store.transaction():
        filled.store.database.connection.execute("UPDATE checksums SET value = value + 1 WHERE id = ?", [altered])
    assert [(turn.id, turn.intact) for turn in filled.store.turns.all(session.id)] == [(good, True), (altered, False)]
    exported = filled.store.export_session(session.id)
    assert exported.count("was altered on the disk: it is not what was written") == 1
    assert exported.index("A vicar") < exported.index("was altered on the disk")


@pytest.mark.parametrize("sql", ["ALTER TABLE turns RENAME COLUMN answer TO ansver", "DROP TABLE drafts"])
def test_a_damaged_schema_is_said_to_be(filled: Filled, sql: str) -> None:
    session = filled.session()
    filled.answered(session, "Who is Emma?", "A handsome woman.")
    filled.store.database.connection.execute(sql)
    with pytest.raises(StoreCorrupt, match=r"is damaged .*restore it from a backup"):
        filled.store.turns.all(session.id)
