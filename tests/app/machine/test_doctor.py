"""`stockpot doctor --read-data` and `--repair`: damage is named, and whole contexts are added again."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.asking.turns import answer, keep_question
from app.jobs.work import Stopped
from app.machine.doctor import Check, examine
from app.reading.open_context import open_context
from app.reading.readings import read
from app.service import Service
from sessions.functions import know_functions
from tests.app.helpers import BUDGET, SHORT, add, begin, read_through


def checks(home: Path, model: Path, **given: bool) -> list[Check]:
    return [each for each in examine(str(home), str(model), "cpu", **given) if each.name in ("data", "repair", "home")]


def change(home: Path, sql: str, *values: object) -> None:
    """Change rows as damage does, without the triggers that keep checksums."""
    with closing(sqlite3.connect(home / "stockpot.db")) as db:
        know_functions(db)
        for table in ("documents", "contexts", "sessions", "turns"):
            db.execute(f"DROP TRIGGER {table}_changed")
        assert db.execute(sql, values).rowcount == 1
        db.commit()


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-2] ^= 1
    file.write_bytes(data)


def largest(folder: Path) -> Path:
    return max(folder.glob("*.safetensors"), key=lambda file: file.stat().st_size)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "question": (lambda home: change(home, "UPDATE turns SET question = 'Whom?'"), "turn t-"),
    "title": (lambda home: change(home, "UPDATE sessions SET title = CAST(x'57ff' AS TEXT)"), "session s-"),
    "settings": (lambda home: change(home, "UPDATE contexts SET budget = 321"), "context c-"),
    "text": (lambda home: flip(next((home / "documents").glob("*/content.json"))), "The text of document d-"),
    "original": (lambda home: flip(next((home / "documents").glob("*/original*"))), "The original of document d-"),
    "state": (lambda home: flip(largest(next((home / "contexts").iterdir()))), "not what was written"),
    "tail": (lambda home: flip(largest(next((home / "sessions").iterdir()))), "branch s-"),
    "index": (lambda home: change(home, "DELETE FROM turns_fts_docsize"), "--repair"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    """Return a home with a document, a context and a session of one turn."""
    folder = tmp_path_factory.mktemp("whole")
    book = folder / "Book.txt"
    book.write_text("The keeper was Maren Hollis. " * 60)
    with closing(Service(folder / "home", str(tiny), "cpu")) as service:
        context = read_through(service, add(service, book))
        session = service.store.sessions.add(context.id)
        answer(service, keep_question(service, session.id, "Who?").id, SHORT)
    return folder / "home"


def test_a_home_that_is_whole(whole: Path, tiny: Path) -> None:
    (data,) = (each for each in checks(whole, tiny, read_data=True) if each.name == "data")
    assert data.ok


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named(whole: Path, tiny: Path, tmp_path: Path, kind: str) -> None:
    home = tmp_path / "home"
    shutil.copytree(whole, home)
    damage, words = DAMAGE[kind]
    damage(home)
    (data,) = (each for each in checks(home, tiny, read_data=True) if each.name == "data")
    assert not data.ok
    assert data.needed
    assert words in data.detail


def test_a_damaged_letter_in_a_title_blocks_nothing(whole: Path, tiny: Path, tmp_path: Path) -> None:
    """It broke `list sessions`, `show CONTEXT` and `delete SESSION`."""
    home = tmp_path / "home"
    shutil.copytree(whole, home)
    DAMAGE["title"][0](home)
    with closing(Service(home, str(tiny), "cpu")) as service:
        (session,) = service.store.sessions.all()
        assert session.title == "W\ufffd"
        answer(service, keep_question(service, session.id, "Who else?").id, SHORT)
        service.store.sessions.delete(session.id)
        assert service.store.sessions.all() == []


def test_readings_that_the_database_does_not_know_are_taken_back(service: Service, book: Path, tiny: Path) -> None:
    """The doctor only named the folders, and the document had to be read again."""
    ids = add(service, book)
    service.store.close()
    shutil.copy(service.store.database.path, service.home / "old")
    done = read_through(service, ids)
    steps: list[object] = []
    begun = begin(service, ids, "exact", {"budget": "384"})
    with pytest.raises(Stopped):
        read(service, begun.id, steps.append, lambda: len(steps) > 3)
    session = service.store.sessions.add(done.id)
    expected = answer(service, keep_question(service, session.id, "Who?").id, SHORT).answer
    service.close()
    (service.home / "old").rename(service.store.database.path)
    flipped = [each for each in checks(service.home, tiny) if each.name == "home"]
    assert all(each.ok for each in flipped)
    found = [each for each in checks(service.home, tiny, repair=True) if each.name == "repair"]
    assert [each.ok for each in found] == [True, True, True, False], "the session has no turns any more"
    again = service.store.contexts.get(done.id)
    assert (again.status, again.fingerprint, again.document_ids) == ("ready", done.fingerprint, ids)
    assert open_context(service, done.id).share is None
    session = service.store.sessions.add(done.id)
    assert answer(service, keep_question(service, session.id, "Who?").id, SHORT).answer == expected
    assert service.store.contexts.get(begun.id).status == "paused"
    assert read(service, begun.id, steps.append).status == "ready"
    assert begin(service, ids, "exact", BUDGET).id == done.id
