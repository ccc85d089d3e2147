"""Answers before they are kept: ask an open context, and check the answer against its text."""

import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from app.asking.answer_options import AT_ONCE, LOOKS, SAMPLED, AnswerOptions
from app.asking.demo_answer import DemoAnswer
from app.asking.document_map import MOST_TOLD, FormAnswer, form_answer, may_ask_of_form
from app.asking.measurements import COUNTED, measurements, warnings
from app.asking.named_pages import named_pages, tokens_of, with_pinned
from app.asking.not_found import says_not_found
from app.asking.quotes import is_sentence, whole_sentences
from app.asking.repetition import repetition_start
from app.asking.sources import check_quotations, find_sources, narrowed, page_source, source_at, with_citations
from app.asking.support import NOWHERE, check, doubt
from app.errors import UsageError
from app.machine.good_for import demo_note
from app.reading.context_cache import OpenContext
from app.reading.document_cache import DocumentCache
from app.reading.open_context import open_context

if TYPE_CHECKING:
    import torch

    import engine
    from app.service import Service


@dataclass(frozen=True)
class Question:
    """A question to an open context.

    text: the question.
    pages: pages to answer from alone or to keep in view, as the store keeps them; "" for none.
    options: options for the answer.
    sampling: the model's sampling with these options.
    opened: the context, without what comes behind pages that are its beginning.
    documents: gives its documents.
    named, pinned: int64 [N], the tokens of the pages to answer from alone, and of those to keep in view; None for none.
    form: the answer, if the question is about nothing but the form of the documents.
    """

    text: str
    pages: str
    options: AnswerOptions
    sampling: "engine.Sampling"
    opened: OpenContext
    documents: DocumentCache
    named: "torch.Tensor | None" = None
    pinned: "torch.Tensor | None" = None
    form: FormAnswer | None = None


@dataclass(frozen=True)
class Place:
    """A part of a context to be asked alone.

    context: id of the context.
    pages: its pages, as the store keeps them; "" for the whole text.
    document, start, end: instead of pages, characters of a document of the context; all of them are read again.
    """

    context: str
    pages: str = ""
    document: str = ""
    start: int = 0
    end: int = 0


@dataclass(frozen=True)
class Checked:
    """An answer with its sources and measurements, as the store keeps them."""

    answer: str
    reasoning: str
    sources: list[dict[str, Any]]
    measurements: dict[str, Any]


def seeded(service: "Service", options: AnswerOptions) -> AnswerOptions:
    """Return options with a seed."""
    seed = service.seed if options.seed is None else options.seed
    return replace(options, seed=secrets.randbits(32) if seed is None else seed)


def question_to(
    opened: OpenContext,
    text: str,
    pages: str,
    options: AnswerOptions,
    documents: DocumentCache,
    titles: Sequence[tuple[str, str]],
) -> Question:
    """Return a question to a context.

    Args:
        opened: the context.
        text: the question.
        pages: see `Question`.
        options: options for the answer, with a seed.
        documents: gives the documents of the context.
        titles: their ids and titles.

    Raises:
        UsageError: there is no text on its pages, or those to keep in view are behind the known ones.
    """
    assert options.seed is not None
    reasons = opened.parameters > AT_ONCE if options.reason is None else options.reason
    sampling = replace(
        opened.model.sampling,
        **options.sampled(),
        max_tokens=options.max_tokens,
        seed=options.seed,
        max_reasoning=options.max_reasoning if reasons else 0,
        stop=tuple(options.stop),
        json_schema=options.json_schema,
    )
    form = None
    if may_ask_of_form(text) and not options.json_schema and len(titles) <= MOST_TOLD:
        form = form_answer(text, [(title, documents.document(id)) for id, title in titles])
    ids = opened.row.document_ids
    named, pinned = (
        tokens_of(named_pages(each, ids, documents), ids, opened.stream, documents) if each else None
        for each in with_pinned(pages)
    )
    if named is not None and int(named[-1]) < len(named):
        if pinned is not None and int(pinned[-1]) >= len(named):
            raise UsageError(
                "The pages named begin the text, so that what is behind them is unknown: a page to keep in view must "
                "be among them."
            )
        opened = opened.until(len(named))
    elif named is None and pinned is not None and int(pinned[-1]) >= opened.known:
        raise UsageError("A page to keep in view has not been read yet: ask again when it has been.")
    return Question(text, pages, options, sampling, opened, documents, named, pinned, form)


def asked(
    conversation: "engine.Conversation",
    question: Question,
    on_pass: Callable[[], None],
    on_passages: Callable[[int, int], None] = lambda done, total: None,
) -> "Generator[engine.AnswerPiece | engine.Answer]":
    """Ask in a conversation over a context, and yield the pieces of the answer and then the whole.

    Closing it before the end cancels the turn: the conversation is as it was before the question. See
    `engine.AskOptions` for `on_pass` and `on_passages`.
    """
    import engine

    options = question.options
    if question.form is not None:
        told = engine.AskOptions(on_pass)
        return engine.answer_without_model(conversation, question.text, question.form.text, told)
    told = engine.AskOptions(on_pass, on_passages, whole_sentences, repetition_start, rules=options.rules)
    opened, read = question.opened, question.opened.stream.ids
    whole = question.named is None and question.pinned is None
    if not options.read_again and whole:
        return conversation.ask(question.text, question.sampling, replace(told, text_ids=read))
    read = read[: opened.known] if question.named is None else read
    text = engine.ReadText(read, opened.finder, question.named, question.pinned, opened.parameters < LOOKS)
    return engine.answer_from_text(conversation, question.text, text, question.sampling, told)


def checked(question: Question, done: "engine.Answer") -> Checked:
    """Return an answer with its sources, and with the doubts that the text leaves about it."""
    opened, documents = question.opened, question.documents
    if question.form is not None:
        ids = opened.row.document_ids
        named = [asdict(page_source(ids[number], page, documents)) for number, page in question.form.pages]
        measured = {**measurements(done), "found": True, "counted": True, "warnings": [COUNTED]}
        return Checked(done.text, "", named, measured)
    said = f"{question.text}\n{done.text}"
    measured, facts = measurements(done), check(question.text, done, opened)
    near = facts.get("found", True)  # a question about something else has no places
    found = find_sources(done.passages if near else [], opened.stream, documents, said)
    refused = says_not_found(done.text)
    doubted = doubt(facts, refused=refused)
    there = near and not refused and not doubted.startswith(NOWHERE)
    sentences = [each for each in done.sentences if there and is_sentence(done.text[each.start : each.end])]
    found, citations = with_citations(found, sentences, opened.stream, documents, said)
    sources = [asdict(source) for source in narrowed(found, documents, said)]
    measured |= facts
    measured["found"] = there
    measured["citations"] = [asdict(each) for each in citations]
    quotations = check_quotations(done.text, opened.stream, documents)
    measured["quotations"] = [asdict(each) for each in quotations]
    measured["sampling"] = {name: getattr(question.sampling, name) for name in SAMPLED}
    if question.sampling.temperature > 0:
        measured["seed"] = question.sampling.seed
    demo = demo_note(opened.row.model, found=near and not refused)
    told = warnings(done, opened, question.pages, question.options.rules)
    measured["warnings"] = [*told, *filter(None, [doubted, demo])]
    return Checked(done.text, done.reasoning, sources, measured)


def ask_alone(
    service: "Service",
    place: Place,
    text: str,
    options: AnswerOptions,
    on_pass: Callable[[], None] = lambda: None,
) -> Checked:
    """Return the answer to a question in a conversation that is thrown away.

    An answer from characters of a document has these as its only source, and is not checked against them.

    Args:
        service: the home in use.
        place: the part of a context to ask.
        text: the question.
        options: options for the answer.
        on_pass: called after each pass and piece; its exception ends the work.

    Raises:
        AppError: none of the context has been read yet.
    """
    import engine

    opened, documents = open_context(service, place.context), service.document_cache
    titles = [(row.id, row.title) for row in service.store.contexts.documents(place.context)]
    question = question_to(opened, text, place.pages, seeded(service, options), documents, titles)
    if place.document:
        tokens = opened.stream.between(place.document, place.start, place.end)
        alone = engine.read_alone(opened.context, opened.stream.ids, [tokens], lambda *_: on_pass())
        told = engine.AskOptions(on_pass, repetition_start=repetition_start, rules=options.rules)
        asking = engine.Conversation(alone).ask(text, question.sampling, told)
    else:
        asking = asked(engine.Conversation(opened.context), question, on_pass)
    with closing(asking) as events:
        for event in events:
            on_pass()
            if isinstance(event, engine.Answer):
                _, said = DemoAnswer(opened.row.model).whole(event.text)
                done = replace(event, text=said)
                if not place.document:
                    return checked(question, done)
                where = source_at(documents, place.document, place.start, place.end, 1.0)
                return Checked(said, done.reasoning, [asdict(where)], measurements(done))
    raise RuntimeError("the model gave no answer")
