"""The loop of a training for a frozen model: steps, a log line each, checkpoints and resuming."""

from __future__ import annotations

import json
import logging
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch

from engine import Model, OutOfMemory, SettingsError
from engine.memory_usage import is_out_of_memory
from engine.signals import asked_to_stop
from engine.trained.sidecar_weights import Trained
from training import checkpoint
from training.flags import require_writable
from training.settings import TrainingSettings
from training.stopping import PATIENCE, Stopped

Line = TypeVar("Line")
log = logging.getLogger(__name__)


class Optimiser(Protocol):
    """An optimiser whose state can be saved and restored."""

    def state_dict(self) -> dict[str, Any]:
        """Return the optimiser's state."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class Run(ABC, Generic[Line]):
    """A training run: weights, optimiser and counters. `step` makes one step."""

    settings: TrainingSettings

    def __init__(
        self, settings: TrainingSettings, model: Model, trained: Trained, optimiser: Optimiser, basis: dict[str, Any]
    ) -> None:
        """Begin a run at step 0.

        Args:
            settings: of the training.
            model: whose own weights stay as they are.
            trained: the weights to train.
            optimiser: changes those weights.
            basis: plain values that a continuation must share; see `basis_of`.
        """
        self.settings, self.model = settings, model
        self.trained, self._optimiser, self.basis = trained, optimiser, basis
        self.steps = 0
        self.tokens = 0
        self.seconds = 0.0  # of training, without interruptions

    @abstractmethod
    def step(self) -> Line:
        """Make one optimiser step and return its log line, a dataclass."""

    def state(self) -> dict[str, Any]:
        """Return everything that a continuation needs."""
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
        """Continue from what `state` returned."""
        for name, weight in self.trained.named_weights().items():
            weight.copy_(state["weights"][name])
        self._optimiser.load_state_dict(state["optimiser"])
        self.steps, self.tokens, self.seconds = state["steps"], state["tokens"], state["seconds"]


def basis_of(settings: TrainingSettings, model: Model, kind: str) -> dict[str, Any]:
    """Return the values that a continuation must share: kind, model, seed, quantisation and examples."""
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
    """Return the path of a run's log, with a line of JSON for each step."""
    return settings.work_dir / "log.jsonl"


def output_of(settings: TrainingSettings, file: str) -> Path:
    """Return the path for the weights: `out`, or `file` beside the model. Its folder is created.

    Raises:
        SettingsError: the model is not a local folder, or the path cannot be written.
    """
    if settings.out is None and not Path(settings.model).is_dir():
        raise SettingsError(
            f"'{settings.model}' is no folder here to put weights into: give a file for them with --out."
        )
    out = settings.out or Path(settings.model) / file
    if out.is_dir():
        raise SettingsError(f"{out} is a folder: name the file for the weights with --out, such as {out / file}.")
    require_writable(out.parent, "name another file for the weights with --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    return out


def _state_at(path: Path, run: Run[Line], settings: TrainingSettings) -> dict[str, Any]:
    """Return the state in a checkpoint, after a check that it belongs to this run.

    Raises:
        SettingsError: see `checkpoint.load_run`; or the checkpoint is beyond the last step.
    """
    state = checkpoint.load_run(path, run.basis)
    if state["steps"] > settings.steps:
        raise SettingsError(
            f"The checkpoint at {path} is {state['steps']} steps on, and steps is {settings.steps}: give more steps, "
            f"or start without --resume."
        )
    return state


def keep_before(*files: Path) -> None:
    """Copy files of an earlier run before they are replaced, as they took hours to make."""
    there = {file: file.with_stem(f"{file.stem}.before") for file in files if file.is_file()}
    for file, name in there.items():
        shutil.copyfile(file, name)
    if there:
        names = " and ".join(name.name for name in there.values())
        log.warning("what an earlier training left in %s is kept there as %s", files[0].parent, names)


def _step_of(run: Run[Line], settings: TrainingSettings, saved: Path) -> Line:
    """Make one step. `saved` is the path of the last checkpoint, which may not exist.

    Raises:
        OutOfMemory: with settings that need less memory.
    """
    try:
        return run.step()
    except (OutOfMemory, RuntimeError, MemoryError) as error:
        if not (isinstance(error, OutOfMemory) or is_out_of_memory(error)):
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
        OutOfMemory: in a step; the last checkpoint stays.
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
