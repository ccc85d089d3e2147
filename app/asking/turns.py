"""Turns: keep a question, answer it piece by piece, and finish with sources and measurements."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from app.asking.answer_options import AnswerOptions
from app.asking.answers import Question, asked, checked, question_to
from app.asking.demo_answer import DemoAnswer
from app.asking.named_pages import all_of, as_kept, named_pages, pages_up_to
from app.asking.question_length import require_fits
from app.errors import UsageError, phrase
from app.formatting import plural, replay_progress
from app.reading.context_cache import OpenConversation
from app.reading.open_context import (
    fork_conversation,
    open_context,
    open_conversation,
    require_begun,
    save_conversation,
)
from app.reading.readings import Stopped
from app.service import Service
from sessions import ContextRow, SessionRow, StoreError, TurnRow

if TYPE_CHECKING:
    import engine

FLUSH_SEC = 0.08
"""Least time between two writes of an answer's pieces to the store."""

WAIT_SEC = 0.1
"""Time between two checks whether the earlier turns are answered."""

LONGEST_QUESTION = 20_000
"""Most characters of a question."""

LONG_QUESTION = 256
"""Tokens of a question above which its progress is shown."""


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
        return as_kept(
            named_pages(pages, before.document_ids, service.document_cache),
            context.document_ids,
            service.document_cache,
        )

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
        if pages.strip() or documents:
            raise UsageError("Name the pages to answer from, or the last one that is known, but not both.")
        return pages_up_to(up_to, context.document_ids, service.document_cache)
    if not documents:
        return pages
    rows = service.store.contexts.documents(context.id)
    if len(rows) == 1:
        all_of(documents, [(rows[0].id, rows[0].title)])
        return pages
    whole = all_of(documents, [(row.id, row.title) for row in rows])
    return ", ".join(filter(None, [whole, pages.strip().strip(",;")]))


def checked_pages(service: Service, context: ContextRow, pages: str) -> str:
    """Return pages in the form that the store keeps; "" for none.

    Raises:
        UsageError: they name no pages, or some that the documents do not have.
    """
    if not pages.strip():
        return ""
    ids, document_cache = context.document_ids, service.document_cache
    return as_kept(named_pages(pages, ids, document_cache), ids, document_cache)


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
    try:
        return _answer(service, turn, options, on_piece, should_stop, on_reasoning, on_stage)
    except BaseException as error:
        service.conversations.drop(turn.session_id)
        with suppress(StoreError), service.store.transaction():  # the turn may be deleted by now
            if service.store.turns.get(turn_id).status == "answering":
                service.store.turns.finish(turn_id, status="failed", error=phrase(error))
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
        while service.store.jobs.is_behind(turn.id):  # another program answers in this session
            on_stage("Waiting for the answer to the question before")
            on_pass()
            time.sleep(WAIT_SEC)
        on_stage("")
        started = time.perf_counter()
        open_one = open_conversation(service, turn.session_id, on_pass, on_turn)
    except Stopped:
        return service.store.turns.finish(turn.id, status="cancelled")
    opening_sec = time.perf_counter() - started
    length, before = open_one.opened.model.turn_length(turn.question), open_one.conversation.memory.seen

    def on_question() -> None:
        on_pass()
        done = open_one.conversation.memory.seen - before
        if length > LONG_QUESTION and 0 < done < length:
            on_stage(f"Reading the question: {done:,} of {plural(length, 'token')}")

    opened = open_one.opened
    question = question_to(service, opened, turn.question, turn.pages, options)
    asking = asked(open_one.conversation, question, on_question)
    waiting, thought, flushed, done = "", "", 0.0, None
    said = DemoAnswer(opened.row.model)
    with suppress(Stopped), closing(asking) as events:
        for event in events:
            on_stage("")
            if isinstance(event, engine.Answer):
                rest, text = said.whole(event.text)
                first_sec = opening_sec + event.time_to_first_token_sec
                done = replace(event, text=text, time_to_first_token_sec=first_sec)
                if rest:
                    on_piece(rest)
                continue
            if event.reasoning:
                on_reasoning(event.text)
                thought += event.text
            else:
                if shown := said.piece(event.text):
                    on_piece(shown)
                    waiting += shown
            if time.monotonic() - flushed >= FLUSH_SEC:
                service.store.turns.append_answer(turn.id, waiting, thought)
                waiting, thought, flushed = "", "", time.monotonic()
            if should_stop():
                break
    if done is None:
        service.store.turns.append_answer(turn.id, waiting, thought)
        return service.store.turns.finish(turn.id, status="cancelled")
    if opened.share is None:
        open_context(service, opened.row.id)  # raises if its files were damaged meanwhile
    return _finish(service, turn, open_one, done, question)


def _finish(
    service: Service, turn: TurnRow, open_one: OpenConversation, done: "engine.Answer", question: Question
) -> TurnRow:
    told = checked(service, question, done)
    kept = asdict(told)
    # The conversation is saved first, with the turn. After a crash in between, the turn is finished from there.
    if open_one.opened.share is None:
        save_conversation(service, turn.session_id, open_one, {"id": turn.id, **kept})
    with service.store.transaction():
        service.store.measurements.add("answer", turn.session_id, {"turn": turn.id, **told.measurements})
        return service.store.turns.finish(turn.id, **kept)
