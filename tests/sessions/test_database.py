"""Opening a home: permissions, threads, processes, ids, transactions."""

import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessions import NotFound, ReadOnlyHome, Store, StoreCorrupt, StoreError, StoreFailing, back_up
from tests.sessions.helpers import PATIENCE_SEC, Filled


def test_a_new_home_is_private_and_set_up(store: Store) -> None:
    assert stat.S_IMODE(store.home.stat().st_mode) == 0o700
    assert store.database.rows("PRAGMA journal_mode") == [{"journal_mode": "wal"}]
    assert store.database.rows("PRAGMA secure_delete") == [{"secure_delete": 1}]
    assert store.database.rows("PRAGMA foreign_keys") == [{"foreign_keys": 1}]
    assert store.database.rows("PRAGMA busy_timeout")[0]["timeout"] >= 5000


def test_files_in_an_existing_folder_are_private(tmp_path: Path) -> None:
    """The database was readable by everyone if the home folder existed before."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    with Store(home) as store:
        store.jobs.add("reading", "upload")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
        assert {"stockpot.db", "stockpot.db-wal", "documents"} < set(modes)
        assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}


def test_a_home_opens_again_with_its_rows(filled: Filled) -> None:
    document = filled.document(title="Persuasion")
    filled.store.close()
    with Store(filled.store.home) as again:
        assert again.documents.all() == [document]
    assert filled.store.documents.get(document.id) == document  # a closed store opens itself again


@pytest.mark.parametrize("left", [None, b""], ids=["missing", "empty"])
def test_a_home_without_its_database_is_refused(filled: Filled, left: bytes | None) -> None:
    """The home opened empty without a message, and the folders in it took room."""
    session = filled.session()
    home, folder = filled.store.home, filled.store.contexts.state(session.context_id).path
    folder.mkdir()
    filled.store.close()
    database = (home / "stockpot.db").read_bytes()
    (home / "stockpot.db").unlink()
    if left is not None:
        (home / "stockpot.db").write_bytes(left)
    for _ in range(2):  # nor is it one from then on
        with pytest.raises(StoreCorrupt, match=r"missing or empty.*\(1 document, 1 context\).*Restore it"):
            Store(home)
    assert folder.is_dir()
    (home / "stockpot.db").write_bytes(database)
    with Store(home) as again:
        assert again.sessions.get(session.id) == session


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "stockpot.db").write_bytes(b"not a database, but long enough to be looked at" * 50)
    with pytest.raises(StoreCorrupt, match=r"stockpot\.db is damaged"):
        Store(tmp_path)


def test_an_altered_row_is_named(filled: Filled) -> None:
    context = filled.context()
    with filled.store.database.transaction() as db:
        db.execute("UPDATE contexts SET usage = '{bad' WHERE id = ?", [context.id])
    with pytest.raises(StoreCorrupt, match=f"usage of {context.id} is no JSON.*backup"):
        filled.store.contexts.all()


def test_a_home_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreFailing, match=r"home: Not a directory\. Choose another with --home"):
        Store(tmp_path / "file" / "home")


def test_each_thread_has_a_connection_and_all_writes_arrive(filled: Filled) -> None:
    store, session = filled.store, filled.session()
    failures: list[BaseException] = []
    connections: list[Any] = []  # kept alive, or an id could be given out twice

    def work(number: int) -> None:
        try:
            connections.append(store.database.connection)
            for question in range(5):
                turn = store.turns.add(session.id, f"{number}/{question}")
                for piece in "abc":
                    store.turns.append_answer(turn.id, piece)
                store.turns.finish(turn.id)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    turns = store.turns.all(session.id)
    assert [turn.position for turn in turns] == list(range(30))
    assert {turn.answer for turn in turns} == {"abc"}
    assert len({turn.question for turn in turns}) == 30
    assert len({id(connection) for connection in connections}) == 6
    late = threading.Thread(target=store.documents.all)
    late.start()
    late.join()
    for connection in connections:  # of threads that have ended
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


def test_processes_that_open_a_new_home_at_once_all_succeed(tmp_path: Path, other_process: Callable) -> None:
    go = tmp_path / "go"
    code = (
        f"import time\nprint('here', flush=True)\nwhile not Path({str(go)!r}).exists(): time.sleep(0.001)\n"
        "d = Store(home).documents.add(sha256='b' * 64, title='T', format='txt', pages=1, characters=1, content={})\n"
        "print(d.id)"
    )
    processes = [other_process(code) for _ in range(3)]
    assert [process.stdout.readline() for process in processes] == ["here\n"] * 3
    go.touch()
    outputs = [process.communicate(timeout=PATIENCE_SEC) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    ids = {out.strip() for out, _ in outputs}
    with Store(tmp_path / "home") as store:
        assert {document.id for document in store.documents.all()} == ids
        assert len(ids) == 1
        assert [folder.name for folder in (store.home / "documents").iterdir()] == [*ids]
        assert list((store.home / "incoming").iterdir()) == []


@pytest.mark.parametrize(
    "id", ["", "d", "d-", "x-abcdef", "d-../../etc", "d-abcdef/..", "D-abcdef", "d-abcdef\n", "d-222222"]
)
def test_a_text_that_is_no_id_is_not_found(store: Store, id: str) -> None:
    with pytest.raises(NotFound):
        store.documents.get(id)
    with pytest.raises(NotFound):
        store.documents.delete(id)


def test_an_id_is_found_in_its_own_table_only(filled: Filled) -> None:
    store, session = filled.store, filled.session()
    turn, job = store.turns.add(session.id, "q"), store.jobs.add("reading", session.context_id)
    context = store.contexts.get(session.context_id)
    rows = {
        "document": (store.documents, store.contexts.documents(context.id)[0]),
        "context": (store.contexts, context),
        "session": (store.sessions, store.sessions.get(session.id)),
        "turn": (store.turns, turn),
        "job": (store.jobs, job),
    }
    for noun, (table, row) in rows.items():
        assert table.get(row.id) == row
        for other in rows.keys() - {noun}:
            with pytest.raises(NotFound, match=f"There is no {other}"):
                rows[other][0].get(row.id)


def test_a_transaction_that_fails_leaves_no_trace(filled: Filled) -> None:
    session = filled.session()

    def half_done() -> None:
        with filled.store.database.transaction():
            filled.store.turns.add(session.id, "never asked")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half_done()
    assert filled.store.turns.all(session.id) == []
    assert filled.store.search.turns("never") == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_gets_a_connection_of_its_own(filled: Filled) -> None:
    session = filled.session()
    mine = filled.store.database.connection
    if (child := os.fork()) == 0:
        try:
            filled.store.turns.add(session.id, "from the child")
            os._exit(0 if filled.store.database.connection is not mine else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert filled.store.database.connection is mine
    assert [turn.question for turn in filled.store.turns.all(session.id)] == ["from the child"]


def test_only_passing_writes_skip_the_wait_for_the_disk(filled: Filled) -> None:
    """Finished turns were lost at a power failure, as they were committed with synchronous = NORMAL."""
    store, session, statements = filled.store, filled.session(), list[str]()

    def level(work: Callable[[], object]) -> set[str]:
        statements.clear()
        store.database.connection.conn.set_trace_callback(statements.append)
        work()
        store.database.connection.conn.set_trace_callback(None)
        levels = [each.rpartition(" ")[2] for each in statements if each.startswith("PRAGMA synchronous = ")]
        assert len(levels) == statements.count("BEGIN IMMEDIATE") == statements.count("COMMIT") > 0
        return set(levels)

    turn = store.turns.add(session.id, "Who?")
    job = store.jobs.add("answer", turn.id)
    assert level(lambda: store.turns.append_answer(turn.id, "It was")) == {"NORMAL"}
    assert level(lambda: store.jobs.update(job.id, done=1)) == {"NORMAL"}
    assert level(lambda: store.turns.finish(turn.id, answer="It was he.")) == {"FULL"}
    assert level(lambda: store.contexts.update(session.context_id, tokens_read=1000, status="ready")) == {"FULL"}
    assert level(lambda: store.jobs.end(job.id, "done")) == {"FULL"}
    assert level(lambda: store.sessions.rename(session.id, "Other")) == {"FULL"}
    assert level(lambda: store.sessions.delete(session.id)) == {"FULL"}

    def both() -> None:
        with store.transaction():
            store.measurements.add("answer", turn.id, {})

    assert level(both) == {"FULL"}


def test_a_home_that_cannot_be_written_is_looked_at_and_stays_as_it_is(
    filled: Filled, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session = filled.session()
    filled.answered(session, "Who keeps the lamp?", "Orla Quent.")
    home = filled.store.home
    left = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}  # with changes in the log alone
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with Store(home) as store:
        assert [turn.answer for turn in store.turns.all(session.id)] == ["Orla Quent."]
        assert [hit.session.id for hit in store.search.turns("lamp")] == [session.id]
        assert "Orla Quent." in store.export_session(session.id)
        assert not [each for each in store.damage() if "index" in each]
        with pytest.raises(ReadOnlyHome, match="can be listed, shown, searched and exported, and not changed"):
            store.sessions.delete(session.id)
        with pytest.raises(StoreError, match="copy its folder instead"):
            back_up(store, tmp_path / "backup.tar")
        opened = store.database.path.parent
    assert opened != home
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == left
