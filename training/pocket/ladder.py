"""The ladder: what is trained on, in which order. Look-up by content, then questions, then prose, then far reading.

Straight question answering over prose does not start to look within an hour of CPU time; this order does in minutes.
Each stage mixes recipes by weight; a stage's share of the whole run is its `share`.
"""

from dataclasses import dataclass, field

from training.pocket.documents import Recipe


@dataclass(frozen=True)
class Mix:
    """One recipe in a stage: its weight, rows a step, whether it is read far, and whether a bank of distractors too."""

    recipe: Recipe
    rows: int
    weight: float = 1.0
    far: bool = False
    bank: bool = False
    gaps: float = 0.0


@dataclass(frozen=True)
class Stage:
    """A rung.

    Attributes:
        name: for the log.
        share: part of the run's time or tokens.
        mixes: what a step is drawn from.
        language: weight of the plain next-token loss.
        rate: factor on the learning rates.
    """

    name: str
    share: float
    mixes: tuple[Mix, ...]
    language: float = 0.0
    rate: float = field(default=1.0)


def _chat(length: int, low: int, high: int, turns: int = 8, **more: float) -> Recipe:
    options = {"alike": 0.2, "quotes": 0.12, "absent": 0.07, "lists": 0.06, "filler": 0.04, "language": 0.15} | more
    return Recipe(length, "chat", facts=(low, high), turns=turns, **options)


def ladder() -> tuple[Stage, ...]:
    """The stages of the shipped model."""
    again = Mix(Recipe(160, "again", alike=0.5, language=0.05), 6)
    dense = Mix(Recipe(192, "chat", dense=1.0, turns=8, alike=0.5, absent=0.05, quotes=0.05), 6)
    short = _chat(256, 2, 5, 6, dense=0.2)
    far_256 = _chat(256, 2, 5, 4, filler=0.0, lists=0.0)
    far_512 = _chat(512, 3, 9, 4, reading=0.05)
    quoting = Mix(_chat(256, 1, 4, 6, quotes=0.85, lists=0.0, filler=0.0), 5, 0.14)
    return (
        Stage("again", 0.15, (again,), 0.03),
        Stage("dense", 0.15, (dense, Mix(again.recipe, 6, 0.5)), 0.03, rate=0.5),
        Stage("prose 256", 0.15, (
            Mix(short, 5, 0.6),
            Mix(dense.recipe, 6, 0.3),
            Mix(far_256, 6, 0.1, far=True),
        ), 0.08, rate=0.5),
        Stage("prose 512", 0.27, (
            Mix(_chat(512, 3, 9, dense=0.05), 3, 0.3),
            Mix(_chat(512, 3, 9), 3, 0.1, gaps=1.0),
            Mix(short, 5, 0.24),
            quoting,
            Mix(short, 5, 0.08, gaps=1.0),
            Mix(dense.recipe, 6, 0.15),
            Mix(far_256, 6, 0.07, far=True),
        ), 0.1, rate=0.5),
        Stage("far", 0.28, (
            Mix(_chat(2048, 8, 24, reading=0.1), 1, 0.03),
            Mix(_chat(1024, 4, 14, reading=0.1), 2, 0.17),
            Mix(_chat(512, 3, 9, reading=0.05), 4, 0.2),
            Mix(_chat(512, 3, 9), 4, 0.08, gaps=1.0),
            Mix(far_512, 4, 0.22, far=True, bank=True),
            Mix(far_256, 6, 0.15, far=True, bank=True),
            Mix(short, 6, 0.15),
            quoting,
        ), 0.1, rate=0.5),
    )  # fmt: skip
