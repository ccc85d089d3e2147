"""Killed at any step that touches the disk, the app keeps everything, and the operation can be repeated."""

import os
import random
import shutil
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from app.asking.turns import answer, branch, keep_question
from app.reading.open_context import open_conversation
from app.reading.preparing import prepare_more
from app.reading.readings import begin, read
from app.service import Service
from sessions import Store
from sessions.adding import add_backup
from sessions.backup import back_up
from sessions.restoring import restore
from tests.app.helpers import SHORT, add, read_through
from tests.app.killed import kill, steps_of


def ask(session: str, service: Service) -> None:
    answer(service, keep_question(service, session, "Who else?").id, SHORT)


def branch_off(session: str, service: Service) -> None:
    branch(service, session, 1)


def delete(session: str, service: Service) -> None:
    service.store.sessions.delete(session)


def beside(service: Service, name: str) -> Path:
    return service.home.with_name(f"{service.home.name}-{name}")


def ingest_another(session: str, service: Service) -> None:
    read_through(service, add(service, service.home.parent / "letter.txt"), "infinipot")


def add_to(session: str, service: Service) -> None:
    base = service.store.sessions.get(session).context_id
    more = prepare_more(service, base, add(service, service.home.parent / "letter.txt"))
    read(service, begin(service, more).id, lambda report: None)


def back_up_and_restore(session: str, service: Service) -> None:
    file, home = beside(service, "backup"), beside(service, "restored")
    if not file.exists():
        back_up(service.store, file)
    if not home.exists():
        restore(file, home)
    with Store(home) as store:
        assert [*store.damage()] == []
        assert store.turns.all(session) == service.store.turns.all(session)


def restore_and_add(session: str, service: Service) -> None:
    add_backup(service.store, service.home.parent / "other")


def age(folder: Path) -> None:
    """Make files look as old as those of programs that ended long ago."""
    for each in folder.iterdir():
        os.utime(each, (0, 0))


OPERATIONS: dict[str, Callable[[str, Service], None]] = {
    "ask": ask,
    "branch": branch_off,
    "delete": delete,
    "ingest": ingest_another,
    "add to": add_to,
    "backup": back_up_and_restore,
    "restore --add": restore_and_add,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_is_lost(tmp_path: Path, tiny: Path, book: Path, name: str) -> None:
    with closing(Service(tmp_path / "before", str(tiny), "cpu")) as service:
        session = service.store.sessions.add(read_through(service, add(service, book)).id).id
        answer(service, keep_question(service, session, "Who?").id, SHORT)
        kept = service.store.turns.all(session)
    (tmp_path / "letter.txt").write_text("The new keeper is Jonas Vreeland. " * 90)
    if name == "restore --add":
        with closing(Service(tmp_path / "elsewhere", str(tiny), "cpu")) as service:
            ingest_another("", service)
            back_up(service.store, tmp_path / "other")
    operation = partial(OPERATIONS[name], session)
    shutil.copytree(tmp_path / "before", tmp_path / "whole")
    steps = steps_of(operation, tmp_path / "whole", str(tiny))
    kills = 3 if name in ("ask", "branch", "delete") else 2
    for at in random.Random(name).sample(range(1, len(steps) + 1), kills):
        home = tmp_path / f"killed-{at}"
        shutil.copytree(tmp_path / "before", home)
        kill(operation, home, str(tiny), at)
        age(home / "incoming")
        with closing(Service(home, str(tiny), "cpu")) as service:
            assert not any((home / "incoming").iterdir())
            assert [*service.store.damage()] == []
            assert service.store.folders.strays() == []
            sessions = [each.id for each in service.store.sessions.all()]
            if name != "delete" or session in sessions:
                assert service.store.turns.all(session)[:1] == kept
                age(tmp_path)
                operation(service)
            for each in service.store.sessions.all():
                done = [turn for turn in service.store.turns.all(each.id) if turn.status == "done"]
                assert open_conversation(service, each.id).conversation.turns == len(done)
        assert not [*tmp_path.glob("*.partial-*"), *tmp_path.glob("*.restoring-*")]
