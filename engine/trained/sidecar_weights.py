"""Files of trained weights that lie beside a model: found, read, checked and written the same way for every method.

Safetensors, or what torch.save wrote; of the latter only tensors are unpickled, and nothing in the file is run. Other
tensors in the same file are left alone, so weights may lie among those of the model itself. What this repository
trains says in the file's header which model it was trained for.
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
    """Weights of one kind. digest: of them as they were in their file; empty for fresh ones."""

    def __init__(self) -> None:
        super().__init__()
        self.digest = ""

    @abstractmethod
    def named_weights(self) -> dict[str, Tensor]:
        """The weights under their published names, in the order of `state_dict`."""


T = TypeVar("T", bound=Trained)


@dataclass(frozen=True)
class Kind(Generic[T]):
    """One kind of weights.

    method: that needs them, which is also what `stockpot train` calls them; things: in words; setting: of the method,
    that names their file; pattern: of their tensors' names; example: one such name; build: makes a module for a model,
    with weights of these shapes and these facts in the header of the file named last, or raises WeightsError; bars:
    what of a model keeps them from being trained, in words, or nothing; never: why there can be none for it, likewise.
    """

    method: str
    things: str
    setting: str
    pattern: re.Pattern[str]
    example: str
    build: Callable[[ModelSpec, Shapes, Mapping[str, str], str], T]
    why_untrainable: Callable[[ModelSpec], str] = lambda spec: ""
    why_impossible: Callable[[ModelSpec], str] = lambda spec: ""

    @property
    def file(self) -> str:
        """Where they lie beside a model."""
        return f"{self.method}.safetensors"


_Stamp = tuple[tuple[str, int, int], ...]  # of each file its name, time and size
_in_use: WeakValueDictionary[tuple[object, ...], Any] = WeakValueDictionary()  # those for an 8B model take 1 GB


def find(kind: Kind[T], spec: ModelSpec, given: str) -> T:
    """The weights in the file or folder `given`, or if that is empty those beside the model, frozen.

    They are in the model's dtype and where it is. All who use them at a time share them, and they go with the last.

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
    """The digest of the weights that `find` would find, none of which goes to the model's device for it.

    Raises:
        WeightsError: as `find`.
    """
    return _fitting(kind, spec, given)[0].digest


def sidecar_shapes(kind: Kind[Any], spec: ModelSpec, given: str) -> Shapes | None:
    """Shapes of the weights that `find` would find, for arithmetic; None if there are none that can be read."""
    try:
        path = _locate(kind, spec, given)
        return _contents(kind, path, _stamp(path)).shapes
    except WeightsError:
        return None


def _fitting(kind: Kind[T], spec: ModelSpec, given: str) -> tuple[T, Path, _Stamp]:
    """A module for the weights that are meant, which fit the model, on the meta device; and where they lie."""
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
    awaited = [own for own, weight in state.items() if weight.is_meta]  # others stay as they are made
    state |= {own: weights[name] for own, name in zip(awaited, trained.named_weights(), strict=True)}
    trained.load_state_dict({own: x.to(spec.device, spec.dtype) for own, x in state.items()}, assign=True)
    trained.requires_grad_(False)


@dataclass(frozen=True)
class _Contents:
    """What is known of weights that were read and checked once, without the weights."""

    shapes: Shapes
    facts: Mapping[str, str]
    digest: str


@lru_cache(maxsize=8)
def _contents(kind: Kind[Any], path: Path, stamp: _Stamp) -> _Contents:
    weights, facts = _read_weights(kind, path)
    _check_numbers(weights, path)
    return _Contents({name: tuple(weight.shape) for name, weight in weights.items()}, facts, _digest_of(weights))


def _stamp(path: Path) -> _Stamp:
    """What tells whether a file, or one of a folder's, has changed."""
    stats = [(each.name, each.stat()) for each in _files(path)]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def _locate(kind: Kind[Any], spec: ModelSpec, given: str) -> Path:
    """The file `given`, or if that is empty the one beside the model. A folder stands for its safetensors files.

    Raises:
        WeightsError: there is none.
        NoSuchWeights: there can be none.
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
    """Refuse a model for which there can be no such weights.

    Raises:
        NoSuchWeights: saying why.
    """
    if reason := kind.why_impossible(spec):
        raise NoSuchWeights(f"{kind.method} {reason}: choose another method.")


def _training(kind: Kind[Any], spec: ModelSpec) -> str:
    """The command that makes such weights for this model."""
    model = shlex.quote(str(spec.folder)) if spec.folder else "MODEL --out PATH"
    return f"stockpot train {kind.method} --model {model} --data FILE.jsonl"


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.safetensors"))
    return [path] if path.is_file() else []


def _read_weights(kind: Kind[Any], path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of that kind in a file or folder, by their published names, and the facts of its header.

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
        if tensors:  # other files of a folder may be for other models
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
    """Refuse what no weights can be.

    Raises:
        WeightsError: naming the first, and what it is.
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
    """A hash of names and numbers."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode() + weights[name].contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save_weights(trained: Trained, path: Path, spec: ModelSpec, facts: Mapping[str, str]) -> None:
    """Write weights in bfloat16, aside first. facts: for the header, besides the model they are for.

    Raises:
        WeightsError: see `write_tensors`.
    """
    tensors = {name: weight.detach().cpu().bfloat16().contiguous() for name, weight in trained.named_weights().items()}
    write_tensors(tensors, path, {"format": "pt", "embedding": spec.embedding, **facts})


def write_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str]) -> None:
    """Write a safetensors file aside and rename it; after a crash `path` holds either the old or the new one, whole.

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
