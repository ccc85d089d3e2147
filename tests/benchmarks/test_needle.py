"""The needle benchmark: needles are at their depths, and rows count every question."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import everything, needle, options
from benchmarks.asking import read
from benchmarks.haystack import DATA, FACTS, Haystack, NoProse, Question
from benchmarks.needle import Readings
from benchmarks.pages.__main__ import legend
from benchmarks.pages.accuracy import kept_stores
from benchmarks.pages.markup import accuracy, length
from engine import Model
from tests.engine.conftest import model as model  # the tiny model, as a fixture
from tests.engine.reading import next_logits
from training.pocket import relations, wordings

books = pytest.mark.skipif(not (DATA / "books").is_dir(), reason="the books of ../shared/data are not there")


@pytest.mark.parametrize("depth", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_a_pass_key_lies_where_it_says(model: Model, depth: float) -> None:
    trial = Haystack(model).trial("passkey", 3000, depth, 7)
    (question,) = trial.questions
    assert len(trial.ids) == 3000
    needle_text = model.decode(trial.ids[question.start : question.end].tolist())
    assert needle_text == f" The pass key is {question.answer}. Remember it. {question.answer} is the pass key."
    assert abs(question.start / 3000 - depth) < 0.08
    around = model.decode(trial.ids[: question.start].tolist())
    assert not around or around.rstrip().endswith(".")


@pytest.mark.parametrize("name", ["streaming", "truncate", "exact", "infinipot", "locret"])
@pytest.mark.parametrize("depth", [0.1, 0.9])
def test_what_documents_of_filler_begin_with_is_read_once_and_nothing_changes(
    model: Model, name: str, depth: float
) -> None:
    trials = [Haystack(model).trial("passkey", 2000, depth, seed) for seed in (1, 2)]
    alike = trials[0].alike
    assert torch.equal(trials[0].ids[:alike], trials[1].ids[:alike])
    assert not torch.equal(trials[0].ids, trials[1].ids)
    method = options.variant(name, 512)
    readings = Readings(model, method)
    for trial in trials:
        context, whole = readings.read(trial), read(model, method, trial.ids).context()
        for layer in range(len(model.spec.layers)):
            assert torch.equal(context.memory.positions(layer), whole.memory.positions(layer))
        after, expected = (next_logits(model, method, each.memory, trial.ids[:20]) for each in (context, whole))
        torch.testing.assert_close(after, expected, atol=1e-5, rtol=1e-5)


@books
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("relations", [noun for _, noun, _ in relations.attributes(True)]),
        ("wordings", [re.sub(r"\\{\w\\}", ".+", re.escape(text)) for text in wordings.UNSEEN_QUESTIONS]),
    ],
)
def test_what_training_had_nothing_of_is_asked(model: Model, kind: str, words: list[str]) -> None:
    trial = Haystack(model).trial(kind, 3000, 0.0, 1)
    assert len(trial.questions) == FACTS
    for question in trial.questions:
        stated = model.decode(trial.ids[question.start : question.end].tolist())
        assert question.answer.lower() in stated.lower()
    asked = [question.text for question in trial.questions]
    assert sum(any(re.search(word, text, re.IGNORECASE) for word in words) for text in asked) >= FACTS // 2


@books
def test_two_pass_keys_lie_in_order_and_only_their_numbers_count(model: Model) -> None:
    (question,) = Haystack(model).trial("two", 3000, 0.0, 2).questions
    first, second = question.answer.split(" and ")
    assert question.is_right(f"They are {first} and {second}.")
    assert not question.is_right(f"{second} and {first}")
    assert not question.is_right(first)
    text = model.decode(Haystack(model).trial("two", 3000, 0.0, 2).ids.tolist())
    assert 0 < text.index(f"first pass key is {first}") < text.index(f"second pass key is {second}")


def test_pairs_are_nearly_alike_and_each_key_comes_once(model: Model) -> None:
    trial = Haystack(model).trial("pairs", 3000, 0.0, 5)
    assert len(trial.ids) == 3000
    lines = model.decode(trial.ids.tolist()).split(" The value of ")[1:]
    keys = [line.split(" ")[0] for line in lines]
    assert len(set(keys)) == len(keys) > 50
    assert len({key[:5] for key in keys}) == 1
    for question in trial.questions:
        stated = model.decode(trial.ids[question.start : question.end].tolist())
        assert question.text.removeprefix("What is the").rstrip("?") in stated
        assert stated.endswith(f" is {question.answer}.")


@books
def test_every_fact_is_stated_once_and_where_it_says(model: Model) -> None:
    trial = Haystack(model).trial("facts", 6000, 0.0, 3)
    assert len(trial.ids) == 6000
    assert len(trial.questions) == FACTS
    for question in trial.questions:
        assert question.answer in model.decode(trial.ids[question.start : question.end].tolist())
    spans = sorted((question.start, question.end) for question in trial.questions)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))


def test_trials_are_fixed_by_their_seed(model: Model) -> None:
    first, again, other = (Haystack(model).trial("passkey", 800, 0.5, seed) for seed in (1, 1, 2))
    assert torch.equal(first.ids, again.ids)
    assert not torch.equal(first.ids, other.ids)


def test_missing_books_are_named(model: Model, tmp_path: Path) -> None:
    with pytest.raises(NoProse, match="books"):
        Haystack(model, tmp_path).trial("prose", 500, 0.5, 0)


def test_answers_that_contain_what_is_asked_for_are_right() -> None:
    question = Question("Where?", "Corvantes", 0, 1)
    assert question.is_right("She lives in corvantes.")
    assert not question.is_right("Corvant")
    assert not question.is_right("")


def test_trials_that_were_scored_otherwise_are_taken_anew(asked: list[int], tmp_path: Path) -> None:
    out = tmp_path / "needle.json"
    needle.main([*KEYS.split(), "--trials", "1", "--out", str(out)])
    result = json.loads(out.read_text())
    assert result.pop("scored") == "contained"
    out.write_text(json.dumps(result))
    asked.clear()
    needle.main([*KEYS.split(), "--trials", "1", "--out", str(out)])
    assert len(asked) == 2


def test_rows_count_every_question(
    model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(options, "open_model", lambda chosen: model)
    out = tmp_path / "needle.json"
    wanted = (
        "--methods streaming,infinipot-nuc --budgets 256 --tokens 700,1K --kinds passkey --depths 0.2,0.8 --trials 2"
    )
    assert needle.main([*wanted.split(), "--json", "--out", str(out)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 2 * 2 * 2
    assert {"method", "budget", "tokens", "depth", "kind", "asked", "correct"} <= set(rows[0])
    assert all(row["asked"] == 2 and 0 <= row["correct"] <= 2 for row in rows)
    assert json.loads(out.read_text())["machine"]["torch"] == torch.__version__
    table = accuracy(rows)
    assert "streaming 256" in table
    assert "1K" in table


def test_the_page_that_is_named_holds_the_fact(
    model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that no page is named without --page."""
    fed: list[torch.Tensor | None] = []
    answer_to = needle.answer_to
    monkeypatch.setattr(options, "open_model", lambda chosen: model)
    monkeypatch.setattr(
        needle,
        "answer_to",
        lambda *given, text: (fed.append(text and text.named), answer_to(*given, text=text))[1],
    )
    wanted = "--methods streaming --budgets 256 --tokens 700 --kinds passkey --depths 0.5 --trials 1 --json"
    for page, marked in ((None, ""), (100, ", page named")):
        assert needle.main([*wanted.split(), *(["--page", str(page)] if page else [])]) == 0
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        assert row["page"] == page
        assert f"streaming 256{marked} |" in accuracy([row])
    (question,) = Haystack(model).trial("passkey", 700, 0.5, 0).questions
    nothing, named = fed
    assert nothing is None
    assert named is not None
    assert {question.start, question.end - 1} <= set(named.tolist())
    assert int(named[0]) % 100 == 0
    assert len(named) in (100, 200)


@pytest.mark.parametrize("name", ["exact", "locret"])
def test_what_is_read_in_parts_is_known_whole(model: Model, name: str) -> None:
    method = options.variant(name, 512)
    trial = Haystack(model).trial("passkey", 1000, 0.5, 1)
    context = Readings(model, method, 3).read(trial)
    assert context.source_tokens == 1000
    assert context.memory.seen == Readings(model, method).read(trial).memory.seen
    for part in range(3):
        assert context.remembered()[part * 333 : (part + 1) * 333].any()


def test_rows_of_what_was_read_in_parts_stand_apart(
    model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "open_model", lambda chosen: model)
    wanted = "--methods streaming --budgets 256 --tokens 700 --kinds passkey --depths 0.5 --trials 1 --parts 2 --json"
    assert needle.main(wanted.split()) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["parts"] == 2
    assert "streaming 256, in 2 parts |" in accuracy([row])


def outcome(out: Path) -> list[dict[str, Any]]:
    """Return the rows of a file without their times."""
    return [{key: row[key] for key in row if key != "seconds"} for row in json.loads(out.read_text())["rows"]]


@pytest.fixture
def asked(model: Model, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by one for each document read; the model is the tiny one."""
    read: list[int] = []
    ask = needle.ask
    monkeypatch.setattr(options, "open_model", lambda chosen: model)
    monkeypatch.setattr(needle, "ask", lambda *given: (read.append(1), ask(*given))[1])
    return read


KEYS = "--methods streaming,infinipot-nuc --budgets 256 --tokens 700 --kinds passkey --depths 0.5 --json"


def test_a_file_with_fewer_trials_gets_the_missing_ones(asked: list[int], tmp_path: Path) -> None:
    grown, whole = tmp_path / "grown.json", tmp_path / "whole.json"
    needle.main([*KEYS.split(), "--trials", "3", "--out", str(whole)])
    needle.main([*KEYS.split(), "--trials", "1", "--out", str(grown)])
    asked.clear()
    needle.main([*KEYS.split(), "--trials", "3", "--out", str(grown)])
    assert len(asked) == 2 * 2
    assert outcome(grown) == outcome(whole)
    assert json.loads(grown.read_text())["trials"] == 3


def test_what_was_interrupted_goes_on_where_it_stood(
    asked: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, measure = tmp_path / "needle.json", needle.measure

    def interrupted(haystack: Haystack, cell: dict[str, Any], *given: Any) -> dict[str, Any]:
        if cell["method"] == "infinipot-nuc":
            raise KeyboardInterrupt
        return measure(haystack, cell, *given)

    monkeypatch.setattr(needle, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        needle.main([*KEYS.split(), "--trials", "2", "--out", str(out)])
    monkeypatch.setattr(needle, "measure", measure)
    assert not out.exists()
    assert len(asked) == 2
    needle.main([*KEYS.split(), "--trials", "2", "--out", str(out)])
    assert len(asked) == 2 + 2
    assert [row["asked"] for row in outcome(out)] == [2, 2]
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("key", "other"), [("weights", "0" * 12), ("model", "another"), ("seed", 1), ("benchmark", "latency")]
)
def test_trials_of_something_else_are_taken_anew(asked: list[int], tmp_path: Path, key: str, other: object) -> None:
    out = tmp_path / "needle.json"
    needle.main([*KEYS.split(), "--trials", "1", "--out", str(out)])
    out.write_text(json.dumps(json.loads(out.read_text()) | {key: other}))
    asked.clear()
    needle.main([*KEYS.split(), "--trials", "1", "--out", str(out)])
    assert len(asked) == 2


@pytest.mark.parametrize(("trials", "enough"), [(4, False), (20, True), (21, True)])
def test_a_run_with_fewer_trials_than_are_asked_for_is_not_finished(tmp_path: Path, trials: int, enough: bool) -> None:
    run, out = everything.Run("keys", "needle", "--tokens 32K --trials 20"), tmp_path / "keys.json"
    assert not everything.finished(run, out)
    out.write_text(json.dumps({"trials": trials, "rows": []}))
    assert everything.finished(run, out) == enough


@pytest.mark.parametrize("earlier", [False, True])
def test_the_dagger_is_explained_where_there_is_one(earlier: bool) -> None:
    results = {"new": {"rows": [{"earlier": False}]}, "old": {"rows": [{"earlier": False}, {"earlier": earlier}]}}
    assert any("†: taken with earlier weights" in line for line in legend(results)) == earlier
    assert bool(legend(results)) == earlier


def test_kept_stores_stand_side_by_side_with_their_bytes(
    model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "open_model", lambda chosen: model)
    methods = ",".join(f"infinipot:novelty_share=1:store={store}" for store in ("model", "int8", "int4"))
    wanted = f"--methods {methods} --budgets 256 --tokens 700 --kinds passkey --depths 0.5 --trials 1 --json"
    assert needle.main(wanted.split()) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    plain, eight, four = (row["kv_bytes"]["device"] for row in rows)
    assert four < eight < plain / 2
    table = "\n".join(kept_stores([row | {"model": "tiny", "machine": "a CPU"} for row in rows]))
    assert "Model: tiny. Hardware: a CPU." in table
    assert (
        f"| infinipot:novelty_share=1 | int4 | 700 | *0 [0–79] of 1* | {four / 1e6:.2f} | {100 * four / plain:.0f} % |"
        in table
    )


def test_lengths_are_read_and_written() -> None:
    assert options.sizes("2048,32K,1M") == [2048, 32768, 1 << 20]
    assert [length(size) for size in (300, 2048, 1 << 20)] == ["300", "2K", "1M"]
