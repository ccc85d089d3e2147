"""A training that was stopped and resumed ends where an uninterrupted one ends."""

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
    """By the test."""


def bench_command(weights: Path) -> str:
    """The command that the card beside the weights prints."""
    found = re.search(r"`(stockpot bench [^`]+)`", weights.with_suffix(".md").read_text())
    assert found is not None
    return found[1]


def contents(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The header's facts and all tensors; the bytes differ, for a header has no order of its own."""
    with safe_open(path, "pt") as file:
        return file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)


def trained_and_resumed(train: Callable[..., Path], settings: TrainingSettings, folder: Path) -> Path:
    """Train in one go, and again with an interruption after two thirds; the weights of the first."""
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
