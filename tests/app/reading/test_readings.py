"""Readings, over a real engine with a tiny model."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from app.asking.turns import answer, keep_question, new_session
from app.errors import AppError, UsageError, phrase
from app.machine.planning import plan_reading, require_disk
from app.reading import readings
from app.reading.checkpoints import save
from app.reading.documents import IngestOptions, add_documents
from app.reading.open_context import open_context
from app.reading.progress import Report
from app.reading.readings import OnReport, Stopped, read
from app.service import Service
from app.web.metrics import MetricsReader
from engine import Machine, Method, OutOfMemory, Planner, SettingsError, make_method
from ingest import IngestError
from sessions import AlreadyRead, ContextRow, DiskFull, InUse, StoreCorrupt
from tests.app.helpers import BUDGET, PATIENCE_SEC, ROOT, SHORT, add, begin, book_text, other_words, read_through
from tests.app.tiny import make_tiny_model


def state_of(service: Service, row: ContextRow) -> dict[str, torch.Tensor]:
    """All that is saved, by name; slabs of the host tier joined, as a resumed reading divides them otherwise."""
    parts, _ = service.store.context_state(row.id).load(row.fingerprint)
    pieces: dict[str, list[torch.Tensor]] = {}
    for part in sorted(parts):
        for name, tensor in parts[part].items():
            pieces.setdefault(f"{re.sub(r'-[0-9]+$', '', part)}.{name}", []).append(tensor)
    return {name: torch.cat(each, dim=max(0, each[0].dim() - 2)) for name, each in pieces.items()}


@pytest.mark.parametrize("method", ["exact", "infinipot"])
def test_a_reading_stopped_and_resumed_ends_in_the_same_state(
    tmp_path: Path, tiny: Path, book: Path, method: str
) -> None:
    straight, stopped = Service(tmp_path / "a", str(tiny), "cpu"), Service(tmp_path / "b", str(tiny), "cpu")
    whole = read_through(straight, add(straight, book), method)

    row = begin(stopped, add(stopped, book), method, BUDGET)
    steps: list[Report] = []
    with pytest.raises(Stopped):
        read(stopped, row.id, steps.append, lambda: len(steps) >= 4)
    paused = stopped.store.context(row.id)
    assert paused.status == "paused"
    assert 0 < paused.tokens_read < paused.tokens
    stopped.store.add_measurement("reading", row.id, asdict(steps[0]))
    # The panel had said what the last measurement says, and the card beside it what was saved after that.
    assert MetricsReader(stopped).read(paused, None).tokens_read == paused.tokens_read
    stopped.close()

    again = Service(tmp_path / "b", str(tiny), "cpu")  # as another process would: nothing in memory
    resumed: list[Report] = []
    done = read(again, begin(again, paused.document_ids, method, BUDGET).id, resumed.append)
    assert done.id == paused.id
    assert done.status == "ready"
    reading = [report for report in resumed if report.stage in ("reading", "distilling")]
    assert reading[0].tokens_done > paused.tokens_read
    expected, got = state_of(straight, whole), state_of(again, done)
    assert expected.keys() == got.keys()
    for name, tensor in expected.items():
        # Up to the last bit of bfloat16: where tensors lie in memory decides the order of float32 sums.
        torch.testing.assert_close(got[name].float(), tensor.float(), rtol=1e-2, atol=1e-4, msg=name)
    straight.close()
    again.close()


@pytest.mark.parametrize(("method", "later"), [("full", True), ("streaming", False)])
def test_the_time_that_is_left_knows_whether_the_last_tokens_take_longer(
    service: Service, tmp_path: Path, method: str, later: bool
) -> None:
    """What had been read of a long text with `full` promised an end that came ten times as late."""
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


def test_full_slabs_leave_memory_and_the_answers_are_the_same(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.host.tier_plan.SLAB", 256)
    ids = add(service, book)
    answers, kept = [], []
    for tier in ("host", "disk"):
        steps: list[Report] = []
        row = read(service, begin(service, ids, "exact", {**BUDGET, "tier": tier}).id, steps.append)
        kept.append(max(step.usage["bytes"]["host"] for step in steps if step.usage))
        session = new_session(service, row.id)
        answers.append(answer(service, keep_question(service, session.id, "Who kept the lamp?").id, SHORT).answer)
        usage = open_context(service, row.id).context.usage()
        assert usage.bytes["disk"] > usage.bytes["host"]
    assert answers[0] == answers[1]
    assert kept[1] < kept[0]


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
    session = service.store.add_session(done.id)
    assert answer(service, keep_question(service, session.id, "Who?").id, SHORT).status == "done"
    assert begin(service, ids, "exact", BUDGET).id == done.id  # it is not read again
    assert begin(service, ids, "exact", {**BUDGET, "tier": "disk"}).id not in (done.id, begun.id)
    assert read(service, begun.id, steps.append).status == "ready"


def test_a_full_disk_ends_the_reading_and_it_goes_on_when_there_is_room(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.host.tier_plan.SLAB", 256)
    row = begin(service, add(service, book), "exact", {**BUDGET, "tier": "disk"})
    steps: list[Report] = []

    def free(path: Path) -> int:
        return 0 if len([step for step in steps if step.tokens_done]) > 3 else 1 << 40

    with monkeypatch.context() as full:
        full.setattr("sessions.tensors.disk_free", free)
        with pytest.raises(DiskFull):
            read(service, row.id, steps.append)
    failed = service.store.context(row.id)
    assert failed.status == "failed"
    assert "No room on the disk" in (failed.error or "")
    assert 0 < failed.tokens_read < failed.tokens
    assert (
        service.store.context_state(row.id).load(row.fingerprint)[1]["reader"]["reader"]["done"] >= failed.tokens_read
    )
    resumed: list[Report] = []
    assert read(service, row.id, resumed.append).status == "ready"
    assert next(step for step in resumed if step.tokens_done > failed.tokens_read)


def test_a_reading_that_could_not_begin_is_not_kept(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row stayed, as one that this process reads: nobody could go on with it, nor begin again."""
    ids = add(service, book)
    with monkeypatch.context() as full:
        full.setattr("sessions.tensors.disk_free", lambda path: 0)
        with pytest.raises(DiskFull):
            begin(service, ids, "exact", BUDGET)
    assert service.store.contexts() == []
    assert read_through(service, ids).status == "ready"


CHILD = """
import os, signal, sys
from pathlib import Path
import sessions.tensors
from app.reading import readings
from app.reading.checkpoints import save
from app.reading.documents import Options, add_documents
from app.reading.preparing import prepare
from app.reading.readings import begin
from app.service import Service

service = Service(sys.argv[1], sys.argv[2], "cpu")
ids = [row.id for row in add_documents(service, [Path(sys.argv[3])], Options(), lambda *_: None).documents]
sessions.tensors.write_whole = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
begin(service, prepare(service, ids, "exact", {"budget": "320"}))
"""


def test_a_crash_while_a_reading_begins_does_not_stop_the_next(tmp_path: Path, tiny: Path, book: Path) -> None:
    """A row without a state was left behind; whoever read the same again found it, and failed."""
    home = tmp_path / "home"
    command = [sys.executable, "-c", CHILD, str(home), str(tiny), str(book)]
    killed = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=PATIENCE_SEC)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    service = Service(home, str(tiny), "cpu")
    assert list((home / "contexts").iterdir()) == []
    assert read_through(service, [row.id for row in service.store.documents()]).status == "ready"
    service.close()


@pytest.mark.parametrize("method", ["exact", "infinipot"])
@pytest.mark.parametrize("step", ["save_map", "update_context"])
def test_a_reading_that_was_saved_whole_is_not_read_again(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch, method: str, step: str
) -> None:
    """A program that died before the row said so left a reading that began anew from its first token."""
    row = begin(service, add(service, book), method, BUDGET)
    update = service.store.update_context

    def fail(*given: Any, **changes: Any) -> ContextRow:
        if step == "update_context" and changes.get("status") != "ready":
            return update(*given, **changes)
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(*(("app.reading.readings.save_map",) if step == "save_map" else (service.store, step)), fail)
        with pytest.raises(KeyboardInterrupt):
            read(service, row.id, lambda report: None, checkpoint_sec=0.0)
    paused = service.store.context(row.id)
    assert (paused.status, paused.seconds > 0) == ("paused", True)
    before = state_of(service, row)
    resumed: list[Report] = []
    with monkeypatch.context() as filled:  # with what others hold
        for module in ("planning.planner", "measure"):
            filled.setattr(f"engine.{module}.free_bytes", lambda device: 0)
        done = read(service, row.id, resumed.append)
    assert [report.stage for report in resumed] == ["loading the model", "ready", "saving"]
    assert (done.status, done.tokens_read, done.seconds) == ("ready", done.tokens, paused.seconds)
    after = state_of(service, row)
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    session = new_session(service, row.id)
    assert answer(service, keep_question(service, session.id, "Who kept the lamp?").id, SHORT).status == "done"


@pytest.mark.parametrize("resume", ["begin", "read"])
def test_the_rest_of_a_reading_needs_no_room_for_what_was_saved(
    tmp_path: Path, tiny: Path, book: Path, monkeypatch: pytest.MonkeyPatch, resume: str
) -> None:
    """In full slabs: a program that was started again beside others was refused the last tenth of a text."""
    monkeypatch.setattr("engine.host.tier_plan.SLAB", 1024)
    book.write_text(book_text(160), encoding="utf-8")
    first, second = Service(tmp_path / "home", str(tiny), "cpu"), Service(tmp_path / "home", str(tiny), "cpu")
    row, steps = begin(first, add(first, book), "exact", BUDGET), list[Report]()
    with pytest.raises(Stopped):
        read(first, row.id, steps.append, lambda: steps[-1].tokens_done > 0.9 * row.tokens)
    row = first.store.context(row.id)
    model, method = first.models.get(), make_method("exact", **row.settings)
    planner = Planner.of_loaded(model, Machine(1, 1, shared=True))  # so that passes are as short as they can be
    whole, rest = (planner.plan(method, row.tokens, weights=False, read=read) for read in (0, row.tokens_read))
    assert rest.device_bytes < whole.device_bytes
    first.close()

    for module in ("planning.planner", "measure"):
        monkeypatch.setattr(f"engine.{module}.free_bytes", lambda device: rest.device_bytes)
    with pytest.raises(AppError, match=r"needs .* of memory"):
        plan_reading(model, "tiny", method, row.tokens)
    same = begin(second, row.document_ids, "exact", BUDGET) if resume == "begin" else row
    assert same.id == row.id
    assert read(second, same.id, steps.append).status == "ready"
    second.close()


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Checkpoints are written when this is set."""
    disk = threading.Event()

    def later(*given: Any, **named: Any) -> None:
        assert disk.wait(PATIENCE_SEC)
        save(*given, **named)

    monkeypatch.setattr("app.reading.checkpoints.save", later)
    return disk


def at_fifth(steps: list[Report], then: Callable[[], None]) -> OnReport:
    """Notes the steps of a reading, and does something at the fifth."""

    def on_step(report: Report) -> None:
        steps.append(report)
        if len(steps) == 5:
            then()

    return on_step


def test_a_checkpoint_is_written_while_the_reading_goes_on(
    service: Service, book: Path, slow_disk: threading.Event
) -> None:
    row, steps = begin(service, add(service, book), "exact", BUDGET), list[Report]()

    def then() -> None:  # the first three would have been saved, one after another
        assert service.store.context(row.id).tokens_read == 0
        slow_disk.set()

    assert read(service, row.id, at_fifth(steps, then), checkpoint_sec=0.0).status == "ready"
    assert len(steps) > 5


def test_a_reading_that_fails_keeps_the_checkpoint_that_is_being_written(
    service: Service, book: Path, slow_disk: threading.Event
) -> None:
    row, steps = begin(service, add(service, book), "exact", BUDGET), list[Report]()

    def then() -> None:
        slow_disk.set()
        raise OutOfMemory("No memory is left.")

    with pytest.raises(OutOfMemory, match="No memory"):
        read(service, row.id, at_fifth(steps, then), checkpoint_sec=0.0)
    failed = service.store.context(row.id)
    assert (failed.status, failed.tokens_read) == ("failed", steps[1].tokens_done)
    assert read(service, row.id, lambda report: None).status == "ready"


def test_a_reading_that_was_cancelled_is_taken_up_when_it_is_asked_for_again(service: Service, book: Path) -> None:
    """It stayed beside the new one, listed for ever."""
    row = begin(service, add(service, book), "exact", BUDGET)
    service.store.update_context(row.id, status="cancelled")
    assert read_through(service, row.document_ids).id == row.id


def test_a_stop_after_the_last_token_comes_too_late(service: Service, book: Path) -> None:
    """What was saved then had no clock: it had been read in no time, by which the form of a new reading divided."""
    row = begin(service, add(service, book), "exact", BUDGET)
    steps: list[Report] = []
    done = read(service, row.id, steps.append, lambda: steps[-1].stage == "ready")
    assert done.status == "ready"
    assert done.seconds > 0


def test_a_reading_that_another_finished_is_left_as_it_is(service: Service, book: Path) -> None:
    """The second reader noted it as failed, and where its checkpoint came last, nobody could open it again."""
    row = begin(service, add(service, book), "exact", BUDGET)
    steps: list[Report] = []

    def finished_meanwhile(report: Report) -> None:
        steps.append(report)
        if len(steps) == 3:
            service.store.update_context(row.id, status="ready")

    with pytest.raises(AlreadyRead):
        read(service, row.id, finished_meanwhile, checkpoint_sec=0.0)
    assert service.store.context(row.id).status == "ready"
    with pytest.raises(StoreCorrupt, match=f"delete {row.id}"):  # no reader of now leaves it so
        open_context(service, row.id)


def test_too_little_disk_is_said_before_reading(service: Service, book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = add(service, book)
    monkeypatch.setattr("sessions.files.shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(AppError, match="of disk, and there are"):
        begin(service, ids, "exact", BUDGET)


def test_the_tokens_of_a_text_need_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten million tokens they are 80 MB, where a condensed memory is a tenth of that."""
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
    """Whoever named it again waited for all weights to hear that nothing had to be read."""
    done = read_through(service, add(service, book))
    with closing(Service(service.home, str(tiny), "cpu")) as again:
        named = begin(again, done.document_ids, "exact", BUDGET, warnings=["Left out: x.pdf."], title="Light")
        assert (named.id, named.title, named.warnings) == (done.id, "Light", ["Left out: x.pdf."])
        assert again.models.held is None


def test_what_another_model_of_that_name_read_is_not_known(service: Service, tmp_path: Path, book: Path) -> None:
    """Its files tell; where they only were written anew, the model does."""
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
    """Both had looked before either had begun, and there were two contexts of the same."""
    ids, others = add(service, book), Service(service.home, str(tiny), "cpu")

    def in_between(*_: object) -> None:
        monkeypatch.undo()
        assert begin(others, ids, "exact", BUDGET).status == "reading"

    monkeypatch.setattr(readings, "require_disk", in_between)
    with closing(others), pytest.raises(InUse, match=r"has just begun to be read \(context c-\w+\); wait for it"):
        begin(service, ids, "exact", BUDGET)
    assert len(service.store.contexts()) == 1
    assert [each.name for each in (service.home / "contexts").iterdir()] == [service.store.contexts()[0].id]


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
    assert context.tokens_read == context.tokens  # of the documents, without what the chat template puts before them
    stream = open_context(service, context.id).stream
    assert [stretch.document_id for stretch in stream.stretches] == context.document_ids
    assert stream.spans(len(stream.ids) - 1, len(stream.ids))[0].document_id == added.documents[1].id


def test_another_title_is_no_other_reading(service: Service, book: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.txt"
    second.write_text("A second text about a harbour.", encoding="utf-8")
    context = read_through(service, add(service, book, second))
    for id in context.document_ids:
        service.store.rename_document(id, f"Renamed {id}")
    titles = ", ".join(f"Renamed {id}" for id in context.document_ids)
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
    """A finished context that once was asked for beside a torn file said so for ever."""
    ids = add(service, book)
    first = begin(service, ids, "exact", BUDGET, None, ["Odd font.", "Left out: a.pdf is encrypted."])
    read(service, first.id, lambda report: None)
    again = begin(service, ids, "exact", BUDGET, None, ["Left out: b.txt is empty.", "Odd font."])
    assert (again.id, again.warnings) == (first.id, ["Odd font.", "Left out: b.txt is empty."])
    assert begin(service, ids, "exact", BUDGET).warnings == ["Odd font."]
    assert service.store.context(first.id).warnings == ["Odd font."]


def test_errors_are_sentences(service: Service, book: Path) -> None:
    ids = add(service, book)
    with pytest.raises(SettingsError) as caught:
        begin(service, ids, "exact", {"budget": "3"})
    assert phrase(caught.value) == str(caught.value)
    with pytest.raises(SettingsError, match="catalyst"):
        begin(service, ids, "infinipot", {"budget": "150"})
    assert service.store.contexts() == []
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
    """Nothing in the fingerprint says how the engine puts a text to a model."""
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
    """The memory was made before it was planned, and the system refused it in words of its own."""
    service.models.get()
    with pytest.raises(AppError, match=r"with exact needs .* of memory, and there are .*What would fit: "):
        begin(service, add(service, book), "exact", {"budget": "1000000000000"})
    assert service.store.contexts() == []


assert len(book_text(40)) < 4000  # the tests above rely on a short book
