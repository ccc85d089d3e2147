"""Numbers and warnings that are kept with an answer."""

from typing import TYPE_CHECKING, Any

from app.formatting import plural
from app.reading.context_cache import OpenContext
from app.reading.progress import usage_json

if TYPE_CHECKING:
    import engine


RULES_IN_QUESTION = "The system message was read as the beginning of the question: the document has its place."

COUNTED = "Taken from the pages and the contents of the document itself, not from the model."


def warnings(done: "engine.Answer", opened: OpenContext, pages: str, rules: str) -> list[str]:
    """Return the reasons why an answer may be worse than it looks, one sentence each.

    A conversation without a budget may outgrow the model's window. If the text alone does, a warning was given before
    it was read.

    Args:
        done: the answer.
        opened: the context that was asked.
        pages: those named with the question; "" for none.
        rules: text that was put before the question; "" for none.
    """
    import engine

    window, seen = opened.model.spec.window, done.usage.entries["device"]
    said = [RULES_IN_QUESTION] if rules else []
    if opened.share is not None and opened.share < 1:
        said.append(f"Asked when {int(100 * opened.share)}% of the text had been read: it knew nothing of the rest.")
    if done.reasoning_cut:
        tokens = plural(done.reasoning_tokens, "token")
        said.append(f"Its reasoning was ended at {tokens}, the most that were asked for.")
    if done.finish_reason == "length":
        said.append(f"Cut at {plural(done.answer_tokens, 'token')}, the longest answer that was asked for.")
    if done.finish_reason == "repetition":
        said.append("The model began to repeat itself, so its answer was ended here and the repetition left out.")
    if pages and sum(map(len, done.read_again)) == engine.LONGEST_READ_AGAIN:
        said.append(
            f"Of the pages that were named only the first {engine.LONGEST_READ_AGAIN:,} tokens were read for the "
            "answer: name fewer, or ask for something that stands in few places."
        )
    if opened.row.budget is None and opened.context.usage().entries["device"] <= window < seen:
        said.append(
            f"Text and conversation have come to {seen:,} tokens, and the model was trained for {window:,} at a time: "
            "expect poor answers. Begin a new chat, or read with a budget."
        )
    return said


def measurements(done: "engine.Answer") -> dict[str, Any]:
    """Return the numbers of an answer, named as in the store and in `ask --json`."""
    usage = usage_json(done.usage)
    return {
        "finish_reason": done.finish_reason,
        "prompt_tokens": done.prompt_tokens,
        "answer_tokens": done.answer_tokens,
        "reasoning_tokens": done.reasoning_tokens,
        "reasoning_seconds": done.reasoning_sec,
        "read_again_tokens": sum(map(len, done.read_again)),
        "time_to_first_token_seconds": done.time_to_first_token_sec,
        "tokens_per_second": done.tokens_per_second,
        "kv_entries": usage["entries"]["device"],
        "kv_bytes": usage["bytes"],
        "entries": usage["entries"],
        "traffic": usage["traffic"],
        "stages": usage["stages"],
    }
