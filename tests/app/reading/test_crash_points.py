"""Killed at any step that touches the disk, the app keeps everything, and the operation can be repeated."""

import random
import shutil
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from app.asking.turns import answer, branch, keep_question
from app.reading.open_context import open_conversation
from app.service import Service
from tests.app.helpers import SHORT, add, read_through
from tests.app.killed import kill, steps_of


def ask(session: str, service: Service) -> None:
    answer(service, keep_question(service, session, "Who else?").id, SHORT)


def branch_off(session: str, service: Service) -> None:
    branch(service, session, 1)


def delete(session: str, service: Service) -> None:
    service.store.sessions.delete(session)


OPERATIONS: dict[str, Callable[[str, Service], None]] = {"ask": ask, "branch": branch_off, "delete": delete}


@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_is_lost(tmp_path: Path, tiny: Path, book: Path, name: str) -> None:
    with closing(Service(tmp_path / "before", str(tiny), "cpu")) as service:
        session = service.store.sessions.add(read_through(service, add(service, book)).id).id
        answer(service, keep_question(service, session, "Who?").id, SHORT)
        kept = service.store.turns.all(session)
    operation = partial(OPERATIONS[name], session)
    shutil.copytree(tmp_path / "before", tmp_path / "whole")
    steps = steps_of(operation, tmp_path / "whole", str(tiny))
    for at in random.Random(name).sample(range(1, len(steps) + 1), 3):
        home = tmp_path / f"killed-{at}"
        shutil.copytree(tmp_path / "before", home)
        kill(operation, home, str(tiny), at)
        with closing(Service(home, str(tiny), "cpu")) as service:
            assert [*service.store.damage()] == []
            assert service.store.folders.strays() == []
            sessions = [each.id for each in service.store.sessions.all()]
            if name != "delete" or session in sessions:
                assert service.store.turns.all(session)[:1] == kept
                operation(service)
            for each in service.store.sessions.all():
                done = [turn for turn in service.store.turns.all(each.id) if turn.status == "done"]
                assert open_conversation(service, each.id).conversation.turns == len(done)
