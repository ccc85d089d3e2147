"""Turns over readings, by a real engine with a tiny model."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.asking import support
from app.asking.answer_options import AnswerOptions
from app.asking.answers import Checked, Question, checked
from app.asking.turns import answer, keep_question, new_session
from app.commands.asking import note_sources, result_of
from app.errors import UsageError
from app.jobs import here
from app.reading.readings import read
from app.service import Service
from app.web.views.markup import esc
from app.web.views.turn import turn_article
from sessions import TurnRow, stamp
from tests.app.helpers import BUDGET, SHORT, add, begin, book_text, read_through


def test_a_conversation_goes_on_after_everything_was_closed(tmp_path: Path, tiny: Path, book: Path) -> None:
    service = Service(tmp_path / "home", str(tiny), "cpu")
    context = read_through(service, add(service, book))
    session = new_session(service, context.id)
    first = answer(service, keep_question(service, session.id, "Who kept the lamp?").id, SHORT)
    uninterrupted = answer(service, keep_question(service, session.id, "And who built it?").id, SHORT)
    other = new_session(service, context.id)
    answer(service, keep_question(service, other.id, "Who kept the lamp?").id, SHORT)
    service.close()

    service = Service(tmp_path / "home", str(tiny), "cpu")
    again = answer(service, keep_question(service, other.id, "And who built it?").id, SHORT)
    assert first.status == again.status == "done"
    assert again.answer == uninterrupted.answer
    assert again.measurements["kv_entries"] == uninterrupted.measurements["kv_entries"]
    service.close()


@pytest.fixture
def any_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show every place, as random weights look everywhere a little."""
    monkeypatch.setattr("app.asking.sources.LEAST_SHARE", 0.0)


@pytest.mark.usefixtures("any_share")
def test_an_answer_has_sources_and_measurements(service: Service, book: Path) -> None:
    context = read_through(service, add(service, book))
    pieces: list[str] = []
    turn = answer(
        service, keep_question(service, service.store.sessions.add(context.id).id, "Where?").id, SHORT, pieces.append
    )
    assert turn.status == "done"
    assert "".join(pieces) == turn.answer
    assert turn.measurements["answer_tokens"] == 12
    assert turn.measurements["kv_entries"] <= 320
    assert (turn.measurements["stages"], turn.measurements["traffic"]) == ([], {})  # of infinitehip, and of a cache
    assert turn.sources
    text = service.document_cache.document(context.document_ids[0]).text
    for source in turn.sources:
        assert source["quote"] == text[source["start"] : source["end"]]
    json.dumps(turn.sources)


@pytest.mark.usefixtures("any_share")
def test_an_answer_that_found_nothing_is_kept_as_such(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Passages were shown under it as under any other answer."""
    context = read_through(service, add(service, book))
    session = service.store.sessions.add(context.id).id
    shown = {}
    for words in ("", "That is not in the text."):
        if words:  # the tiny model cannot say so itself
            monkeypatch.setattr(here, "checked", _saying(words))
        turn = answer(service, keep_question(service, session, "Where?").id, SHORT)
        assert turn.sources
        note_sources(turn, {})
        shown[turn.measurements["found"]] = "of the attention)" in capsys.readouterr().err
        assert result_of(turn)["found"] == turn.measurements["found"]
    assert turn.measurements["citations"] == []
    assert shown == {True: True, False: False}
    note_sources(replace(turn, measurements={**turn.measurements, "tokens_per_second": 0.0}), {})
    assert "tokens/s" not in capsys.readouterr().err, "an answer of one token has no speed"


def _saying(words: str) -> Callable[..., Checked]:
    """Return a function that checks answers with other words in place of the model's."""

    def said(question: Question, done: Any) -> Checked:
        return checked(question, replace(done, text=words))

    return said


@pytest.mark.parametrize(("method", "budget"), [("infinipot", "1200"), ("exact", "320")])
def test_a_question_is_answered_from_passages_unless_told_not_to(
    service: Service, tmp_path: Path, method: str, budget: str
) -> None:
    path = tmp_path / "Long.txt"
    path.write_text(book_text(60) + "The heron nested by the mill. " + book_text(20), encoding="utf-8")
    context = read(service, begin(service, add(service, path), method, {"budget": budget}).id, lambda _: None)
    session = service.store.sessions.add(context.id).id
    first, second = (
        answer(service, keep_question(service, session, "Heron?").id, AnswerOptions(max_tokens=4, read_again=each))
        for each in (True, False)
    )
    assert first.measurements["read_again_tokens"] > 100
    assert second.measurements["read_again_tokens"] == 0
    assert "tokens read again" in turn_article(first, {})
    assert "read again" not in turn_article(second, {})


@pytest.mark.parametrize(
    ("said", "marked", "warned"),
    [
        ("By the mill.", [], None),
        ("By the mill in Paris, 1714 days before.", ["Paris", "1714"], support.UNSURE),
        ("Paris.", ["Paris"], support.NOWHERE),
        ("The heron", [], None),  # cut at the longest answer that was asked for, before it says anything
    ],
)
def test_an_answer_that_the_text_does_not_say_is_marked(
    service: Service,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    marked: list[str],
    warned: str | None,
) -> None:
    path = tmp_path / "Long.txt"
    path.write_text(book_text(60) + "The heron nested by the mill for nine days. " + book_text(20), encoding="utf-8")
    context = read(service, begin(service, add(service, path), "exact", {"budget": "320"}).id, lambda _: None)
    session = service.store.sessions.add(context.id).id
    monkeypatch.setattr(here, "checked", _saying(said))
    turn = answer(service, keep_question(service, session, "Where had the heron nested?").id, SHORT)
    measured = turn.measurements
    assert measured["found"] == (warned != support.NOWHERE), "as the page says"
    doubts = [each for each in measured["warnings"] if each.startswith((support.NOWHERE, support.UNSURE))]
    they_say = " Instead they say: nine days." if "1714" in marked else ""
    assert doubts == ([f"{warned}{they_say}"] if warned else [])
    assert [turn.answer[each["start"] : each["end"]] for each in measured.get("unsupported", [])] == marked
    shown = turn_article(turn, {})
    assert all(f">{esc(each)}</p>" in shown for each in doubts), "as text: no pointer is needed to read it"
    assert ("Where the model looked" in shown) <= measured["found"]


@pytest.mark.parametrize(
    ("question", "checked", "marked"),
    [
        ("Which fox did they see?", True, True),  # its words stand in all passages
        ("Who chaired the meeting?", True, True),  # its words stand in none
        ("Summarize what the dragon did.", True, False),  # there is no dragon
        ("List all that the fox did.", False, True),
        ("Summarize it.", False, False),
        ("Thanks a lot!", False, False),
        ("Wen haben die Leute dort gesehen?", False, False),
    ],
)
def test_all_answers_to_questions_about_a_place_are_checked(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch, question: str, checked: bool, marked: bool
) -> None:
    """Regression: a wrong answer about a short text came without a warning."""
    context = read_through(service, add(service, book))
    monkeypatch.setattr(here, "checked", _saying("They left for Paris in 1714."))
    turn = answer(service, keep_question(service, service.store.sessions.add(context.id).id, question).id, SHORT)
    assert (support.NOWHERE in turn.measurements["warnings"]) == checked
    assert bool(turn.measurements.get("unsupported")) == marked
    assert turn.measurements["found"] == (not checked)


def test_an_answer_that_may_be_worse_than_it_looks_is_warned_of(service: Service, book: Path) -> None:
    """Regression: with `full`, a conversation could outgrow the model's window without a warning."""
    ids = add(service, book)
    warned = {}
    for method in ("full", "exact"):
        context = read(service, begin(service, ids, method, BUDGET if method == "exact" else {}).id, lambda _: None)
        session = service.store.sessions.add(context.id).id
        first, long = (
            answer(service, keep_question(service, session, question).id, SHORT)
            for question in ("Where?", "Where is the fox? " * 400)
        )
        assert first.measurements["finish_reason"] == "length"
        cut = "Cut at 12 tokens, the longest answer that was asked for."
        assert first.measurements["warnings"] == [cut] == long.measurements["warnings"][:1]
        assert f"*({cut})*" in service.store.export_session(session)
        assert cut in turn_article(first, {})
        warned[method] = long.measurements["warnings"][1:]
    assert set(warned["exact"]) <= {support.NOWHERE, support.UNSURE}
    assert "the model was trained for 4,096 at a time" in warned["full"][0]


def test_an_answer_with_a_temperature_is_another_each_time_unless_a_seed_is_given(service: Service, book: Path) -> None:
    context = read_through(service, add(service, book))

    def asked(seed: int | None = None, temperature: float = 2.0) -> TurnRow:
        turn = keep_question(service, service.store.sessions.add(context.id).id, "Who?")
        return answer(service, turn.id, AnswerOptions(temperature, max_tokens=12, seed=seed))

    first, second = asked(), asked()
    assert first.answer != second.answer
    assert asked(first.measurements["seed"]).answer == first.answer
    assert "seed" not in asked(temperature=0.0).measurements
    service.seed = second.measurements["seed"]
    assert asked().answer == second.answer
    with pytest.raises(UsageError, match="A seed is a whole number"):
        AnswerOptions(seed=-1)


def test_an_answer_is_sampled_as_the_model_says_unless_the_person_does(tmp_path: Path, tiny: Path, book: Path) -> None:
    model = tmp_path / "own"
    shutil.copytree(tiny, model)
    own = {"do_sample": True, "temperature": 1.5, "top_p": 0.9, "top_k": 40, "repetition_penalty": 1.1}
    (model / "generation_config.json").write_text(json.dumps(own))
    service = Service(tmp_path / "home", str(model), "cpu", seed=3)
    session = service.store.sessions.add(read_through(service, add(service, book)).id)

    def asked(options: AnswerOptions) -> dict[str, Any]:
        return answer(service, keep_question(service, session.id, "Who?").id, options).measurements

    plain = {"temperature": 1.5, "top_p": 0.9, "top_k": 40, "min_p": 0.0, "repetition_penalty": 1.1}
    usual = asked(SHORT)
    assert (usual["sampling"], usual["seed"]) == (plain, 3)
    changed = asked(replace(SHORT, temperature=0.0, top_p=1.0, top_k=0, min_p=0.2, repetition_penalty=1.0))
    given = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.2, "repetition_penalty": 1.0}
    assert (changed["sampling"], "seed" in changed) == (given, False)
    service.close()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"top_k": -1}, "top-k is 0"),
        ({"min_p": 2.0}, "min-p must be"),
        ({"repetition_penalty": 0.0}, "penalty is between"),
    ],
)
def test_what_cannot_be_sampled_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        AnswerOptions(**wrong)


def test_a_stopped_answer_leaves_the_conversation_as_it_was(service: Service, book: Path) -> None:
    context = read_through(service, add(service, book))
    one, two = service.store.sessions.add(context.id), service.store.sessions.add(context.id)
    plain = answer(service, keep_question(service, one.id, "Who?").id, SHORT)
    seen: list[str] = []
    stopped = answer(
        service,
        keep_question(service, two.id, "Something else?").id,
        AnswerOptions(max_tokens=400),
        seen.append,
        lambda: len(seen) >= 3,
    )
    assert stopped.status == "cancelled"
    assert stopped.answer
    after = answer(service, keep_question(service, two.id, "Who?").id, SHORT)
    assert after.answer == plain.answer


@pytest.mark.parametrize("status", ["failed", "cancelled", "answering"])
def test_a_crash_between_tail_and_turn_loses_nothing(service: Service, book: Path, status: str) -> None:
    context = read_through(service, add(service, book))
    session = service.store.sessions.add(context.id)
    turn = answer(service, keep_question(service, session.id, "Who?").id, SHORT)
    # As if the process had died after the conversation was saved: at the next start the store ends the open turn.
    dead = stamp().rpartition("|")[0] + "|1"
    changes = "status = ?, owner = ?, answer = '', sources = '[]'"
    with service.store.database.transaction() as db:
        db.execute(f"UPDATE turns SET {changes}", [status, dead])
    service.forget_open()
    answer(service, keep_question(service, session.id, "And then?").id, SHORT)
    mended = service.store.turns.get(turn.id)
    assert (mended.status, mended.answer, mended.sources) == ("done", turn.answer, turn.sources)


def test_a_session_whose_last_turn_was_lost_goes_on_with_the_others(
    service: Service, book: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A power failure may lose rows but not the saved conversation; then no question in the session was answered any
    more.
    """
    session, same = (service.store.sessions.add(read_through(service, add(service, book)).id).id for _ in range(2))
    for each, questions in ((session, ("Who?", "Where was it lost?")), (same, ("Who?",))):
        turns = [answer(service, keep_question(service, each, question).id, SHORT) for question in questions]
        if each == session:
            with service.store.database.transaction() as db:
                db.execute("DELETE FROM turns WHERE id = ?", [turns[-1].id])
    for _ in range(2):
        service.forget_open()
        one, other = (answer(service, keep_question(service, each, "Why?").id, SHORT) for each in (session, same))
        assert one.answer == other.answer
    assert [each.message for each in caplog.records if session in each.message] == [
        f"session {session} remembers a turn that is not kept: it is read anew from those that are"
    ]


def test_only_a_turn_that_is_being_answered_fails(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error after the turn was finished marked it as failed."""
    session = service.store.sessions.add(read_through(service, add(service, book)).id)
    turn = keep_question(service, session.id, "Who?")
    with monkeypatch.context() as late:
        late.setattr("app.asking.turns._answer", lambda *_: service.store.turns.finish(turn.id, answer="He.") and 1 / 0)
        with pytest.raises(ZeroDivisionError):
            answer(service, turn.id, SHORT)
    assert (service.store.turns.get(turn.id).status, service.store.turns.get(turn.id).answer) == ("done", "He.")


def test_how_far_a_long_question_is_read_is_said_meanwhile(service: Service, book: Path) -> None:
    """The page said "Thinking" for two minutes while a page of code was read."""
    context = read_through(service, add(service, book))
    told: dict[str, list[str]] = {}
    for question in ("Who?", "Who kept the lamp? " * 40):
        turn = keep_question(service, service.store.sessions.add(context.id).id, question)
        stages = told.setdefault(question, [])
        answer(service, turn.id, SHORT, on_stage=stages.append)
    short, long = told.values()
    assert set(short) == {""}
    first, *_, last = dict.fromkeys(filter(None, long))  # its words also lead to passages
    assert re.fullmatch(r"Reading the passages that the question is about: \d+ %", first)
    assert re.fullmatch(r"Reading the question: [\d,]+ of [\d,]+ tokens", last)
    assert long[-1] == ""


def test_who_waits_for_another_answer_is_told(service: Service, book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second question at the command line waited without a message."""
    session = service.store.sessions.add(read_through(service, add(service, book)).id).id
    behind = iter([True, True, False])
    monkeypatch.setattr(service.store.jobs, "is_behind", lambda turn: next(behind))
    told: list[str] = []
    answer(service, keep_question(service, session, "Who?").id, SHORT, on_stage=told.append)
    waiting = "Waiting for the answer to the question before"
    assert told[:3] == [waiting, waiting, ""]


def test_an_answer_that_repeats_itself_is_ended(service: Service, book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went on to the longest answer allowed, and everybody else waited."""
    monkeypatch.setattr("engine.loops.conversation.choose", lambda logits, *_: 70)
    context = read_through(service, add(service, book))
    session = new_session(service, context.id)
    turn = answer(service, keep_question(service, session.id, "Who?").id, AnswerOptions(max_tokens=4000))
    assert (turn.status, turn.measurements["finish_reason"]) == ("done", "repetition")
    assert turn.measurements["answer_tokens"] < 400
    assert 0 < len(turn.answer) < 50
    assert turn.measurements["warnings"][0] == (
        "The model began to repeat itself, so its answer was ended here and the repetition left out."
    )
    assert answer(service, keep_question(service, session.id, "Where?").id, SHORT).status == "done"
