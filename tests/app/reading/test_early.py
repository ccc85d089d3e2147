"""Questions about a text that is not read to its end."""

import threading
from pathlib import Path

import pytest

from app.asking.answer_options import AnswerOptions
from app.asking.turns import answer, keep_question, new_session
from app.errors import AppError, UsageError
from app.jobs.work import Stopped
from app.jobs.worker import Worker
from app.reading.documents import IngestOptions, add_documents
from app.reading.open_context import open_conversation
from app.reading.progress import Report
from app.reading.readings import read
from app.service import Service
from app.web.chat_props import ChatProps
from app.web.tab_state import Selection, TabState
from sessions import ContextRow, TurnRow
from tests.app.helpers import SHORT, begin, book_text, wait_for

SETTINGS = {"exact": {"budget": 320}, "infinipot": {"budget": 320}}


def begun(service: Service, tmp_path: Path, method: str = "exact") -> ContextRow:
    """Return a reading of about a dozen passes, before the first."""
    path = tmp_path / "Long.txt"
    path.write_text(book_text(120), encoding="utf-8")
    [row] = add_documents(service, [path], IngestOptions(), lambda *_: None).documents
    return begin(service, [row.id], method, SETTINGS[method])


def stopped(service: Service, row: ContextRow, steps: int = 4) -> ContextRow:
    """Return a reading that stopped after so many steps, with a checkpoint."""
    reports: list[Report] = []
    with pytest.raises(Stopped):
        read(service, row.id, reports.append, lambda: len(reports) >= steps)
    return service.store.contexts.get(row.id)


def ask(service: Service, session: str, question: str = "Who kept the lamp?") -> TurnRow:
    turn = keep_question(service, session, question)
    return answer(service, turn.id, SHORT)


def early(turn: TurnRow) -> bool:
    return any("it knew nothing of the rest" in each for each in turn.measurements["warnings"])


@pytest.mark.parametrize("method", SETTINGS)
def test_a_reading_is_asked_while_it_goes_on_and_ends_as_without(service: Service, tmp_path: Path, method: str) -> None:
    row, asked = begun(service, tmp_path, method), []

    def ask_now(report: Report) -> None:
        if report.stage == "reading" and len(asked) < 2 and report.tokens_done > len(asked) * 600:
            session = asked[0].session_id if asked else new_session(service, row.id).id
            asked.append(ask(service, session))

    read(service, row.id, ask_now)
    assert service.here.under_way is None
    assert [turn.status for turn in asked] == ["done", "done"]
    assert all(map(early, asked))
    seen = [int(turn.measurements["warnings"][0].split("%")[0].rpartition(" ")[2]) for turn in asked]
    assert 0 < seen[0] < seen[1] < 100
    session = asked[0].session_id
    assert not service.store.sessions.state(session).exists()
    # Now it knows the whole text, and the earlier turns.
    assert open_conversation(service, session).conversation.turns == 2
    last = ask(service, session, "Where is it?")
    assert not early(last)
    assert service.store.sessions.state(session).exists()
    plain = Service(tmp_path / "other", service.models.default, "cpu")
    other = begun(plain, tmp_path, method)
    assert other.fingerprint == row.fingerprint
    read(plain, other.id, lambda report: None)
    alone = ask(plain, new_session(plain, other.id).id)
    assert ask(service, new_session(service, row.id).id).answer == alone.answer
    plain.close()


def test_what_was_stopped_is_asked_from_its_checkpoint(service: Service, tmp_path: Path) -> None:
    row = stopped(service, begun(service, tmp_path))
    turn = ask(service, new_session(service, row.id).id)
    share = row.tokens_read / row.tokens
    assert turn.measurements["warnings"][0].startswith(f"Asked when {int(100 * share)}% of the text had been read")
    assert 0 < share < 1
    assert all(source["end"] <= len(book_text(120)) * (share + 0.1) for source in turn.sources)
    with pytest.raises(UsageError, match="has not been read yet"):
        answer(service, keep_question(service, turn.session_id, "Who?", "+2/30").id, SHORT)
    pinned = answer(service, keep_question(service, turn.session_id, "Who kept the lamp?", "+1/1").id, SHORT)
    assert all(source["end"] <= len(book_text(120)) * (share + 0.1) for source in pinned.sources)
    later = stopped(service, row)  # four steps on
    assert later.tokens_read > row.tokens_read
    again = ask(service, turn.session_id)
    assert again.measurements["warnings"][0].startswith(f"Asked when {int(100 * later.tokens_read / later.tokens)}%")
    assert read(service, row.id, lambda report: None).status == "ready"
    assert not early(ask(service, turn.session_id))


def test_what_failed_is_asked_from_its_checkpoint(service: Service, tmp_path: Path) -> None:
    """The page offered it and the store refused: old sessions could be asked, but no new one made."""
    row = stopped(service, begun(service, tmp_path))
    service.store.contexts.update(row.id, status="failed", error="The disk is full.")
    first = new_session(service, row.id).id
    assert early(ask(service, first))
    assert early(ask(service, service.store.sessions.branch(first, 1).id, "Where is it?"))


@pytest.mark.parametrize("stage", ["ready", "saving"])
def test_what_has_been_read_to_its_end_is_asked_as_that(service: Service, tmp_path: Path, stage: str) -> None:
    """It was said to have been asked at 100 %, or from its last checkpoint while it was saved."""
    row, asked = begun(service, tmp_path), list[TurnRow]()

    def on_step(report: Report) -> None:
        if report.stage == stage:
            asked.append(ask(service, new_session(service, row.id).id))

    read(service, row.id, on_step)
    assert [turn.status for turn in asked] == ["done"]
    assert not early(asked[0])
    assert ask(service, new_session(service, row.id).id).answer == asked[0].answer


def test_a_question_that_nobody_has_begun_with_waits_for_its_turn(service: Service, tmp_path: Path) -> None:
    """The page said that its context was opened, then "Thinking", while another session was answered."""
    row = stopped(service, begun(service, tmp_path))
    session, store = new_session(service, row.id).id, service.store
    turn = Worker(service).ask(lambda: session, "Who?", AnswerOptions())
    assert "Waiting for its turn" in ChatProps(service).live_turn_value(store.contexts.get(row.id), [turn])
    other = Worker(service).ask(lambda: new_session(service, row.id).id, "Where?" + " and where?" * 9, AnswerOptions())
    assert store.jobs.claim("worker", "answer")
    waiting = ChatProps(service).live_turn_value(store.contexts.get(row.id), [other])
    assert "Waiting for the answer to “Who?”" in waiting
    assert "Opening the document" in ChatProps(service).live_turn_value(store.contexts.get(row.id), [turn])


def test_nothing_is_asked_of_what_nothing_has_been_read_of(service: Service, tmp_path: Path) -> None:
    row = begun(service, tmp_path)
    with pytest.raises(AppError, match="it can be asked when some of its text has been read"):
        new_session(service, row.id)
    session = service.store.sessions.add(row.id)
    with pytest.raises(AppError, match="some of its text"):
        keep_question(service, session.id, "Who?")


def test_the_worker_answers_in_the_middle_of_a_reading(
    service: Service, worker: Worker, held: threading.Event, tmp_path: Path
) -> None:
    held.set()
    row = begun(service, tmp_path)
    worker.read(row.id)
    wait_for(lambda: service.here.under_way is not None, "the reading to begin")
    tab_state = TabState(service)
    props = tab_state.props(Selection(row.id))
    shown = {name: props[name]["visible"] for name in ("reading_view", "chat_view", "ask_early", "session_area")}
    assert shown == {"reading_view": True, "chat_view": False, "ask_early": True, "session_area": True}
    session = new_session(service, row.id).id
    turn = worker.ask(lambda: session, "Who kept the lamp?", AnswerOptions(max_tokens=4))
    wait_for(lambda: service.store.turns.get(turn.id).status == "done", "the answer")
    assert service.store.contexts.get(row.id).status == "reading"
    selection = tab_state.settle(Selection(row.id, session))
    props = tab_state.props(selection)
    assert (props["chat_view"]["visible"], props["reading_view"]["visible"]) == (True, False)
    assert "of it has been read, and it goes on" in props["head"]["value"]
    assert "it knew nothing of the rest" in props["past"]["value"]
    assert tab_state.settle(Selection(row.id)) == Selection(row.id)  # the reading is still to be found
    held.clear()
    wait_for(lambda: service.store.contexts.get(row.id).status == "ready", "the reading to end")
    assert tab_state.settle(Selection(row.id)) == Selection(row.id, session)
    assert "of it has been read" not in tab_state.props(selection)["head"]["value"]
