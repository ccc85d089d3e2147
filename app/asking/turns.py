"""Turns: a question is kept, answered piece by piece, and finished with its sources and measurements."""

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from app.asking.answer_options import SAMPLED, AnswerOptions
from app.asking.named_pages import as_kept, is_one, named_pages, require_few, spans_of, tokens_of
from app.asking.not_found import says_not_found
from app.asking.quotes import whole_sentences
from app.asking.repetition import repetition_start
from app.asking.sources import Source, check_quotations, find_sources, with_citations
from app.errors import UsageError, phrase
from app.formatting import plural, replay_progress
from app.machine.recommended import demo_note
from app.reading.context_cache import OpenContext, OpenConversation
from app.reading.open_context import (
    fork_conversation,
    open_context,
    open_conversation,
    require_begun,
    save_conversation,
)
from app.reading.progress import usage_json
from app.reading.readings import Stopped
from app.service import Service
from sessions import ContextRow, SessionRow, StoreError, TurnRow

if TYPE_CHECKING:
    import torch

    import engine

FLUSH_SEC = 0.08
"""Pieces of an answer are written to the store at most this often."""

WAIT_SEC = 0.1
"""After this long it is looked again whether the turns before are answered."""

LONGEST_QUESTION = 20_000
"""Characters."""

LONG_QUESTION = 256
"""Tokens; of more it is told how far they are read."""


def new_session(service: Service, context_id: str, title: str | None = None) -> SessionRow:
    """A new session over a context.

    Raises:
        AppError: nothing of the context has been read yet.
    """
    require_begun(service, service.store.context(context_id))
    return service.store.add_session(context_id, title)


def branch(service: Service, session_id: str, turns: int, context_id: str | None = None) -> SessionRow:
    """A session that begins with so many first turns of another, over its context or one that began with its documents.

    Raises:
        AppError: nothing of that context has been read yet.
        sessions.StoreError: there are fewer turns, or the context read other documents.
    """
    store = service.store
    before = store.context(store.session(session_id).context_id)
    context = store.context(context_id or before.id)
    if context.id != before.id:
        require_begun(service, context)

    def renamed(pages: str) -> str:  # those of a single document are named without its number
        if not pages or len(before.document_ids) == len(context.document_ids):
            return pages
        return as_kept(
            named_pages(pages, before.document_ids, service.document_cache),
            context.document_ids,
            service.document_cache,
        )

    begun = store.branch_session(session_id, turns, context.id, renamed)
    if context.id == before.id:
        fork_conversation(service, session_id, turns, begun.id)
    return begun


def said_in(turns: Sequence[TurnRow]) -> list[tuple[str, str]]:
    """Questions and answers of the turns that a conversation remembers: those that are done."""
    return [(turn.question, turn.answer.strip()) for turn in turns if turn.status == "done"]


def keep_question(service: Service, session_id: str, question: str, pages: str = "") -> TurnRow:
    """Keep a question, to be answered by `answer`.

    Args:
        pages: those that are to be turned to before the answer (`named_pages.py`); "" for none.

    Raises:
        UsageError: it is empty, or too long, or there are no such pages.
        AppError: nothing of the context has been read yet.
    """
    question = checked_question(question)
    context = service.store.context(service.store.session(session_id).context_id)
    require_begun(service, context)
    return service.store.add_turn(session_id, question, checked_pages(service, context, pages))


def checked_pages(service: Service, context: ContextRow, pages: str) -> str:
    """Pages as they are kept; "" for none.

    Raises:
        UsageError: they name none, or some that the documents do not have, or far more than can be read again.
    """
    if not pages.strip():
        return ""
    import engine

    ids, document_cache = context.document_ids, service.document_cache
    named = named_pages(pages, ids, document_cache)
    if engine.METHODS[context.method].family in ("condensing", "baseline"):
        characters = sum(row.characters for row in service.store.context_documents(context.id))
        require_few(named, ids, document_cache, context.tokens / max(1, characters))
    return as_kept(named, ids, document_cache)


def checked_question(question: str) -> str:
    """The question without blanks around it.

    Raises:
        UsageError: it is empty, or too long.
    """
    question = question.strip()
    if not question:
        raise UsageError("The question is empty.")
    if len(question) > LONGEST_QUESTION:
        raise UsageError(f"The question has {len(question):,} characters; at most {LONGEST_QUESTION:,} can be asked.")
    return question


def answer(
    service: Service,
    turn_id: str,
    options: AnswerOptions,
    on_piece: Callable[[str], None] = lambda text: None,
    should_stop: Callable[[], bool] = lambda: False,
    on_reasoning: Callable[[str], None] = lambda text: None,
    on_stage: Callable[[str], None] = lambda words: None,
) -> TurnRow:
    """Answer a turn; what is generated is in the store as it comes.

    Args:
        on_piece: called with every piece of the answer; on_reasoning: of the reasoning before it, if there is any.
        should_stop: asked at every piece, and after every pass over the question and the turns that a branch begins
            with; the conversation is then as it was before the question.
        on_stage: told in words what is waited for, and how far the turns before, or a long question, are read; ""
            when that is over.

    Returns:
        The turn: done, or cancelled with what there was of the answer.

    Raises:
        Exception: whatever went wrong; the turn is "failed" with a sentence.
    """
    turn = service.store.turn(turn_id)
    try:
        return _answer(service, turn, options, on_piece, should_stop, on_reasoning, on_stage)
    except BaseException as error:
        service.conversations.drop(turn.session_id)
        with suppress(StoreError), service.store.together():  # the turn may have been deleted meanwhile
            if service.store.turn(turn_id).status == "answering":
                service.store.finish_turn(turn_id, status="failed", error=phrase(error))
        raise


def _answer(
    service: Service,
    turn: TurnRow,
    options: AnswerOptions,
    on_piece: Callable[[str], None],
    should_stop: Callable[[], bool],
    on_reasoning: Callable[[str], None],
    on_stage: Callable[[str], None],
) -> TurnRow:
    import engine

    def on_turn(done: int, total: int) -> None:
        on_stage(replay_progress(done, total) if done < total else "")

    def on_pass() -> None:
        if should_stop():
            raise Stopped

    try:
        while service.store.is_behind(turn.id):  # another program answers in this session
            on_stage("Waiting for the answer to the question before")
            on_pass()
            time.sleep(WAIT_SEC)
        on_stage("")
        started = time.perf_counter()
        open_one = open_conversation(service, turn.session_id, on_pass, on_turn)
    except Stopped:
        return service.store.finish_turn(turn.id, status="cancelled")
    opening_sec = time.perf_counter() - started
    length, before = open_one.opened.model.turn_length(turn.question), open_one.conversation.memory.seen

    def on_question() -> None:
        on_pass()
        done = open_one.conversation.memory.seen - before
        if length > LONG_QUESTION and 0 < done < length:
            on_stage(f"Reading the question: {done:,} of {plural(length, 'token')}")

    seed = service.seed if options.seed is None else options.seed
    sampling = replace(
        open_one.opened.model.sampling,
        **options.sampled(),
        max_tokens=options.max_tokens,
        seed=secrets.randbits(32) if seed is None else seed,
        max_reasoning=options.max_reasoning,
        stop=tuple(options.stop),
    )
    waiting, thought, flushed, done = "", "", 0.0, None
    named = _named(service, open_one.opened, turn.pages)
    text = open_one.opened.stream.ids if options.read_again or named is not None else None
    # Closing before the end cancels: the conversation is then as it was before the question.
    asked = open_one.conversation.ask(
        turn.question, sampling, on_question, whole_sentences, text, named, repetition_start
    )
    with suppress(Stopped), closing(asked) as events:
        for event in events:
            on_stage("")
            if isinstance(event, engine.Answer):
                done = replace(event, time_to_first_token_sec=opening_sec + event.time_to_first_token_sec)
                continue
            if event.reasoning:
                on_reasoning(event.text)
                thought += event.text
            else:
                on_piece(event.text)
                waiting += event.text
            if time.monotonic() - flushed >= FLUSH_SEC:
                service.store.append_answer(turn.id, waiting, thought)
                waiting, thought, flushed = "", "", time.monotonic()
            if should_stop():
                break
    if done is None:
        service.store.append_answer(turn.id, waiting, thought)
        return service.store.finish_turn(turn.id, status="cancelled")
    if open_one.opened.share is None:
        open_context(service, open_one.opened.row.id)  # raises if its files were damaged meanwhile
    return _finish(service, turn, open_one, done, sampling)


def _named(service: Service, opened: OpenContext, pages: str) -> "torch.Tensor | None":
    """The tokens of the pages that are to be turned to, int64 [N]; None for none."""
    if not pages:
        return None
    ids = opened.row.document_ids
    read_again = opened.context.memory.lets_go()
    return tokens_of(
        named_pages(pages, ids, service.document_cache), ids, opened.stream, service.document_cache, read_again
    )


def _finish(
    service: Service, turn: TurnRow, open_one: OpenConversation, done: "engine.Answer", sampling: "engine.Sampling"
) -> TurnRow:
    opened = open_one.opened
    found = find_sources(done.passages, opened.stream, service.document_cache)
    there = not says_not_found(done.text)
    found, citations = with_citations(found, done.sentences if there else [], opened.stream, service.document_cache)
    sources = [asdict(source) for source in found]
    measured = measurements(done)
    measured["found"] = there
    measured["citations"] = [asdict(each) for each in citations]
    quotations = check_quotations(done.text, opened.row.document_ids, service.document_cache)
    measured["quotations"] = [asdict(each) for each in quotations]
    measured["sampling"] = {name: getattr(sampling, name) for name in SAMPLED}
    if sampling.temperature > 0:
        measured["seed"] = sampling.seed
    measured["warnings"] = [*_warnings(done, opened), *_elsewhere(service, opened, turn.pages, found)]
    measured["warnings"] += filter(None, [demo_note(opened.row.model, found=there)])
    # The tail goes first and carries the turn with it: after a crash in between, the turn is finished from there.
    said: dict[str, Any] = {
        "answer": done.text,
        "reasoning": done.reasoning,
        "sources": sources,
        "measurements": measured,
    }
    if opened.share is None:
        save_conversation(service, turn.session_id, open_one, {"id": turn.id, **said})
    with service.store.together():
        service.store.add_measurement("answer", turn.session_id, {"turn": turn.id, **measured})
        return service.store.finish_turn(turn.id, **said)


def _warnings(done: "engine.Answer", opened: OpenContext) -> list[str]:
    """Why an answer may be worse than it looks, a sentence each.

    A conversation that no budget bounds may outgrow what the model was trained for; where the text itself does, that
    was said before it was read, as it was of a budget.
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
            "knows nothing else of it: name fewer, or begin a new session."
        )
    if round(100 * done.held_again) < 100:
        said.append(
            f"Of the pages that were named the model still held {done.held_again:.0%} when it came to the question: "
            "name fewer."
        )
    if opened.row.budget is None and opened.context.usage().entries["device"] <= window < seen:
        said.append(
            f"Text and conversation have come to {seen:,} tokens, and the model was trained for {window:,} at a time: "
            "expect poor answers. Begin a new session, or read with a budget."
        )
    return said


def _elsewhere(service: Service, opened: OpenContext, pages: str, sources: Sequence[Source]) -> list[str]:
    """A sentence where pages were named, and none of the sources lies on them."""
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
    """The numbers of an answer, as the store and `ask --json` name them."""
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
