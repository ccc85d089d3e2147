"""Turns: keep a question, answer it piece by piece, and finish with sources and measurements."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial

from app.asking.answer_options import AnswerOptions
from app.asking.answers import seeded
from app.asking.named_pages import all_of, kept, pages_up_to, pinning, with_pinned
from app.asking.question_length import require_fits
from app.errors import UsageError, phrase
from app.jobs.work import AnswerHooks, AnswerWork
from app.reading.open_context import fork_conversation, require_begun, saved_context, saved_session
from app.service import Service
from sessions import ContextRow, SessionRow, StoreError, TurnRow

FLUSH_SEC = 0.08
"""Least time between two writes of an answer's pieces to the store."""

WAIT_SEC = 0.1
"""Time between two checks whether the earlier turns are answered."""

LONGEST_QUESTION = 20_000
"""Most characters of a question."""


def new_session(service: Service, context_id: str, title: str | None = None) -> SessionRow:
    """Begin a session over a context.

    Raises:
        AppError: none of the context has been read yet.
    """
    require_begun(service, service.store.contexts.get(context_id))
    return service.store.sessions.add(context_id, title)


def branch(service: Service, session_id: str, turns: int, context_id: str | None = None) -> SessionRow:
    """Begin a session with the first turns of another, over its context or over one that begins with the same
    documents.

    Raises:
        AppError: none of that context has been read yet.
        sessions.StoreError: there are fewer turns, or the context read other documents.
    """
    store = service.store
    before = store.contexts.get(store.sessions.get(session_id).context_id)
    context = store.contexts.get(context_id or before.id)
    if context.id != before.id:
        require_begun(service, context)

    def renamed(pages: str) -> str:  # a context of one document names pages without its number
        if not pages or len(before.document_ids) == len(context.document_ids):
            return pages
        return kept(pages, before.document_ids, service.document_cache, context.document_ids)

    begun = store.sessions.branch(session_id, turns, context.id, renamed)
    if context.id == before.id:
        fork_conversation(service, session_id, turns, begun.id)
    return begun


def said_in(turns: Sequence[TurnRow]) -> list[tuple[str, str]]:
    """Return question and answer of each finished turn; a conversation remembers only these."""
    return [(turn.question, turn.answer.strip()) for turn in turns if turn.status == "done"]


def keep_question(service: Service, session_id: str, question: str, pages: str = "") -> TurnRow:
    """Keep a question, to be answered by `answer`.

    Args:
        service: the home in use.
        session_id: the session.
        question: the question as typed.
        pages: pages to answer from alone, as a person names them (`named_pages.py`); "" for none.

    Raises:
        UsageError: the question is empty, too long or has more tokens than fit, or there are no such pages.
        AppError: none of the context has been read yet.
    """
    question = checked_question(question)
    context = service.store.contexts.get(service.store.sessions.get(session_id).context_id)
    require_begun(service, context)
    require_fits(service, context, question)
    return service.store.turns.add(session_id, question, checked_pages(service, context, pages))


def with_documents(service: Service, context: ContextRow, pages: str, documents: Sequence[str], up_to: str = "") -> str:
    """Return pages to turn to, with whole documents before them.

    Args:
        service: the home in use.
        context: the context.
        pages: the pages.
        documents: see `named_pages.all_of`.
        up_to: the last page that is known, instead of the others; see `named_pages.pages_up_to`.

    Raises:
        UsageError: the context read none of this name, or there is no such page.
    """
    if up_to.strip():
        alone, pinned = with_pinned(pages)
        if alone or documents:
            raise UsageError("Name the pages to answer from, or the last one that is known, but not both.")
        return pinning(pages_up_to(up_to, context.document_ids, service.document_cache), pinned)
    if not documents:
        return pages
    rows = service.store.contexts.documents(context.id)
    if len(rows) == 1:
        all_of(documents, [(rows[0].id, rows[0].title)])
        return pages
    whole = all_of(documents, [(row.id, row.title) for row in rows])
    alone, pinned = with_pinned(pages)
    return pinning(", ".join(filter(None, [whole, alone.strip(",;")])), pinned)


def checked_pages(service: Service, context: ContextRow, pages: str) -> str:
    """Return pages in the form that the store keeps; "" for none.

    Raises:
        UsageError: they name no pages, or some that the documents do not have.
    """
    return kept(pages, context.document_ids, service.document_cache)


def checked_question(question: str, called: str = "The question") -> str:
    """Return the question without surrounding blanks. called: its name in a refusal.

    Raises:
        UsageError: it is empty or too long.
    """
    question = question.strip()
    if not question:
        raise UsageError(f"{called} is empty.")
    if len(question) > LONGEST_QUESTION:
        raise UsageError(f"{called} has {len(question):,} characters; at most {LONGEST_QUESTION:,} can be asked.")
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
    """Answer a turn; the store gets the pieces as they are generated.

    Args:
        service: the home in use.
        turn_id: the turn.
        options: options for the answer.
        on_piece: called with every piece of the answer.
        should_stop: asked at every piece and after every pass; a stopped conversation is as it was before the question.
        on_reasoning: called with every piece of the reasoning before the answer.
        on_stage: told in words about the work before the first piece; "" when that is over.

    Returns:
        The turn, done or cancelled, with the answer so far.

    Raises:
        Exception: any error; the turn is "failed" with a sentence.
    """
    turn = service.store.turns.get(turn_id)
    may_save = partial(service.store.sessions.get, turn.session_id)
    try:
        return _answer(service, turn, options, AnswerHooks(on_piece, on_reasoning, on_stage, should_stop, may_save))
    except BaseException as error:
        with suppress(StoreError), service.store.transaction():  # the turn may be deleted by now
            if service.store.turns.get(turn_id).status == "answering":
                service.store.turns.finish(turn_id, status="failed", error=phrase(error))
        raise


def _answer(service: Service, turn: TurnRow, options: AnswerOptions, hooks: AnswerHooks) -> TurnRow:
    store, flushed = service.store, 0.0
    waiting = {"answer": "", "reasoning": ""}

    def flush(least_sec: float = 0.0) -> None:
        nonlocal flushed
        if time.monotonic() - flushed >= least_sec and any(waiting.values()):
            store.turns.append_answer(turn.id, *waiting.values())
            waiting.update(answer="", reasoning="")
            flushed = time.monotonic()

    def on_piece(text: str) -> None:
        hooks.piece(text)
        waiting["answer"] += text
        flush(FLUSH_SEC)

    def on_reasoning(text: str) -> None:
        hooks.reasoning(text)
        waiting["reasoning"] += text
        flush(FLUSH_SEC)

    while store.jobs.is_behind(turn.id):  # another program answers in this session
        hooks.stage("Waiting for the answer to the question before")
        if hooks.should_stop():
            return store.turns.finish(turn.id, status="cancelled")
        time.sleep(WAIT_SEC)
    hooks.stage("")
    told = service.runner.answer(
        work_of(service, turn, options), replace(hooks, piece=on_piece, reasoning=on_reasoning)
    )
    if told is None:
        flush()
        return store.turns.finish(turn.id, status="cancelled")
    with store.transaction():
        store.measurements.add("answer", turn.session_id, {"turn": turn.id, **told.measurements})
        return store.turns.finish(turn.id, **asdict(told))


def work_of(service: Service, turn: TurnRow, options: AnswerOptions) -> AnswerWork:
    """Return all that answering a turn needs.

    Raises:
        AppError: none of the context has been read yet.
    """
    store = service.store
    context = store.contexts.get(store.sessions.get(turn.session_id).context_id)
    require_begun(service, context)
    return AnswerWork(
        saved_context(service, context),
        saved_session(service, turn.session_id),
        turn.id,
        turn.question,
        turn.pages,
        seeded(service, options),
        store.documents.texts(context.document_ids),
    )
