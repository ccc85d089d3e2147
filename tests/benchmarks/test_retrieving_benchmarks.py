"""Attention mass, position rules and growth: small runs on the tiny model, and the arithmetic behind them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import ablation, growth, haystack, mass, options
from benchmarks.haystack import DATA
from benchmarks.pages import markup, methods, speed
from engine import Model, make_method
from engine.parts.positions import ATTENTION_RULES
from engine.parts.selectors.pruned import PruningSelector
from tests.engine.conftest import model as model  # the tiny model, as a fixture
from tests.engine.plain import SCALE, full_attention, stream

books = pytest.mark.skipif(not (DATA / "books").is_dir(), reason="the books of ../shared/data are not there")


@pytest.fixture
def tiny(model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Model:
    """Benchmarks open the tiny model, and figures go aside."""
    monkeypatch.setattr(options, "open_model", lambda chosen: model)
    monkeypatch.setattr(markup, "DOCS", tmp_path)
    return model


def test_full_attention_is_that_where_nothing_is_farther_than_it_reaches(model: Model) -> None:
    q, k, _ = stream(60)
    layer = model.spec.layers[0]
    found = mass.full_attention(layer, q[:, 50:], k[:, :50], k[:, 50:], SCALE, 100)
    torch.testing.assert_close(found, full_attention(layer.rope, q, k)[:, 50:], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(mass.full_attention(layer, q[:, 59:], k[:, :50], k[:, 50:], SCALE, 100), found[:, 9:])
    short = mass.full_attention(layer, q[:, 50:], k[:, :50], k[:, 50:], SCALE, 10)
    turned = layer.rope.to_constant(q[0, 50:], 10) @ layer.rope.to_constant(k[0, :2], 0).T
    torch.testing.assert_close(short[0, :, 0] / short[0, :, 1], (turned[:, 0] - turned[:, 1]).mul(SCALE).exp())


@books
def test_what_methods_cover_lies_between_nothing_and_all(tiny: Model, tmp_path: Path) -> None:
    out = tmp_path / "mass.json"
    assert mass.main(["--tokens", "1400", "--budget", "800", "--trials", "1", "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert {row["method"] for row in rows} == {*mass.METHODS, mass.RANDOM}
    assert all(0.0 < row["covered"] < 1.0 for row in rows)
    # A text that a budget holds as a whole is covered as a whole.
    (ample, *_) = mass.measure(tiny, "exact", 2000, torch.randint(4, 260, (500,)))
    assert ample["covered"] == pytest.approx(1.0, abs=1e-4)
    text = "\n\n".join(methods.mass(rows))
    assert "| infllm |" in text
    assert (tmp_path / "figures" / "mass.svg").is_file()


def test_as_many_chunks_are_drawn_as_infinitehip_keeps_of_what_has_left_its_stream(model: Model) -> None:
    """More counted as seen: what had left the stream since the text was read."""
    selector = make_method("infinitehip", budget=800).new_memory(model.spec, model.turn_length).selector
    assert isinstance(selector, PruningSelector)
    seen = mass.random_chunks(selector, 2, 1400, 900, torch.Generator().manual_seed(0))
    assert bool(seen[900:].all())
    assert int(seen[:900].sum()) == selector.pruning.rules[2].keep


@books
def test_every_pair_of_rules_has_a_row(tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(haystack, "FACTS", 2)
    out = tmp_path / "ablation.json"
    rules = f"relative,{ablation.MIXED.split(',')[0]}"
    wanted = ["--tokens", "1500", "--budget", "600", "--trials", "1", "--rules", rules, "--out", str(out)]
    assert ablation.main(wanted) == 0
    rows = json.loads(out.read_text())["rows"]
    pairs = {(row["pruning"], row["attention"]) for row in rows}
    assert pairs == {(rule, attention) for rule in ("relative", "chunk") for attention in ATTENTION_RULES}
    assert all(row["asked"] == 2 for row in rows)
    assert "| relative |" in "\n".join(methods.ablation(rows))


@books
def test_growth_times_every_method_at_every_length(tiny: Model, tmp_path: Path) -> None:
    out = tmp_path / "growth.json"
    wanted = "--methods streaming,recall --budget 600 --tokens 700,1400"
    assert growth.main([*wanted.split(), "--out", str(out)]) == 0
    result = json.loads(out.read_text())
    assert {(row["method"], row["tokens"]) for row in result["rows"]} == {
        (name, tokens) for name in ("full", "streaming", "recall") for tokens in (700, 1400)
    }
    assert all(row["read_seconds"] > 0 and row["decode_seconds"] > 0 for row in result["rows"])
    assert "faster than full from" in "\n".join(speed.growth("Growth", "growth", result["rows"], result["crossover"]))


def test_curves_cross_where_they_do() -> None:
    assert growth.crossover([1000, 4000], [2.0, 2.0], [1.0, 4.0]) == pytest.approx(2000, rel=0.01)
    assert growth.crossover([1000, 4000], [2.0, 2.0], [3.0, 4.0]) == 1000
    assert growth.crossover([1000, 4000], [2.0, 2.0], [3.0, 1.0]) is None
