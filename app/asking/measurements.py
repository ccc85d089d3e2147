"""Numbers and warnings that are kept with an answer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from app.asking.named_pages import is_one, named_pages, spans_of
from app.asking.sources import Source
from app.formatting import plural
from app.reading.context_cache import OpenContext
from app.reading.progress import usage_json
from app.service import Service

if TYPE_CHECKING:
    import engine


def warnings(done: "engine.Answer", opened: OpenContext) -> list[str]:
    """Return the reasons why an answer may be worse than it looks, one sentence each.

    A conversation without a budget may outgrow the model's window. If the text alone does, a warning was given before
    it was read.
    """
    window, seen = opened.model.spec.window, done.usage.entries["device"]
    said = []
    if opened.share is not None and opened.share < 1:
        said.append(f"Asked when {int(100 * opened.share)}% of the text had been read: it knew nothing of the rest.")
    if done.reasoning_cut:
        tokens = plural(done.reasoning_tokens, "token")
        said.append(f"Its reasoning was ended at {tokens}, the most that were asked for.")
    if done.finish_reason == "length":
        said.append(f"Cut at {plural(done.answer_tokens, 'token')}, the longest answer that was asked for.")
    if done.finish_reason == "repetition":
        said.append("The model began to repeat itself, so its answer was ended here and the repetition left out.")
    if done.alone:
        said.append(
            "There was no room for the pages that were named beside what is remembered of the text, so the answer "
            "knows nothing else of it: name fewer, or begin a new chat."
        )
    if round(100 * done.held_again) < 100:
        said.append(
            f"Of the pages that were named the model still held {done.held_again:.0%} when it came to the question: "
            "name fewer."
        )
    if opened.row.budget is None and opened.context.usage().entries["device"] <= window < seen:
        said.append(
            f"Text and conversation have come to {seen:,} tokens, and the model was trained for {window:,} at a time: "
            "expect poor answers. Begin a new chat, or read with a budget."
        )
    return said


def missed_pages(service: Service, opened: OpenContext, pages: str, sources: Sequence[Source]) -> list[str]:
    """Return a sentence if pages were named and no source lies on them."""
    if not pages or not sources:
        return []
    ids, document_cache = opened.row.document_ids, service.document_cache
    spans = list(spans_of(named_pages(pages, ids, document_cache), ids, document_cache))
    there = (
        source.document == id and source.start < end and start < source.end
        for source in sources
        for id, start, end in spans
    )
    if any(there):
        return []
    which = "the page that was named" if is_one(pages) else "the pages that were named"
    return [f"None of the places where the model looked most is on {which}."]


def measurements(done: "engine.Answer") -> dict[str, Any]:
    """Return the numbers of an answer, named as in the store and in `ask --json`."""
    usage = usage_json(done.usage)
    return {
        "finish_reason": done.finish_reason,
        "prompt_tokens": done.prompt_tokens,
        "answer_tokens": done.answer_tokens,
        "reasoning_tokens": done.reasoning_tokens,
        "reasoning_seconds": done.reasoning_sec,
        "read_again_tokens": done.read_again,
        "time_to_first_token_seconds": done.time_to_first_token_sec,
        "tokens_per_second": done.tokens_per_second,
        "kv_entries": usage["entries"]["device"],
        "kv_bytes": usage["bytes"],
        "entries": usage["entries"],
        "traffic": usage["traffic"],
        "stages": usage["stages"],
    }
