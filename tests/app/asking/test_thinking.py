"""A model that reasons first, from the question to the turn that is kept and shown."""

import json
from pathlib import Path

import pytest

from app.asking import answers
from app.asking.answer_options import AnswerOptions
from app.asking.turns import answer, keep_question
from app.commands.asking import result_of
from app.jobs.worker import Worker
from app.reading.open_context import open_conversation
from app.service import Service
from app.web.actions import Actions
from app.web.tab_state import Selection, TabState
from app.web.views.turn import turn_article
from tests.app.helpers import add, read_through
from tests.app.tiny import make_tiny_model

OPTIONS = AnswerOptions(max_tokens=10, max_reasoning=16, reason=True, read_again=False)


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "thinker", thinking=True)


def test_reasoning_is_streamed_kept_and_left_out_of_the_conversation(tmp_path: Path, thinker: Path, book: Path) -> None:
    service = Service(tmp_path / "home", str(thinker), "cpu")
    session = service.store.sessions.add(read_through(service, add(service, book)).id)
    said: list[str] = []
    reasoned: list[str] = []
    turn = keep_question(service, session.id, "Who kept the lamp?")
    turn = answer(service, turn.id, OPTIONS, said.append, on_reasoning=reasoned.append)
    assert turn.status == "done"
    assert turn.reasoning
    assert ("".join(reasoned), "".join(said)) == (turn.reasoning, turn.answer)
    assert turn.measurements["reasoning_tokens"] >= 16
    assert turn.measurements["reasoning_seconds"] > 0
    ended = f"Its reasoning was ended at {turn.measurements['reasoning_tokens']} tokens, the most that were asked for."
    assert turn.measurements["warnings"][0] == ended
    result = result_of(turn)
    assert [result[name] for name in ("reasoning", "reasoning_tokens", "reasoning_seconds")] == [
        turn.reasoning,
        *(turn.measurements[name] for name in ("reasoning_tokens", "reasoning_seconds")),
    ]
    assert "of reasoning</span>" in turn_article(turn, {})
    told = json.loads(service.store.export_session(session.id, "json"))["turns"][0]
    assert told["reasoning"] == turn.reasoning
    assert turn.reasoning not in service.store.export_session(session.id, "md")

    conversation = open_conversation(service, session.id).conversation
    chat = conversation.model.chat
    tail = conversation.memory.seen - conversation.context.memory.seen
    assert tail == len(chat.question("Who kept the lamp?")) + len(chat.answered()) + turn.measurements["answer_tokens"]
    service.close()

    again = Service(tmp_path / "home", str(thinker), "cpu")
    assert again.store.turns.get(turn.id).reasoning == turn.reasoning
    assert answer(again, keep_question(again, session.id, "And then?").id, OPTIONS).status == "done"
    again.close()


def test_the_page_can_ask_for_an_answer_at_once(
    tmp_path: Path, thinker: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnswerOptions, "max_reasoning", 16)  # in place of thousands
    service = Service(tmp_path / "home", str(thinker), "cpu")
    context = read_through(service, add(service, book)).id
    actions = Actions(service, Worker(service), TabState(service), [], [], [])
    for reason in (False, True, None):
        asked = actions.ask.ask(
            Selection(context, service.store.sessions.add(context).id), "Who?", 0.0, 1.0, 8, reason=reason
        )
        turn = service.store.turns.all(asked.session)[0]
        (job,) = service.store.jobs.all(subject_id=turn.id)
        turn = answer(service, turn.id, AnswerOptions(**job.payload))
        assert (turn.status, bool(turn.reasoning)) == ("done", bool(reason)), "a small model answers at once"
    monkeypatch.setattr(answers, "AT_ONCE", 1)
    turn = answer(service, keep_question(service, turn.session_id, "Why?").id, AnswerOptions(max_tokens=8))
    assert turn.reasoning, "a large model reasons"
    service.close()


def test_a_reasoning_that_is_stopped_keeps_what_there_was(tmp_path: Path, thinker: Path, book: Path) -> None:
    service = Service(tmp_path / "home", str(thinker), "cpu")
    session = service.store.sessions.add(read_through(service, add(service, book)).id)
    turn = keep_question(service, session.id, "Who?")
    pieces: list[str] = []
    turn = answer(service, turn.id, OPTIONS, should_stop=lambda: len(pieces) > 2, on_reasoning=pieces.append)
    assert (turn.status, turn.answer) == ("cancelled", "")
    assert turn.reasoning == "".join(pieces)
    service.close()


def test_nothing_is_said_of_reasoning_where_there_is_none(service: Service, book: Path) -> None:
    session = service.store.sessions.add(read_through(service, add(service, book)).id)
    turn = answer(service, keep_question(service, session.id, "Who?").id, OPTIONS)
    assert turn.reasoning == ""
    assert not any("reasoning" in name for name in result_of(turn))
    assert not any("reasoning" in each for each in turn.measurements["warnings"])
    assert "of reasoning</span>" not in turn_article(turn, {})
