"""Ingesting in a process of its own, so that a file made to crash a parser ends that process and not the caller.

Parsers in C block all other threads while they work, and two kilobytes of PDF can unfold to any amount of text on a
single page. So the process has a limit of memory and of time for each page. It is the first to end when memory runs
out, and the caller can stop it at any moment.

The task goes to the process's standard input, since a list of processes must not show a password. The answer comes
from its standard output, one JSON value a line. The end of its standard error is kept, to explain a crash.

    document = ingest_in_subprocess(Path("book.pdf"))
    png = page_image_in_subprocess(Path("book.pdf"), 7, document.pages[6].text, 120, 180)
"""

import base64
import ctypes
import json
import logging
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ingest import errors
from ingest.clean import one_line
from ingest.document import Document
from ingest.errors import BrokenFile, IngestError, TooLarge
from ingest.office.legacy import office_folder
from ingest.sandbox import confine

PAGE_SEC = 1800
"""Longest processor time for one page, or for a whole file without pages; enough for the largest books."""
LEAST_SEC = 60
"""Processor time for the smallest files, which must not delay the others; see `seconds_for`."""
PICTURE_SEC = 60
"""Processor time to draw a page or try a password, while a person waits."""
MEMORY_SHARE = 0.5
"""Share of the machine's memory that the process may take."""
CONTAINER = Path("/sys/fs/cgroup")  # memory limits of a container on Linux
TICK_SEC = 0.2
"""Interval between calls of `on_page`, which may cancel."""
ENDING_SEC = 10
"""Time that a silent process gets to end by itself, as its exit status tells the reason."""
_COMPLAINT_BYTES = 2000
_PR_SET_PDEATHSIG = 1
_OUT_OF_MEMORY = re.compile(r"out of memory|MemoryError|bad_alloc|allocat", re.IGNORECASE)

log = logging.getLogger(__name__)


def ingest_in_subprocess(
    path: Path,
    *,
    title: str | None = None,
    password: str | None = None,
    ocr: bool | None = None,
    on_page: Callable[[int, int], None] = lambda done, total: None,
) -> Document:
    """Call `ingest.ingest` in a process of its own.

    `on_page` is also called between pages, with the last numbers again, (0, 0) at first.

    Raises:
        IngestError: also BrokenFile or TooLarge if the process crashed.
    """
    asked = {"title": title, "password": password, "ocr": ocr}
    return Document.from_json(_run("document", path, asked, seconds_for(path), on_page))


def seconds_for(path: Path) -> int:
    """Return the processor time for one page of a file, in seconds, by the file's unpacked size.

    A format without pages gets it for the whole file. OCR of a scanned page takes a minute or two; a scan has some tens
    of KiB at least.
    """
    size = 0
    with suppress(OSError):
        size = path.stat().st_size
    with suppress(Exception), zipfile.ZipFile(path) as archive:  # zipfile raises many kinds for a damaged archive
        size = max(size, sum(member.file_size for member in archive.infolist()))
    return min(PAGE_SEC, LEAST_SEC + min(size >> 10, 240) + 30 * (size >> 20))


def page_image_in_subprocess(
    path: Path, number: int, text: str, start: int, end: int, password: str | None = None
) -> bytes:
    """Call `ingest.print.page_image.page_image` in a process of its own.

    Raises:
        IngestError: also BrokenFile or TooLarge if the process crashed.
    """
    asked = {"number": number, "text": text, "start": start, "end": end, "password": password}
    return base64.b64decode(_run("picture", path, asked, PICTURE_SEC))


def highlighted_in_subprocess(path: Path, passages: Sequence[Mapping[str, Any]], password: str | None = None) -> bytes:
    """Call `ingest.print.page_image.highlighted` in a process of its own. passages: fields of each `Passage`.

    Raises:
        IngestError: also BrokenFile or TooLarge if the process crashed.
    """
    asked = {"passages": passages, "password": password}
    return base64.b64decode(_run("highlights", path, asked, seconds_for(path)))


def check_password_in_subprocess(path: Path, password: str | None) -> None:
    """Call `ingest.print.mupdf.check_password` in a process of its own.

    Raises:
        IngestError: also BrokenFile or TooLarge if the process crashed.
    """
    _run("password", path, {"password": password}, PICTURE_SEC)


def _run(
    task: str,
    path: Path,
    asked: dict[str, Any],
    page_sec: int,
    on_page: Callable[[int, int], None] = lambda done, total: None,
) -> Any:
    """Run one of `_tasks` in a process of its own and return its result, as JSON has it.

    Args:
        task: its name.
        path: the file.
        asked: its other arguments.
        page_sec: processor time for a page, in seconds.
        on_page: called with (pages done, pages in all).

    Raises:
        IngestError: the task's own, or BrokenFile or TooLarge if the process crashed.
    """
    with office_folder(path) as office:
        return _run_beside(office, task, path, asked, page_sec, on_page)


def _run_beside(
    office: Path | None,
    task: str,
    path: Path,
    asked: dict[str, Any],
    page_sec: int,
    on_page: Callable[[int, int], None],
) -> Any:
    """Do the work of `_run`. office: a folder in which LibreOffice may write, if the file needs it."""
    limits = {"page_sec": page_sec, "memory": int(MEMORY_SHARE * _memory()), "office": office and str(office)}
    root = Path(__file__).resolve().parent.parent
    code_at = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ingest.subprocess"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": code_at, **({"TMPDIR": str(office)} if office else {})},
        start_new_session=True,  # Ctrl-C goes to the caller, which then ends the process
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    complaint = bytearray()
    listener = threading.Thread(target=_keep_end, args=(process.stderr.fileno(), complaint), daemon=True)
    listener.start()
    try:
        with suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(json.dumps({"task": task, "path": str(path.absolute()), **limits, "asked": asked}).encode())
        last = _follow(process.stdout, on_page)
        if not last:
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_SEC)
        code = process.poll()  # None if it is silent and still runs
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        listener.join()
        process.stderr.close()
    if "done" in last:
        return last["done"]
    if "error" in last:
        raise getattr(errors, last["error"])(last["message"])
    raise _error_of_end(path.name, code, complaint.decode(errors="replace"), page_sec)


def _error_of_end(name: str, code: int | None, complaint: str, page_sec: int) -> IngestError:
    """Return the error for a process that ended without an answer. complaint: the end of its standard error."""
    if code is None:
        return BrokenFile(
            f"{name} could not be read: the program that reads it does not end. Convert it to plain text."
        )
    how = f"signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"status {code}"
    said = one_line((complaint.strip().splitlines() or [""])[-1])[-200:]
    log.warning("%s: the process that read it ended with %s: %s", name, how, said or "no word")
    if code == -getattr(signal, "SIGXCPU", 0):
        return TooLarge(f"{name} takes more than {page_sec:,} s for a single page, and was given up.")
    if code == -getattr(signal, "SIGKILL", 0) or _OUT_OF_MEMORY.search(said):
        return errors.out_of_memory(name)
    said = f" ({said})" if said else ""
    advice = "Convert it to plain text." if code < 0 else "Run `stockpot doctor`, which says what is not installed."
    return BrokenFile(f"{name} could not be read: the program that reads it ended with {how}{said}. {advice}")


def _keep_end(pipe: int, kept: bytearray) -> None:
    """Read a pipe until nobody holds it open any more, and keep the end of the output."""
    while piece := os.read(pipe, 1 << 16):
        kept += piece
        del kept[:-_COMPLAINT_BYTES]


def _follow(lines: IO[bytes], on_page: Callable[[int, int], None]) -> dict[str, Any]:
    """Report progress until the process ends; return its last message, or {} if it did not finish."""
    said: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        with suppress(ValueError):  # the pipe was closed, as nobody waits any more
            for line in lines:
                said.put(line)
        said.put(b"")

    threading.Thread(target=listen, daemon=True).start()
    done, total = 0, 0
    while True:
        try:
            line = said.get(timeout=TICK_SEC)
        except queue.Empty:
            on_page(done, total)
            continue
        if not line.endswith(b"\n"):  # the end, or a line that was cut off
            return {}
        told: dict[str, Any] = json.loads(line)
        if "page" not in told:
            return told
        done, total = told["page"]
        on_page(done, total)


def _memory() -> int:
    """Return the bytes of memory of the machine, or of its container if it may take fewer."""
    import psutil  # only the caller needs it

    most = psutil.virtual_memory().total
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no container, or no limit ("max")
            most = min(most, int((CONTAINER / name).read_text()))
    return most


def _limit_resources(page_sec: int, memory: int) -> Callable[[], None]:
    """Limit this process's memory in bytes; return a function that grants the time for another page.

    Does nothing on Windows.
    """
    try:
        import resource
    except ImportError:
        return lambda: None
    with suppress(ValueError, OSError):  # the system has no such limit, or a lower one
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def renew() -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        with suppress(ValueError, OSError):
            most = resource.getrlimit(resource.RLIMIT_CPU)[1]
            resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + page_sec, most))

    renew()
    return renew


def _end_with_caller() -> None:
    """Have Linux end this process when the caller's thread ends, for whatever reason."""
    with suppress(AttributeError, OSError):  # other systems
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_first_without_memory() -> None:
    """Have Linux end this process first when memory runs out: a reading beside it may have planned with it."""
    with suppress(OSError):  # other systems
        Path("/proc/self/oom_score_adj").write_text("1000")


def main() -> None:
    """Do the task given on standard input."""
    _end_with_caller()
    _end_first_without_memory()
    # This part of PyMuPDF loads a neural network, which takes long and is not used.
    sys.modules["pymupdf.layout"] = None  # type: ignore[assignment]
    given = json.loads(sys.stdin.buffer.read())
    task = _tasks()[given["task"]]
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # parsers may print to standard output

    def say(**told: Any) -> None:
        out.write(json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
        out.flush()

    renew = _limit_resources(given["page_sec"], given["memory"])
    confine([Path(given["path"])], given["office"] and Path(given["office"]))

    def on_page(done: int, total: int) -> None:
        renew()
        say(page=(done, total))

    try:
        say(done=task(Path(given["path"]), given["asked"], on_page))
    except IngestError as error:
        say(error=type(error).__name__, message=str(error))


def _tasks() -> dict[str, Callable[[Path, dict[str, Any], Callable[[int, int], None]], Any]]:
    """Return the tasks by name: functions of a file, arguments and a progress callback that return JSON values."""
    from ingest import ingest

    def document(path: Path, asked: dict[str, Any], on_page: Callable[[int, int], None]) -> Any:
        return ingest(path, **asked, on_page=on_page).to_json()

    def picture(path: Path, asked: dict[str, Any], on_page: Callable[[int, int], None]) -> Any:
        from ingest.print.page_image import page_image  # PyMuPDF takes a second to load

        return base64.b64encode(page_image(path, **asked)).decode()

    def highlights(path: Path, asked: dict[str, Any], on_page: Callable[[int, int], None]) -> Any:
        from ingest.print.page_image import Passage, highlighted

        passages = [Passage(**each) for each in asked["passages"]]
        return base64.b64encode(highlighted(path, passages, asked["password"])).decode()

    def password(path: Path, asked: dict[str, Any], on_page: Callable[[int, int], None]) -> None:
        from ingest.print.mupdf import check_password

        check_password(path, **asked)

    return {"document": document, "picture": picture, "highlights": highlights, "password": password}


if __name__ == "__main__":
    main()
