"""Adding a backup to a home: with others in it, again after a kill, and with chats that went on in both."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessions import Store, StoreError, add_backup, back_up
from tests.sessions.helpers import PATIENCE_SEC, Filled, contents, values


def test_a_backup_is_added_to_a_home_that_has_others(kept: Store, tmp_path: Path) -> None:
    back_up(kept, tmp_path / "backup.tar")
    with Store(tmp_path / "mine") as home:
        mine = Filled(home)
        book = mine.document("a" * 64, "Emma, my own")  # the same file as one of theirs
        mine.answered(mine.session(), "Who?", "I.")
        before = contents(home)
        added = add_backup(home, tmp_path / "backup.tar")
        assert (added.documents, added.contexts, added.sessions) == (1, 2, 1)
        [theirs] = kept.sessions.all()
        assert [turn.answer for turn in home.turns.all(theirs.id)] == ["A handsome woman."]
        assert home.contexts.documents(theirs.context_id)[0].id == book.id
        for row in kept.contexts.all():
            assert values(home.contexts.state(row.id)) == values(kept.contexts.state(row.id))
        for rows, now in zip(before[:3], contents(home)[:3], strict=True):
            assert all(row in now for row in rows)
        assert [hit.session.id for hit in home.search.turns("handsome")] == [theirs.id]
        assert [line for line in home.damage() if "original" not in line] == []
        again = add_backup(home, tmp_path / "backup.tar")
        assert (again.documents, again.contexts, again.sessions) == (0, 0, 0)
        assert list((home.home / "incoming").iterdir()) == []


@pytest.mark.parametrize("sql", ["UPDATE documents SET content_sha256 = 'x'", "UPDATE sessions SET created_at = 1"])
def test_what_contradicts_a_home_is_not_added(kept: Store, tmp_path: Path, sql: str) -> None:
    back_up(kept, tmp_path / "backup.tar")
    [session] = kept.sessions.all()
    with kept.database.transaction() as db:
        db.execute(sql)
    with pytest.raises(StoreError, match="restore the backup into a new home"):
        add_backup(kept, tmp_path / "backup.tar")
    assert [row.id for row in kept.sessions.all()] == [session.id]
    assert len(kept.contexts.all()) == len(kept.documents.all()) == 2


def test_nothing_is_left_of_an_addition_that_fails(
    kept: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(kept, tmp_path / "backup.tar")
    with Store(tmp_path / "mine") as home:
        before = contents(home)
        monkeypatch.setattr(type(home.folders), "keep", lambda self, ids: os.fsync(9999))
        with pytest.raises(StoreError, match="Cannot write"):
            add_backup(home, tmp_path / "backup.tar")
        monkeypatch.undo()
        assert contents(home) == before
        assert home.folders.strays() == []
        assert all(not list((home.home / name).iterdir()) for name in ("contexts", "documents", "sessions", "incoming"))


def questions(store: Store, session: str) -> list[str]:
    return [turn.question for turn in store.turns.all(session)]


def test_a_chat_that_went_on_in_two_homes_comes_in_as_a_branch(filled: Filled, tmp_path: Path) -> None:
    store, session = filled.store, filled.session("Emma")
    filled.answered(session, "Who is Emma?", "A handsome woman.")
    back_up(store, tmp_path / "before.tar")
    filled.answered(session, "And there?", "There.")
    back_up(store, tmp_path / "there.tar")
    with Store(tmp_path / "other") as home:
        assert add_backup(home, tmp_path / "before.tar").branches == ()
        Filled(home).answered(session, "And here?", "Here.")
        added = add_backup(home, tmp_path / "there.tar")
        assert (added.sessions, added.branches) == (0, ("Emma (2)",))
        assert questions(home, session.id) == ["Who is Emma?", "And here?"]
        [branch] = [row for row in home.sessions.all() if row.id != session.id]
        assert (branch.title, branch.context_id) == ("Emma (2)", session.context_id)
        assert questions(home, branch.id) == ["Who is Emma?", "And there?"]
        assert [*home.damage()] == []
        for name in ("before.tar", "there.tar"):  # nothing is left to come in
            assert add_backup(home, tmp_path / name).branches == ()
        assert len(home.sessions.all()) == 2
        home.sessions.delete(session.id)  # its later turns are those of the branch
        assert add_backup(home, tmp_path / "there.tar").sessions == 1
        assert questions(home, session.id) == questions(home, branch.id)


def test_a_row_that_was_damaged_before_the_backup_stays_known_as_damaged(kept: Store, tmp_path: Path) -> None:
    [session] = kept.sessions.all()
    turn = kept.turns.all(session.id)[0]
    with kept.database.transaction() as db:
        db.execute("UPDATE checksums SET value = 1 WHERE id = ?", [turn.id])
    back_up(kept, tmp_path / "backup.tar")
    with Store(tmp_path / "mine") as home:
        add_backup(home, tmp_path / "backup.tar")
        assert not home.turns.get(turn.id).intact


@pytest.mark.parametrize("place", ["Folders.note", "os.rename:1", "os.rename:3", "Folders.keep"])
def test_a_backup_can_be_added_again_after_a_kill(
    kept: Store, tmp_path: Path, place: str, other_process: Callable[..., Any]
) -> None:
    """What a killed run had noted could not be noted again."""
    back_up(kept, tmp_path / "backup.tar")
    expected = contents(kept)
    kept.close()
    name, _, count = place.partition(":")
    code = f"""
import os, signal
from sessions import add_backup
from sessions.folders import Folders
home = home.with_name("mine")
real, left = {name}, [{count or 1}]
def stopped(*given):
    real(*given)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
with Store(home) as store:
    {name} = stopped
    add_backup(store, home.with_name("backup.tar"))
"""
    process = other_process(code)
    process.communicate(timeout=PATIENCE_SEC)
    assert process.returncode == -9
    with Store(tmp_path / "mine") as home:
        assert home.documents.all() == []
        add_backup(home, tmp_path / "backup.tar")
        assert contents(home) == expected
        assert home.folders.strays() == []
