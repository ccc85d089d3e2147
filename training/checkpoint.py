"""Checkpoints as safetensors: nested dictionaries of tensors and plain values, written aside and renamed into place."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine import SettingsError
from engine.trained.sidecar_weights import write_tensors
from training.flags import require_writable


def _flatten(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the value with every tensor replaced by {"tensor": name}; dicts become lists of pairs, to keep key types.

    The tensors are added to `tensors` by name.
    """
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[k, _flatten(v, tensors)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return {"list": [_flatten(v, tensors) for v in value]}
    return {"plain": value}


def _restore(value: Any, tensors: dict[str, Tensor]) -> Any:
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "dict" in value:
        return {k: _restore(v, tensors) for k, v in value["dict"]}
    if "list" in value:
        return [_restore(v, tensors) for v in value["list"]]
    return value["plain"]


def save(path: Path, state: dict[str, Any]) -> None:
    """Write `state` atomically: after a crash `path` holds the old state or the new one.

    Raises:
        WeightsError: it cannot be written.
    """
    tensors: dict[str, Tensor] = {}
    tree = _flatten(state, tensors)
    write_tensors(tensors, path, {"tree": json.dumps(tree)})


def load(path: Path) -> dict[str, Any]:
    """Return the state that `save` wrote."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        state: dict[str, Any] = _restore(json.loads(file.metadata()["tree"]), tensors)
        return state


def place(work_dir: Path, resume: bool) -> Path:
    """Return the path of a run's checkpoint.

    Raises:
        SettingsError: `resume` is set and there is no checkpoint, or none can be written.
    """
    path = work_dir / "checkpoint.safetensors"
    if resume and not path.is_file():
        raise SettingsError(f"There is no checkpoint at {path}: start without --resume.")
    require_writable(work_dir, "name another folder with --work-dir")
    return path


def load_run(path: Path, basis: dict[str, Any]) -> dict[str, Any]:
    """Return the state saved by a run with this basis: plain values, by readable names, that a continuation must share.

    Raises:
        SettingsError: the file is damaged or belongs to another run; the message names the difference.
    """
    try:
        state = load(path)
    except (SafetensorError, LookupError, TypeError, ValueError) as error:
        raise SettingsError(f"{path} is damaged or no checkpoint ({error}): start without --resume.") from error
    theirs = state.get("basis")
    if theirs is None:
        raise SettingsError(
            f"The checkpoint at {path} does not say what it was made with: it is of another training, or of an earlier "
            f"version. Start without --resume."
        )
    if theirs.get("kind") != basis["kind"]:
        raise SettingsError(
            f"The checkpoint at {path} is of {theirs.get('kind')}, and this training is of "
            f"{basis['kind']}: give another --work-dir, or start without --resume."
        )
    other = [
        f"{name} {theirs.get(name)} there, {ours} here" for name, ours in basis.items() if theirs.get(name) != ours
    ]
    if other:
        raise SettingsError(
            f"The checkpoint at {path} is of another run ({'; '.join(other)}): go on with what it was begun with, give "
            f"another --work-dir, or start without --resume."
        )
    return state


def shorten_log(log: Path, steps: int) -> None:
    """Remove log lines (one per step) after the step of the checkpoint."""
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True) if log.is_file() else []
    log.write_text("".join(lines[:steps]), encoding="utf-8")
