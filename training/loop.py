"""The run of a training for a frozen model: steps, a log line each, checkpoints, and going on where it was stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

from engine import SettingsError
from training.pocket import checkpoint

Line = TypeVar("Line", covariant=True)


class Trainee(Protocol[Line]):
    """Something that is trained step by step."""

    @property
    def steps(self) -> int:
        """Made so far."""

    def step(self) -> Line:
        """Make one; what the log says of it, a dataclass."""

    def state(self) -> dict[str, Any]:
        """Everything that a continuation needs."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` gave."""


def checkpoint_of(work_dir: Path, resume: bool) -> Path:
    """Where a run keeps its checkpoint.

    Raises:
        SettingsError: `resume` without one.
    """
    path = work_dir / "checkpoint.safetensors"
    if resume and not path.is_file():
        raise SettingsError(f"There is no checkpoint at {path}: start without resume.")
    return path


def output_of(model: str, out: Path | None, file: str) -> Path:
    """Where the weights go: `out`, or `file` beside the model.

    Raises:
        SettingsError: the model is no folder here.
    """
    if out is None and not Path(model).is_dir():
        raise SettingsError(f"'{model}' is no folder here to put weights into: give a file for them with out.")
    return out or Path(model) / file


def run_to(
    run: Trainee[Line],
    steps: int,
    work_dir: Path,
    resume: bool,
    checkpoint_seconds: float,
    progress: Callable[[Line], None] | None,
) -> None:
    """Train until `steps` are made; the checkpoint and log.jsonl are in `work_dir`."""
    path = checkpoint_of(work_dir, resume)
    if resume:
        run.restore(checkpoint.load(path))
    work_dir.mkdir(parents=True, exist_ok=True)
    log_path = work_dir / "log.jsonl"
    checkpoint.shorten_log(log_path, run.steps)
    saved = time.monotonic()
    with open(log_path, "a", encoding="utf-8") as log:
        while run.steps < steps:
            line = run.step()
            log.write(json.dumps(asdict(line)) + "\n")  # type: ignore[call-overload]
            if progress:
                progress(line)
            if time.monotonic() - saved > checkpoint_seconds:
                log.flush()
                checkpoint.save(path, run.state())
                saved = time.monotonic()
    checkpoint.save(path, run.state())
