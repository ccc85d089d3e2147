"""Shows a text whole to every question where the model's window holds it and nobody chose otherwise."""

import pytest

from app.machine.model_names import SMOLLM2
from app.reading.methods import WHOLE, chosen_settings, suited_method
from engine import make_method

WINDOW = 8192


@pytest.mark.parametrize(
    ("tokens", "settings", "budget"),
    [
        (2000, {}, WINDOW),
        (7000, {}, WINDOW),
        (7800, {}, 1024),  # leaves no room for an answer
        (50_000, {}, 1024),
        (None, {}, 1024),
        (2000, {"budget": 2048}, 2048),
        (2000, {"preset": "light"}, 1024),
    ],
)
def test_a_text_inside_the_window_is_shown_whole(tokens: int | None, settings: dict[str, object], budget: int) -> None:
    assert suited_method(SMOLLM2, WINDOW, "exact", settings, tokens).budget == budget


@pytest.mark.parametrize(("tokens", "budget"), [(7000, WHOLE), (13_000, WHOLE), (15_000, 6144), (100_000, 6144)])
def test_a_longer_window_shows_longer_texts(tokens: int, budget: int) -> None:
    assert suited_method("another", 32_768, "exact", {}, tokens).budget == budget


def test_a_small_window_and_other_methods_stay_as_they_are() -> None:
    assert suited_method("pocket", 2048, "exact", {}, 1000).budget == 512
    assert suited_method(SMOLLM2, WINDOW, "locret", {}, 1000) == suited_method(SMOLLM2, WINDOW, "locret", {})


def test_a_form_of_all_settings_names_those_that_were_chosen() -> None:
    suited = suited_method(SMOLLM2, WINDOW, "exact", {}).settings()
    assert chosen_settings(SMOLLM2, WINDOW, make_method("exact", **suited)) == {}
    chosen = make_method("exact", **suited | {"budget": "2048"})
    assert chosen_settings(SMOLLM2, WINDOW, chosen) == {"budget": 2048}
