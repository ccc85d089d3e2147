"""Scores of answers agree with the field's benchmarks, and intervals with known values."""

from __future__ import annotations

import random

import pytest

from app.formatting import wilson
from benchmarks.scoring import bootstrap, contains, exact_match, precision, share_contained, token_f1


@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        ("The pass key is 12345.", "12345", True),
        ("THE RIVER  noherk,", "Noherk", True),
        ("“a blue lamp”", "a blue\nlamp", True),
        ("It was Noherk’s river.", "Noherk", True),
        ("312345", "12345", False),
        ("12345678", "12345", False),
        ("Corvantes", "Corvant", False),
        ("up to 14 days [", "14 days [", True),
        ("a+b", "a+b", True),
        ("", "12345", False),
        ("anything", "", False),
    ],
)
def test_an_answer_is_right_when_it_contains_the_reference(answer: str, reference: str, right: bool) -> None:
    assert contains(answer, reference) is right


def test_of_several_values_the_share_counts() -> None:
    assert share_contained("481523 and 777", ["481523", "604471"]) == 0.5
    assert share_contained("", ["481523", "604471"]) == 0.0


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("Anna, Boris", 1.0),
        ("1. Anna\n2. Boris\n3. Carla", 2 / 3),
        ("Anna, Anna and Anna", 1 / 3),
        ("The guests were Anna; Boris and Carla.", 2 / 3),
        ("Nobody.", 0.0),
        ("", 0.0),
        ("1. 2. 3.", 0.0),
    ],
)
def test_precision_is_of_the_items_of_a_list(answer: str, share: float) -> None:
    assert precision(answer, ["Anna", "Boris", "Dora"]) == pytest.approx(share)


def test_f1_is_of_words_without_articles_and_of_the_best_reference() -> None:
    assert token_f1("The pig!", ["a pig"]) == 1.0
    assert token_f1("a big pig", ["pig", "a cow"]) == pytest.approx(2 / 3)
    assert token_f1("pig pig", ["pig"]) == pytest.approx(2 / 3)
    assert token_f1("", ["pig"]) == 0.0
    assert exact_match("A pig.", ["cow", "the pig"])
    assert not exact_match("a big pig", ["pig"])


def test_wilsons_interval_is_the_textbooks() -> None:
    low, high = wilson(0.5, 40)
    assert (low, high) == (pytest.approx(0.3520, abs=1e-3), pytest.approx(0.6480, abs=1e-3))
    assert wilson(0.0, 8) == (0.0, pytest.approx(0.3244, abs=1e-3))
    assert wilson(1.0, 8) == (pytest.approx(0.6756, abs=1e-3), 1.0)
    assert wilson(0.0, 0) == (0.0, 1.0)


def test_wilsons_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = random.Random(0)
    covered = 0
    for _ in range(1000):
        mean = sum(rng.random() < 0.2 for _ in range(75)) / 75
        low, high = wilson(mean, 75)
        covered += low <= 0.2 <= high
    assert 920 <= covered <= 980


def test_bootstrapped_intervals_lie_about_the_mean_and_come_again() -> None:
    scores = [0.0, 0.2, 0.5, 1.0] * 20
    low, high = bootstrap(scores)
    assert 0.3 < low < 0.425 < high < 0.55
    assert bootstrap(scores) == (low, high)
    assert bootstrap([0.0] * 10) == wilson(0.0, 10)
    assert bootstrap([]) == (0.0, 1.0)
