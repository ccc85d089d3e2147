"""Readings by a real engine with a tiny model."""

import gc
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from app.asking.turns import answer, keep_question
from app.errors import AppError, UsageError, phrase
from app.jobs.work import Stopped
from app.machine.fitting import require_disk
from app.reading import readings
from app.reading.documents import IngestOptions, add_documents
from app.reading.open_context import open_context
from app.reading.preparing import prepare
from app.reading.progress import Report
from app.reading.readings import read
from app.service import Service
from engine import Method, SettingsError
from ingest import IngestError
from sessions import AlreadyRead, DiskFull, InUse, StoreCorrupt
from tests.app.helpers import BUDGET, SHORT, add, begin, book_text, other_words, read_through
from tests.app.tiny import make_tiny_model


@pytest.mark.parametrize(("method", "later"), [("full", True), ("streaming", False)])
def test_the_time_that_is_left_knows_whether_the_last_tokens_take_longer(
    service: Service, tmp_path: Path, method: str, later: bool
) -> None:
    """Regression: with `full`, the estimate of a long text was ten times too short."""
    path = tmp_path / "Long.txt"
    path.write_text(book_text(300), encoding="utf-8")
    steps: list[Report] = []
    read(
        service,
        begin(service, add(service, path), method, {"budget": "320"} if method != "full" else {}).id,
        steps.append,
    )
    reading = [step for step in steps if step.stage == "reading" and step.tokens_done and step.seconds_left]
    quarter = next(step for step in reading if 4 * step.tokens_done > step.tokens_total)
    even = quarter.seconds * (quarter.tokens_total / quarter.tokens_done - 1)
    assert quarter.seconds_left is not None
    assert (quarter.seconds_left > 1.5 * even) == later
    assert quarter.seconds_left > 0.9 * even
    last = steps[-2]
    assert (last.stage, last.seconds_left) == ("ready", 0.0)


def test_what_was_read_before_a_method_had_another_setting_is_opened_and_read_on(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused as read by another model."""
    settings = Method.settings
    ids, steps = add(service, book), list[Report]()
    with monkeypatch.context() as before:
        before.setattr(
            Method,
            "settings",
            lambda self: {name: value for name, value in settings(self).items() if name != "tier"},
        )
        done = read_through(service, ids)
        begun = begin(service, ids, "exact", {"budget": "384"})
        with pytest.raises(Stopped):
            read(service, begun.id, steps.append, lambda: len(steps) > 3)
    assert "tier" not in done.settings
    service.forget_open()
    session = service.store.sessions.add(done.id)
    assert answer(service, keep_question(service, session.id, "Who?").id, SHORT).status == "done"
    assert begin(service, ids, "exact", BUDGET).id == done.id  # it is not read again
    assert begin(service, ids, "exact", {**BUDGET, "tier": "disk"}).id not in (done.id, begun.id)
    assert read(service, begun.id, steps.append).status == "ready"


def test_a_reading_that_could_not_begin_is_not_kept(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row stayed, as if this process were reading it, so it could be neither resumed nor begun again."""
    ids = add(service, book)
    with monkeypatch.context() as full:
        full.setattr("sessions.tensors.disk_free", lambda path: 0)
        with pytest.raises(DiskFull):
            begin(service, ids, "exact", BUDGET)
    assert service.store.contexts.all() == []
    assert read_through(service, ids).status == "ready"


def test_a_reading_that_was_cancelled_is_taken_up_when_it_is_asked_for_again(service: Service, book: Path) -> None:
    """It stayed beside the new one, listed for ever."""
    row = begin(service, add(service, book), "exact", BUDGET)
    service.store.contexts.update(row.id, status="cancelled")
    assert read_through(service, row.document_ids).id == row.id


def test_a_reading_that_another_finished_is_left_as_it_is(service: Service, book: Path) -> None:
    """The second reader marked it as failed; if its checkpoint was written last, the context could not be opened."""
    row = begin(service, add(service, book), "exact", BUDGET)
    steps: list[Report] = []

    def finished_meanwhile(report: Report) -> None:
        steps.append(report)
        if len(steps) == 3:
            service.store.contexts.update(row.id, status="ready")

    with pytest.raises(AlreadyRead):
        read(service, row.id, finished_meanwhile, checkpoint_sec=0.0)
    assert service.store.contexts.get(row.id).status == "ready"
    with pytest.raises(StoreCorrupt, match=f"delete {row.id}"):  # old versions left it so
        open_context(service, row.id)


def test_too_little_disk_is_said_before_reading(service: Service, book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = add(service, book)
    monkeypatch.setattr("sessions.files.shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(AppError, match="of disk, and there are"):
        begin(service, ids, "exact", BUDGET)


def test_the_tokens_of_a_text_need_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten million tokens take 80 MB, ten times as much as a condensed memory."""
    free = SimpleNamespace(free=1800)
    monkeypatch.setattr("sessions.files.shutil.disk_usage", lambda path: free)
    plan: Any = SimpleNamespace(disk_bytes=1000, tokens=100, method=SimpleNamespace(name="locret"))
    require_disk(plan, tmp_path)
    free.free = 1799
    with pytest.raises(AppError, match=r"takes up to 1\.8 kB of disk"):
        require_disk(plan, tmp_path)


def test_the_same_file_and_settings_are_not_read_twice(service: Service, book: Path, tmp_path: Path) -> None:
    first = read_through(service, add(service, book))
    copy = tmp_path / "another name.txt"
    copy.write_bytes(book.read_bytes())
    ids = add(service, copy)
    assert ids == first.document_ids
    assert begin(service, ids, "exact", BUDGET).id == first.id
    assert read(service, first.id, lambda report: pytest.fail("it was read again")) == first
    other = begin(service, ids, "exact", {"budget": "384"})
    assert other.id != first.id
    assert other.status == "reading"


def test_what_is_known_is_found_before_the_model_is_loaded(service: Service, tiny: Path, book: Path) -> None:
    """All weights were loaded before it was said that nothing had to be read."""
    done = read_through(service, add(service, book))
    with closing(Service(service.home, str(tiny), "cpu")) as again:
        named = begin(again, done.document_ids, "exact", BUDGET, warnings=["Left out: x.pdf."], title="Light")
        assert (named.id, named.title, named.warnings) == (done.id, "Light", ["Left out: x.pdf."])
        assert again.models.held is None


def test_what_another_model_of_that_name_read_is_not_known(service: Service, tmp_path: Path, book: Path) -> None:
    """Its files tell the difference; if they were only written again, the loaded model does."""
    folder = make_tiny_model(tmp_path / "model")
    weights, name = folder / "model.safetensors", str(folder)
    done = read_through(service, ids := add(service, book), model=name)
    weights.write_bytes(weights.read_bytes())
    with closing(Service(service.home, name, "cpu")) as again:
        assert begin(again, ids, "exact", BUDGET).id == done.id
        assert again.models.held == name
    weights.write_bytes((make_tiny_model(tmp_path / "other", seed=1) / weights.name).read_bytes())
    with closing(Service(service.home, name, "cpu")) as again:
        assert begin(again, ids, "exact", BUDGET).id != done.id


def test_of_two_that_begin_to_read_the_same_at_once_one_does(
    service: Service, tiny: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both looked before either had begun, and there were two contexts of the same text."""
    ids, others = add(service, book), Service(service.home, str(tiny), "cpu")

    def in_between(*_: object) -> None:
        monkeypatch.undo()
        assert begin(others, ids, "exact", BUDGET).status == "reading"

    monkeypatch.setattr(readings, "require_disk", in_between)
    with closing(others), pytest.raises(InUse, match=r"has just begun to be read \(context c-\w+\); wait for it"):
        begin(service, ids, "exact", BUDGET)
    assert len(service.store.contexts.all()) == 1
    assert [each.name for each in (service.home / "contexts").iterdir()] == [service.store.contexts.all()[0].id]


def test_several_files_are_one_reading_and_a_broken_one_is_left_out(
    service: Service, book: Path, tmp_path: Path
) -> None:
    second, broken = tmp_path / "second.txt", tmp_path / "broken.pdf"
    second.write_text("A second text about a harbour.", encoding="utf-8")
    broken.write_bytes(b"%PDF-1.7 nonsense")
    with pytest.raises(IngestError):
        add_documents(service, [broken], IngestOptions(), lambda *_: None)
    with pytest.raises(AppError, match=r"broken\.pdf.* broken\.pdf"):
        add_documents(service, [broken, broken], IngestOptions(), lambda *_: None)
    added = add_documents(service, [book, broken, second], IngestOptions(), lambda *_: None)
    assert [row.title for row in added.documents] == ["The Keeper", "second"]
    assert "broken.pdf" in added.warnings[0]
    context = read_through(service, [row.id for row in added.documents])
    assert context.tokens_read == context.tokens  # without the chat template's text
    stream = open_context(service, context.id).stream
    assert [stretch.document_id for stretch in stream.stretches] == context.document_ids
    assert stream.spans(len(stream.ids) - 1, len(stream.ids))[0].document_id == added.documents[1].id


def test_another_title_is_no_other_reading(service: Service, book: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.txt"
    second.write_text("A second text about a harbour.", encoding="utf-8")
    context = read_through(service, add(service, book, second))
    for id in context.document_ids:
        service.store.documents.rename(id, f"Renamed {id}")
    titles = " and ".join(f"Renamed {id}" for id in context.document_ids)
    assert begin(service, add(service, book, second), "exact", BUDGET) == replace(context, title=titles)
    assert begin(service, context.document_ids[::-1], "exact", BUDGET).id != context.id
    called = begin(service, context.document_ids, "exact", BUDGET, title="Both")
    assert (called.id, called.title) == (context.id, "Both")
    assert begin(service, context.document_ids, "exact", BUDGET).title == "Both"


def test_a_title_is_of_a_single_document_or_of_what_is_read_of_several(
    service: Service, book: Path, tmp_path: Path
) -> None:
    second = tmp_path / "second.txt"
    second.write_text("A second text about a harbour.", encoding="utf-8")
    alone = add_documents(service, [book], IngestOptions(title="The Lamp"), lambda *page: None)
    assert (alone.documents[0].title, alone.title) == ("The Lamp", None)
    both = add_documents(service, [book, second], IngestOptions(title="By the sea"), lambda *page: None)
    assert ([row.title for row in both.documents], both.title) == (["The Lamp", "second"], "By the sea")


def test_what_was_left_out_is_said_of_the_last_time_alone(service: Service, book: Path) -> None:
    """A finished context kept the warning about a torn file for ever."""
    ids = add(service, book)
    first = begin(service, ids, "exact", BUDGET, None, ["Odd font.", "Left out: a.pdf is encrypted."])
    read(service, first.id, lambda report: None)
    again = begin(service, ids, "exact", BUDGET, None, ["Left out: b.txt is empty.", "Odd font."])
    assert (again.id, again.warnings) == (first.id, ["Odd font.", "Left out: b.txt is empty."])
    assert begin(service, ids, "exact", BUDGET).warnings == ["Odd font."]
    assert service.store.contexts.get(first.id).warnings == ["Odd font."]


def test_errors_are_sentences(service: Service, book: Path) -> None:
    ids = add(service, book)
    with pytest.raises(SettingsError) as caught:
        begin(service, ids, "exact", {"budget": "3"})
    assert phrase(caught.value) == str(caught.value)
    with pytest.raises(SettingsError, match="catalyst"):
        begin(service, ids, "infinipot", {"budget": "150"})
    assert service.store.contexts.all() == []
    with pytest.raises(UsageError, match="empty"):
        keep_question(service, "s-222222", "  ")
    assert "not enough memory" in phrase(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ..."))
    assert phrase(FileNotFoundError(2, "No such file", "x.pdf")) == "There is no file x.pdf."
    assert "ZeroDivisionError" in phrase(ZeroDivisionError("division by zero"))


def test_a_model_that_changed_is_not_taken_for_the_one_that_read(tmp_path: Path, book: Path) -> None:
    from engine import ContextMismatch
    from tests.app.tiny import make_tiny_model

    folder = make_tiny_model(tmp_path / "model", seed=0)
    service = Service(tmp_path / "home", str(folder), "cpu")
    context = read_through(service, add(service, book))
    service.close()
    make_tiny_model(folder, seed=1)
    service = Service(tmp_path / "home", str(folder), "cpu")
    with pytest.raises(ContextMismatch, match="another model"):
        open_context(service, context.id)
    service.close()


@pytest.mark.parametrize("finished", [True, False])
def test_a_text_that_was_read_behind_other_words_is_not_asked_in_the_new_ones(
    service: Service, book: Path, finished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fingerprint does not contain the instruction before a text."""
    from engine import ContextMismatch

    row = begin(service, add(service, book), "exact", BUDGET)
    if finished:
        read(service, row.id, lambda report: None)
    other_words(monkeypatch)
    use = partial(open_context, service, row.id) if finished else partial(read, service, row.id, lambda report: None)
    with pytest.raises(ContextMismatch, match=r"other words .* the context, and read its documents again \(they"):
        use()


def test_a_budget_that_no_machine_has_is_refused_by_the_plan_also_where_the_model_is_held(
    service: Service, book: Path
) -> None:
    """The memory was allocated before it was planned, and the system's own error was shown."""
    service.models.get()
    with pytest.raises(AppError, match=r"with exact needs .* of memory, and there are .*What would fit: "):
        begin(service, add(service, book), "exact", {"budget": "1000000000000"})
    assert service.store.contexts.all() == []


assert len(book_text(40)) < 4000  # the tests above need a short book


def test_what_waits_to_be_read_holds_no_tokenizer(service: Service, book: Path) -> None:
    """Each of many uploads that waited behind questions held one, which may take 100 MB."""
    documents = add(service, book)

    def tokenizers() -> int:
        gc.collect()
        return sum(issubclass(type(each), PreTrainedTokenizerBase) for each in gc.get_objects())

    before = tokenizers()
    waiting = [prepare(service, documents, "exact", {}) for _ in range(3)]
    assert len(waiting) == 3
    assert tokenizers() <= before  # those of earlier tests may be freed meanwhile
