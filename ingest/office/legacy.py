"""Office files of before 2007 (DOC, XLS, PPT): LibreOffice converts them to DOCX, XLSX or PPTX, which are then read.

LibreOffice runs without a window, with a new profile, a time limit, and the confinement of the process that asks for
it (`ingest.sandbox`). It opens no macro: that is its default, and the profile is new.
"""

import ctypes
import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ingest.clean import one_line
from ingest.conversion import Content, ConvertOptions
from ingest.errors import BrokenFile, UnsupportedFormat
from ingest.sample import HEAD_BYTES, OLE, Sample
from ingest.sandbox import SOCKETS

CONVERT_SEC = 300
"""Longest time that LibreOffice may take."""
_NEWER = {"doc": "docx", "xls": "xlsx", "ppt": "pptx"}
_AGAIN = 81  # status that asks for another start, as the profile was new
_STARTS = 3
_PLACES = ("/Applications/LibreOffice.app/Contents/MacOS/soffice", "C:/Program Files/LibreOffice/program/soffice.exe")
_PR_SET_PDEATHSIG = 1


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert an old Office file.

    Raises:
        UnsupportedFormat: LibreOffice is not installed.
        BrokenFile: LibreOffice cannot open it.
        IngestError: as for the newer format.
    """
    with path.open("rb") as file:
        kind = Sample(path, file.read(HEAD_BYTES), "", quotes_markup=False).old_office
    newer, program = _NEWER[kind], office_program()
    if program is None:
        raise UnsupportedFormat(
            f"{path.name} is an Office file of before 2007 ({kind.upper()}): install LibreOffice, through which "
            f"Stockpot then reads it, or save it as {newer.upper()} or PDF."
        )
    with tempfile.TemporaryDirectory(prefix="stockpot-") as folder:
        made = _converted(program, path, Path(folder), kind, newer)
        options.limits.check(path.name, "bytes", made.stat().st_size, options.limits.file_bytes)
        content: Content = importlib.import_module(f"ingest.office.{newer}").convert(made, options)
    said = f"Read as LibreOffice converts it to {newer.upper()}: compare what matters with the original."
    return replace(content, warnings=[said, *content.warnings])


@contextmanager
def office_folder(path: Path) -> Iterator[Path | None]:
    """Make a folder in which a confined process may let LibreOffice convert a file; none if the file needs none.

    At the end the folder is removed, and so are the sockets of LibreOffice, which it may make but not remove.
    """
    with suppress(OSError), path.open("rb") as file:
        head = file.read(len(OLE))
    if not path.is_file() or head != OLE or office_program() is None:
        yield None
        return
    started = time.time()
    try:
        with tempfile.TemporaryDirectory(prefix="stockpot-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
    finally:
        for each in SOCKETS.glob("OSL_PIPE_SingleOfficeIPC_*"):
            with suppress(OSError):
                if each.stat().st_mtime >= started - 1 and not _is_listening(each):
                    each.unlink()


def _is_listening(path: Path) -> bool:
    """Return whether a program waits at a socket."""
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(str(path))
        except ConnectionRefusedError:
            return False
    return True


def office_program() -> Path | None:
    """Return LibreOffice's program, or None if it is not installed."""
    found = shutil.which("soffice") or shutil.which("libreoffice") or next(filter(os.path.exists, _PLACES), None)
    if found is None:
        return None
    real = Path(found).resolve().with_name("soffice.bin")  # the others start it, and outlive their caller
    return real if real.exists() else Path(found)


def _converted(program: Path, path: Path, folder: Path, kind: str, newer: str) -> Path:
    source = folder / f"document.{kind}"
    shutil.copyfile(path, source)
    places = {"HOME": str(folder), "TMPDIR": str(folder), "SAL_USE_VCLPLUGIN": "svp"}
    said = ""
    try:
        for start in range(_STARTS):
            profile = folder / f"profile-{start}"
            if start:  # its socket is named after the profile, and the last one is still there
                (folder / f"profile-{start - 1}").rename(profile)
            done = subprocess.run(
                [
                    *(
                        program,
                        f"-env:UserInstallation={profile.as_uri()}",
                        "--headless",
                        "--norestore",
                        "--nolockcheck",
                    ),
                    *("--convert-to", newer, "--outdir", folder, source),
                ],
                env={**os.environ, **places},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=CONVERT_SEC,
                preexec_fn=_end_with_caller if sys.platform == "linux" else None,
            )
            said = one_line(done.stderr.decode(errors="replace"))[-120:]
            if done.returncode != _AGAIN:
                break
    except subprocess.TimeoutExpired as error:
        raise BrokenFile(
            f"{path.name} takes LibreOffice more than {CONVERT_SEC} s, and was given up. "
            f"Open it in an Office program and save it as {newer.upper()}."
        ) from error
    made = source.with_suffix(f".{newer}")
    if not made.exists():
        said = f" ({said})" if said else ""
        raise BrokenFile(
            f"{path.name} cannot be opened by LibreOffice{said}: it is damaged or has a password. "
            f"Fetch it again, or open it in an Office program and save it as {newer.upper()} without one."
        )
    return made


def _end_with_caller() -> None:
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
