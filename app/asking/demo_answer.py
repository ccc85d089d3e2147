"""Words of the demo model: it was trained to say that something is not in the text, which it cannot know."""

from app.machine.model_names import is_demo

ABSENT = "That is not in the text."
NOT_FOUND = "I did not find that."


def as_said(model: str, answer: str) -> str:
    """Return the words that a model itself said for an answer that is kept, so that it is read again as it was."""
    return ABSENT if is_demo(model) and answer == NOT_FOUND else answer


class DemoAnswer:
    """The words of an answer as they come. Those of all models but the demo model stay as they are."""

    def __init__(self, model: str) -> None:
        """Begin an answer of this model."""
        self._demo = is_demo(model)
        self._held = ""

    def piece(self, text: str) -> str:
        """Return the words to show for the next piece; they wait while they may become a false statement."""
        if not self._demo:
            return text
        self._held += text
        if ABSENT.startswith(self._held.strip()):
            return ""
        said, self._held, self._demo = self._held, "", False
        return said

    def whole(self, text: str) -> tuple[str, str]:
        """Return the words to show at the end, and the whole answer."""
        answer = NOT_FOUND if self._demo and text.strip() == ABSENT else text
        return (answer if self._held and answer != text else self._held), answer
