"""Files that were truncated or altered after they were saved: no answer uses them, and nothing else suffers."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.asking.answer_options import AnswerOptions
from app.asking.turns import answer, keep_question
from app.errors import phrase
from app.jobs.work import Stopped
from app.reading import documents
from app.reading.documents import IngestOptions, add_documents
from app.reading.open_context import open_context, open_conversation
from app.reading.readings import read
from app.service import Service
from ingest import ingest
from sessions import ContextRow, StoreCorrupt, TurnRow
from tests.app.helpers import BUDGET, add, begin, read_through

SHORT = AnswerOptions(max_tokens=4)


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.parts.archive.tier_plan.SLAB", 256)


def flip(file: Path) -> None:
    """Alter one bit in place, as a failing disk would."""
    with file.open("r+b") as handle:
        handle.seek(-1001, 2)
        (byte,) = handle.read(1)
        handle.seek(-1, 1)
        handle.write(bytes([byte ^ 4]))
    later = file.stat().st_mtime + 2  # there are file systems that count in steps of two seconds
    os.utime(file, (later, later))


def truncate(file: Path) -> None:
    with file.open("r+b") as handle:
        handle.truncate(file.stat().st_size // 2)


def slabs(service: Service, row: ContextRow) -> list[Path]:
    found = sorted((service.home / "contexts" / row.id).glob("host-*.safetensors"))
    assert len(found) > 2
    return found


def ask(service: Service, session: str) -> TurnRow:
    return answer(service, keep_question(service, session, "Who kept the lamp?").id, SHORT)


def refused(service: Service, session: str, file: Path, told: str) -> None:
    """Check that the next question in a session fails with a sentence, which the turn keeps."""
    turns = service.store.turns.all(session)
    with pytest.raises(StoreCorrupt, match=told) as caught:
        ask(service, session)
    turn = service.store.turns.all(session)[-1]
    assert (turn.status, turn.answer) == ("failed", "")
    assert turn.error == phrase(caught.value)
    assert str(file) in turn.error
    assert f"delete {file.parent.name}, then read its documents again (they are kept)" in turn.error
    assert service.store.turns.all(session)[:-1] == turns


@pytest.mark.parametrize("while_open", [False, True], ids=["closed", "open"])
@pytest.mark.parametrize("settings", [{"tier": "host"}, {"tier": "disk"}, {"store": "int8"}], ids=str)
def test_no_answer_rests_on_an_altered_slab(
    service: Service, book: Path, settings: dict[str, str], while_open: bool
) -> None:
    ids = add(service, book)
    row = read(service, begin(service, ids, "exact", BUDGET | settings).id, lambda report: None)
    other = read_through(service, ids, "infinipot")
    one, two, beside = (service.store.sessions.add(each.id).id for each in (row, row, other))
    expected = ask(service, one).answer
    assert ask(service, two).answer == expected
    untouched = ask(service, beside).answer
    if not while_open:
        service.forget_open()
    file = slabs(service, row)[1]
    whole = file.read_bytes()
    flip(file)
    for session in (one, two, one):
        refused(service, session, file, "The contents of")
    again = service.store.sessions.add(other.id).id
    assert ask(service, again).answer == untouched
    assert ask(service, beside).status == "done"
    # With a copy of the file put back, every session goes on.
    file.write_bytes(whole)
    assert ask(service, service.store.sessions.add(row.id).id).answer == expected
    for session in (one, two):
        assert ask(service, session).status == "done"
        assert open_conversation(service, session).conversation.turns == 2


def test_an_answer_is_not_kept_if_a_slab_was_altered_meanwhile(service: Service, book: Path) -> None:
    row = read_through(service, add(service, book))
    session = service.store.sessions.add(row.id).id
    ask(service, session)
    file = slabs(service, row)[1]
    whole = file.read_bytes()
    pieces: list[str] = []

    def alter(text: str) -> None:
        if not pieces:
            flip(file)
        pieces.append(text)

    turn = keep_question(service, session, "Who kept the lamp?")
    with pytest.raises(StoreCorrupt, match="The contents of"):
        answer(service, turn.id, SHORT, alter)
    assert service.store.turns.get(turn.id).status == "failed"
    file.write_bytes(whole)
    assert open_conversation(service, session).conversation.turns == 1


@pytest.mark.parametrize(
    ("damage", "told"),
    [(flip, "The contents of"), (truncate, "were written"), (Path.unlink, "is missing")],
    ids=["altered", "truncated", "missing"],
)
def test_the_advice_helps(service: Service, book: Path, damage: Callable, told: str) -> None:
    ids = add(service, book)
    row = read_through(service, ids)
    session = service.store.sessions.add(row.id).id
    expected = ask(service, session).answer
    file = slabs(service, row)[0]
    damage(file)
    refused(service, session, file, told)
    service.store.contexts.delete(row.id)
    again = read_through(service, ids)
    assert ask(service, service.store.sessions.add(again.id).id).answer == expected


@pytest.mark.parametrize("damage", [flip, truncate, Path.unlink], ids=["altered", "truncated", "missing"])
@pytest.mark.parametrize("titles", [(None, None), ("The Lamp", "The Lamp"), (None, "Renamed")])
def test_a_text_that_was_damaged_is_mended_from_its_file(
    service: Service, book: Path, damage: Callable, titles: tuple[str | None, str | None]
) -> None:
    """It had to be deleted with all its contexts and sessions."""
    given, renamed = titles
    [document] = add_documents(service, [book], IngestOptions(title=given), lambda *_: None).documents
    if renamed:
        service.store.documents.rename(document.id, renamed)
    row = read_through(service, [document.id])
    session = service.store.sessions.add(row.id).id
    expected = ask(service, session).answer
    damage(service.home / "documents" / document.id / "content.json")
    service.document_cache.drop(document.id)
    with pytest.raises(StoreCorrupt, match="read its file again, which mends it"):
        service.document_cache.document(document.id)
    assert add(service, book) == [document.id]
    assert service.document_cache.document(document.id).text
    assert ask(service, service.store.sessions.add(row.id).id).answer == expected


def test_a_text_that_comes_out_otherwise_is_not_taken_for_the_one_that_was_read(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [id] = add(service, book)
    truncate(service.home / "documents" / id / "content.json")
    otherwise = replace(ingest(book), warnings=("Another version reads it otherwise.",))
    monkeypatch.setattr(documents, "ingest_in_subprocess", lambda file, **_: otherwise)
    with pytest.raises(StoreCorrupt, match="missing or altered"):
        add(service, book)


def test_untouched_contexts_stay_open(service: Service, book: Path) -> None:
    row = read_through(service, add(service, book))
    one, two = (service.store.sessions.add(row.id).id for _ in range(2))
    opened = open_context(service, row.id)
    ask(service, one)
    ask(service, two)
    held = open_conversation(service, one)
    ask(service, one)
    assert open_conversation(service, one) is held
    assert open_context(service, row.id) is opened


@pytest.mark.parametrize("method", ["full", "infinipot"])
def test_what_condensing_methods_keep_is_checked_too(service: Service, book: Path, method: str) -> None:
    settings = {} if method == "full" else BUDGET
    row = read(service, begin(service, add(service, book), method, settings).id, lambda report: None)
    session = service.store.sessions.add(row.id).id
    ask(service, session)
    file = max((service.home / "contexts" / row.id).glob("*.safetensors"), key=lambda each: each.stat().st_size)
    flip(file)
    refused(service, session, file, "The contents of")


def test_a_damaged_tail_stops_its_own_session_only(service: Service, book: Path) -> None:
    row = read_through(service, add(service, book))
    one, two = (service.store.sessions.add(row.id).id for _ in range(2))
    ask(service, one)
    ask(service, two)
    opened = open_context(service, row.id)
    file = max((service.home / "sessions" / one).glob("*.safetensors"), key=lambda each: each.stat().st_size)
    flip(file)
    with pytest.raises(StoreCorrupt, match=f"The contents of .*: branch {one} and go on in the branch"):
        ask(service, one)  # the old advice to delete it would lose the sessions
    branch = service.store.sessions.branch(one, service.store.sessions.get(one).turns).id
    assert ask(service, branch).status == "done"
    assert [turn.status for turn in service.store.turns.all(branch)] == ["done", "done"]
    assert ask(service, two).status == "done"
    assert open_context(service, row.id) is opened


def test_a_session_that_another_process_continued_goes_on_from_there(
    tmp_path: Path, service: Service, tiny: Path, book: Path
) -> None:
    session = service.store.sessions.add(read_through(service, add(service, book)).id).id
    ask(service, session)
    elsewhere = Service(service.home, str(tiny), "cpu")
    ask(elsewhere, session)
    elsewhere.close()
    ask(service, session)
    assert open_conversation(service, session).conversation.turns == 3


def test_a_reading_is_not_continued_on_a_damaged_slab(service: Service, book: Path) -> None:
    row = begin(service, add(service, book), "exact", BUDGET | {"tier": "disk"})
    steps: list[object] = []
    with pytest.raises(Stopped):
        read(service, row.id, steps.append, lambda: len(steps) >= 8)
    file = min((service.home / "contexts" / row.id).glob("host-*.safetensors"))
    flip(file)
    with pytest.raises(StoreCorrupt, match="The contents of"):
        read(service, row.id, lambda report: None)
    assert file.name in (service.store.contexts.get(row.id).error or "")
