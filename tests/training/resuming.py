"""Helpers: compare a training that was stopped and resumed with an uninterrupted one."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from training.settings import TrainingSettings


class Interrupted(Exception):
    """Raised by a test to stop a training."""


def bench_command(weights: Path) -> str:
    """Return the command that the card beside the weights prints."""
    found = re.search(r"`(stockpot bench [^`]+)`", weights.with_suffix(".md").read_text())
    assert found is not None
    return found[1]


def contents(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return metadata and tensors of a safetensors file, whose bytes may differ in order."""
    with safe_open(path, "pt") as file:
        return file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)


def trained_and_resumed(train: Callable[..., Path], settings: TrainingSettings, folder: Path) -> Path:
    """Train once without and once with an interruption; return the weights of the first run."""
    lines: list[Any] = []
    whole = train(settings, lines.append)
    assert [line.step for line in lines] == list(range(1, settings.steps + 1))

    def stop(line: Any) -> None:
        if line.step == settings.steps * 2 // 3:
            raise Interrupted

    other = dataclasses.replace(
        settings, work_dir=folder / "other", out=folder / "other.safetensors", checkpoint_seconds=-1
    )
    with pytest.raises(Interrupted):
        train(other, stop)
    again = train(dataclasses.replace(other, resume=True))
    facts, tensors = contents(whole)
    facts_again, tensors_again = contents(again)
    assert facts == facts_again
    assert tensors.keys() == tensors_again.keys()
    assert all(torch.equal(tensor, tensors_again[name]) for name, tensor in tensors.items())
    assert len(tensors) > 0
    for run in (settings, other):
        losses = [json.loads(line)["loss"] for line in (run.work_dir / "log.jsonl").read_text().splitlines()]
        assert losses == [line.loss for line in lines]
    return whole
