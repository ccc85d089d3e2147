"""Where things are: the home folder, what ships with the program, and which model a name stands for."""

import os
from pathlib import Path

from app.errors import AppError

ASSETS = Path(__file__).resolve().parent.parent / "assets"
POCKET = "pocket"
QUANTIZED = ("8bit", "nf4", "int8", "int4")
SAMPLE_SUFFIXES = (".epub", ".pdf", ".txt", ".html")


def home_folder(given: str | Path | None) -> Path:
    """The home folder: `given`, else $STOCKPOT_HOME, else ~/.stockpot. Not made here."""
    return Path(given or os.environ.get("STOCKPOT_HOME") or "~/.stockpot").expanduser().resolve()


def split_model(name: str) -> tuple[str, str]:
    """A model's name without its quantisation, and that: "qwen:nf4" is ("qwen", "nf4"), "qwen" is ("qwen", "none")."""
    plain, colon, quantize = name.rpartition(":")
    return (plain, quantize) if colon and quantize in QUANTIZED else (name, "none")


def named_model(name: str | None, quantize: str | None) -> str | None:
    """The name of a model with the quantisation that was asked for; as it is where none was."""
    if quantize is None:
        return name
    plain = split_model(name or POCKET)[0]
    return plain if quantize == "none" else f"{plain}:{quantize}"


def model_source(name: str) -> str:
    """What the engine loads for a model's name: the shipped folder for "pocket", else a folder or a hub id."""
    plain, _ = split_model(name)
    return str(ASSETS / "pocket") if plain == POCKET else plain


def local_path(source: str) -> Path | None:
    """The folder that `model_source` names; None for a hub id."""
    return Path(source).resolve() if Path(source).is_dir() else None


def check_model(name: str) -> None:
    """Refuse a model that cannot be there, before it is needed: a path where no folder is. A hub id may yet come.

    Raises:
        AppError: there is none.
    """
    plain, _ = split_model(name)
    is_path = plain.startswith(("/", ".", "~")) or plain.count("/") > 1
    if is_path and not Path(plain).expanduser().is_dir():
        raise AppError(f"There is no model at {plain!r}: give a folder with config.json, or a hub id.")


def canonical_model(name: str) -> str:
    """The name that a model is remembered by: a folder by its absolute path, so that it is found from anywhere."""
    plain, quantize = split_model(name)
    path = Path(plain).expanduser()
    known = str(path.resolve()) if plain != POCKET and path.is_dir() else plain
    return known if quantize == "none" else f"{known}:{quantize}"


def sample_book() -> Path | None:
    """The book that ships with the program; None if this installation has none."""
    found = [path for suffix in SAMPLE_SUFFIXES for path in sorted((ASSETS / "sample").glob(f"*{suffix}"))]
    return found[0] if found else None
