"""Readings that are stopped, killed or out of disk continue from their checkpoint."""

import os
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

import sessions.tensors
from app.asking.turns import answer, keep_question, new_session
from app.errors import AppError
from app.jobs.work import Stopped
from app.machine.fitting import plan_reading
from app.reading.checkpoints import save
from app.reading.open_context import open_context
from app.reading.progress import Report
from app.reading.readings import OnReport, read
from app.service import Service
from app.web.metrics import MetricsReader
from engine import Machine, OutOfMemory, Planner, make_method
from sessions import ContextRow, DiskFull
from tests.app.forked import start
from tests.app.helpers import BUDGET, PATIENCE_SEC, SHORT, add, begin, book_text, read_through


def state_of(service: Service, row: ContextRow) -> dict[str, torch.Tensor]:
    """Return all saved tensors by name, with the slabs of the host tier joined, because a resumed reading divides them
    anew.
    """
    parts, _ = service.store.contexts.state(row.id).load(row.fingerprint)
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
    paused = stopped.store.contexts.get(row.id)
    assert paused.status == "paused"
    assert 0 < paused.tokens_read < paused.tokens
    stopped.store.measurements.add("reading", row.id, asdict(steps[0]))
    # The panel showed the last measurement, and the card the state saved after it.
    assert MetricsReader(stopped).read(paused, None).tokens_read == paused.tokens_read
    stopped.close()

    again = Service(tmp_path / "b", str(tiny), "cpu")  # as another process would, with nothing in memory
    resumed: list[Report] = []
    done = read(again, begin(again, paused.document_ids, method, BUDGET).id, resumed.append)
    assert done.id == paused.id
    assert done.status == "ready"
    reading = [report for report in resumed if report.stage in ("reading", "distilling")]
    assert reading[0].tokens_done > paused.tokens_read
    expected, got = state_of(straight, whole), state_of(again, done)
    assert expected.keys() == got.keys()
    for name, tensor in expected.items():
        # Up to the last bit of bfloat16: the place of tensors in memory decides the order of float32 sums.
        torch.testing.assert_close(got[name].float(), tensor.float(), rtol=1e-2, atol=1e-4, msg=name)
    straight.close()
    again.close()


def test_full_slabs_leave_memory_and_the_answers_are_the_same(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.parts.archive.tier_plan.SLAB", 256)
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


def test_a_full_disk_ends_the_reading_and_it_goes_on_when_there_is_room(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.parts.archive.tier_plan.SLAB", 256)
    row = begin(service, add(service, book), "exact", {**BUDGET, "tier": "disk"})
    steps: list[Report] = []

    def free(path: Path) -> int:
        return 0 if len([step for step in steps if step.tokens_done]) > 3 else 1 << 40

    with monkeypatch.context() as full:
        full.setattr("sessions.tensors.disk_free", free)
        with pytest.raises(DiskFull):
            read(service, row.id, steps.append)
    failed = service.store.contexts.get(row.id)
    assert failed.status == "failed"
    assert "No room on the disk" in (failed.error or "")
    assert 0 < failed.tokens_read < failed.tokens
    assert (
        service.store.contexts.state(row.id).load(row.fingerprint)[1]["reader"]["reader"]["done"] >= failed.tokens_read
    )
    resumed: list[Report] = []
    assert read(service, row.id, resumed.append).status == "ready"
    assert next(step for step in resumed if step.tokens_done > failed.tokens_read)


def begin_until_killed(home: Path, model: Path, book: Path) -> None:
    service = Service(home, str(model), "cpu")
    ids = add(service, book)
    sessions.tensors.write_whole = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    begin(service, ids, "exact", BUDGET)


def test_a_crash_while_a_reading_begins_does_not_stop_the_next(tmp_path: Path, tiny: Path, book: Path) -> None:
    """A row without a saved state was left behind, and the next equal reading failed with it."""
    home = tmp_path / "home"
    killed = start(begin_until_killed, home, tiny, book)
    killed.join(PATIENCE_SEC)
    assert killed.exitcode == -signal.SIGKILL
    service = Service(home, str(tiny), "cpu")
    assert list((home / "contexts").iterdir()) == []
    assert read_through(service, [row.id for row in service.store.documents.all()]).status == "ready"
    service.close()


@pytest.mark.parametrize("method", ["exact", "infinipot"])
@pytest.mark.parametrize("step", ["map", "status"])
def test_a_reading_that_was_saved_whole_is_not_read_again(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch, method: str, step: str
) -> None:
    """Regression: the reading began again from its first token if the program died before the row was updated."""
    row = begin(service, add(service, book), method, BUDGET)
    update = service.store.contexts.update

    def fail(*given: Any, **changes: Any) -> ContextRow:
        if step == "status" and changes.get("status") != "ready":
            return update(*given, **changes)
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        if step == "map":
            killed.setattr("app.reading.readings.save_map", fail)
        else:
            killed.setattr(service.store.contexts, "update", fail)
        with pytest.raises(KeyboardInterrupt):
            read(service, row.id, lambda report: None, checkpoint_sec=0.0)
    paused = service.store.contexts.get(row.id)
    assert (paused.status, paused.seconds > 0) == ("paused", True)
    before = state_of(service, row)
    resumed: list[Report] = []
    with monkeypatch.context() as filled:  # with what others hold
        for module in ("planning.plan", "memory_usage"):
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
    """A program that was started again beside others was refused the last tenth of a text with full slabs."""
    monkeypatch.setattr("engine.parts.archive.tier_plan.SLAB", 1024)
    book.write_text(book_text(160), encoding="utf-8")
    first, second = Service(tmp_path / "home", str(tiny), "cpu"), Service(tmp_path / "home", str(tiny), "cpu")
    row, steps = begin(first, add(first, book), "exact", BUDGET), list[Report]()
    with pytest.raises(Stopped):
        read(first, row.id, steps.append, lambda: steps[-1].tokens_done > 0.9 * row.tokens)
    row = first.store.contexts.get(row.id)
    model, method = first.models.get(), make_method("exact", **row.settings)
    planner = Planner.of_loaded(model, Machine(1, 1, shared=True))  # so that passes are as short as they can be
    whole, rest = (planner.plan(method, row.tokens, weights=False, read=read) for read in (0, row.tokens_read))
    assert rest.device_bytes < whole.device_bytes
    first.close()

    for module in ("planning.plan", "memory_usage"):
        monkeypatch.setattr(f"engine.{module}.free_bytes", lambda device: rest.device_bytes)
    with pytest.raises(AppError, match=r"needs .* of memory"):
        plan_reading(model, "tiny", method, row.tokens)
    same = begin(second, row.document_ids, "exact", BUDGET) if resume == "begin" else row
    assert same.id == row.id
    assert read(second, same.id, steps.append).status == "ready"
    second.close()


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event; checkpoints are written when it is set."""
    disk = threading.Event()

    def later(*given: Any, **named: Any) -> None:
        assert disk.wait(PATIENCE_SEC)
        save(*given, **named)

    monkeypatch.setattr("app.reading.checkpoints.save", later)
    return disk


def at_fifth(steps: list[Report], then: Callable[[], None]) -> OnReport:
    """Return a callback that notes the steps of a reading, and does something at the fifth."""

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
        assert service.store.contexts.get(row.id).tokens_read == 0
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
    failed = service.store.contexts.get(row.id)
    assert (failed.status, failed.tokens_read) == ("failed", steps[1].tokens_done)
    assert read(service, row.id, lambda report: None).status == "ready"


def test_a_stop_after_the_last_token_comes_too_late(service: Service, book: Path) -> None:
    """The saved state had no time, and the form of a new reading divided by zero."""
    row = begin(service, add(service, book), "exact", BUDGET)
    steps: list[Report] = []
    done = read(service, row.id, steps.append, lambda: steps[-1].stage == "ready")
    assert done.status == "ready"
    assert done.seconds > 0
