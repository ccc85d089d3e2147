"""Uploads: moved out of Gradio's cache into the home, where the worker takes them from."""

import re
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from app.errors import AppError
from app.words import byte_size

UPLOADS = "uploads"
MOST_BYTES = 1 << 30


def sweep(home: Path, wanted: Iterable[Path]) -> None:
    """Remove what is left of uploads: Gradio's cache, and copies that no job will come for.

    Args:
        wanted: the files of jobs that are still to be done, or wait for a password.
    """
    kept = {path.parent for path in wanted}
    for folder in (home / UPLOADS).glob("*"):
        if folder not in kept:
            shutil.rmtree(folder, ignore_errors=True)


def safe_name(name: str) -> str:
    """One harmless path component that a person still recognises."""
    plain = re.sub(r"[^\w .,()'-]", "_", Path(name).name).strip(" .")
    stem, dot, suffix = plain.rpartition(".")
    return f"{stem[:100]}{dot}{suffix[:10]}" if stem else plain[:100] or "document"


def _folder(home: Path) -> Path:
    folder = home / UPLOADS / secrets.token_hex(8)
    folder.mkdir(mode=0o700, parents=True)
    return folder


def move_in(home: Path, cached: Iterable[str]) -> list[Path]:
    """Move files from Gradio's cache to a folder of their own; the cache keeps nothing.

    Raises:
        AppError: the cache has let go of one of them. None is moved.
    """
    sources = [Path(each) for each in cached]
    if not all(source.is_file() for source in sources):
        raise AppError("The files were dropped in too long ago: drop them in again.")
    folder, moved = _folder(home), []
    for number, source in enumerate(sources):
        target = folder / safe_name(source.name)
        if target.exists():
            target = folder / f"{number} {target.name}"
        shutil.move(source, target)
        if not any(source.parent.iterdir()):
            source.parent.rmdir()
        moved.append(target)
    return moved


def copy_in(home: Path, files: Iterable[tuple[str, BinaryIO]]) -> list[Path]:
    """Copy files that came over HTTP, by name and open stream, to a folder of their own."""
    folder, copied = _folder(home), []
    for number, (name, stream) in enumerate(files):
        target = folder / safe_name(name)
        if target.exists():
            target = folder / f"{number} {target.name}"
        with target.open("wb") as handle:
            while block := stream.read(1 << 20):
                if handle.tell() + len(block) > MOST_BYTES:
                    shutil.rmtree(folder)
                    raise AppError(f"{target.name} is larger than {byte_size(MOST_BYTES)}: split it.")
                handle.write(block)
        copied.append(target)
    return copied
