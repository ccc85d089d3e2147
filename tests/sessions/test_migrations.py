"""Migrations of the schema."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlite_utils

from sessions import Store, StoreError
from sessions.checksums import FIRST_SUMMED, SUMMED, keep_checksums
from sessions.migrations import m012_pages_as_the_file_counts_them, m016_checksums_of_more_columns, migrate
from tests.sessions.helpers import Filled


def test_a_failed_migration_leaves_nothing(tmp_path: Path) -> None:
    db = sqlite_utils.Database(tmp_path / "x.db")

    def steps(second: str) -> sqlite_utils.Migrations:
        made = sqlite_utils.Migrations("test")

        @made()
        def one(db: sqlite_utils.Database) -> None:
            db.execute("CREATE TABLE first (id INTEGER)")
            db.table("first").enable_fts(["id"], create_triggers=True)

        @made()
        def two(db: sqlite_utils.Database) -> None:
            db.execute("CREATE TABLE second (id INTEGER)")
            db.execute(second)

        return made

    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(db, steps("INSERT INTO nowhere VALUES (1)"))
    assert db.table_names() == []
    migrate(db, steps("INSERT INTO second VALUES (1)"))
    assert {"first", "second"} <= set(db.table_names())
    db.close()


def test_stored_pages_of_pdfs_are_marked_as_counted_in_the_file(filled: Filled) -> None:
    """Page names of a PDF mean the printed numbers since that step."""
    store, pdf, text = filled.store, filled.document("a" * 64, format="pdf"), filled.document("b" * 64)
    turns = {}
    for documents, pages in (((pdf, text), "1:3-4, 2:1/2-3, 1:7"), ((pdf,), "12"), ((text,), "2")):
        session = store.sessions.add(filled.context(*documents).id)
        turns[pages] = store.turns.add(session.id, "Who?", pages).id
    m012_pages_as_the_file_counts_them(store.database.connection)
    assert {pages: store.turns.get(turn).pages for pages, turn in turns.items()} == {
        "1:3-4, 2:1/2-3, 1:7": "1:3-4 of the file, 2:1/2-3, 1:7 of the file",
        "12": "12 of the file",
        "2": "2",
    }


def test_a_newer_database_is_refused_by_name(store: Store) -> None:
    store.database.connection.table("_sqlite_migrations").insert(
        {"migration_set": "stockpot.sessions", "name": "m999_future", "applied_at": "2030-01-01 00:00:00+00:00"}
    )
    store.close()
    with pytest.raises(StoreError, match=r"m999_future.*newer version|newer version.*m999_future"):
        Store(store.home)


def test_older_turns_get_the_number_of_their_documents(grown: Any) -> None:
    store, sessions = grown
    with store.database.transaction() as db:
        db.execute("DROP TRIGGER turns_added")  # they sum up the column
        db.execute("DROP TRIGGER turns_changed")
        db.execute("ALTER TABLE turns DROP COLUMN asked_of")
        db.execute("DELETE FROM _sqlite_migrations WHERE name = 'm011_documents_of_turns'")
    store.close()
    with Store(store.home) as opened:
        assert [[turn.asked_of for turn in opened.turns.all(each.id)] for each in sessions] == [[1], [1, 2], [1, 2, 7]]


def test_older_checksums_take_more_columns_and_stay_wrong_for_altered_rows(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, db = filled.store, filled.store.database.connection
    session = filled.session()
    good, altered = (filled.answered(session, f"Who is {name}?", "A woman.") for name in ("Emma", "Jane"))
    db.execute("DROP TABLE checksums")
    for table in SUMMED:
        for name in ("added", "changed", "removed"):
            db.execute(f"DROP TRIGGER {table}_{name}")
    with monkeypatch.context() as patch:
        patch.setattr("sessions.checksums.SUMMED", FIRST_SUMMED)
        keep_checksums(db)
    db.execute("UPDATE checksums SET value = value + 1 WHERE id = ?", [altered])
    m016_checksums_of_more_columns(db)
    assert [turn.intact for turn in store.turns.all(session.id)] == [True, False]
    assert store.turns.get(filled.answered(session, "And who?", "Nobody.")).intact
    with store.transaction():
        db.execute("DROP TRIGGER turns_changed")
        db.execute("UPDATE turns SET finished_at = 1 WHERE id = ?", [good])
    assert not store.turns.get(good).intact
