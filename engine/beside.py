"""Files of trained weights that lie beside a model: found, read, checked and written the same way for every method.

Safetensors, or what torch.save wrote; of the latter only tensors are unpickled, and nothing in the file is run. Other
tensors in the same file are left alone, so weights may lie among those of the model itself. What this repository
trains says in the file's header which model it was trained for.
"""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.errors import WeightsError
from engine.seam import ModelSpec


@dataclass(frozen=True)
class Kind:
    """One kind of weights.

    method: that needs them, which is also what `stockpot train` calls them; things: in words; setting: of the method,
    that names their file; pattern: of their tensors' names; example: one such name.
    """

    method: str
    things: str
    setting: str
    pattern: re.Pattern[str]
    example: str

    @property
    def file(self) -> str:
        """Where they lie beside a model."""
        return f"{self.method}.safetensors"


@dataclass(frozen=True)
class Stamp:
    """What tells whether a file has changed: of each file its name, time and size."""

    files: tuple[tuple[str, int, int], ...]

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Of a file, or of the files of a folder."""
        stats = [(each.name, each.stat()) for each in _files(path)]
        return cls(tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats))


def locate(kind: Kind, spec: ModelSpec, given: str) -> Path:
    """The file `given`, or if that is empty the one beside the model. A folder stands for its safetensors files.

    Raises:
        WeightsError: there is none.
    """
    if not given and spec.folder is None:
        raise WeightsError(
            f"{kind.method} needs {kind.things} for this model. Give their file with {kind.setting}=PATH; to make one: "
            f"stockpot train {kind.method} --model MODEL --data FILE.jsonl --out PATH."
        )
    path = Path(given).expanduser() if given else Path(spec.folder or "") / kind.file
    if not _files(path):
        raise WeightsError(
            f"{kind.method} needs {kind.things} for this model, and there is no file {path}. Train them with "
            f"'stockpot train {kind.method}', or give the file of trained ones with {kind.setting}=PATH."
        )
    return path


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.safetensors"))
    return [path] if path.is_file() else []


def read_weights(kind: Kind, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of that kind in a file or folder, by their published names, and the facts of its header.

    Raises:
        WeightsError: a file cannot be read, or holds none of them.
    """
    found: dict[str, Tensor] = {}
    facts: dict[str, str] = {}
    for file in _files(path):
        try:
            tensors, said = _read(kind, file)
        except (SafetensorError, pickle.UnpicklingError, RuntimeError, ValueError, AttributeError, EOFError) as error:
            raise WeightsError(f"{file} is damaged or no file of weights ({error}): get or train it anew.") from error
        found |= tensors
        facts |= said
    if not found:
        raise WeightsError(f"{path} holds no {kind.things}: no tensor in it is named like {kind.example}.")
    return found, facts


def _read(kind: Kind, file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    if file.suffix == ".safetensors":
        with safe_open(file, "pt") as opened:
            names = [name for name in opened.keys() if kind.pattern.fullmatch(name)]  # noqa: SIM118 (not a dict)
            return {name: opened.get_tensor(name) for name in names}, opened.metadata() or {}
    everything = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    return {name: tensor for name, tensor in everything.items() if kind.pattern.fullmatch(str(name))}, {}


def check_model(kind: Kind, path: Path, facts: Mapping[str, str], spec: ModelSpec) -> None:
    """Refuse weights whose header names another model.

    Raises:
        WeightsError: naming both.
    """
    trained_for = facts.get("embedding", "")
    if trained_for and spec.embedding and trained_for != spec.embedding:
        raise WeightsError(
            f"The {kind.things} in {path} were trained for another model (embeddings {trained_for[:8]}) than this one "
            f"(embeddings {spec.embedding[:8]}): make them anew with 'stockpot train {kind.method}'."
        )


def digest_of(weights: Mapping[str, Tensor]) -> str:
    """A hash of names and numbers."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode() + weights[name].contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save_weights(weights: Mapping[str, Tensor], path: Path, spec: ModelSpec, facts: Mapping[str, str]) -> None:
    """Write weights in bfloat16, aside first. facts: for the header, besides the model they are for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: weight.detach().cpu().bfloat16().contiguous() for name, weight in weights.items()}
    aside = path.with_name(path.name + ".part")
    save_file(tensors, aside, metadata={"format": "pt", "embedding": spec.embedding, **facts})
    aside.replace(path)
