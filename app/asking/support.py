"""Check an answer against the passages that it was given from: what they do not say, and how sure it is."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.asking.quotes import is_sentence, whole_sentences

if TYPE_CHECKING:
    import engine
    from app.reading.context_cache import OpenContext

NOT_FOUND = 0.02
"""How sure an answer is at most if the text does not seem to say it; fitted on the questions of `benchmarks/suite`."""

SURE = 0.05
"""How sure an answer is at least to be shown without a warning; fitted likewise."""

NOWHERE = "I did not find that in the text: no passage says so."
UNSURE = "Not sure: the text says this only in part. Compare the passages."


def doubt(checked: Mapping[str, Any], *, refused: bool) -> str:
    """Return the note for an answer that the text does not support, with what passages say instead; else "".

    Args:
        checked: what `check` returned.
        refused: whether the answer itself says that nothing was found.
    """
    sure, unsupported = checked.get("sure", 1.0), checked.get("unsupported", [])
    if refused or (sure >= SURE and not unsupported):
        return ""
    instead = dict.fromkeys(said for each in unsupported for said in each["instead"])
    they_say = f" Instead they say: {', '.join(instead)}." if instead else ""
    return f"{UNSURE if sure > NOT_FOUND else NOWHERE}{they_say}"


def check(question: str, done: "engine.Answer", opened: "OpenContext") -> dict[str, Any]:
    """Return facts of an answer as they are kept with it: `sure` (0 to 1), `unsupported`, or not `found`.

    `unsupported` lists numbers and names that stand in no passage: characters `start` to `end` of the answer. `instead`
    has at most three of the same kind from the passages.

    Of a summary or a list of something in the text only numbers and names are checked: its first sentence says little.
    Not checked are answers about the whole text (summaries, themes, lists), to questions in another language, to what
    is no question and has no word of the text ("Thanks!"), and those cut in their first sentence: {}. A question that
    names something, and has nothing to do with the text, is not found.
    """
    from engine.finding.support import is_strange, same_kind, sureness, unsupported
    from engine.finding.words import asks_to_retell

    finder, text = opened.finder, done.text
    if finder.words.is_whole(question) or not finder.words.speaks(question):
        return {}
    if is_strange(finder.words, question):
        return {"found": False, "sure": 0.0}
    if not finder.words.known(question) and not question.rstrip().endswith(("?", "？", "؟")):
        return {}
    if done.finish_reason == "length" and not (is_sentence(text) or whole_sentences(text, 0)):
        return {}
    passages = finder.texts(done.read_again or finder.beside(question, text))
    marked = [
        {"start": start, "end": end, "instead": same_kind(text, end, passages)}
        for start, end in unsupported(question, text, passages)
    ]
    sure = {} if asks_to_retell(question) else {"sure": round(sureness(finder.words, question, text, passages), 3)}
    return {**sure, "unsupported": marked}
