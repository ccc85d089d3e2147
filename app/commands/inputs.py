"""Check arguments before anything heavy is loaded, so that a mistake is answered at once."""

import difflib
import os
import re
from collections.abc import Callable
from pathlib import Path

import ingest
from app.errors import UsageError
from ingest.detect import detect
from ingest.folder import readable_files
from ingest.formats import SUFFIXES
from ingest.subprocess import check_password_in_subprocess

METHOD_NAMES = (
    "exact",
    "infinitehip",
    "infllm",
    "recall",
    "infinipot",
    "locret",
    "beacon",
    "knorm",
    "tova",
    "streaming",
    "truncate",
    "full",
)
"""The engine's methods, copied here because importing the engine takes seconds; a test compares the two."""


def check_method(name: str | None) -> None:
    """Refuse a method that does not exist.

    Raises:
        UsageError: with the nearest name.
    """
    if name is None or name in METHOD_NAMES:
        return
    near = difflib.get_close_matches(name, METHOD_NAMES, n=1)
    meant = f"Did you mean {near[0]}?" if near else f"Choose one of {', '.join(METHOD_NAMES)}."
    raise UsageError(f"There is no method {name!r}. {meant}")


def is_document_id(text: str) -> bool:
    """Return whether a word is the id of a document and not a file."""
    return bool(re.fullmatch(r"d-\w+", text)) and not os.path.exists(text)


def files_of(words: list[str], leave_out: Callable[[Path, str], None] = lambda path, reason: None) -> list[str]:
    """Return the words, with each folder replaced by its readable files in order of their names. Hidden files are left
    out.

    Args:
        words: files, folders and ids of documents.
        leave_out: see `readable_files`.

    Raises:
        UsageError: a word is a web address or a dash, or a folder has no such files.
    """
    found: list[str] = []
    for word in words:
        if os.path.isdir(word):
            found += _readable_files(word, leave_out)
        else:
            _check_word(word)
            found.append(word)
    return found


def check_file(word: str, password: str | None) -> None:
    """Refuse a single file that cannot be a document, or that the password does not open.

    Raises:
        ingest.IngestError: with the next step.
    """
    path = Path(word)
    ingest.check_file(path)
    kind, _ = detect(path, ingest.Limits())
    if kind == "pdf" and b"/Encrypt" in path.read_bytes():
        check_password_in_subprocess(path, password)


def _readable_files(folder: str, leave_out: Callable[[Path, str], None]) -> list[str]:
    """Return the files under a folder whose suffix is a known format's."""
    found = [str(path) for path in readable_files(Path(folder), leave_out)]
    if not found:
        raise UsageError(
            f"There is no file in {folder} that can be read: it has none of {', '.join(sorted(SUFFIXES))}."
        )
    return found


def _check_word(word: str) -> None:
    """Refuse words that only other programs understand as files."""
    if os.path.exists(word):  # Path.exists raises if an address is too long for a file name
        return
    if word == "-":
        raise UsageError("Standard input is not read: save it as a file and name that.")
    if re.match(r"(https?|ftp)://", word, re.IGNORECASE):
        raise UsageError("Stockpot fetches nothing: download it and name the file.")
