"""Work as values: a reading and an answer without a database, equal to those of a service."""

import pickle
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from app.asking.turns import answer, keep_question, new_session, work_of
from app.jobs.here import Here
from app.jobs.work import AnswerHooks, ReadingHooks, ReadingWork, Stopped
from app.reading.document_cache import DocumentCache
from app.reading.open_context import open_context, saved_context
from app.reading.progress import Report
from app.reading.readings import read
from app.service import OPEN_BYTES, Service
from tests.app.helpers import BUDGET, SHORT, add, begin, book_text


@contextmanager
def no_database(service: Service, patch: pytest.MonkeyPatch) -> Iterator[Here]:
    """Close a service, and yield a runner that has nothing of it. Opening a database meanwhile fails the test."""
    home, model = service.home, service.models.default
    service.close()

    def refused(*given: Any, **more: Any) -> Any:
        pytest.fail("a database was opened")

    def unknown(document: str) -> Any:
        pytest.fail(f"{document} did not come with the work")

    with patch.context() as patched:
        patched.setattr(sqlite3, "connect", refused)
        with pytest.raises(pytest.fail.Exception, match="a database was opened"):
            Service(home, model, "cpu")
        yield Here(model, "cpu", home, OPEN_BYTES, DocumentCache(unknown))


def sent(work: Any) -> Any:
    """Return a value as another process would get it."""
    return pickle.loads(pickle.dumps(work))


def tensors(service: Service, context: str) -> dict[str, torch.Tensor]:
    parts, _ = open_context(service, context).context.state()
    return {f"{name}/{key}": tensor for name, part in parts.items() for key, tensor in part.tensors.items()}


def test_a_reading_and_an_answer_need_no_database(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (book := tmp_path / "Keeper.txt").write_text(book_text(120), encoding="utf-8")
    home = tmp_path / "home"
    service = Service(home, str(tiny), "cpu")
    row = begin(service, add(service, book), "infinipot", BUDGET)
    work = sent(ReadingWork(saved_context(service, row), 0.0))
    reports, saved = list[Report](), list[Report]()
    with no_database(service, monkeypatch) as here:
        with pytest.raises(Stopped):
            here.read(work, ReadingHooks(reports.append, lambda: len(reports) > 4, saved.append))
        assert 0 < saved[-1].tokens_done == reports[-1].tokens_done < row.tokens
        assert here.under_way is None
    stopped_at = len(reports)
    with no_database(Service(home, str(tiny), "cpu"), monkeypatch) as here:
        done = sent(here.read(work, ReadingHooks(reports.append)))  # from the last checkpoint
    first = next(each for each in reports[stopped_at:] if each.usage)
    assert first.tokens_done > saved[-1].tokens_done
    assert (done.tokens_read, reports[-1].stage) == (row.tokens, "saving")
    assert {each.share for each in done.map} > {0.0}, "the method forgets, and the map tells what"

    service = Service(home, str(tiny), "cpu")
    assert read(service, row.id, lambda report: None).status == "ready"
    plain = Service(tmp_path / "plain", str(tiny), "cpu")
    other = read(plain, begin(plain, add(plain, book), "infinipot", BUDGET).id, lambda report: None)
    here_, there = tensors(service, row.id), tensors(plain, other.id)
    assert here_.keys() == there.keys()
    assert all(torch.equal(here_[name], there[name]) for name in there)

    sessions = [new_session(each, id) for each, id in ((service, row.id), (plain, other.id))]
    for each, session in zip((service, plain), sessions, strict=True):
        answer(each, keep_question(each, session.id, "Who kept the lamp?").id, SHORT)
    turn, twin = (
        keep_question(each, session.id, "What is the pass key?", "1")
        for each, session in zip((service, plain), sessions, strict=True)
    )
    asked = sent(work_of(service, turn, SHORT))
    pieces: list[str] = []
    with no_database(service, monkeypatch) as here:
        assert here.answer(asked, AnswerHooks(should_stop=lambda: True)) is None
        told = sent(here.answer(asked, AnswerHooks(pieces.append)))
        assert here.conversations.ids() == [turn.session_id]
    expected = answer(plain, twin.id, SHORT)
    plain.close()
    assert told.answer == "".join(pieces).strip() == expected.answer
    assert [each["quote"] for each in told.sources] == [each["quote"] for each in expected.sources] != []
    assert told.measurements["kv_entries"] == expected.measurements["kv_entries"]

    service = Service(home, str(tiny), "cpu")  # its row was not written, and is from what was saved
    service.store.turns.finish(turn.id, status="failed", error="The disk was full.")
    last = answer(service, keep_question(service, turn.session_id, "Where was it?").id, SHORT)
    finished = service.store.turns.get(turn.id)
    assert (finished.status, finished.answer, last.status) == ("done", told.answer, "done")
    service.close()
