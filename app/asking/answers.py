"""Answers before they are kept: ask an open context, and check the answer against its text."""

import secrets
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from app.asking.answer_options import AT_ONCE, LOOKS, SAMPLED, AnswerOptions
from app.asking.demo_answer import DemoAnswer
from app.asking.document_map import MOST_TOLD, FormAnswer, form_answer, may_ask_of_form
from app.asking.measurements import COUNTED, measurements, warnings
from app.asking.named_pages import named_pages, tokens_of
from app.asking.not_found import says_not_found
from app.asking.quotes import is_sentence, whole_sentences
from app.asking.repetition import repetition_start
from app.asking.sources import check_quotations, find_sources, narrowed, page_source, source_at, with_citations
from app.asking.support import NOWHERE, check, doubt
from app.machine.good_for import demo_note
from app.reading.context_cache import OpenContext
from app.reading.open_context import open_context
from app.service import Service

if TYPE_CHECKING:
    import torch

    import engine


@dataclass(frozen=True)
class Question:
    """A question to an open context.

    text: the question.
    pages: pages to answer from alone, as the store keeps them; "" for none.
    options: options for the answer.
    sampling: the model's sampling with these options.
    opened: the context, without what comes behind pages that are its beginning.
    named: int64 [N], the tokens of the pages; None for none.
    form: the answer, if the question is about nothing but the form of the documents.
    """

    text: str
    pages: str
    options: AnswerOptions
    sampling: "engine.Sampling"
    opened: OpenContext
    named: "torch.Tensor | None" = None
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


def question_to(service: Service, opened: OpenContext, text: str, pages: str, options: AnswerOptions) -> Question:
    """Return a question to a context, with a seed if its options name none.

    Raises:
        UsageError: there is no text on its pages.
    """
    seed = service.seed if options.seed is None else options.seed
    reasons = opened.parameters > AT_ONCE if options.reason is None else options.reason
    sampling = replace(
        opened.model.sampling,
        **options.sampled(),
        max_tokens=options.max_tokens,
        seed=secrets.randbits(32) if seed is None else seed,
        max_reasoning=options.max_reasoning if reasons else 0,
        stop=tuple(options.stop),
        json_schema=options.json_schema,
    )
    form = _form_answer(service, opened, text) if may_ask_of_form(text) and not options.json_schema else None
    if not pages:
        return Question(text, pages, options, sampling, opened, form=form)
    ids, cache = opened.row.document_ids, service.document_cache
    named = tokens_of(named_pages(pages, ids, cache), ids, opened.stream, cache)
    if int(named[-1]) < len(named):
        opened = opened.until(len(named))
    return Question(text, pages, options, sampling, opened, named, form)


def _form_answer(service: Service, opened: OpenContext, text: str) -> FormAnswer | None:
    rows = service.store.contexts.documents(opened.row.id)
    if len(rows) > MOST_TOLD:
        return None
    return form_answer(text, [(row.title, service.document_cache.document(row.id)) for row in rows])


def asked(
    conversation: "engine.Conversation", question: Question, on_pass: Callable[[], None]
) -> "Generator[engine.AnswerPiece | engine.Answer]":
    """Ask in a conversation over a context, and yield the pieces of the answer and then the whole.

    Closing it before the end cancels the turn: the conversation is as it was before the question.
    """
    import engine

    options = question.options
    if question.form is not None:
        told = engine.AskOptions(on_pass)
        return engine.answer_without_model(conversation, question.text, question.form.text, told)
    told = engine.AskOptions(on_pass, whole_sentences, repetition_start, rules=options.rules)
    if not options.read_again and question.named is None:
        return conversation.ask(question.text, question.sampling, told)
    opened, read = question.opened, question.opened.stream.ids
    if opened.share is not None and question.named is None:
        read = read[: max(0, opened.context.memory.seen - len(opened.model.chat.prefix))]
    text = engine.ReadText(read, opened.finder, question.named, by_words=opened.parameters < LOOKS)
    return engine.answer_from_text(conversation, question.text, text, question.sampling, told)


def checked(service: Service, question: Question, done: "engine.Answer") -> Checked:
    """Return an answer with its sources, and with the doubts that the text leaves about it."""
    opened = question.opened
    if question.form is not None:
        ids, cache = opened.row.document_ids, service.document_cache
        named = [asdict(page_source(ids[number], page, cache)) for number, page in question.form.pages]
        measured = {**measurements(done), "found": True, "counted": True, "warnings": [COUNTED]}
        return Checked(done.text, "", named, measured)
    said = f"{question.text}\n{done.text}"
    measured, facts = measurements(done), check(question.text, done, opened)
    near = facts.get("found", True)  # a question about something else has no places
    found = find_sources(done.passages if near else [], opened.stream, service.document_cache, said)
    refused = says_not_found(done.text)
    doubted = doubt(facts, refused=refused)
    there = near and not refused and not doubted.startswith(NOWHERE)
    sentences = [each for each in done.sentences if there and is_sentence(done.text[each.start : each.end])]
    found, citations = with_citations(found, sentences, opened.stream, service.document_cache, said)
    sources = [asdict(source) for source in narrowed(found, service.document_cache, said)]
    measured |= facts
    measured["found"] = there
    measured["citations"] = [asdict(each) for each in citations]
    quotations = check_quotations(done.text, opened.stream, service.document_cache)
    measured["quotations"] = [asdict(each) for each in quotations]
    measured["sampling"] = {name: getattr(question.sampling, name) for name in SAMPLED}
    if question.sampling.temperature > 0:
        measured["seed"] = question.sampling.seed
    demo = demo_note(opened.row.model, found=near and not refused)
    told = warnings(done, opened, question.pages, question.options.rules)
    measured["warnings"] = [*told, *filter(None, [doubted, demo])]
    return Checked(done.text, done.reasoning, sources, measured)


def ask_alone(
    service: Service,
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

    opened = open_context(service, place.context)
    question = question_to(service, opened, text, place.pages, options)
    if place.document:
        tokens = opened.stream.between(place.document, place.start, place.end)
        alone = engine.read_alone(opened.context, opened.stream.ids, [tokens], on_pass)
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
                    return checked(service, question, done)
                where = source_at(service.document_cache, place.document, place.start, place.end, 1.0)
                return Checked(said, done.reasoning, [asdict(where)], measurements(done))
    raise RuntimeError("the model gave no answer")
