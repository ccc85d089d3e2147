"""Our methods beside kvpress's, at toy size: rows add up."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import haystack, neighbours, options
from benchmarks.haystack import DATA
from benchmarks.presses import Neighbours
from engine import Model, load_model, make_method
from tests.engine.conftest import model as model  # the tiny model, as a fixture

books = pytest.mark.skipif(not (DATA / "books").is_dir(), reason="the books of ../shared/data are not there")
without_kvpress = pytest.mark.skipif(importlib.util.find_spec("kvpress") is not None, reason="kvpress is there")
with_kvpress = pytest.mark.skipif(importlib.util.find_spec("kvpress") is None, reason="kvpress is not installed")


@pytest.fixture(autouse=True)
def _tiny(model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(options, "open_model", lambda chosen: model)
    monkeypatch.setattr(haystack, "FACTS", 3)


def rows_of(program: Any, arguments: str, out: Path) -> list[dict[str, Any]]:
    assert program.main([*arguments.split(), "--out", str(out)]) == 0
    rows: list[dict[str, Any]] = json.loads(out.read_text())["rows"]
    return rows


def test_a_variant_carries_settings_in_its_name() -> None:
    assert options.variant("locret:pooling=1:share=heads", 64) == make_method(
        "locret", budget=64, pooling=1, share="heads"
    )
    assert options.variant("infinipot-nuc", 128) == make_method("infinipot", budget=128, novelty_share=1.0)


@books
@without_kvpress
def test_without_kvpress_its_rows_are_left_out_and_the_reason_is_said(tmp_path: Path) -> None:
    rows = rows_of(neighbours, "--entries 320 --tokens 800 --trials 1", tmp_path / "out.json")
    assert [(row["package"], row["method"]) for row in rows] == [
        ("stockpot", "full"),
        ("stockpot", "locret"),
        ("stockpot", "infinipot"),
    ]
    assert rows[1]["held"] == 320
    assert rows[2]["held"] <= 320
    result = json.loads((tmp_path / "out.json").read_text())
    assert "No module named 'kvpress'" in result["without_kvpress"]
    assert "pip install" in result["without_kvpress"]


@pytest.fixture(scope="module")
def pocket() -> Model:
    return load_model(options.POCKET, "cpu")


@with_kvpress
@pytest.mark.filterwarnings("ignore")  # the package's own imports warn
@pytest.mark.parametrize("press", [None, "snapkv", "expected-attention", "keydiff", "kvzip"])
def test_a_press_holds_what_it_is_given_and_ours_goes_on_working(pocket: Model, press: str | None) -> None:
    ids = torch.randint(4, 4000, (200,), generator=torch.Generator().manual_seed(1))
    pressed, _ = Neighbours(pocket, str(options.POCKET)).read(press, ids, 120)
    assert abs(pressed.held() - (200 if press is None else 120)) < 1
    turn = pocket.chat.turn("What is it?")
    first, _ = pressed.answer(turn, 6)
    assert pressed.answer(turn, 6)[0] == first, "an answer leaves no trace"
    memory = make_method("full").new_memory(pocket.spec, pocket.turn_length)
    hidden = pocket.forward(torch.cat([ids, torch.tensor(turn)]), memory, torch.zeros(200 + len(turn)).int())
    if press is None and first:
        assert int(pocket.logits(hidden[-1]).argmax()) == first[0], "full attention is the same on both sides"
