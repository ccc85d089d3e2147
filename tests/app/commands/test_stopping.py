"""The command line when it is stopped by Ctrl-C, `kill` or a closed terminal, and when it goes on."""

import functools
import io
import json
import os
import pty
import re
import select
import signal
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from app.commands.common import ProgressLine, note
from app.formatting import printable
from sessions import Store
from tests.app.forked import start_program
from tests.app.helpers import PATIENCE_SEC, begin, book_text, in_process, wait_for


def shown_on(tab_state: FileIO, words: bytes, process: ForkServerProcess) -> None:
    """Wait until these words appear on the screen of a process's terminal."""
    shown = b""
    while words not in shown:
        over = not process.is_alive()  # before its last words are searched for
        if select.select([tab_state], [], [], 0.1)[0]:
            shown += tab_state.read(10_000)
        else:
            assert not over, f"{words!r} did not come: {shown!r}"


@contextmanager
def ingesting(home: Path, model: Path, book: Path) -> Iterator[tuple[ForkServerProcess, FileIO]]:
    """Start `stockpot ingest` at a terminal of its own, and return the process and the screen.

    It stays at its first pass until it is stopped.
    """
    tab_state, terminal = os.openpty()
    (held := home.parent / "held").touch()
    ingest = [str(held), "--home", str(home), "--model", str(model), "ingest", str(book)]
    with os.fdopen(terminal), FileIO(tab_state) as seen:
        process = start_program("tests.app.slow", ingest, stderr=os.ttyname(terminal))
        try:
            shown_on(seen, b"reading, ", process)
            yield process, seen
        finally:
            process.kill()
            process.join(PATIENCE_SEC)
    held.unlink()


def test_ingest_stopped_by_a_signal_goes_on_where_it_was(
    tmp_path: Path, tiny: Path, book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    with ingesting(home, tiny, book) as (process, tab_state):
        process.terminate()
        shown_on(tab_state, b"goes on from there", process)
        process.join(PATIENCE_SEC)
        assert process.exitcode == 1
    with Store(home) as store:
        row = store.contexts.all()[0]
    assert row.status == "paused"
    assert 0 < row.tokens_read < row.tokens
    status, out, _ = in_process(home, capsys, "--model", str(tiny), "ingest", str(book), "--json")
    assert (status, json.loads(out)["context"]) == (0, row.id)


def test_ingest_whose_terminal_is_closed_keeps_what_was_read(tmp_path: Path, tiny: Path, book: Path) -> None:
    home = tmp_path / "home"
    with ingesting(home, tiny, book) as (process, tab_state):
        tab_state.close()
        os.kill(process.pid or 0, signal.SIGHUP)  # as a shell does when it gets the signal
        process.join(PATIENCE_SEC)
        assert process.exitcode == 1
    with Store(home) as store:
        row = store.contexts.all()[0]
    assert row.status == "paused"
    assert 0 < row.tokens_read < row.tokens


def test_a_reading_that_was_stopped_goes_on_by_its_id(
    tmp_path: Path, tiny: Path, book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from app.jobs.work import Stopped
    from app.reading.documents import IngestOptions, add_documents
    from app.reading.readings import read
    from app.service import Service

    home = tmp_path / "home"
    service = Service(home, str(tiny), "cpu")
    added = add_documents(service, [book], IngestOptions(), lambda *_: None)
    row = begin(service, [added.documents[0].id], "infinipot", {"budget": 320}, warnings=["It is torn."])
    status, out, err = in_process(home, capsys, "resume", row.id)  # this process holds it, and goes on
    assert (status, out) == (1, "")
    assert "being read right now" in err
    steps: list[object] = []
    with pytest.raises(Stopped):
        read(service, row.id, steps.append, lambda: len(steps) >= 4)
    before = service.store.contexts.get(row.id).tokens_read
    service.close()
    status, out, err = in_process(home, capsys, "ask", row.id, "Who?", "--max-tokens", "8")
    assert (status, bool(out.strip())) == (0, True)
    assert (
        f"Asked when {int(100 * before / row.tokens)}% of the text had been read: it knew nothing of the rest." in err
    )
    status, out, err = in_process(home, capsys, "--model", "somebody/large", "resume", "The Keeper", "--json")
    result = json.loads(out)
    assert (status, result["context"], result["method"]) == (0, row.id, "infinipot")
    assert result["warnings"] == ["It is torn."]
    assert "--model and --quantize are for new readings" in err
    with Store(home) as store:
        done = store.contexts.get(row.id)
    assert (done.status, 0 < before < done.tokens_read == done.tokens) == ("ready", True)
    status, out, err = in_process(home, capsys, "resume", row.id)
    assert (status, row.id in out) == (0, True)
    assert "Nothing had to be read" in err


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> tuple[Path, str]:
    """Return a home with one short reading by a model that does not stop talking, and the context."""
    from app.reading.documents import IngestOptions, add_documents
    from app.reading.readings import read
    from app.service import Service

    folder = tmp_path_factory.mktemp("talkative")
    book = folder / "The Keeper.txt"
    book.write_text(book_text(4), encoding="utf-8")
    service = Service(folder / "home", str(tiny), "cpu")
    added = add_documents(service, [book], IngestOptions(), lambda *_: None)
    row = read(service, begin(service, [added.documents[0].id], "exact", {"budget": 320}).id, lambda report: None)
    service.close()
    return folder / "home", row.id


@pytest.fixture(autouse=True)
def hears_interrupts() -> Iterator[None]:
    """Restore Ctrl-C, which background processes of a shell ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupting(home: Path, *questions: str) -> threading.Thread:
    """Press Ctrl-C when the first words of the answer to each of these questions appear."""

    def answering(store: Store) -> list[str]:
        turns = [turn for session in store.sessions.all() for turn in store.turns.all(session.id)]
        return [turn.question for turn in turns if turn.status == "answering" and len(turn.answer) > 5]

    def watch() -> None:
        with Store(home) as store:
            for question in questions:
                wait_for(functools.partial(lambda wanted: wanted in answering(store), question), "the first words")
                os.kill(os.getpid(), signal.SIGINT)

    return threading.Thread(target=watch)


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_signal_cancels_an_answer(
    held: threading.Event, talkative: tuple[Path, str], capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    """The answer was marked as failed."""
    held.set()
    home, context = talkative
    question = f"Who {' '.join(flags)}?"
    person = interrupting(home, question)
    person.start()
    status, out, err = in_process(home, capsys, "ask", context, question, *flags, "--max-tokens", "5000")
    person.join()
    with Store(home) as store:
        [turn] = [
            turn for row in store.sessions.all(context) for turn in store.turns.all(row.id) if turn.question == question
        ]
    assert (status, turn.status, turn.error) == (1, "cancelled", None)
    assert out == ("" if flags else printable(turn.answer) + "\n")
    assert f"Stopped; the question is kept in session {turn.session_id}" in err


def test_progress_stays_one_line_of_a_narrow_terminal_and_ends_before_what_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It wrapped, a file's name could steer the terminal, and the result followed on the same line."""
    tab_state, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 20))
    with os.fdopen(tab_state, "rb", buffering=0) as seen, os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        with ProgressLine() as line:
            line.show("a\x1b[31m\nb.txt: page 1 of 1,000")
        note("Read.")
        shown = b""
        while not shown.endswith(b"Read.\r\n") and select.select([seen], [], [], PATIENCE_SEC)[0]:  # it comes in pieces
            shown += seen.read(200)
        assert shown == b"\ra[31m b.txt: page\xe2\x80\xa6\r\nRead.\r\n"


def test_a_chat_at_a_terminal_goes_on_after_an_answer_was_stopped(
    held: threading.Event,
    talkative: tuple[Path, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: the chat ended."""
    held.set()
    home, context = talkative
    keyboard, terminal = pty.openpty()
    person = interrupting(home, "Where?", "When?")
    with os.fdopen(keyboard, "wb", buffering=0) as typed, os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        typed.write(b"Where?\nWhen?\n\x04")
        person.start()
        status, _, err = in_process(home, capsys, "chat", context, "--max-tokens", "5000")
        person.join()
    assert (status, err.count("Stopped; the question is kept")) == (0, 2)
    session = re.search(r"Session (s-\w+)", err)
    assert session is not None
    with Store(home) as store:
        turns = [(turn.question, turn.status) for turn in store.turns.all(session[1])]
    assert turns == [("Where?", "cancelled"), ("When?", "cancelled")]


def test_questions_from_a_file_end_with_the_answer_that_was_stopped(
    held: threading.Event,
    talkative: tuple[Path, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held.set()
    home, context = talkative
    monkeypatch.setattr("sys.stdin", io.StringIO("Why?\nWhy not?\n"))
    person = interrupting(home, "Why?")
    person.start()
    status, _, err = in_process(home, capsys, "chat", context, "--max-tokens", "5000")
    person.join()
    session = re.search(r"Session (s-\w+)", err)
    assert session is not None
    with Store(home) as store:
        turns = [(turn.question, turn.status) for turn in store.turns.all(session[1])]
    assert (status, turns) == (1, [("Why?", "cancelled")])
