"""`stockpot chat`: questions from a program, and from a person at a terminal."""

import io
import json
import os
import pty
import re
import select
from io import FileIO
from typing import Any

import pytest

from sessions import Store
from tests.app.forked import start_program
from tests.app.helpers import PATIENCE_SEC, Cli, in_process


def test_chat_answers_every_line(
    read: tuple[Cli, dict[str, Any], str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli, result, _ = read
    monkeypatch.setattr("sys.stdin", io.StringIO("Who?\n\nWhere?\n /quit \nWhen?\n"))
    status, _, err = in_process(cli.home, capsys, "chat", result["context"][:4], "--max-tokens", "8")
    session = re.search(r"Session (s-\w+)", err)
    assert status == 0
    assert session
    shown = json.loads(in_process(cli.home, capsys, "show", session[1], "--json")[1])
    assert [turn["question"] for turn in shown["turns"]] == ["Who?", "Where?"]
    exported = in_process(cli.home, capsys, "export", session[1])[1]
    assert "Who?" in exported
    assert "The Keeper" in exported
    exported = in_process(cli.home, capsys, "export", session[1], "--format", "json")[1]
    assert json.loads(exported)["turns"][1]["question"] == "Where?"


def test_chat_at_a_terminal_has_lines_that_can_be_edited_and_called_up_again(
    read: tuple[Cli, dict[str, Any], str],
) -> None:
    """Arrow keys became four characters of the question, and a paste ended at 4,095 bytes."""
    cli, result, _ = read
    keyboard, terminal = pty.openpty()
    chat = ["--home", str(cli.home), "--model", cli.model, "chat", result["context"], "--max-tokens", "4"]
    with os.fdopen(keyboard, "r+b", buffering=0) as tab_state:
        process = start_program("tests.app.slow", [str(cli.home / "not-held"), *chat], *[os.ttyname(terminal)] * 3)
        for keys in (b"Why?\x1b[D\x7fo\r", b"\x1b[A\r", b"so " * 1400 + b"?\r", b"\x04"):
            until_shown(tab_state, b"> ")
            tab_state.write(keys)
        os.close(terminal)
        until_shown(tab_state, None)
        process.join(PATIENCE_SEC)
        assert process.exitcode == 0
    with Store(cli.home) as store:
        turns = store.turns.all(store.sessions.all()[0].id)
    assert [turn.question for turn in turns] == ["Who?", "Who?", "so " * 1400 + "?"]


def until_shown(tab_state: FileIO, words: bytes | None) -> None:
    """Wait for words on a terminal's screen; None waits for its end."""
    shown = b""
    while words is None or words not in shown:
        ready = select.select([tab_state], [], [], PATIENCE_SEC)[0]
        assert ready, f"{words!r} did not come: {shown!r}"
        try:
            shown += tab_state.read(10_000)
        except OSError:  # the other end is closed
            assert words is None, f"{words!r} did not come: {shown!r}"
            return


def test_chat_goes_on_after_a_question_that_is_too_long(
    read: tuple[Cli, dict[str, Any], str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chat ended, and later questions were lost."""
    cli, result, _ = read
    monkeypatch.setattr("sys.stdin", io.StringIO(f"Who?\n{'why ' * 9000}\nWhere?\n"))
    status, _, err = in_process(cli.home, capsys, "chat", result["context"], "--max-tokens", "4")
    session = re.search(r"Session (s-\w+)", err)
    assert (status, "at most 20,000" in err) == (1, True)
    assert session
    shown = json.loads(in_process(cli.home, capsys, "show", session[1], "--json")[1])
    assert [turn["question"] for turn in shown["turns"]] == ["Who?", "Where?"]
