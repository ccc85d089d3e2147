"""MuPDF, one caller at a time: opening files and passwords, and the messages that it leaves behind."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymupdf

from ingest.clean import one_line
from ingest.errors import BrokenFile, PasswordNeeded, WrongPassword

# MuPDF is not thread-safe and keeps its messages in one place for the whole process.
_mupdf_lock = threading.Lock()


@contextmanager
def alone_with_mupdf() -> Iterator[list[str]]:
    """Lock MuPDF and silence it on standard error.

    Yields:
        A list that holds MuPDF's distinct messages when the block has ended.
    """
    messages: list[str] = []
    tools = pymupdf.TOOLS
    with _mupdf_lock:
        errors, warnings = tools.mupdf_display_errors(), tools.mupdf_display_warnings()
        tools.mupdf_display_errors(False)
        tools.mupdf_display_warnings(False)
        tools.reset_mupdf_warnings()
        try:
            yield messages
        finally:
            messages.extend(dict.fromkeys(line for line in tools.mupdf_warnings().splitlines() if line.strip()))
            tools.mupdf_display_errors(errors)
            tools.mupdf_display_warnings(warnings)


def open_pdf(path: Path, password: str | None, kind: str = "pdf") -> Any:
    """Open a file as a PDF, whatever its name. The caller holds `alone_with_mupdf()` and closes the document.

    kind: MuPDF's name of another format with pages.

    Raises:
        BrokenFile: MuPDF cannot open it.
        PasswordNeeded, WrongPassword: it is encrypted.
    """
    try:
        document = pymupdf.open(str(path), filetype=kind)
    except Exception as error:  # MuPDF raises many kinds
        raise BrokenFile(
            f"{path.name} cannot be opened as {kind.upper()}. "
            "The file is damaged or incomplete: fetch it again, or open and re-save it elsewhere."
        ) from error
    try:
        if document.needs_pass:
            if password is None:
                raise PasswordNeeded(f"{path.name} is encrypted: give its password and try again.")
            if not document.authenticate(password):
                raise WrongPassword(f"The password given does not open {path.name}: check it and try again.")
    except BaseException:
        document.close()
        raise
    return document


def check_password(path: Path, password: str | None) -> None:
    """Refuse a password that does not open a PDF. A file that is not encrypted accepts any, and none.

    Raises:
        BrokenFile: MuPDF cannot open it.
        PasswordNeeded, WrongPassword: it is encrypted.
    """
    with alone_with_mupdf():
        open_pdf(path, password).close()


def repair_warnings(messages: list[str]) -> list[str]:
    """Return MuPDF's messages as at most two warnings."""
    warnings = []
    if any("repair" in message for message in messages):
        warnings.append("The file is damaged and was repaired while reading: compare the result with the original.")
    rest = [message for message in messages if "error" in message.split(":")[0] and "xref" not in message]
    if rest:
        more = f" (and {len(rest) - 1} more)" if len(rest) > 1 else ""
        warnings.append(f"While reading, MuPDF reported: {one_line(rest[0])[:160]}{more}.")
    return warnings
