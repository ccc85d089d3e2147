"""Sentences on models that ship or are recommended: what they are good for."""

from app.machine.model_names import GET_SMOLLM2, SMOLLM2, is_demo, smollm2_file, split_model
from app.machine.recommended import RECOMMENDED

OF_SMOLLM2 = (
    "SmolLM2 is a small model: it answers simple questions and is often wrong, so check the marked passage. For real "
    "use choose a larger one."
)
OF_POCKET = (
    "The pocket model is a demo: ask it for a name, a number, a place or a date that the text states. It often misses "
    "what is there, and cannot sum up, give reasons or quote longer passages."
)


def good_for(model: str) -> str:
    """Return a sentence on a model that ships or is recommended: what it is good for; empty for all others."""
    plain = split_model(model)[0]
    if plain == SMOLLM2:
        return OF_SMOLLM2
    if not is_demo(model):
        return next((f"Good for {each.suits}." for each in RECOMMENDED if each.is_named(plain)), "")
    better = "For real answers choose SmolLM2 or a larger model." if smollm2_file() else f"{GET_SMOLLM2}."
    return f"{OF_POCKET} {better}"


def demo_note(model: str, *, found: bool) -> str:
    """Return a note for an answer of the demo model; empty for all other models.

    Args:
        model: name of the model.
        found: whether the answer says something else than that it is not in the text.
    """
    if not is_demo(model):
        return ""
    if not found:
        return "The demo model did not find that. It may be in the text all the same."
    return "This is an answer of the demo model, which is often wrong: check the marked passage."
