"""Options before `bench` reach each benchmark, and wrong usage is a sentence."""

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.errors import AppError
from benchmarks import latency, options, report
from benchmarks.haystack import Haystack

COMMANDS = {"needle": (), "latency": ("--in-process",)}


@pytest.mark.parametrize("own", [(), ("--seed", "8", "--quantize", "8bit", "--model", "org/small")])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_benchmark_takes_the_global_options_and_prefers_its_own(
    monkeypatch: pytest.MonkeyPatch, name: str, own: tuple[str, ...]
) -> None:
    loaded: list[argparse.Namespace] = []
    drawn: list[int] = []

    def draw(self: Haystack, *wanted: Any) -> None:
        drawn.append(wanted[-1])  # the seed
        raise AppError("That is enough.")

    monkeypatch.setattr(options, "open_model", loaded.append)
    monkeypatch.setattr(Haystack, "trial", draw)
    monkeypatch.setattr(Haystack, "stretch", draw)
    given = ["--seed", "7", "--quantize", "nf4", "--model", "org/large", "--device", "cpu"]
    assert main([*given, "bench", "--json", name, *COMMANDS[name], *own]) == 1
    [chosen] = loaded
    wanted = (8, "8bit", "org/small") if own else (7, "nf4", "org/large")
    assert (chosen.seed, chosen.quantize, chosen.model, chosen.device, chosen.json) == (*wanted, "cpu", True)
    assert drawn == [chosen.seed]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("needle --trials 0", "from 1 on"),
        ("needle --tokens 10", "256 tokens or more"),
        ("needle --depths x", "--depths"),
        ("needle --depths 2", "between 0 and 1"),
        ("needle --depths nan", "between 0 and 1"),
        ("needle --methods foo", "foo"),
        ("needle --methods exact --budgets 3", "budget of 3"),
        ("latency --methods foo", "foo"),
        ("latency --tokens 10", "256 tokens or more"),
        ("latency --methods exact:wings=2", "wings"),
        ("latency --threads x", "from 1 on"),
        ("needle --out .", "is a folder"),
    ],
)
def test_what_a_benchmark_cannot_do_is_wrong_usage_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, words: str
) -> None:
    for what in ("benchmarks.options.open_model", "subprocess.run"):
        monkeypatch.setattr(what, lambda *given, **more: pytest.fail("it went on"))
    with pytest.raises(SystemExit) as ended:
        main(["bench", *command.split()])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_the_processes_that_latency_is_measured_in_take_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **rest: object) -> None:
        commands.append(command)
        raise AppError("That is enough.")

    monkeypatch.setattr(latency.subprocess, "run", run)
    assert main(["--seed", "7", "--quantize", "nf4", "bench", "latency"]) == 1
    [command] = commands
    assert command[command.index("--seed") + 1] == "7"
    assert command[command.index("--quantize") + 1] == "nf4"


def test_why_a_measurement_of_latency_failed_is_a_sentence(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Regression: it ended in two tracebacks."""
    assert main(["bench", "latency", "--methods", "streaming", "--tokens", "512", "--data", str(tmp_path)]) == 1
    said = capfd.readouterr().err
    assert "Traceback" not in said
    assert f"{tmp_path / 'books'} is not there" in said
    assert "streaming at 512 tokens was not measured" in said


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("needle --data {folder}", 1, "books is not there"),
        ("everything --only nothing", 2, "invalid choice: 'nothing'"),
        ("needle --trials 0", 2, "from 1 on"),
    ],
)
def test_a_benchmark_as_a_program_says_what_is_wrong_in_a_sentence(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
    code: int,
    words: str,
) -> None:
    name, *given = command.format(folder=tmp_path).split()
    monkeypatch.setattr("sys.argv", [f"{name}.py", *given])
    with pytest.raises(SystemExit) as ended:
        options.run(importlib.import_module(f"benchmarks.{name}").main)
    status = ended.value.code
    said = capfd.readouterr().err + str(status)  # the interpreter prints a status in words, and ends with 1
    assert (status if isinstance(status, int) else 1) == code
    assert words in said


def test_what_was_measured_is_printed_though_it_cannot_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Regression: hours of measurements were lost to a file that could not be written."""
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        report.publish("needle", [{"asked": 8}], tmp_path / "file" / "out.json", as_json=True)
    assert json.loads(capsys.readouterr().out) == {"rows": [{"asked": 8}]}
