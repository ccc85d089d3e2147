"""The curriculum of training: look-up by content, then questions, then prose, then far reading.

Trained on questions over prose from the start, the model does not learn look-up within an hour of CPU time; in this
order it does in minutes. Each stage mixes recipes by weight, and takes its `share` of the run.
"""

from dataclasses import dataclass

from training.pocket.documents import Recipe


@dataclass(frozen=True)
class Mix:
    """One recipe in a stage: weight, rows per step, whether it uses far reading, and the share of rows with gaps."""

    recipe: Recipe
    rows: int
    weight: float = 1.0
    far: bool = False
    gaps: float = 0.0


@dataclass(frozen=True)
class Stage:
    """A stage of the curriculum.

    Attributes:
        name: for the log.
        share: part of the run's time or tokens.
        mixes: recipes to draw a step from.
        language: weight of the plain next-token loss.
        rate: factor on the learning rates.
    """

    name: str
    share: float
    mixes: tuple[Mix, ...]
    language: float = 0.0
    rate: float = 1.0


def _chat(length: int, low: int, high: int, turns: int = 8, **more: float) -> Recipe:
    options = {"alike": 0.2, "quotes": 0.12, "absent": 0.16, "both": 0.06, "lists": 0.06, "filler": 0.04}
    options |= {"language": 0.15, "backward": 0.5} | more
    return Recipe(length, "chat", facts=(low, high), turns=turns, **options)


def ladder() -> tuple[Stage, ...]:
    """Return the stages for random weights."""
    again = Mix(Recipe(160, "again", alike=0.5, language=0.05), 6)
    dense = Mix(Recipe(192, "chat", dense=1.0, turns=8, alike=0.5, absent=0.05, quotes=0.05, backward=0.3), 6)
    short = _chat(256, 2, 5, 6, dense=0.2)
    return (
        Stage("again", 0.15, (again,), 0.03),
        Stage("dense", 0.15, (dense, Mix(again.recipe, 6, 0.5)), 0.03, rate=0.5),
        Stage("prose 256", 0.1, (
            Mix(short, 5, 0.6),
            Mix(dense.recipe, 6, 0.3),
            Mix(_chat(256, 2, 5, 4, filler=0.0, lists=0.0), 6, 0.1, far=True),
        ), 0.08, rate=0.5),
        *last_stages(0.6),
    )  # fmt: skip


def last_stages(share: float = 1.0) -> tuple[Stage, ...]:
    """Return the stages for a model that has learned look-up, in `share` of a run's length.

    Statements that give the value before the subject come first. They are a different look-up: the subject must carry
    the value before it, and only short rows with few facts teach that.
    """
    tiny = Recipe(64, "chat", dense=1.0, turns=4, alike=0.2, backward=1.0)
    small = Recipe(128, "chat", dense=1.0, turns=6, alike=0.2, both=0.08, backward=0.8)
    dense = Recipe(192, "chat", dense=1.0, turns=8, alike=0.4, absent=0.08, both=0.06, backward=0.5)
    short = _chat(256, 2, 5, 6, dense=0.1)
    far_256 = Mix(_chat(256, 2, 5, 4, filler=0.0, lists=0.0), 6, 0.1, far=True)
    quoting = Mix(_chat(256, 1, 4, 6, quotes=0.85, lists=0.0, filler=0.0), 5, 0.06)
    return (
        Stage("value first", 0.2 * share, (
            Mix(tiny, 24, 0.15),
            Mix(small, 12, 0.25),
            Mix(dense, 8, 0.25),
            Mix(short, 6, 0.2),
            far_256,
            Mix(_chat(512, 3, 9, reading=0.05), 4, 0.05),
        ), 0.05, rate=0.25),
        Stage("prose", 0.8 * share, (
            Mix(_chat(2048, 8, 24, reading=0.05), 1, 0.14),
            Mix(_chat(1024, 4, 14, reading=0.05), 2, 0.18),
            Mix(_chat(512, 3, 9, reading=0.05), 4, 0.12),
            Mix(_chat(512, 3, 9), 4, 0.06, gaps=1.0),
            Mix(_chat(512, 3, 9, 4, reading=0.05), 4, 0.14, far=True),
            far_256,
            Mix(short, 6, 0.14),
            Mix(small, 12, 0.06),
            Mix(dense, 8, 0.06),
            quoting,
        ), 0.1, rate=0.25),
    )  # fmt: skip
