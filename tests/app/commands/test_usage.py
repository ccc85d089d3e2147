"""The command line: wrong usage, refusals, help and version."""

import argparse
import importlib.metadata
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import build_parser, main
from app.commands.common import table
from app.commands.inputs import METHOD_NAMES, files_of
from app.commands.reading_output import describe, reading_in_words
from app.errors import UsageError
from app.reading.progress import Report
from sessions import DocumentRow
from tests.app.helpers import free_port, in_process


@pytest.mark.parametrize(("given", "port"), [([], 7860), (["PORT=7871"], 7871)])
def test_the_makefile_starts_what_there_is(given: list[str], port: int) -> None:
    shown = subprocess.run(
        ["make", "-n", "run", *given],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PORT": ""},
        capture_output=True,
        check=True,
    )
    recipe = re.search(r"stockpot (serve.*)", shown.stdout.decode())
    assert recipe is not None
    arguments = build_parser().parse_args(recipe[1].split())
    assert (arguments.open, arguments.port) == (True, port)


def test_stockpot_alone_shows_its_help_and_list_alone_lists_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = in_process(tmp_path / "home", capsys)
    assert status == 0
    assert "usage: stockpot" in out
    assert in_process(tmp_path / "home", capsys, "list") == in_process(tmp_path / "home", capsys, "list", "documents")


def test_the_readme_says_how_to_start_it() -> None:
    root = Path(__file__).parents[3]
    readme = (root / "README.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^    make ([a-z-]+)", readme, re.MULTILINE))
    assert {"run", "test"} <= named <= targets
    serve = re.search(r"stockpot (--model \S+ serve .*)", readme)
    assert serve is not None
    assert build_parser().parse_args(serve[1].split()).open


def test_serving_others_without_a_password_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STOCKPOT_AUTH", raising=False)
    status, _, err = in_process(tmp_path / "home", capsys, "serve", "--host", "0.0.0.0")
    assert status == 2
    assert "--auth" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nonsense",), "invalid choice"),
        (("asks",), "did you mean ask?"),
        (("plan", "--tokens", "abc"), "not 'abc'"),
        (("plan",), "Name the files to plan for"),
        (("plan", "book.pdf", "--tokens", "1K"), "Name the files to plan for"),
        (("plan", "--tokens", "1K", "--gpu", "rtx409"), "Did you mean rtx4090?"),
        (("ingest",), "FILE"),
        (("list", "books"), "invalid choice"),
        (("ingest", "a.txt", "--budget", "many"), "whole number"),
        (("ingest", "a.txt", "--set", "sinks"), "KEY=VALUE"),
        (("ask", "c-222222", " "), "empty"),
        (("ask", "c-222222", "Who?", "--temperature", "9"), "temperature"),
        (("ask", "c-222222", "Who?", "--json-schema", "nowhere"), "nowhere is no file with a JSON schema"),
        (("ask", "c-222222", "Who?", "--json-schema", "/dev/null"), "/dev/null is no file with a JSON schema"),
        (("ingest", "missing.pdf", "--method", "infllmm"), "Did you mean infllm?"),
        (("ingest", "missing.pdf", "--method", "magic"), "magic"),
        (("ingest", __file__, "--method", "exact", "--budget", "3"), "budget of 3"),
        (("ingest", __file__, "--set", "wings=2"), "wings"),
        (("ingest", "a.txt", f"https://example.org/{'a' * 300}"), "fetches nothing: download it and name the file."),
        (("ingest", "-"), "Standard input is not read: save it as a file and name that."),
        (("serve", "--port", "99999"), "65535"),
        (("ask", "c-222222", "Who?", "--seed", "9" * 30), "4,294,967,295"),
        (("plan", "--tokens", "1K", "--rates", "80,900,20"), "give its memory with --gpu"),
        (("--seed", "-1", "list", "documents"), "4,294,967,295"),
        (("bench", "needle", "--seed", "x"), "whole number"),
    ],
)
def test_wrong_usage_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    status, out, err = in_process(tmp_path, capsys, *arguments)
    assert (status, out) == (2, "")
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ingest", "missing.pdf"), "missing.pdf"),
        (("ask", "Moby Dick", "Who?"), "Moby Dick"),
        (("show", "d-222222"), "d-222222"),
        (("export", "s-222222"), "s-222222"),
        (("branch", "s-222222"), "s-222222"),
        (("rename", "c-222222", "Emma"), "c-222222"),
        (("resume", "Moby Dick"), "Moby Dick"),
        (("show", "c-222222", "--page", "1"), "no document"),
    ],
)
def test_what_cannot_be_done_ends_with_1_and_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    status, out, err = in_process(tmp_path, capsys, *arguments)
    assert (status, out) == (1, "")
    assert words in err
    assert "Traceback" not in err


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"stockpot {importlib.metadata.version('stockpot')}\n"


@pytest.mark.parametrize("name", ["needle", "latency"])
def test_the_help_of_a_benchmark_names_its_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    status, out, _ = in_process(tmp_path, capsys, "bench", name, "--home", str(tmp_path), "--help")
    assert status == 0
    assert out.startswith(f"usage: stockpot bench {name} [-h]")
    assert "locret:pooling=1" in out


@pytest.mark.parametrize("command", ["bench", "train"])
def test_commands_that_hand_their_options_on_have_a_help_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    status, out, _ = in_process(tmp_path, capsys, command, "--help")
    assert status == 0
    assert f"usage: stockpot {command}" in out


def test_the_help_of_every_command_says_what_it_does_and_what_its_arguments_are() -> None:
    """Half of the commands had help only in the list of all, and named a number MAX_REASONING."""
    actions = [each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction)]
    for name, parser in actions[0].choices.items():
        assert (parser.description or "").endswith("."), name
        for action in parser._actions:
            assert action.help, (name, action.dest)
            named = action.nargs in (0, argparse.REMAINDER) or action.choices or action.metavar
            assert named, (name, action.dest)


def test_every_command_but_those_that_the_docs_name_has_an_object_for_programs() -> None:
    actions = [each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction)]
    commands = actions[0].choices
    without = {name for name, parser in commands.items() if "--json" not in parser._option_string_actions}
    assert without == {"serve", "mcp", "chat", "train", "export"}
    root = Path(__file__).parents[3]
    readme, docs = (" ".join((root / path).read_text().split()) for path in ("README.md", "docs/command-line.md"))
    assert "All but `serve`, `mcp`, `chat`, `train` and `export` take `--json`" in docs
    listed = re.search(r"lists all commands: `([a-z ]+)`", readme)
    assert listed is not None
    assert set(listed[1].split()) == set(commands)


def test_a_port_that_is_taken_is_said_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        status, _, err = in_process(tmp_path, capsys, "serve", "--port", str(taken.getsockname()[1]))
    assert status == 1
    assert re.search(r"is in use.*`make run PORT=\d+`.*`stockpot serve --port \d+`", err)
    assert not (tmp_path / "stockpot.db").exists()


@pytest.mark.parametrize("model", ["/nope", "./nope", "~/nope/no", "no/such/folder", "/nope:nf4"])
def test_a_model_that_cannot_be_there_is_said_before_anything_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """The server started, and promised to load the model when it was needed."""
    monkeypatch.setattr("uvicorn.Server.run", lambda self: pytest.fail("it is served"))
    home = tmp_path / "home"
    status, _, err = in_process(home, capsys, "--model", model, "serve", "--port", str(free_port()))
    assert status == 1
    assert f"There is no model at {model.removesuffix(':nf4')!r}: give a folder" in err
    assert not home.exists()


def test_a_table_fits_its_terminal() -> None:
    columns = {"id": "ID", "title": "TITLE", "when": "WHEN", "model": "MODEL"}
    row = {"id": "c-abcdef", "title": "A title of many words", "when": "2026-01-01 00:00", "model": "/a/folder/" * 9}
    whole = table([row], columns)
    assert row["model"] in whole
    assert table([row], columns, 400) == whole
    for width in (120, 80, 64):
        lines = table([row], columns, width).splitlines()
        assert max(map(len, lines)) == width
        assert lines[1].startswith("c-abcdef  A title of m")
        assert "2026-01-01 00:00" in lines[1]
    assert "c-abcdef  A title of many…  2026-01-01 00:00" in table([row], columns, 20), "no narrower"


def test_a_narrow_terminal_shows_how_much_time_is_left() -> None:
    report = Report("reading", 6380, 1_041_573, 9.0, 3725.0, 1872.0, {"entries": {"device": 384}})
    assert describe(report, 512)[:40] == "reading, 1:02:05 left: 6,380 of 1,041,57"


def test_what_is_no_page_is_not_called_one() -> None:
    result = {"budget": None, "kv_bytes": {}, "tokens": 9, "seconds": 1.0, "tokens_per_second": 9.0}
    result |= {"method": "full", "kv_entries": 9, "context": "c-abcdef"}
    for kind, noun in (("txt", "sections"), ("pdf", "pages")):
        document = DocumentRow("d-abcdef", "0" * 64, "T", kind, 14, 9, [], None, 9, 0.0)
        assert reading_in_words(result, [document], 9).startswith(f"T: 14 {noun}, 9 characters\n")


def test_a_limit_that_is_no_size_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = in_process(tmp_path / "home", capsys, "serve", "--memory", "plenty")
    assert status == 2
    assert "24GiB" in err


MISTAKES = [
    ("asks",),
    ("list", "nothing"),
    ("ingest", "nope.pdf"),
    ("ingest", "README.md", "--method", "magic"),
    ("ingest", "README.md", "--set", "sinks"),
    ("ingest", "https://example.org/a.pdf"),
    ("plan", "nope.pdf"),
    ("plan", "--tokens", "abc"),
    ("plan", "--tokens", "1K", "--gpu", "rtx409"),
    ("ask", "nope", "Who?"),
]


def test_a_mistake_is_answered_before_torch_is_loaded(tmp_path: Path) -> None:
    """People waited seconds for torch before they were told of a mistyped name."""
    script = (
        "import json, sys\nfrom app.cli import main\n"
        "for words in json.load(sys.stdin):\n"
        "    try:\n        status = main(['--home', sys.argv[1], *words])\n"
        "    except SystemExit as ended:\n        status = ended.code\n"
        "    assert status in (1, 2), (words, status)\n"
        "    assert 'torch' not in sys.modules, words\n"
    )
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", script, str(tmp_path)]
    run = subprocess.run(command, input=json.dumps(MISTAKES), capture_output=True, text=True, cwd=root, check=False)
    assert run.returncode == 0, run.stderr


def test_the_names_of_methods_are_those_of_the_engine() -> None:
    import engine

    assert set(METHOD_NAMES) == set(engine.METHODS)


def test_a_folder_stands_for_the_files_in_it_that_can_be_read(tmp_path: Path) -> None:
    for name in ("b.txt", "a.pdf", "part/c.MD", "part/picture.png", ".hidden/d.txt", ".e.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / "empty").mkdir()
    found = [str(Path(each).relative_to(tmp_path)) for each in files_of([str(tmp_path)])]
    assert found == ["a.pdf", "b.txt", "part/c.MD"]
    with pytest.raises(UsageError, match="no file"):
        files_of([str(tmp_path / "empty")])


def test_the_text_of_a_file_is_counted_for_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short, long = tmp_path / "short.txt", tmp_path / "long.txt"
    short.write_text("The mill was sold in 1931. " * 20)
    long.write_text("The mill was sold in 1931. " * 200)
    tokens = []
    for path in (short, long):
        status, out, _ = in_process(tmp_path / "home", capsys, "plan", str(path), "--method", "streaming", "--json")
        assert status == 0
        tokens.append(json.loads(out)["tokens"])
    assert 9 * tokens[0] < tokens[1] < 11 * tokens[0]


def test_the_help_of_a_command_leaves_global_options_to_that_of_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = in_process(tmp_path, capsys, "ask", "--help")
    assert "examples:\n  stockpot ask" in out
    assert "--device" not in out
    assert in_process(tmp_path, capsys, "ask", "c-222222", "Who?", "--device", "moon")[0] == 2


def test_threads_do_not_keep_cores_from_one_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two busy cores two threads answered at a third of the speed of one."""
    for own, kept in ((None, "10000"), ("7", "7")):
        monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
        if own:
            monkeypatch.setenv("GOMP_SPINCOUNT", own)
        in_process(tmp_path, capsys)
        assert os.environ["GOMP_SPINCOUNT"] == kept
