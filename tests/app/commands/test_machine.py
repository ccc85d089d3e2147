"""`stockpot methods` and `doctor`, and models that are not on this machine."""

import json
import shutil
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import pytest

from app.machine.doctor import examine
from tests.app.helpers import PATIENCE_SEC, ROOT, in_process


def test_methods_and_doctor_are_objects_for_programs(
    tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = json.loads(in_process(tmp_path, capsys, "methods", "--json")[1])
    assert {"exact", "infinipot", "full", "streaming", "truncate"} <= {row["name"] for row in rows}
    assert [row["default"] for row in rows].count(True) == 1
    in_words = in_process(tmp_path, capsys, "methods")[1].splitlines()
    budgets = [line.split(",")[0].strip() for line in in_words if line.startswith("    budget=")]
    assert budgets == [f"budget={'none' if row['budget'] is None else row['budget']}" for row in rows]
    assert not any(word in line for line in in_words for word in ("=None", "=True", "=False"))  # which --set refuses
    status, out, _ = in_process(tmp_path / "home", capsys, "doctor", "--json", "--model", str(tiny))
    found = json.loads(out)
    assert (status, found["ok"]) == (0, True)
    status, out, _ = in_process(tmp_path / "home", capsys, "doctor", "--json", "--model", str(tmp_path / "none"))
    assert (status, json.loads(out)["ok"]) == (1, False)
    (tmp_path / "file").write_text("no folder")
    for home in (tmp_path / "file", tmp_path / "file" / "home"):  # it said that they would be made
        status, out, _ = in_process(home, capsys, "doctor", "--json", "--model", str(tiny))
        assert (status, [each["name"] for each in json.loads(out)["checks"] if each["needed"] and not each["ok"]]) == (
            1,
            ["home"],
        )


EXAMINED_WITHOUT = """
import importlib, os, sys

for missing, others_have in [each.split(":") for each in sys.argv[2:]]:
    if not os.fork():
        sys.modules[missing] = None
        from app.machine.doctor import examine
        print([missing, [(each.name, each.ok) for each in examine(sys.argv[1], sys.argv[1])]], flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, missing
    if others_have:  # it takes longest to load
        importlib.import_module(others_have)
"""
MISSING = {"torch": "torch", "safetensors": "", "psutil": "engine", "sqlite_utils": "", "ingest": ""}
"""Modules that are missing, with the check that needs each."""


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, bool]]]:
    """Return the doctor's results (name, ok) with each package missing, in a process that never loaded it."""
    missing = [":".join(each) for each in MISSING.items()]
    command = [sys.executable, "-c", EXAMINED_WITHOUT, str(tmp_path_factory.mktemp("examined")), *missing]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return dict(map(literal_eval, ran.stdout.splitlines()))


@pytest.mark.parametrize("missing", MISSING)
def test_doctor_names_what_is_broken_and_looks_at_the_rest(
    examined: dict[str, list[tuple[str, bool]]], missing: str
) -> None:
    names = {
        "python",
        "torch",
        "memory",
        "disk",
        "home",
        "model",
        "attention",
        "kernels",
        "parser",
        "ocr",
        "old office files",
        "sample book",
    }
    assert names <= {name for name, _ in examined[missing]}
    assert not all(ok for _, ok in examined[missing])


def test_doctor_advises_to_train_the_pocket_model_only_where_it_is_what_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The advice came also for a missing GPU."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    [model] = [each for each in examine(str(tmp_path), device="cuda") if each.name == "model"]
    assert (model.ok, "No CUDA device" in model.detail, model.advice) == (False, True, "")
    monkeypatch.setattr("app.machine.doctor.model_source", lambda name: str(tmp_path / "none"))
    [model] = [each for each in examine(str(tmp_path)) if each.name == "model"]
    assert (model.ok, "stockpot train pocket" in model.advice) == (False, True)


def test_a_model_of_a_long_window_is_read_with_settings_that_suit_it(
    tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = tmp_path / "long"
    shutil.copytree(tiny, long)
    config = json.loads((long / "config.json").read_text())
    (long / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1 << 17}))
    by_model = [
        {row["name"]: row for row in json.loads(in_process(tmp_path, capsys, "methods", "--json", *given)[1])}
        for given in ((), ("--model", str(long)))
    ]
    assert [rows["infllm"]["settings"]["block"] for rows in by_model] == [8, 128]
    assert by_model[0]["infllm"]["presets"] == by_model[1]["infllm"]["presets"]

    text = tmp_path / "notes.txt"
    text.write_text("The fox sleeps under the boat. " * 40)
    for given, block, units in (((), 128, 16), (("--set", "units=4"), 128, 4), (("--set", "preset=pocket"), 8, 64)):
        status, out, _ = in_process(
            tmp_path / "home", capsys, "ingest", str(text), "--model", str(long), "--method", "infllm", "--json", *given
        )
        assert status == 0
        shown = json.loads(in_process(tmp_path / "home", capsys, "show", json.loads(out)["context"], "--json")[1])
        assert (shown["settings"]["block"], shown["settings"]["units"]) == (block, units)


NOWHERE = "http://127.0.0.1:9"  # nobody listens there


def cached(hub: Path, name: str, tiny: Path) -> None:
    """Make a model in the hub's cache, as a download leaves it."""
    folder, revision = hub / f"models--{name.replace('/', '--')}", "0" * 40
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(revision)
    shutil.copytree(tiny, folder / "snapshots" / revision)


def test_without_a_network_a_hub_id_is_refused_at_once_and_one_in_the_cache_is_read_with(
    tmp_path: Path, tiny: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """huggingface_hub tries each file six times: 23 s for a missing model, two minutes for one that is there."""
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    cached(tmp_path / "hub", "somebody/tiny", tiny)
    given = ["--home", str(tmp_path / "home"), "--model"]
    refused, read = [*given, "somebody/large", "plan", "--tokens", "1K"], [*given, "somebody/tiny", "ingest", str(book)]
    # In a process of its own, because the package reads the address of the hub and its cache when it is imported.
    code = f"from app.cli import main; assert main({refused}) == 1; assert main({[*read, '--json']}) == 0"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SEC)
    assert ran.returncode == 0, ran.stderr
    assert "'somebody/large' is not on this machine" in ran.stderr
    assert "connect" in ran.stderr
    assert json.loads(ran.stdout)["tokens"] > 100
    assert "etry" not in ran.stderr
