"""The demo model does not state as a fact that something is not in the text."""

import pytest

from app.asking.demo_answer import ABSENT, NOT_FOUND, DemoAnswer
from app.asking.not_found import says_not_found


@pytest.mark.parametrize(
    ("model", "pieces", "shown"),
    [
        ("pocket", [" That", " is not", " in the text."], NOT_FOUND),
        ("pocket:8bit", [ABSENT], NOT_FOUND),
        ("pocket", [" That", " is", " Mara Duvane."], " That is Mara Duvane."),
        ("pocket", ["Mara", " Duvane"], "Mara Duvane"),
        ("pocket", ["That is"], "That is"),
        ("pocket", [], ""),
        ("smollm2", [" That", " is not", " in the text."], f" {ABSENT}"),
    ],
)
def test_it_says_that_it_found_nothing(model: str, pieces: list[str], shown: str) -> None:
    answer = DemoAnswer(model)
    seen = "".join(map(answer.piece, pieces))
    rest, whole = answer.whole("".join(pieces))
    assert (seen + rest, whole) == (shown, shown)


def test_this_is_known_as_nothing_found() -> None:
    assert says_not_found(NOT_FOUND)
