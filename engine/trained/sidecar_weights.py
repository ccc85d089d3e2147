"""Find, read, check and write files of trained weights beside a model, the same way for every method.

Files are safetensors or written by torch.save; of the latter only tensors are unpickled, and nothing in a file is run.
Other tensors in a file are left alone, so weights may lie among those of the model itself. Files that are trained here
name their model in the header.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from engine.errors import NoSuchWeights, WeightsError
from engine.models.spec import ModelSpec

Shapes = Mapping[str, tuple[int, ...]]  # by published names


class Trained(nn.Module, ABC):
    """Weights of one kind. digest: of their file, empty for fresh weights."""

    def __init__(self) -> None:
        super().__init__()
        self.digest = ""

    @abstractmethod
    def named_weights(self) -> dict[str, Tensor]:
        """Return the weights under their published names, in the order of `state_dict`."""


T = TypeVar("T", bound=Trained)


@dataclass(frozen=True)
class Kind(Generic[T]):
    """One kind of weights."""

    method: str  # that needs them; `stockpot train` takes the same name
    things: str  # their name in messages
    setting: str  # of the method, that names their file
    pattern: re.Pattern[str]  # of their tensors' names
    example: str  # one such name
    build: Callable[[ModelSpec, Shapes, Mapping[str, str], str], T]  # from shapes, header and path; may refuse them
    why_untrainable: Callable[[ModelSpec], str] = lambda spec: ""  # feature of a model that prevents training
    why_impossible: Callable[[ModelSpec], str] = lambda spec: ""  # reason why a model can have none

    @property
    def file(self) -> str:
        """Name of their file beside a model."""
        return f"{self.method}.safetensors"


_Stamp = tuple[tuple[str, int, int], ...]  # name, time and size of each file
_in_use: WeakValueDictionary[tuple[object, ...], Any] = WeakValueDictionary()  # weights for an 8B model take 1 GB


def find(kind: Kind[T], spec: ModelSpec, given: str) -> T:
    """Return the weights in the file or folder `given`, or if that is empty those beside the model, frozen.

    They have the model's dtype and device. All callers share them, and they are freed with the last.

    Raises:
        WeightsError: there are none, or they do not fit the model.
    """
    trained, path, stamp = _fitting(kind, spec, given)
    asked = kind, path, stamp, spec.device, spec.dtype, spec.activation
    found: T | None = _in_use.get(asked)
    if found is None:
        _fill(trained, kind, path, spec)
        _in_use[asked] = found = trained
    return found


def sidecar_digest(kind: Kind[T], spec: ModelSpec, given: str) -> str:
    """Return the digest of the weights that `find` would return, without loading them onto a device.

    Raises:
        WeightsError: as `find`.
    """
    return _fitting(kind, spec, given)[0].digest


def sidecar_shapes(kind: Kind[Any], spec: ModelSpec, given: str) -> Shapes | None:
    """Return the shapes of the weights that `find` would return; None if there are none that can be read."""
    try:
        path = _locate(kind, spec, given)
        return _contents(kind, path, _stamp(path)).shapes
    except WeightsError:
        return None


def _fitting(kind: Kind[T], spec: ModelSpec, given: str) -> tuple[T, Path, _Stamp]:
    """Return a module on the meta device for the weights, which fit the model, and their path and stamp."""
    path = _locate(kind, spec, given)
    stamp = _stamp(path)
    contents = _contents(kind, path, stamp)
    _check_model(kind, path, contents.facts, spec)
    with torch.device("meta"):
        trained = kind.build(spec, contents.shapes, contents.facts, str(path))
    trained.digest = contents.digest
    return trained, path, stamp


def _fill(trained: Trained, kind: Kind[Any], path: Path, spec: ModelSpec) -> None:
    weights, _ = _read_weights(kind, path)
    state = trained.state_dict()
    awaited = [own for own, weight in state.items() if weight.is_meta]  # weights in no file stay as made
    state |= {own: weights[name] for own, name in zip(awaited, trained.named_weights(), strict=True)}
    trained.load_state_dict({own: x.to(spec.device, spec.dtype) for own, x in state.items()}, assign=True)
    trained.requires_grad_(False)


@dataclass(frozen=True)
class _Contents:
    """Facts about weights that were read and checked once."""

    shapes: Shapes
    facts: Mapping[str, str]
    digest: str


@lru_cache(maxsize=8)
def _contents(kind: Kind[Any], path: Path, stamp: _Stamp) -> _Contents:
    weights, facts = _read_weights(kind, path)
    _check_numbers(weights, path)
    return _Contents({name: tuple(weight.shape) for name, weight in weights.items()}, facts, _digest_of(weights))


def _stamp(path: Path) -> _Stamp:
    """Return names, times and sizes that change if a file, or one in a folder, changes."""
    stats = [(each.name, each.stat()) for each in _files(path)]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def _locate(kind: Kind[Any], spec: ModelSpec, given: str) -> Path:
    """Return the file `given`, or if that is empty the one beside the model; a folder means its safetensors files.

    Raises:
        WeightsError: there is none.
        NoSuchWeights: no such weights can exist.
    """
    require_possible(kind, spec)
    path = Path(given).expanduser() if given else spec.folder and spec.folder / kind.file
    if path is None or not _files(path):
        if path is None:
            found = "a model of the hub, or in a single file, has none beside it"
        else:
            found = f"no safetensors file lies in {path}" if path.is_dir() else f"there is no file {path}"
        if bar := kind.why_untrainable(spec):
            training = f"They cannot be trained yet for a model that has {bar}: choose another method"
        else:
            training = f"Train them with '{_training(kind, spec)}'"
        raise WeightsError(
            f"{kind.method} needs {kind.things} for this model, and {found}. {training}, or give the file of trained "
            f"ones with --method {kind.method} --weights PATH (setting {kind.setting})."
        )
    return path


def require_possible(kind: Kind[Any], spec: ModelSpec) -> None:
    """Refuse a model that cannot have such weights.

    Raises:
        NoSuchWeights: saying why.
    """
    if reason := kind.why_impossible(spec):
        raise NoSuchWeights(f"{kind.method} {reason}: choose another method.")


def _training(kind: Kind[Any], spec: ModelSpec) -> str:
    """Return the command that trains such weights for this model."""
    model = shlex.quote(str(spec.folder)) if spec.folder else "MODEL --out PATH"
    return f"stockpot train {kind.method} --model {model} --data FILE.jsonl"


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.safetensors"))
    return [path] if path.is_file() else []


def _read_weights(kind: Kind[Any], path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a kind in a file or folder, by their published names, and the facts of its header.

    Raises:
        WeightsError: a file cannot be read, or holds none of them.
    """
    found: dict[str, Tensor] = {}
    facts: dict[str, str] = {}
    for file in _files(path):
        try:
            tensors, said = _read(kind, file)
        except (SafetensorError, pickle.UnpicklingError, RuntimeError, ValueError, TypeError, EOFError) as error:
            raise WeightsError(f"{file} is damaged or no file of weights ({error}): get or train it anew.") from error
        if tensors:  # other files in a folder may hold none
            found |= tensors
            facts |= said
    if not found:
        raise WeightsError(f"{path} holds no {kind.things}: no tensor in it is named like {kind.example}.")
    return found, facts


def _read(kind: Kind[Any], file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    if file.suffix == ".safetensors":
        with safe_open(file, "pt") as opened:
            names = [name for name in opened.keys() if kind.pattern.fullmatch(name)]  # noqa: SIM118 (not a dict)
            return {name: opened.get_tensor(name) for name in names}, opened.metadata() or {}
    everything = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    if not isinstance(everything, Mapping):
        raise TypeError(f"it holds a {type(everything).__name__} and not tensors by their names")
    return {name: tensor for name, tensor in everything.items() if kind.pattern.fullmatch(str(name))}, {}


def _check_numbers(weights: Mapping[str, object], path: Path) -> None:
    """Refuse tensors that cannot be weights.

    Raises:
        WeightsError: naming the first, and the reason.
    """
    for name, weight in weights.items():
        if not isinstance(weight, Tensor):
            wrong = f"of the type {type(weight).__name__} and no tensor"
        elif not weight.is_floating_point():
            wrong = f"of the type {str(weight.dtype).removeprefix('torch.')}, where weights are floating-point numbers"
        elif weight.ndim == 0 or weight.numel() == 0:
            wrong = f"of the shape {list(weight.shape)}, which holds no weights"
        elif not bool(torch.isfinite(weight.float()).all()):
            wrong = "not finite everywhere, as after a training that failed"
        else:
            continue
        raise WeightsError(f"{name} in {path} is {wrong}: get the file or train it anew.")


def _check_model(kind: Kind[Any], path: Path, facts: Mapping[str, str], spec: ModelSpec) -> None:
    """Refuse weights whose header names another model.

    Raises:
        WeightsError: naming both.
    """
    trained_for = facts.get("embedding", "")
    if trained_for and spec.embedding and trained_for != spec.embedding:
        raise WeightsError(
            f"The {kind.things} in {path} were trained for another model (embeddings {trained_for[:8]}) than this one "
            f"(embeddings {spec.embedding[:8]}): make them anew with '{_training(kind, spec)}'."
        )


def _digest_of(weights: Mapping[str, Tensor]) -> str:
    """Return a hash of names and numbers."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode() + weights[name].contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save_weights(trained: Trained, path: Path, spec: ModelSpec, facts: Mapping[str, str]) -> None:
    """Write weights in bfloat16 to a temporary file, then rename it. facts: for the header, beside the model.

    Raises:
        WeightsError: see `write_tensors`.
    """
    tensors = {name: weight.detach().cpu().bfloat16().contiguous() for name, weight in trained.named_weights().items()}
    write_tensors(tensors, path, {"format": "pt", "embedding": spec.embedding, **facts})


def write_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str]) -> None:
    """Write a temporary safetensors file and rename it: after a crash `path` is the old or the new file, whole.

    Raises:
        WeightsError: it cannot be written, as on a full disk.
    """
    aside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(dict(tensors), aside, metadata=dict(metadata))
        with open(aside, "rb+") as file:
            os.fsync(file.fileno())
        aside.replace(path)
    except (SafetensorError, OSError) as error:
        aside.unlink(missing_ok=True)
        raise WeightsError(
            f"{path} cannot be written ({error}). What was saved before is intact: free some room, or name another "
            f"folder, then go on from there."
        ) from error
