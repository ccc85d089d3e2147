"""The benchmarks of what is kept, at toy size: rows add up and say what they claim."""

from __future__ import annotations

import importlib.util
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import consistency, haystack, neighbours, options, rounds, turns
from benchmarks.haystack import DATA
from benchmarks.pages import markup, methods
from benchmarks.presses import Neighbours
from engine import Model, load_model, make_method
from tests.engine.conftest import ids as ids  # fixtures: a text, the tiny model
from tests.engine.conftest import model as model

books = pytest.mark.skipif(not (DATA / "books").is_dir(), reason="the books of ../shared/data are not there")
without_kvpress = pytest.mark.skipif(importlib.util.find_spec("kvpress") is not None, reason="kvpress is there")
with_kvpress = pytest.mark.skipif(importlib.util.find_spec("kvpress") is None, reason="kvpress is not installed")


@pytest.fixture(autouse=True)
def _tiny(model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(options, "open_model", lambda chosen: model)
    monkeypatch.setattr(markup, "DOCS", tmp_path)
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


def test_received_attention_is_that_of_eager_softmax(model: Model, ids: torch.Tensor) -> None:
    memory = consistency.Noting(model.spec)
    memory.reserve(301)
    for part in torch.split(ids, 100):
        model.forward(part, memory, torch.zeros(len(part), dtype=torch.int32))
        memory.end_pass()
    rope = model.spec.layers[1].rope
    q = rope.rotate(memory.queries[1][:, :301], 0)
    k = rope.rotate(memory.store.own[1].keys[:, :301], 0).repeat_interleave(3, 0)
    logits = (q @ k.transpose(1, 2) * 8**-0.5).masked_fill(torch.ones(301, 301).triu(1).bool(), float("-inf"))
    probabilities = logits.softmax(-1).view(2, 3, 301, 301).mean(1)
    torch.testing.assert_close(memory.received(1, 0), probabilities.sum(1), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(memory.received(1, 290), probabilities[:, 290:].sum(1), atol=1e-5, rtol=1e-4)


@books
def test_causal_scorers_are_consistent_and_others_are_not(tmp_path: Path) -> None:
    rows = rows_of(consistency, "--tokens 1200 --trials 1", tmp_path / "out.json")
    found = {(row["scorer"], row["prefix"]): row["consistency"] for row in rows}
    for scorer in ("locret", "nuc"):
        assert all(found[scorer, 150 * eighth] > 0.99 for eighth in range(1, 9))
    for scorer in ("cap", "snapkv-like", "h2o-like"):
        assert found[scorer, 300] < 0.9
        assert found[scorer, 1200] == 1.0
    assert "| locret | 100 |" in "\n".join(methods.consistency(rows))


@books
def test_a_conversation_of_many_rounds_takes_constant_memory(model: Model, tmp_path: Path) -> None:
    names = ("locret:stabilizers=0:local=0", "locret:share=all")
    arguments = f"--methods {','.join(names)} --budget 48 --preference rock --turns 40 --block 10"
    rows = rows_of(rounds, arguments, tmp_path / "out.json")
    for name in names:
        own = [row for row in rows if row["method"] == name]
        assert [row["turns"] for row in own] == [10, 20, 30, 40]
        assert len({row["kv_bytes"] for row in own[1:]}) == 1
        method = options.variant(name, 48)
        assert all(row["kv_entries"] <= 48 + method.passing(model.spec) for row in own)
        assert own[-1]["tokens"] > 10 * 48
        assert sum(row[f"asked_{lag}"] for row in own for lag in rounds.LAGS) == 2
        assert sum(row[outcome] for row in own for outcome in rounds.OUTCOMES) == 38
    assert "locret:stabilizers=0:local=0 48 | rock | 40 |" in "\n".join(methods.rounds(rows))


def test_questions_come_as_many_rounds_after_their_facts_as_they_say() -> None:
    all_rounds = list(rounds.played(200, "paper", 5))
    asked = [(turn, each) for turn, each in enumerate(all_rounds) if each.lag]
    assert {each.lag for _, each in asked} == set(rounds.LAGS)
    for turn, each in asked:
        assert each.answer.lower() in all_rounds[turn - each.lag].said.lower()  # a value may begin its sentence
        assert each.answer.lower() not in each.said.lower()
        assert not each.move


@pytest.mark.parametrize(("preference", "share"), [("rock", 0.6), ("scissors", 0.6), (rounds.NONE, 1 / 3)])
def test_a_player_has_a_favourite_and_tells_a_move_only_afterwards(preference: str, share: float) -> None:
    games = [each for each in rounds.played(4000, preference, 1) if each.move]
    favourite = sum(each.move == (preference if preference != rounds.NONE else "paper") for each in games) / len(games)
    assert favourite == pytest.approx(share, abs=0.03)
    for before, now in itertools.pairwise(games):
        assert f"I played {before.move}. Round " in now.said
        assert now.said.endswith("do you play rock, paper or scissors?")
    assert "I played" not in games[0].said


@pytest.mark.parametrize(
    ("reply", "ended"),
    [
        ("rock", "tied"),
        ("I play Paper!", "won"),
        ("Scissors, scissors.", "lost"),
        ("rock, paper or scissors", "no_move"),
        ("Mara Duvane", "no_move"),
        ("a rocket", "no_move"),
        ("", "no_move"),
    ],
)
def test_a_game_against_rock_ends_as_it_should(reply: str, ended: str) -> None:
    assert rounds.outcome(reply, "rock") == ended


def test_every_pair_of_moves_ends_as_the_game_has_it() -> None:
    won = {(ours, theirs) for ours in rounds.BEATS for theirs in rounds.BEATS if rounds.outcome(ours, theirs) == "won"}
    assert won == {("rock", "scissors"), ("paper", "rock"), ("scissors", "paper")}
    lost = {
        (ours, theirs) for ours in rounds.BEATS for theirs in rounds.BEATS if rounds.outcome(ours, theirs) == "lost"
    }
    assert lost == {(theirs, ours) for ours, theirs in won}


@books
def test_games_are_counted_by_what_the_model_replies(
    monkeypatch: pytest.MonkeyPatch, model: Model, tmp_path: Path
) -> None:
    """With a reply that is always paper, a player who plays only rock is beaten in every game."""
    monkeypatch.setattr(rounds, "PREFERRED", 1.0)
    monkeypatch.setattr(model, "decode", lambda ids: "paper")
    arguments = "--methods streaming --budget 64 --turns 25 --block 10"
    rows = rows_of(rounds, arguments, tmp_path / "out.json")
    assert list(dict.fromkeys(row["preference"] for row in rows)) == ["rock", "paper", "scissors"]
    ended = {"rock": "won", "paper": "tied", "scissors": "lost"}
    for row in rows:
        games = row["turns"] - {10: 0, 20: 10, 25: 20}[row["turns"]] - sum(row[f"asked_{lag}"] for lag in rounds.LAGS)
        assert {outcome: row[outcome] for outcome in rounds.OUTCOMES} == dict.fromkeys(rounds.OUTCOMES, 0) | {
            ended[row["preference"]]: games
        }
    assert "| 100 | 0 | 0 | 0 |" in "\n".join(methods.rounds(rows))


@books
def test_every_turn_is_timed_and_counted(tmp_path: Path) -> None:
    rows = rows_of(
        turns, "--methods full,locret --budget 160 --tokens 800 --trials 2 --no-press", tmp_path / "out.json"
    )
    assert [(row["method"], row["turn"]) for row in rows] == [(m, t) for m in ("full", "locret") for t in (1, 2, 3)]
    assert all(row["asked"] == 2 and row["seconds"] > 0 for row in rows)
    assert "locret 160 | 800 |" in "\n".join(methods.turns(rows))


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
    assert "stockpot: locret" in "\n".join(methods.neighbours(rows))


@pytest.fixture(scope="module")
def pocket() -> Model:
    return load_model(options.POCKET, "cpu")


@with_kvpress
@pytest.mark.filterwarnings("ignore")  # what the package's own imports warn of
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
