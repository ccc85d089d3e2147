"""GGUF files that other programs keep on this machine: Ollama, LM Studio, Jan, llama.cpp, and the hub's cache.

Models are found by names and places. No file is opened except Ollama's manifests, which name the blob of a model.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.machine.gguf_names import PART, is_model_file

OLLAMA = "ollama/"
"""Prefix of the names of Ollama's models: "ollama/llama3.2:1b"."""
REGISTRY = "registry.ollama.ai"
LIBRARY = "library"
MODEL_LAYER = "application/vnd.ollama.image.model"
MOST_MANIFEST_BYTES = 1 << 20


@dataclass(frozen=True)
class FoundModel:
    """A model of another program.

    name: name that `--model` takes.
    place: the program that keeps it.
    path: its (first) GGUF file.
    """

    name: str
    place: str
    path: Path


def found_models() -> list[FoundModel]:
    """Return every GGUF model that other programs keep here, by place and name.

    A model in several parts is named by the first. If two files have one name, both are named by their whole paths.
    """
    found = [*_of_ollama(), *_of_folders()]
    names = [each.name for each in found]
    return [FoundModel(str(each.path), each.place, each.path) if names.count(each.name) > 1 else each for each in found]


def find_model(name: str) -> FoundModel | None:
    """Return the model with this name, or None. Ollama's names are looked up without a search of all models."""
    if name.startswith(OLLAMA):
        path = ollama_file(name)
        return None if path is None else FoundModel(name, "Ollama", path)
    return next((each for each in found_models() if each.name == name), None)


def ollama_file(name: str) -> Path | None:
    """Return the file of "ollama/NAME:TAG", or None. The default tag is "latest"."""
    model, _, tag = name.removeprefix(OLLAMA).partition(":")
    owner, _, short = model.rpartition("/")
    owners = (owner or LIBRARY).split("/")
    parts = [*([] if "." in owners[0] else [REGISTRY]), *owners, short, tag or "latest"]  # a host has a dot: hf.co
    if any(part in ("", ".", "..") for part in parts):
        return None
    for root in _ollama_roots():
        path = _blob(root, root.joinpath("manifests", *parts))
        if path is not None:
            return path
    return None


def _of_ollama() -> Iterator[FoundModel]:
    for root in _ollama_roots():
        for manifest in _files(root / "manifests", "*"):
            path = _blob(root, manifest)
            if path is not None:
                *owner, model, tag = manifest.relative_to(root / "manifests").parts
                shown = "/".join([*(each for each in owner if each not in (REGISTRY, LIBRARY)), model])
                yield FoundModel(f"{OLLAMA}{shown}:{tag}", "Ollama", path)


def _of_folders() -> Iterator[FoundModel]:
    seen = set()
    for place, folder in _folders():
        for path in _files(folder, "*.gguf"):
            if path.resolve() in seen or not is_model_file(path.name):
                continue
            seen.add(path.resolve())
            own_name = path.stem != "model"  # Jan names each file model.gguf, in a folder with the model's name
            name = PART.sub("", path.name).removesuffix(".gguf") if own_name else path.parent.name
            yield FoundModel(name, place, path)


def _ollama_roots() -> list[Path]:
    """Return the folders of Ollama's models: the configured one, the user's, and the service's on Linux."""
    named = os.environ.get("OLLAMA_MODELS")
    roots = [Path(named)] if named else [Path.home() / ".ollama" / "models"]
    return [*roots, Path("/usr/share/ollama/.ollama/models")]


def _folders() -> Iterator[tuple[str, Path]]:
    """Yield program and folder for each program that keeps GGUF files."""
    home = Path.home()
    yield "LM Studio", _lm_studio_folder(home)
    yield "LM Studio", home / ".cache" / "lm-studio" / "models"
    yield "Jan", _user_data(home) / "Jan" / "data" / "llamacpp" / "models"
    yield "Jan", home / "jan" / "models"
    cache = os.environ.get("LLAMA_CACHE")
    yield "llama.cpp", Path(cache) if cache else _user_cache(home) / "llama.cpp"
    from huggingface_hub import constants

    yield "cache", Path(constants.HF_HUB_CACHE)


def _lm_studio_folder(home: Path) -> Path:
    """Return the folder in LM Studio's settings, else its default one."""
    try:
        named = json.loads((home / ".lmstudio" / "settings.json").read_text(encoding="utf-8")).get("downloadsFolder")
    except (OSError, ValueError, AttributeError):
        named = None
    return Path(named) if isinstance(named, str) and named else home / ".lmstudio" / "models"


def _user_data(home: Path) -> Path:
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming")
    return Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")


def _user_cache(home: Path) -> Path:
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")


def _files(folder: Path, pattern: str) -> list[Path]:
    """Return the files below a folder by name; none if the folder is missing or unreadable."""
    try:
        return sorted(path for path in folder.rglob(pattern) if path.is_file())
    except OSError:
        return []


def _blob(root: Path, manifest: Path) -> Path | None:
    """Return the file of the model that a manifest names; None if it is missing."""
    try:
        if manifest.stat().st_size > MOST_MANIFEST_BYTES:
            return None
        layers = json.loads(manifest.read_text(encoding="utf-8"))["layers"]
        digests = [each["digest"] for each in layers if each["mediaType"] == MODEL_LAYER]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if len(digests) != 1 or not re.fullmatch(r"sha256:[0-9a-f]{64}", str(digests[0])):
        return None
    path = root / "blobs" / digests[0].replace(":", "-")
    return path if path.is_file() else None
