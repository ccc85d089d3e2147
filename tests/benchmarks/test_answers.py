"""Finding and answering, measured: the app's own passages and answers, each line once, and tables that count them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.asking import answer_to, read
from benchmarks.pages.answers import LETTERS
from benchmarks.pages.answers import answers as answers_page
from benchmarks.report import RESULTS
from benchmarks.suite import answers
from benchmarks.suite.answers import SEARCHED, Material, Run, Task, holds, plain
from benchmarks.suite.answers_tables import OURS, PASSAGES, PLAIN, WORDS, rows_of
from benchmarks.suite.store import Cells
from engine import Conversation, Finder, Model, ReadText, make_method
from engine.loops.answering import PASSAGES as PASSAGES_READ
from tests.engine.conftest import model as model  # the tiny model, as a fixture

TEXT = (
    "The ferry left at nine. Nobody waved. " * 40 + "The captain's parrot is called Odin. " + "It rained all day. " * 60
)
AT = TEXT.index("The captain's parrot")
CHOSEN = type("Chosen", (), {"method": "full", "budget": None, "ways": (PASSAGES, PLAIN, "place")})()


@pytest.fixture
def material(model: Model) -> Material:
    encoding = model.encode(TEXT)
    asked = Task("reader", "What is the parrot called?", ("Odin",), True, [[(AT, AT + 35)]])
    absent = Task("absent", "Who swam to the parrot?", (), True, [])
    return Material("ferry", "tale", TEXT, encoding.ids, encoding.starts, [asked, absent])


def test_plain_text_search_counts_rare_words() -> None:
    text = "the ship and the sea|the parrots of the captain|the sea and the rain|"
    cuts = [(0, 21), (21, 48), (48, 69)]
    assert plain("the captain's sea", cuts, text)[0] == (21, 48)
    assert plain("a parrot", cuts, text) == plain("?!", cuts, text) == []


def test_a_place_is_held_to_four_fifths_by_all_passages_together() -> None:
    assert holds([(0, 50), (50, 100)], [(45, 55)])
    assert not holds([(0, 50)], [(45, 55)])
    assert holds([(0, 50)], [(42, 52)])
    assert not holds([(0, 50)], [(10, 20), (60, 70)])


def test_letters_and_tokens_are_the_same_places(material: Material) -> None:
    places = [range(3, 9), range(20, 24)]
    assert material.tokens(material.letters(places)) == places
    assert material.tokens([]) == []  # an answer that stands beside nothing
    ((start, end),) = material.letters(material.tokens([(AT, AT + 35)]))
    assert start <= AT < AT + 35 <= end < AT + 45


def test_passages_answer_as_in_the_app(model: Model, material: Material, tmp_path: Path) -> None:
    cells = Cells(tmp_path / "answers.jsonl")
    Run(model, material, CHOSEN, cells).run()
    ours = next(line for line in cells.known.values() if line["way"] == PASSAGES)
    context = read(model, make_method("full"), material.ids).context()
    text = ReadText(material.ids, Finder(material.ids, model.decode))
    answer = answer_to(Conversation(context), material.tasks[0].ask, text=text)
    assert ours["answer"] == answer.text
    assert ours["passages"] == material.letters(answer.read_again)
    memory = next(line for line in cells.known.values() if line["way"] == answers.MEMORY)
    assert memory["answer"] == answer.from_memory


def test_a_line_is_measured_once(
    model: Model, material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "answers.jsonl"
    Run(model, material, CHOSEN, Cells(out)).run()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["way"] for line in lines] == ["memory", PASSAGES, PLAIN, "place", "memory", PASSAGES, PLAIN]
    assert next(line for line in lines if line["way"] == "place")["holds"]
    monkeypatch.setattr(answers, "read", None)  # nothing is read once more
    Run(model, material, CHOSEN, Cells(out)).run()
    assert len(out.read_text().splitlines()) == len(lines)


def line(mark: str, way: str, right: float | None, **facts: Any) -> dict[str, Any]:
    usual = {"signature": f"{mark} {way}", "way": way, "family": "reader", "places": [[[5, 9]]], "right": right}
    told = {"accepted": [] if right is None else ["x"], "sure": 0.1, "unsupported": 0, "holds": False, "tokens": 400}
    return {
        **usual,
        **told,
        "answer": "",
        "about_places": True,
        "text_kind": "essay",
        "text_tokens": 8000,
        "model": "m",
        "of": f"{mark} memory",
        **facts,
    }


def test_tables_count_what_is_found_and_pair_answers() -> None:
    orders = {"plain": [[0, 4], [4, 9]], "words": [[4, 9]], "looked": [[0, 4]], "passages": [[4, 9]]}
    gone = {"family": "absent", "places": []}
    lines = [
        line("a", "memory", 0.0, found={"600": orders}, sure=0.01),
        line("b", "memory", 1.0, found={"600": orders}, sure=0.9),
        line("gone", "memory", None, found={"600": orders}, unsupported=1, about_places=False, **gone),
        line("a", PASSAGES, 1.0, holds=True),
        line("b", PASSAGES, 0.0, sure=0.04),
        line("gone", PASSAGES, None, **gone),
        line("a", PLAIN, 0.0),
        line("a", "place", 1.0),
        line("b", PLAIN, 1.0, unsupported=2),
        line("nothing", "memory", None, found={"600": orders}, family="absent", places=[], text_kind="planted"),
    ]
    rows = rows_of(lines)
    found = {row["finder"]: (row["found@1"], row["found@3"], row["n"]) for row in rows if row["row"] == "found"}
    assert found == {"plain": (0, 2, 2), "words": (2, 2, 2), "looked": (0, 0, 2), "passages": (2, 2, 2)}
    answered = {row["way"]: row for row in rows if row["row"] == "answered"}
    assert answered[PASSAGES]["beside_memory"] == [1, 1, 2]
    assert answered[OURS]["beside_memory"] == [1, 0, 2], "the memory's own where it is sure, else the passages'"
    assert answered[OURS]["beside_plain"] == [1, 0, 2]
    assert answered[PASSAGES]["right_with_place"] == 1
    marked = {row["way"]: (row["right"], row["wrong"], row["absent"]) for row in rows if row["row"] == "marked"}
    assert marked["memory"] == ([0, 1], [1, 1], [1, 1])
    assert marked[PASSAGES] == ([0, 1], [1, 1], [0, 1])
    assert marked[OURS] == ([0, 2], [0, 0], [1, 1]), "the memory's own where no place is asked for"
    text = "\n".join(answers_page([{**row, "model": "m", "machine": "a CPU"} for row in rows]))
    assert "| m | reader's questions | plain text search | 0 | 100 | 100 | 100 | 2 |" in text
    assert "*50 [9–91] of 2* | 1 / 1 | 1 / 1 | 1 of 1 | 400 |" in text
    goals = [row.removeprefix("| m | reader's questions | ") for row in text.split("### Goals")[1].splitlines()[4:]]
    assert goals == [
        "the place is among six passages, >= 90 % | *100 [34–100] of 2* | yes |",
        "right, >= 10 points above plain search | +50 points [-19 to +119], n = 2 | yes |",
        "right, >= 1.15 times the memory | 2.00 times (2 and 1 of 2) | yes |",
        "right, >= 0.75 times the passages that hold the answer | 1.00 times (1 and 1 of 1) | yes |",
        "right answers with a warning, <= 10 % | *0 [0–66] of 2* | yes |",
        "warnings where the text does not tell, >= 80 % | *100 [21–100] of 1* | yes |",
    ]


@pytest.mark.parametrize("way", [WORDS, SEARCHED])
def test_what_is_answered_without_the_memory_is_ours(way: str) -> None:
    found = {"600": {"plain": [], "words": [[0, 4]], "looked": [], "passages": []}}
    lines = [line("a", "memory", 0.0, found=found, sure=0.9), line("a", PASSAGES, 0.0), line("a", way, 1.0)]
    (ours,) = [row for row in rows_of(lines) if row["row"] == "answered" and row["way"] == OURS]
    assert (ours["right"], ours["beside_memory"]) == (1.0, [1, 0, 1])


@pytest.mark.parametrize("file", sorted(RESULTS.glob("answers-*.json")), ids=lambda file: file.stem)
def test_no_default_finds_less_than_plain_text_search(file: Path) -> None:
    rows = [row for row in json.loads(file.read_text())["rows"] if row["row"] == "found" and row["letters"] == LETTERS]
    found = {(row["asked"], row["finder"]): row for row in rows}
    assert found
    for asked, _ in found:
        ours, plainly = found[asked, "passages"], found[asked, "plain"]
        assert ours[f"found@{PASSAGES_READ}"] >= plainly[f"found@{PASSAGES_READ}"]


def test_planted_statements_are_counted_by_the_length_of_their_text() -> None:
    found = {"600": {name: [[0, 4]] for name in ("plain", "words", "looked", "passages")}}
    sizes = {"a": 7936, "b": 32_491}
    lines = [
        line(name, "memory", 1.0, found=found, text_kind="planted", text_tokens=size) for name, size in sizes.items()
    ]
    rows = [(row["asked"], row["n"]) for row in rows_of(lines) if row["row"] == "answered"]
    assert rows == [("planted, 32K", 1), ("planted, 8K", 1)]
