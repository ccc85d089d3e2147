"""A killed reading, and a chat over it, continue to the same numbers as without the kill."""

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from app.asking.turns import answer, keep_question
from app.reading.checkpoints import Checkpoints
from app.reading.open_context import open_context, open_conversation
from app.reading.readings import read
from app.service import Service
from tests.app.helpers import SHORT, add, begin
from tests.app.killed import kill, steps_of

QUESTIONS = ("Who was the keeper?", "When was the lighthouse built?")


def read_with_checkpoints(context_id: str, service: Service) -> None:
    """Read with a checkpoint after every step, in a process of its own."""
    Checkpoints.after_step = Checkpoints.save_now  # type: ignore[method-assign]
    read(service, context_id, lambda report: None)


@contextmanager
def home_with(tmp_path: Path, name: str, tiny: Path, book: Path, method: str) -> Iterator[tuple[Service, str]]:
    """Return a home with a reading that has begun."""
    with closing(Service(tmp_path / name, str(tiny), "cpu")) as service:
        yield service, begin(service, add(service, book), method, {"budget": 320}).id


def numbers_of(service: Service, context_id: str, reopen: bool) -> list[torch.Tensor]:
    """Return the logits after the reading and after each of two turns. reopen: from disk each time."""
    session, found = service.store.sessions.add(context_id).id, []
    for question in ("", *QUESTIONS):
        if question:
            answer(service, keep_question(service, session, question).id, SHORT)
        if reopen:
            service.forget_open()
        conversation = open_conversation(service, session).conversation
        before = conversation.memory.snapshot()
        found.append(conversation.model.logits(conversation.feed([5, 6, 7])))
        conversation.roll_back(before)
    return found


def tensors_of(service: Service, context_id: str) -> dict[str, torch.Tensor]:
    parts: dict[str, Any] = open_context(service, context_id).context.state()[0]
    return {f"{name}/{key}": tensor for name, part in parts.items() for key, tensor in part.tensors.items()}


@pytest.mark.parametrize("method", ["exact", "infinipot"])
def test_a_reading_that_was_killed_again_and_again(tmp_path: Path, tiny: Path, book: Path, method: str) -> None:
    with home_with(tmp_path, "whole", tiny, book, method) as (service, context):
        read(service, context, lambda report: None)
        expected, logits = tensors_of(service, context), numbers_of(service, context, reopen=False)
    with home_with(tmp_path, "counted", tiny, book, method) as (service, context):
        pass
    steps = steps_of(partial(read_with_checkpoints, context), tmp_path / "counted", str(tiny))
    with home_with(tmp_path, "killed", tiny, book, method) as (service, context):
        pass
    chance = random.Random(method)
    for _ in range(2):  # each goes on where the one before had saved
        at = chance.randrange(len(steps) // 6, len(steps) // 4)
        kill(partial(read_with_checkpoints, context), tmp_path / "killed", str(tiny), at)
    with closing(Service(tmp_path / "killed", str(tiny), "cpu")) as service:
        assert 0 < service.store.contexts.get(context).tokens_read < service.store.contexts.get(context).tokens
        read(service, context, lambda report: None)
        found = tensors_of(service, context)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name].nan_to_num(), expected[name].nan_to_num()) for name in found)
        again = numbers_of(service, context, reopen=True)
    assert all(map(torch.equal, again, logits))
