"""Files are opened in a process of their own: one made to confuse a parser ends that process, and not who asked.

Parsers in C let no other thread run while they work, and two kilobytes of PDF can unfold to any amount of text, on a
single page. So the process has a share of the memory and a time for each page, is the first to end where memory runs
out, and can be stopped at any moment. What it is to do comes to its standard input, as no password may be seen in a
list of processes; what comes of it goes to its standard output, a JSON value on each line. Of its standard error the
end is kept, in case it ends without an answer.

    document = ingest_apart(Path("book.pdf"))
    png = picture_apart(Path("book.pdf"), 7, document.pages[6].text, 120, 180)
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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ingest import errors
from ingest.clean import one_line
from ingest.document import Document
from ingest.errors import BrokenFile, IngestError, TooLarge

PAGE_SEC = 1800
"""Processor time for one page, or for all of a file that has none, at most: long enough for the largest books."""
LEAST_SEC = 60
"""The same of the smallest files, which must not hold up the others; see `seconds_for`."""
PICTURE_SEC = 60
"""Processor time for the picture of a page, or to try a password: somebody waits for it."""
MEMORY_SHARE = 0.5
"""Of the memory that there is."""
CONTAINER = Path("/sys/fs/cgroup")  # where Linux says how much memory a container may take
TICK_SEC = 0.2
"""The caller is asked this often whether to go on."""
ENDING_SEC = 10
"""A process that says nothing more has so long to end by itself: how it ended says why."""
_COMPLAINT_BYTES = 2000
_PR_SET_PDEATHSIG = 1
_OUT_OF_MEMORY = re.compile(r"out of memory|MemoryError|bad_alloc|allocat", re.IGNORECASE)

log = logging.getLogger(__name__)


def ingest_apart(
    path: Path,
    *,
    title: str | None = None,
    password: str | None = None,
    ocr: bool | None = None,
    on_page: Callable[[int, int], None] = lambda done, total: None,
) -> Document:
    """As `ingest.ingest`, apart; `on_page` is also called between pages, with the same numbers again, 0 at first.

    Raises:
        IngestError: also BrokenFile or TooLarge where the process came to an end by itself.
    """
    asked = {"title": title, "password": password, "ocr": ocr}
    return Document.from_json(_apart("document", path, asked, seconds_for(path), on_page))


def seconds_for(path: Path) -> int:
    """Processor time for one page of a file, or for all of one that has none, by its size when it is unpacked.

    A scanned page, which takes a minute or two where its text is recognised, has some tens of KiB at least.
    """
    size = 0
    with suppress(OSError):
        size = path.stat().st_size
    with suppress(Exception), zipfile.ZipFile(path) as archive:  # whatever a damaged archive makes it raise
        size = max(size, sum(member.file_size for member in archive.infolist()))
    return min(PAGE_SEC, LEAST_SEC + min(size >> 10, 240) + 30 * (size >> 20))


def picture_apart(path: Path, number: int, text: str, start: int, end: int, password: str | None = None) -> bytes:
    """As `ingest.print.page_image.picture_of`, apart.

    Raises:
        IngestError: also BrokenFile or TooLarge where the process came to an end by itself.
    """
    asked = {"number": number, "text": text, "start": start, "end": end, "password": password}
    return base64.b64decode(_apart("picture", path, asked, PICTURE_SEC))


def check_password_apart(path: Path, password: str | None) -> None:
    """As `ingest.print.pdf.check_password`, apart.

    Raises:
        IngestError: also BrokenFile or TooLarge where the process came to an end by itself.
    """
    _apart("password", path, {"password": password}, PICTURE_SEC)


def _apart(
    work: str,
    path: Path,
    asked: dict[str, Any],
    page_sec: int,
    on_page: Callable[[int, int], None] = lambda done, total: None,
) -> Any:
    """What comes of one of `_works`, as JSON. asked: its arguments.

    Raises:
        IngestError: its own, or BrokenFile or TooLarge where it came to no end.
    """
    limits = {"page_sec": page_sec, "memory": int(MEMORY_SHARE * _memory())}
    root = Path(__file__).resolve().parent.parent
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ingest.subprocess"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))},
        start_new_session=True,  # Ctrl-C is for the caller, who then ends it
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    complaint = bytearray()
    listener = threading.Thread(target=_keep_end, args=(process.stderr.fileno(), complaint), daemon=True)
    listener.start()
    try:
        with suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(json.dumps({"work": work, "path": str(path.absolute()), **limits, "asked": asked}).encode())
        last = _follow(process.stdout, on_page)
        if not last:
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_SEC)
        code = process.poll()  # None where it says nothing more and does not end
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
    raise _ended(path.name, code, complaint.decode(errors="replace"), page_sec)


def _ended(name: str, code: int | None, complaint: str, page_sec: int) -> IngestError:
    """What to say of a process that ended without an answer. complaint: the end of its standard error."""
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
    """Take in what is written to a pipe until nobody has it open any more, and keep the end of it."""
    while piece := os.read(pipe, 1 << 16):
        kept += piece
        del kept[:-_COMPLAINT_BYTES]


def _follow(lines: IO[bytes], on_page: Callable[[int, int], None]) -> dict[str, Any]:
    """Tell how far it is until it has ended; what it said last, nothing if it did not come to its end."""
    said: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        with suppress(ValueError):  # closed, as nobody waits for it any more
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
        if not line.endswith(b"\n"):  # also where it was cut off
            return {}
        told: dict[str, Any] = json.loads(line)
        if "page" not in told:
            return told
        done, total = told["page"]
        on_page(done, total)


def _memory() -> int:
    """Bytes that the machine has, or that its container may take if they are fewer."""
    import psutil  # by the caller, and not for every file

    most = psutil.virtual_memory().total
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no container, or the word max
            most = min(most, int((CONTAINER / name).read_text()))
    return most


def _limit(page_sec: int, memory: int) -> Callable[[], None]:
    """Take no more than so many bytes; returns what gives the time for another page. Not on Windows."""
    try:
        import resource
    except ImportError:
        return lambda: None
    with suppress(ValueError, OSError):  # a system that has no such limit, or a lower one
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
    """Have Linux end this process when the caller's thread ends, however that does."""
    with suppress(AttributeError, OSError):  # other systems
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_first() -> None:
    """Where memory runs out, have Linux end this process: a reading that goes on beside it may have planned with it."""
    with suppress(OSError):  # other systems
        Path("/proc/self/oom_score_adj").write_text("1000")


def main() -> None:
    """Do what standard input asks for."""
    _end_with_caller()
    _end_first()
    # Of PyMuPDF it is what loads a neural network, which takes as long as all the rest, and is not asked for here.
    sys.modules["pymupdf.layout"] = None  # type: ignore[assignment]
    given = json.loads(sys.stdin.buffer.read())
    work = _works()[given["work"]]
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a parser prints is no answer

    def say(**told: Any) -> None:
        out.write(json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
        out.flush()

    renew = _limit(given["page_sec"], given["memory"])

    def on_page(done: int, total: int) -> None:
        renew()
        say(page=(done, total))

    try:
        say(done=work(Path(given["path"]), given["asked"], on_page))
    except IngestError as error:
        say(error=type(error).__name__, message=str(error))


def _works() -> dict[str, Callable[[Path, dict[str, Any], Callable[[int, int], None]], Any]]:
    """What can be asked for: functions of a file, arguments, and whom to tell of pages, that return JSON."""
    from ingest import ingest

    def document(path: Path, asked: dict[str, Any], on_page: Callable[[int, int], None]) -> Any:
        return ingest(path, **asked, on_page=on_page).to_json()

    def picture(path: Path, asked: dict[str, Any], on_page: Callable[[int, int], None]) -> Any:
        from ingest.print.page_image import picture_of  # PyMuPDF takes a second to load

        return base64.b64encode(picture_of(path, **asked)).decode()

    def password(path: Path, asked: dict[str, Any], on_page: Callable[[int, int], None]) -> None:
        from ingest.print.pdf import check_password

        check_password(path, **asked)

    return {"document": document, "picture": picture, "password": password}


if __name__ == "__main__":
    main()
