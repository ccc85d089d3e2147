"""The run of a training for a frozen model: steps, a log line each, checkpoints, and going on where it was stopped."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch

from engine import Model, OutOfMemory, SettingsError
from engine.measure import ran_out
from engine.stopping import asked_to_stop
from engine.trained.beside import Trained
from training import checkpoint
from training.settings import TrainingSettings
from training.stopping import PATIENCE, Stopped

Line = TypeVar("Line")
log = logging.getLogger(__name__)


class Optimiser(Protocol):
    """What a run asks of its optimiser: to be saved and taken up again."""

    def state_dict(self) -> dict[str, Any]:
        """What it remembers."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Remember that instead."""


class Run(ABC, Generic[Line]):
    """A training run: weights, optimiser and counters. `step` makes one step."""

    settings: TrainingSettings

    def __init__(
        self, settings: TrainingSettings, model: Model, trained: Trained, optimiser: Optimiser, basis: dict[str, Any]
    ) -> None:
        """trained: the weights that learn; basis: what a continuation must agree with, plain values; see `basis_of`."""
        self.settings, self.model = settings, model
        self.trained, self._optimiser, self.basis = trained, optimiser, basis
        self.steps = 0
        self.tokens = 0
        self.seconds = 0.0  # of work, over interruptions

    @abstractmethod
    def step(self) -> Line:
        """One optimiser step; what the log says of it, a dataclass."""

    def state(self) -> dict[str, Any]:
        """Everything that a continuation needs."""
        return {
            "basis": self.basis,
            "weights": self.trained.named_weights(),
            "optimiser": self._optimiser.state_dict(),
            "steps": self.steps,
            "tokens": self.tokens,
            "seconds": self.seconds,
        }

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` gave."""
        for name, weight in self.trained.named_weights().items():
            weight.copy_(state["weights"][name])
        self._optimiser.load_state_dict(state["optimiser"])
        self.steps, self.tokens, self.seconds = state["steps"], state["tokens"], state["seconds"]


def basis_of(settings: TrainingSettings, model: Model, kind: str) -> dict[str, Any]:
    """What every training depends on: another kind, model, seed, or other examples would be another run."""
    data = settings.data
    return {
        "kind": kind,
        "embeddings of the model": model.spec.embedding[:8],
        "quantize": settings.quantize,
        "seed": settings.seed,
        "data": "made on the spot" if data is None else f"{data.name} of {data.stat().st_size:,} bytes",
        "held_out": settings.held_out,
        "batch": settings.batch,
        "max_tokens": settings.max_tokens,
    }


def log_of(settings: TrainingSettings) -> Path:
    """Where a run keeps its log: a line of JSON for each step."""
    return settings.work_dir / "log.jsonl"


def output_of(settings: TrainingSettings, file: str) -> Path:
    """Where the weights go: `out`, or `file` beside the model. Its folder is made.

    Raises:
        SettingsError: the model is no folder here, or nothing can be written there.
    """
    if settings.out is None and not Path(settings.model).is_dir():
        raise SettingsError(
            f"'{settings.model}' is no folder here to put weights into: give a file for them with --out."
        )
    out = settings.out or Path(settings.model) / file
    if out.is_dir():
        raise SettingsError(f"{out} is a folder: name the file for the weights with --out, such as {out / file}.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out.parent).close()
    except OSError as error:
        raise SettingsError(
            f"Nothing can be written to {out.parent} ({error.strerror}): name another file for the weights with --out."
        ) from error
    return out


def _state_at(path: Path, run: Run[Line], settings: TrainingSettings) -> dict[str, Any]:
    """What the checkpoint holds, after checking that it is this run's.

    Raises:
        SettingsError: see `checkpoint.load_run`; or it is beyond the last step.
    """
    state = checkpoint.load_run(path, run.basis)
    if state["steps"] > settings.steps:
        raise SettingsError(
            f"The checkpoint at {path} is {state['steps']} steps on, and steps is {settings.steps}: give more steps, "
            f"or start without --resume."
        )
    return state


def keep_before(*files: Path) -> None:
    """Copy what an earlier run left in these files, which are about to be replaced: it took hours."""
    there = {file: file.with_stem(f"{file.stem}.before") for file in files if file.is_file()}
    for file, name in there.items():
        shutil.copyfile(file, name)
    if there:
        names = " and ".join(name.name for name in there.values())
        log.warning("what an earlier training left in %s is kept there as %s", files[0].parent, names)


def _step_of(run: Run[Line], settings: TrainingSettings, saved: Path) -> Line:
    """One step; saved: where the last checkpoint is, if there is one.

    Raises:
        OutOfMemory: with what takes less.
    """
    try:
        return run.step()
    except (OutOfMemory, RuntimeError, MemoryError) as error:
        if not (isinstance(error, OutOfMemory) or ran_out(error)):
            raise
        kept = f" What was saved is kept at {saved}: --resume goes on from there." if saved.is_file() else ""
        raise OutOfMemory(
            f"Memory ran out in step {run.steps + 1:,}, with examples of up to {settings.max_tokens:,} tokens: close "
            f"other programs, or begin anew with a smaller --max-tokens.{kept}"
        ) from error


def run_through(run: Run[Line], progress: Callable[[Line], None] | None) -> None:
    """Make all steps; the checkpoint and log.jsonl are in the settings' `work_dir`.

    Raises:
        SettingsError: `resume` with a checkpoint that is damaged, of another run, or beyond the last step.
        Stopped: by a signal; the checkpoint has every step made by then.
        OutOfMemory: in a step; the checkpoint is the last one.
    """
    settings = run.settings
    path = checkpoint.place(settings.work_dir, settings.resume)
    if settings.resume:
        run.restore(_state_at(path, run, settings))
    else:
        keep_before(path, log_of(settings))
        path.unlink(missing_ok=True)
        log_of(settings).unlink(missing_ok=True)
    settings.work_dir.mkdir(parents=True, exist_ok=True)
    log_path = log_of(settings)
    checkpoint.shorten_log(log_path, run.steps)
    saved = time.monotonic()
    with open(log_path, "a", encoding="utf-8") as lines, asked_to_stop(PATIENCE) as asked:
        while run.steps < settings.steps and not asked():
            line = _step_of(run, settings, path)
            lines.write(json.dumps(asdict(line)) + "\n")  # type: ignore[call-overload]
            if progress:
                progress(line)
            if time.monotonic() - saved > settings.checkpoint_seconds:
                lines.flush()
                checkpoint.save(path, run.state())
                saved = time.monotonic()
        checkpoint.save(path, run.state())
    if run.steps < settings.steps:
        raise Stopped.after(run.steps)
