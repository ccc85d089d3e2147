"""What stands before `bench` reaches each benchmark, as far as the model and the texts."""

import argparse
from typing import Any

import pytest

from app.cli import main
from app.errors import AppError
from benchmarks import latency, options
from benchmarks.haystack import Haystack

COMMANDS = {"needle": (), "latency": ("--in-process",), "mass": (), "ablation": (), "growth": ()}


@pytest.mark.parametrize("own", [(), ("--seed", "8", "--quantize", "8bit", "--model", "small")])
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
    given = ["--seed", "7", "--quantize", "nf4", "--model", "large", "--device", "cpu"]
    assert main([*given, "bench", "--json", name, *COMMANDS[name], *own]) == 1
    [chosen] = loaded
    wanted = (8, "8bit", "small") if own else (7, "nf4", "large")
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
        ("growth --methods exact:wings=2", "wings"),
        ("mass --threads x", "from 1 on"),
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
