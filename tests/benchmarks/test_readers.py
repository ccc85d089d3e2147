"""Reader's questions: each answer stands at its place, and no question tells its answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.haystack import DATA
from benchmarks.scoring import contains
from benchmarks.suite.readers import HERE, Question, Read, texts

COMMON = "a an and are as at be by did do does for from had has have he her his how in is it many much "
COMMON += "name of on or she that the their them they to was were what when where which who why will with"


@pytest.fixture(scope="module")
def own() -> list[Read]:
    """Return the texts that lie in the repository."""
    return list(texts(Path("nowhere")))


def test_the_repository_alone_has_contracts_and_minutes(own: list[Read]) -> None:
    assert [read.kind for read in own] == ["contracts and minutes"]


def test_a_place_that_is_not_in_the_text_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("The tide came in at six.")
    asked = {"ask": "When?", "accepted": ["six"], "places": ["came in at seven"]}
    (tmp_path / "a.json").write_text(
        json.dumps({"title": "a", "kind": "essay", "texts": ["a.txt"], "questions": [asked]})
    )
    monkeypatch.setattr("benchmarks.suite.readers.HERE", tmp_path)
    with pytest.raises(ValueError, match="came in at seven"):
        list(texts(Path("nowhere")))


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower())) - set(COMMON.split())


@pytest.mark.parametrize("data", [Path("nowhere"), DATA], ids=["own", "shared"])
def test_questions_are_fair(data: Path) -> None:
    asked: list[tuple[Read, Question]] = [(read, each) for read in texts(data) for each in read.questions]
    for read, each in asked:
        assert bool(each.accepted) == bool(each.places), each.ask
        assert not any(contains(each.ask, wording) for wording in each.accepted), each.ask
        plain = " ".join(read.text.split())
        assert not each.accepted or any(wording.casefold() in plain.casefold() for wording in each.accepted), each.ask
    answered = [(read, each) for read, each in asked if each.accepted]
    differing = [each for read, each in answered if not words(each.ask) & words(read.text[slice(*each.places[0])])]
    assert len(differing) > len(answered) / 3
    assert len(asked) > len(answered)


def test_every_file_is_a_text_of_its_own() -> None:
    titles = [json.loads(file.read_text())["title"] for file in sorted(HERE.glob("*.json"))]
    assert titles == [file.stem for file in sorted(HERE.glob("*.json"))]


@pytest.mark.skipif(not (DATA / "qa").is_dir(), reason="the texts of ../shared/data are not there")
def test_there_are_questions_of_every_kind() -> None:
    found = list(texts(DATA))
    assert {read.kind for read in found} == {"novel", "essay", "paper", "meeting", "contracts and minutes"}
    assert sum(bool(each.accepted) for read in found for each in read.questions) >= 100
    assert sum(not each.accepted for read in found for each in read.questions) >= 20
