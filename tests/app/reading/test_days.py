"""Templates that tell the model the date: a context keeps the date of its reading."""

import datetime
from functools import partial
from pathlib import Path

import pytest

from app.asking.answer_options import AnswerOptions
from app.asking.turns import answer, keep_question
from app.jobs.work import Stopped
from app.reading.open_context import model_of, open_context
from app.reading.preparing import prepare_more
from app.reading.progress import Report
from app.reading.readings import begin, read
from app.service import Service
from engine import ContextMismatch
from tests.app import helpers
from tests.app.helpers import BUDGET, add, read_through
from tests.app.tiny import TEMPLATE, make_tiny_model

MONDAY, TUESDAY = datetime.date(2026, 11, 9), datetime.date(2026, 11, 10)
MACRO = "{% macro today() %}{{ strftime_now('It is %A.') }}{% endmacro %}{{ today() }}"  # as gpt-oss's does


@pytest.fixture
def dated(tmp_path: Path) -> Path:
    folder = make_tiny_model(tmp_path / "model")
    (folder / "chat_template.jinja").write_text(MACRO + TEMPLATE, encoding="utf-8")
    return folder


@pytest.fixture
def calendar(monkeypatch: pytest.MonkeyPatch) -> type["Calendar"]:
    monkeypatch.setattr("engine.models.chat.date", Calendar)
    monkeypatch.setattr("app.reading.readings.date", Calendar)
    Calendar.day = MONDAY
    return Calendar


class Calendar(datetime.date):
    """A date class with a settable today."""

    day = MONDAY

    @classmethod
    def today(cls) -> datetime.date:  # type: ignore[override]
        return cls.day


def before(service: Service, context: str) -> str:
    """Return the text that the model is told before the text of a context."""
    model = open_context(service, context).model
    return str(model.tokenizer.decode(model.chat.prefix))


@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "running"])
def test_what_was_read_yesterday_can_be_asked_and_added_to(
    tmp_path: Path, dated: Path, book: Path, calendar: type[Calendar], restarted: bool
) -> None:
    """Regression: it was refused after midnight, because the words before the text had changed."""
    service = Service(tmp_path / "home", str(dated), "cpu")
    context = read_through(service, add(service, book))
    assert "It is Monday." in before(service, context.id)
    calendar.day = TUESDAY
    if restarted:
        service.close()
        service = Service(tmp_path / "home", str(dated), "cpu")
    else:
        service.forget_open()
    assert "It is Monday." in before(service, context.id)
    turn = keep_question(service, service.store.sessions.add(context.id).id, "Who?")
    assert answer(service, turn.id, AnswerOptions(max_tokens=4)).error is None
    letter = tmp_path / "letter.txt"
    letter.write_text("The pass key of the boathouse is 70315.")
    both = read(
        service, begin(service, prepare_more(service, context.id, add(service, letter))).id, lambda report: None
    )
    assert both.status == "ready"
    assert "It is Monday." in before(service, both.id)
    other = read_through(service, add(service, letter))
    assert "It is Tuesday." in before(service, other.id)
    service.close()


def test_a_reading_that_stopped_before_midnight_goes_on(
    tmp_path: Path, dated: Path, book: Path, calendar: type[Calendar]
) -> None:
    service = Service(tmp_path / "home", str(dated), "cpu")
    row = helpers.begin(service, add(service, book), "exact", BUDGET)
    steps: list[Report] = []
    with pytest.raises(Stopped):
        read(service, row.id, steps.append, lambda: len(steps) >= 4)
    calendar.day = TUESDAY
    done = read(service, row.id, lambda report: None)
    assert (done.id, done.status) == (row.id, "ready")
    assert "It is Monday." in before(service, done.id)
    assert read_through(service, add(service, book)).id == done.id, "a file is known whatever day it is"
    service.close()


def test_what_was_saved_before_days_were_is_of_the_day_on_which_it_was_begun(
    tmp_path: Path, dated: Path, book: Path, calendar: type[Calendar]
) -> None:
    calendar.day = datetime.date.today()
    service = Service(tmp_path / "home", str(dated), "cpu")
    row = read_through(service, add(service, book))
    opened = open_context(service, row.id)
    kept = opened.model.chat.prefix
    found = opened.model.on(calendar.day + datetime.timedelta(days=1))
    assert found.chat.prefix != kept
    as_read = partial(model_of, row, found, opened.context.method, opened.stream)
    assert as_read({"prefix": kept}).chat.prefix == kept
    earlier = opened.model.on(calendar.day - datetime.timedelta(days=9)).chat.prefix
    assert as_read({"prefix": earlier}).chat.prefix == earlier, "the model had been loaded nine days before"
    assert as_read({}) is found
    with pytest.raises(ContextMismatch, match="other words"):
        as_read({"prefix": kept, "day": (calendar.day + datetime.timedelta(days=1)).isoformat()})
    service.close()
