"""Ctrl-C ends a training between two steps and loses nothing."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.spawn import start_processes
from transformers import AutoModelForCausalLM

from engine.signals import asked_to_stop
from tests.app import forked
from tests.training.conftest import TINY
from tests.training.resuming import contents
from training.locret import LocretSettings
from training.locret import train as train_heads
from training.pocket import workers
from training.pocket.settings import PocketSettings
from training.pocket.train import train as train_pocket
from training.stopping import PATIENCE, Stopped


@pytest.fixture(autouse=True)
def hears() -> Iterator[None]:
    """Restore Ctrl-C, which a shell ignores for background jobs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def stop_after(step: int, number: signal.Signals = signal.SIGINT) -> Callable[[Any], None]:
    """Return a progress callback that sends this process a signal."""

    def send(line: Any) -> None:
        if line.step == step:
            os.kill(os.getpid(), number)

    return send


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_heads_go_on_where_ctrl_c_stopped_them(
    folder: Path, data: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Regression: up to two minutes of steps were lost."""
    chosen = LocretSettings(
        model=str(folder), data=data, out=tmp_path / "whole", work_dir=tmp_path / "a", steps=6, warmup=2, held_out=1
    )
    whole = train_heads(chosen)
    other = dataclasses.replace(chosen, out=tmp_path / "parts", work_dir=tmp_path / "b")
    with pytest.raises(Stopped, match="after step 3, and saved"):
        train_heads(other, stop_after(3, number))
    assert not (tmp_path / "parts").exists()
    assert len((tmp_path / "b" / "log.jsonl").read_text().splitlines()) == 3
    lines: list[Any] = []
    again = train_heads(dataclasses.replace(other, resume=True), lines.append)
    assert [line.step for line in lines] == [4, 5, 6]
    facts, tensors = contents(whole)
    assert contents(again)[0] == facts
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in contents(again)[1].items())


def test_a_pocket_model_goes_on_where_ctrl_c_stopped_it(settings: PocketSettings, tmp_path: Path) -> None:
    chosen = dataclasses.replace(settings, tokens=8000, out_dir=tmp_path / "whole")
    whole = train_pocket(chosen, stages=TINY)
    other = dataclasses.replace(chosen, out_dir=tmp_path / "parts")
    with pytest.raises(Stopped, match="after step 3, and saved"):
        train_pocket(other, stop_after(2), TINY)  # noted at the end of the step that comes next
    assert not (tmp_path / "parts").exists()
    again = train_pocket(dataclasses.replace(other, resume=True), stages=TINY)
    theirs = dict(AutoModelForCausalLM.from_pretrained(whole).named_parameters())
    ours = dict(AutoModelForCausalLM.from_pretrained(again).named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_workers_stop_together(settings: PocketSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork them, as that is quick. `test_workers.py` starts them as a training does."""
    monkeypatch.setattr(workers, "spawn", partial(start_processes, start_method=forked.METHOD))
    chosen = dataclasses.replace(settings, tokens=0, minutes=60.0, workers=2, out_dir=tmp_path / "model")
    with pytest.raises(Stopped, match="and saved"):
        train_pocket(chosen, stop_after(2))
    steps = len((settings.work_dir / "log.jsonl").read_text().splitlines())
    assert steps >= 3
    with pytest.raises(Stopped, match="and saved"):
        train_pocket(dataclasses.replace(chosen, resume=True), stop_after(steps + 1))
    assert not (tmp_path / "model").exists()


def test_a_second_ctrl_c_ends_at_once_and_handlers_come_back(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with asked_to_stop(PATIENCE) as asked:
        assert not asked()
        os.kill(os.getpid(), signal.SIGINT)
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before
    assert capfd.readouterr().err.strip() == "Stopping after this step; once more ends at once."
