"""What models are good for: a sentence for those that come with Stockpot, and a short list of larger ones to fetch."""

from app.home import GET_SMOLLM2, POCKET, SMOLLM2, smollm2_file, split_model

NOT_FOUND = "That is not in the text."
"""What the pocket model was trained to say where it finds nothing."""

OF_SMOLLM2 = (
    "SmolLM2 is a small model: it answers simple questions and is often wrong, so check the marked passage. For real "
    "use choose a larger one."
)
OF_POCKET = (
    "The pocket model is a demo: ask it for a name, a number, a place or a date that the text states. It often misses "
    "what is there, and cannot sum up, give reasons or quote longer passages."
)


def good_for(model: str) -> str:
    """Return a sentence on what a model that comes with Stockpot is good for and what not; empty for all others."""
    plain = split_model(model)[0]
    if plain == SMOLLM2:
        return OF_SMOLLM2
    if plain != POCKET:
        return ""
    better = "For real answers choose SmolLM2 or a larger model." if smollm2_file() else f"{GET_SMOLLM2}."
    return f"{OF_POCKET} {better}"


def demo_note(model: str, answer: str) -> str:
    """Return what is to stand beside an answer of the demo model; empty for all other models."""
    if split_model(model)[0] != POCKET:
        return ""
    if answer.strip() == NOT_FOUND:
        return "The demo model did not find that. It may be in the text all the same."
    return "This is an answer of the demo model, which is often wrong: check the marked passage."
