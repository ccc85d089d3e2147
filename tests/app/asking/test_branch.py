"""Branches: ask another question, or the same again, after the first turns of a session."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import engine
from app.asking.answer_options import AnswerOptions
from app.asking.turns import answer, branch, keep_question
from app.errors import AppError, UsageError
from app.jobs.worker import Worker
from app.reading.open_context import open_conversation, opened_conversation
from app.reading.readings import read
from app.service import Service
from app.web.actions import Actions
from app.web.tab_state import Selection, TabState
from sessions import TurnRow
from tests.app.helpers import SHORT, add, answered, begin, read_through

# These answers encode to the same tokens again, so that both sides have equally many.
FIRST = ("Who is the mayor of Cape Orlen?", "Who built the lighthouse at Cape Orlen?")
THEN = "What is the pass key of the vault?"


def ask(service: Service, session: str, question: str, options: AnswerOptions = SHORT) -> TurnRow:
    turn = answer(service, keep_question(service, session, question).id, options)
    assert turn.status == "done"
    return turn


@pytest.mark.parametrize(
    ("method", "settings"),
    [("exact", {"budget": 320}), ("infinipot", {"budget": 320}), ("locret", {"budget": 320, "chunk": 64})],
)
def test_a_branch_goes_on_as_the_session_itself(
    tmp_path: Path, model: str, book: Path, method: str, settings: dict[str, Any]
) -> None:
    service = Service(tmp_path / "home", model, "cpu")
    context = read(service, begin(service, add(service, book), method, settings).id, lambda report: None)
    session = service.store.sessions.add(context.id).id
    for question in FIRST:
        ask(service, session, question)
    branch = service.store.sessions.branch(session, 2).id
    uninterrupted = ask(service, session, THEN)
    expected = open_conversation(service, session).conversation
    service.close()

    service = Service(tmp_path / "home", model, "cpu")
    assert not service.store.sessions.state(branch).exists()
    again = ask(service, branch, THEN)
    assert again.answer == uninterrupted.answer
    got = open_conversation(service, branch).conversation
    assert (got.turns, got.memory.seen) == (3, expected.memory.seen)
    assert again.measurements["entries"] == uninterrupted.measurements["entries"]
    assert got.usage().entries["device"] <= 320 + got.method.passing(got.model.spec)
    assert service.store.sessions.state(branch).exists()
    service.close()


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("exact", {"budget": 320}),
        ("infllm", {}),
        ("infinitehip", {}),
        ("recall", {"gist": "infinipot"}),
        ("infinipot", {"budget": 320}),
    ],
)
def test_a_branch_gives_the_same_logits_as_its_session_at_each_turn(
    service: Service, book: Path, method: str, settings: dict[str, Any]
) -> None:
    """Turns that were read as text gave other logits."""
    row = begin(service, add(service, book), method, engine.make_method(method, **settings).settings())
    session = service.store.sessions.add(read(service, row.id, lambda report: None).id).id
    logits = []
    for question in (*FIRST, THEN):
        ask(service, session, question)
        logits.append(next_logits(service, session))
    begun = [branch(service, session, turns).id for turns in (1, 2, 3)]
    for turns, id in enumerate(begun, 1):
        assert torch.equal(next_logits(service, id), logits[turns - 1])
        assert open_conversation(service, id).conversation.turns == turns
    again = ask(service, begun[0], FIRST[1])
    assert again.answer == service.store.turns.all(session)[1].answer
    assert torch.equal(next_logits(service, begun[0]), logits[1])
    assert torch.equal(next_logits(service, branch(service, begun[1], 1).id), logits[0])


def next_logits(service: Service, session: str) -> torch.Tensor:
    """Return the next logits of a session's conversation, opened from disk."""
    service.forget_open()
    conversation = open_conversation(service, session).conversation
    logits = conversation.model.logits(conversation.feed([5, 6, 7]))
    service.forget_open()  # the context has read more by now
    return logits


def test_a_branch_takes_over_no_damaged_tail(service: Service, book: Path) -> None:
    """Branching is the advice for a damaged conversation."""
    session = service.store.sessions.add(read_through(service, add(service, book)).id).id
    ask(service, session, FIRST[0])
    folder = service.store.sessions.state(session).path
    largest = max(folder.glob("*.safetensors"), key=lambda file: file.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[-1] ^= 1
    largest.write_bytes(data)
    begun = branch(service, session, 1).id
    assert not service.store.sessions.state(begun).exists()
    ask(service, begun, THEN)


def test_a_branch_of_fewer_turns_or_behind_a_failed_one_begins_from_what_is_saved(service: Service, book: Path) -> None:
    session = service.store.sessions.add(read_through(service, add(service, book)).id).id
    for question in FIRST:
        ask(service, session, question)
    failed = keep_question(service, session, THEN)
    service.store.turns.finish(failed.id, status="failed", error="It was too much.")
    begun = {turns: branch(service, session, turns).id for turns in (1, 2, 3)}
    assert all(service.store.sessions.state(id).exists() for id in begun.values())
    for turns, id in begun.items():
        assert open_conversation(service, id).conversation.turns == min(turns, 2)


def test_turns_of_a_branch_are_read_once(service: Service, book: Path) -> None:
    session = service.store.sessions.add(read_through(service, add(service, book)).id).id
    ask(service, session, FIRST[0])
    branch = service.store.sessions.branch(session, 1).id
    held = open_conversation(service, branch)
    assert held.conversation.turns == 1
    assert open_conversation(service, branch) is held
    assert held.conversation.turns == 1


def test_the_first_token_is_waited_for_from_the_question_on(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time to open the context was not counted."""
    session = service.store.sessions.add(read_through(service, add(service, book)).id).id
    clock, took = time.perf_counter, [1000.0, 0.0]
    late = 0.0

    def open_slowly(*given: Any) -> Any:
        nonlocal late
        late += took.pop(0)
        return opened_conversation(*given)

    monkeypatch.setattr("app.jobs.here.opened_conversation", open_slowly)
    monkeypatch.setattr("time.perf_counter", lambda: clock() + late)
    waits = [ask(service, session, "Who?").measurements["time_to_first_token_seconds"] for _ in range(2)]
    assert waits[0] > 1000 > waits[1]


def test_how_far_a_branch_has_read_its_turns_is_said_meanwhile(
    service: Service, worker: Worker, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page said "Thinking" for minutes while a branch of two hundred turns was read."""
    session = service.store.sessions.add(read_through(service, add(service, book)).id)
    for question in FIRST:
        ask(service, session.id, question)
    branch, tab_state, shown = service.store.sessions.branch(session.id, 2), TabState(service), []
    replay = engine.Conversation.replay

    def look_and_replay(*given: Any) -> None:
        shown.append(tab_state.props(Selection(branch.context_id, branch.id))["live"]["value"])
        replay(*given)
        time.sleep(0.25)  # at most a few times a second

    monkeypatch.setattr(engine.Conversation, "replay", look_and_replay)
    assert answered(service, worker, branch.id, SHORT) == "done"
    said = [re.findall("Reading what was said before: . of 2 turns", each) for each in shown]
    assert said[:2] == [[f"Reading what was said before: {done} of 2 turns"] for done in (0, 1)]


@pytest.mark.parametrize("passes", range(1, 8))
def test_a_stopped_answer_leaves_a_branch_as_it_was(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    """A branch of two turns needs six passes before the question's answer; the seventh brings it."""
    session = service.store.sessions.add(read_through(service, add(service, book)).id).id
    for question in FIRST:
        ask(service, session, question)
    one, two = (service.store.sessions.branch(session, 2).id for _ in range(2))
    told: list[str] = []
    replay = engine.Conversation.replay

    def replayed(self: engine.Conversation, question: str, *rest: Any) -> None:
        replay(self, question, *rest)
        told.append(question)

    monkeypatch.setattr(engine.Conversation, "replay", replayed)
    asked = iter(range(1, 100))
    turn = keep_question(service, one, "Something else?")
    stopped = answer(service, turn.id, SHORT, should_stop=lambda: next(asked) == passes)
    assert (stopped.status, bool(stopped.answer)) == ("cancelled", passes == 7)
    assert told == list(FIRST[: (passes - 1) // 2])  # no pass after the stop
    assert ask(service, one, THEN).answer == ask(service, two, THEN).answer
    assert open_conversation(service, one).conversation.turns == 3


@pytest.fixture
def actions(service: Service) -> Actions:
    return Actions(service, Worker(service), TabState(service), [], [], [])


def test_an_edited_question_is_asked_in_a_session_of_its_own(service: Service, actions: Actions, book: Path) -> None:
    store, tab_state = service.store, actions.manage.tab_state
    session = store.sessions.add(read_through(service, add(service, book)).id)
    turns = [ask(service, session.id, question) for question in FIRST]
    chosen = Selection(session.context_id, session.id)
    assert not tab_state.props(chosen)["edit_area"]["visible"]
    editing = actions.ask.edit(chosen, turns[1].id)
    assert editing.query == chosen.query
    shown = tab_state.props(tab_state.settle(editing))
    assert f'data-place="{turns[1].id}" data-question="{FIRST[1]}"' in shown["where"]["value"]
    assert shown["edit_area"]["visible"]
    assert "This starts a new chat from question 2." in shown["edit_line"]["value"]
    with pytest.raises(UsageError, match="at most"):
        actions.ask.ask(editing, "why " * 9000, 0.0, 1.0, 16)
    assert len(store.sessions.all(session.context_id)) == 1  # no session was made
    assert actions.ask.never_mind(editing) == actions.navigate.choose_session(editing, session.id) == chosen

    asked = actions.ask.ask(editing, "And who owned it?", 0.0, 1.0, 16)
    assert asked.session != session.id
    assert not asked.edited
    assert [turn.question for turn in store.turns.all(asked.session)] == [FIRST[0], "And who owned it?"]
    assert store.turns.all(session.id) == turns
    # Another session: neither waits for the other.
    with pytest.raises(AppError, match="still being answered"):
        actions.ask.ask(asked, "And when?", 0.0, 1.0, 16)
    again = actions.ask.ask(
        actions.ask.edit(asked, store.turns.all(asked.session)[1].id), "And who owned it?", 0.0, 1.0, 16
    )
    assert [turn.question for turn in store.turns.all(again.session)] == [FIRST[0], "And who owned it?"]
    assert tab_state.props(actions.ask.edit(asked, turns[0].id))["ask"]["visible"]
