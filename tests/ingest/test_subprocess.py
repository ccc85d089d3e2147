"""Ingesting in a process of its own, with files made to take all time and memory."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pymupdf
import pytest

from ingest import BrokenFile, PasswordNeeded, TooLarge, ingest
from ingest.subprocess import ingest_in_subprocess, seconds_for
from tests.ingest import makers

ROOT = Path(__file__).resolve().parents[2]


class Stopped(Exception):
    """Raised by a caller to cancel."""


def children() -> str:
    return "".join(each.read_text() for each in Path("/proc/self/task").glob("*/children"))


def test_it_is_the_document_that_it_is_otherwise(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    path = makers.pdf(tmp_path / "a b\u0301.pdf", [[(50, 300, "The keeper of the lamp was Orla Quent.")], []])
    document = ingest_in_subprocess(path, title="Näme", on_page=lambda done, total: told.append((done, total)))
    assert document == ingest(path, title="Näme")
    assert told[-1] == (2, 2)
    assert set(told) <= {(0, 0), (1, 2), (2, 2)}


def test_what_is_wrong_with_a_file_is_said_as_otherwise(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"odd\xff.pdf")
    odd.write_bytes(b"%PDF-1.4 nonsense")
    for path in (odd, tmp_path / "missing.txt"):
        with pytest.raises(BrokenFile) as here:
            ingest(path)
        with pytest.raises(BrokenFile) as there:
            ingest_in_subprocess(path)
        assert str(there.value) == str(here.value)


def test_a_password_is_in_no_list_of_processes(tmp_path: Path) -> None:
    locked = {"encryption": pymupdf.PDF_ENCRYPT_AES_256, "user_pw": "swordfish"}
    path = makers.pdf(tmp_path / "locked.pdf", [[(50, 300, "The keeper of the lamp was Orla Quent.")]], **locked)
    with pytest.raises(PasswordNeeded):
        ingest_in_subprocess(path)
    seen: list[bytes] = []

    def look(done: int, total: int) -> None:
        for child in children().split():
            seen.append(Path(f"/proc/{child}/cmdline").read_bytes() + Path(f"/proc/{child}/environ").read_bytes())

    assert ingest_in_subprocess(path, password="swordfish", on_page=look).text
    assert any(b"ingest.subprocess" in each for each in seen)
    assert not any(b"swordfish" in each for each in seen)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not choose what ends where memory runs out")
def test_where_memory_runs_out_it_ends_before_anything_else(tmp_path: Path) -> None:
    """A parser took the memory that a reading had planned with, and the system might have ended the reading."""
    scores: set[str] = set()

    def look(done: int, total: int) -> None:
        if done:
            scores.update(Path(f"/proc/{child}/oom_score_adj").read_text().strip() for child in children().split())

    ingest_in_subprocess(
        makers.pdf(tmp_path / "lamp.pdf", [[(50, 300, "The keeper was Orla Quent.")]] * 40), on_page=look
    )
    assert "1000" in scores


def test_a_page_without_end_can_be_stopped(tmp_path: Path) -> None:
    """Nothing else in the process could run, and its memory grew by gigabytes."""
    asked = 0

    def stop(done: int, total: int) -> None:
        nonlocal asked
        asked += 1
        if asked == 25:  # after some seconds the page is being read
            raise Stopped

    before = children()
    with pytest.raises(Stopped):
        ingest_in_subprocess(makers.unfolding_pdf(tmp_path / "bomb.pdf"), on_page=stop)
    assert children() == before


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell a process that its parent has ended")
def test_it_ends_with_whoever_asked(tmp_path: Path) -> None:
    """A killed program left it behind, taking ever more memory."""
    path = makers.unfolding_pdf(tmp_path / "bomb.pdf")
    made = f"ingest_in_subprocess(Path({str(path)!r}), on_page=lambda *_: print('on', flush=True))"
    code = f"from ingest.subprocess import *; {made}"
    caller = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    assert caller.stdout
    for _ in range(25):
        assert caller.stdout.readline() == b"on\n"
    children = Path(f"/proc/{caller.pid}/task/{caller.pid}/children").read_text().split()
    assert len(children) == 1
    caller.kill()
    caller.wait()
    caller.stdout.close()
    started = time.monotonic()
    while (stat := Path(f"/proc/{children[0]}/stat")).exists() and stat.read_text().rpartition(")")[2].split()[
        0
    ] != "Z":
        assert time.monotonic() - started < 240
        time.sleep(0.1)


def test_a_page_without_end_ends_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.subprocess.PAGE_SEC", 2)
    with pytest.raises(TooLarge, match=r"bomb\.pdf takes more than 2 s for a single page"):
        ingest_in_subprocess(makers.unfolding_pdf(tmp_path / "bomb.pdf"))


def test_small_files_have_little_time_and_large_ones_much(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for size, seconds in ((3_000, 62), (300_000, 300), (10 << 20, 600), (900 << 20, 1800)):
        with path.open("wb") as file:
            file.truncate(size)
        assert seconds_for(path) == seconds
    makers.archive(path, {"a.xml": bytes(10 << 20)})
    assert path.stat().st_size < 1 << 20
    assert seconds_for(path) == 600
    assert seconds_for(tmp_path / "none") == 60


def test_forms_within_forms_end_when_the_time_of_a_small_file_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.subprocess.LEAST_SEC", 1)
    bomb = makers.unfolding_pdf(tmp_path / "bomb.pdf")
    with pytest.raises(TooLarge, match=rf"bomb\.pdf takes more than {1 + (bomb.stat().st_size >> 10)} s"):
        ingest_in_subprocess(bomb)


def test_any_number_of_attributes_is_read_at_once(tmp_path: Path) -> None:
    """Comparing them took the square of their number: minutes."""
    path = tmp_path / "a.html"
    many = " ".join(f'a{number}="x"' for number in range(200_000))
    path.write_text(f"<html><body><p {many}>Words of it.</p><p title='{'y ' * 3000}'>More.</p></body></html>")
    assert ingest(path).text == "Words of it.\n\nMore."


def test_a_file_that_takes_all_memory_ends_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("2000000000\n")
    monkeypatch.setattr("ingest.subprocess.CONTAINER", tmp_path)
    path = tmp_path / "large.html"
    path.write_text("<p>" + "<i>x</i> " * 6_000_000)
    with pytest.raises(BrokenFile, match=r"large\.html"):
        ingest_in_subprocess(path)


@pytest.mark.parametrize(
    ("does", "words"),
    [
        (
            "raise ImportError('a codec is missing')",
            "status 1 (ImportError: a codec is missing). Run `stockpot doctor`",
        ),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "signal 11 (Segmentation fault). Convert it to plain text"),
        ("raise MemoryError", "more memory than there is"),
        ("os.write(2, b'x' * 10**6 + b'std::bad_alloc'); os.abort()", "more memory than there is"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "more memory than there is"),
        ("os._exit(3)", "status 3. Run"),
    ],
)
def test_why_the_process_ended_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    does: str,
    words: str,
) -> None:
    """A broken installation was reported as a file that takes too much memory."""
    limited = "import os, resource, signal; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))"
    (tmp_path / "chardet.py").write_text(f"{limited}\n{does}\n")  # found before the real one
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "a.txt").write_text("Words.")
    with pytest.raises(BrokenFile, match=r"a\.txt could not be read") as caught:
        ingest_in_subprocess(tmp_path / "a.txt")
    assert words in str(caught.value)
    assert ("memory" in str(caught.value)) == ("memory" in words)
    assert "a.txt: the process that read it ended with " in caplog.text


def test_a_process_that_says_nothing_and_does_not_end_is_not_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chardet.py").write_text("import os, time; os.dup2(2, 1); time.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("ingest.subprocess.ENDING_SEC", 0.2)
    (tmp_path / "a.txt").write_text("Words.")
    with pytest.raises(BrokenFile, match="does not end"):
        ingest_in_subprocess(tmp_path / "a.txt")


def test_only_what_needs_it_loads_what_is_slow_to_load(tmp_path: Path) -> None:
    """Each file has a process of its own, and PyMuPDF takes a second to load."""
    (tmp_path / "a.txt").write_text("The lamp.")
    code = "import sys; from pathlib import Path; from ingest import ingest; print(ingest(Path('a.txt')).text)"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}; print({{'pymupdf', 'docx', 'pptx'}} & set(sys.modules))"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split("\n") == ["The lamp.", "set()", ""]
