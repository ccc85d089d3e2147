"""Pages that a person names: their forms, their tokens, and errors for pages that do not exist."""

import json
import re
from pathlib import Path

import pymupdf
import pytest

import ingest
from app.asking.answer_options import AnswerOptions
from app.asking.named_pages import (
    Named,
    as_kept,
    named_pages,
    page_number,
    pages_around,
    pages_in_words,
    tokens_of,
)
from app.asking.turns import answer, keep_question
from app.errors import UsageError
from app.jobs.worker import Worker
from app.reading.document_cache import DocumentCache
from app.reading.open_context import open_context
from app.reading.readings import read
from app.service import Service
from app.web.views.turn import turn_article
from ingest.document import page_label
from sessions import ContextRow, TurnRow
from tests.app.helpers import BUDGET, add, begin, book_text, ended, in_process, work_once
from tests.ingest import makers

SECTIONS = 4
PARAGRAPHS = 6


def chapters(name: str) -> str:
    """Return Markdown with chapters of paragraphs, each with words of its own."""
    return "\n\n".join(
        "\n\n".join([f"# Chapter {c}", *(f"In {name}, section {c}, paragraph {p} is here." for p in range(1, 7))])
        for c in range(1, SECTIONS + 1)
    )


@pytest.fixture
def context(service: Service, tmp_path: Path) -> ContextRow:
    """Return a context of two documents."""
    paths = [tmp_path / f"{name}.md" for name in ("First", "Second")]
    for path in paths:
        path.write_text(chapters(path.stem), encoding="utf-8")
    return read(service, begin(service, add(service, *paths), "exact", BUDGET).id, lambda _: None)


def text_of(service: Service, context: ContextRow, pages: str) -> str:
    """Return the text of the tokens of pages."""
    opened = open_context(service, context.id)
    ids = context.document_ids
    tokens = tokens_of(named_pages(pages, ids, service.document_cache), ids, opened.stream, service.document_cache)
    return opened.model.decode(opened.stream.ids[tokens].tolist())


def said(text: str) -> list[tuple[str, int, int]]:
    found = re.findall(r"In (\w+), section (\d), paragraph (\d) is here\.", text)
    return [(name, int(section), int(paragraph)) for name, section, paragraph in found]


def test_the_tokens_of_pages_are_the_words_on_them(service: Service, context: ContextRow) -> None:
    def section(name: str, number: int) -> list[tuple[str, int, int]]:
        return [(name, number, paragraph) for paragraph in range(1, PARAGRAPHS + 1)]

    assert said(text_of(service, context, "2:3")) == section("Second", 3)
    assert said(text_of(service, context, " 1 : 4 , 1:2 – 3;")) == [
        *section("First", 2),
        *section("First", 3),
        *section("First", 4),
    ]
    assert said(text_of(service, context, "2:1/2-3, 1:4/6")) == [
        ("First", 4, 6),
        ("Second", 1, 2),
        ("Second", 1, 3),
    ]
    assert said(text_of(service, context, "2:1/5-99")) == [("Second", 1, 5), ("Second", 1, 6)]
    assert said(text_of(service, context, "1:1, 1:1/2")) == section("First", 1), "each once"
    everything = text_of(service, context, "1:1-4, 2:1-4")
    assert len(said(everything)) == 2 * SECTIONS * PARAGRAPHS


def test_a_place_that_a_source_names_is_among_the_paragraphs_around_it(service: Service, context: ContextRow) -> None:
    for number, id in enumerate(context.document_ids, 1):
        document = service.document_cache.document(id)
        for found in re.finditer(r"In \w+, section \d, paragraph \d is here\.", document.text):
            place = document.locate(found.start())
            words = text_of(service, context, f"{number}:{pages_around(place.page, place.paragraph)}")
            assert found[0] in words
            assert 3 <= len(said(words)) <= 5
    assert pages_around(2, 0) == "2/1-2", "of headings: what comes after them"
    assert pages_around(9, None, place="page 9") == pages_around(9, None, place="slide 9") == "9"
    assert pages_around(12, None, 2, "page 9 (page 12 of the file)") == "2:12 of the file"


@pytest.mark.parametrize(
    ("pages", "why"),
    [
        ("2:chapter one", "'2:chapter one' names no pages"),
        ("chapter one", "There are 2 documents"),
        (",", "'' names no pages"),
        ("2:1,,2:2", "'' names no pages"),
        ("2:1/2/3", "names no pages"),
        ("2", "There are 2 documents: put the number of the one that is meant before the page, as in 2:2"),
        ("3:1", "There is no document 3, only 2 documents."),
        ("1:" + "9" * 5000, "names no pages"),
        ("0:1", "There is no document 0"),
        ("2:5", "There is no section 5 of document 2, only 4 sections."),
        ("2:0-2", "There is no section 0"),
        ("2:2-9", "There is no section 9"),
        ("1:9/1", "There is no section 9 of document 1"),
        ("1:4/7", "There is no paragraph 7 in section 4 of document 1, only 6 paragraphs."),
        ("1:4/0", "There is no paragraph 0"),
        ("1:3-2", "'1:3-2' ends before it begins: write the earlier one first."),
    ],
)
def test_what_names_no_pages_is_refused(service: Service, context: ContextRow, pages: str, why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        named_pages(pages, context.document_ids, service.document_cache)


PRINTED = ("i", "ii", "iii", "1", "2", "3", "4")
PARTS = ("1", "2", "1", "2", "A-1", "A-2", "a, b")
PLAIN = ("1", "2", "3")


def cache_of(*labels: tuple[str, ...]) -> tuple[DocumentCache, list[str]]:
    """Return a cache of PDFs with these printed page numbers, and their ids."""
    quality = ingest.PageQuality(4, "text")
    made = {
        f"d-{number}": ingest.Document(
            "T",
            "pdf",
            "0",
            tuple(
                ingest.Page(n, page_label(n, label, each.count(label) == 1), f"text {n}", quality)
                for n, label in enumerate(each, 1)
            ),
        )
        for number, each in enumerate(labels)
    }
    return DocumentCache(made.__getitem__), list(made)


@pytest.mark.parametrize(
    ("labels", "pages", "first", "last", "kept"),
    [
        (PRINTED, "1", 4, 4, "1 (page 4 of the file)"),
        (PRINTED, "iii", 3, 3, "iii (page 3 of the file)"),
        (PRINTED, "III", 3, 3, "iii (page 3 of the file)"),
        (PRINTED, "ii - 2", 2, 5, "ii-2 (pages 2-5 of the file)"),
        (PRINTED, "2-4", 5, 7, "2-4 (pages 5-7 of the file)"),
        (PRINTED, "7 of the file", 7, 7, "4 (page 7 of the file)"),
        (PRINTED, "pages 4-6 of the file", 4, 6, "1-3 (pages 4-6 of the file)"),
        (PARTS, "3 of the file", 3, 3, "1 (page 3 of the file)"),
        (PARTS, "A-1", 5, 5, "A-1 (page 5 of the file)"),
        (PARTS, "A-1-A-2", 5, 6, "A-1-A-2 (pages 5-6 of the file)"),
        (PARTS, "7 of the file", 7, 7, "7 of the file"),
        (PLAIN, "page 2", 2, 2, "2"),
        (PLAIN, "1-2 of the file", 1, 2, "1-2"),
    ],
)
def test_pages_are_named_by_what_is_printed_on_them(
    labels: tuple[str, ...], pages: str, first: int, last: int, kept: str
) -> None:
    """Pages were counted as the file does, so 9 was another page than the source's page 9."""
    document_cache, ids = cache_of(labels)
    assert named_pages(pages, ids, document_cache) == [Named(1, first, last)]
    assert as_kept([Named(1, first, last)], ids, document_cache) == kept
    assert named_pages(kept, ids, document_cache) == [Named(1, first, last)], "and so it is unambiguous"


@pytest.mark.parametrize("labels", [PRINTED, PARTS, PLAIN])
def test_what_a_source_shows_can_be_typed(labels: tuple[str, ...]) -> None:
    document_cache, (id,) = cache_of(labels)
    document = document_cache.document(id)
    for page in document.pages:
        if "," not in page.label:  # the separator between several pages
            assert page_number(page.label, document) == page.number
            assert named_pages(page.label, [id], document_cache) == [Named(1, page.number, page.number)]
        for place in ("", page.label):
            assert named_pages(pages_around(page.number, None, None, place), [id], document_cache) == [
                Named(1, page.number, page.number)
            ]


def test_each_of_several_documents_has_its_own_printed_pages() -> None:
    document_cache, ids = cache_of(PRINTED, PLAIN)
    named = named_pages("1:iii-1, 2:3, 1:4/1", ids, document_cache)
    assert named == [Named(1, 3, 4), Named(2, 3, 3), Named(1, 1, 1, page=7)]
    kept = "1:iii-1 (pages 3-4 of the file), 2:3, 1:7/1 of the file"
    assert as_kept(named, ids, document_cache) == kept
    assert named_pages(kept, ids, document_cache) == named
    assert named_pages(pages_around(4, None, 1), ids, document_cache) == [Named(1, 4, 4)]


@pytest.mark.parametrize(
    ("labels", "pages", "why"),
    [
        (
            PRINTED,
            "7",
            "No page is called '7': the first is called i, the last 4. By the file's own count the",
        ),
        (PARTS, "2", "2 pages are called 2: 2, 4 of the file. Write 2 of the file for the first."),
        (PARTS, "1-A-1", "2 pages are called 1: 1, 3 of the file."),
        (PRINTED, "8 of the file", "There is no page 8 of the file, only 7 pages."),
        (PRINTED, "3-iii", "'3-iii' ends before it begins"),
        (PRINTED, "2 (page 4 of the file)", "names two: 4 of the file is called otherwise."),
        (PLAIN, "iii", "'iii' names no pages"),
    ],
)
def test_what_is_printed_nowhere_or_on_several_pages_is_refused(labels: tuple[str, ...], pages: str, why: str) -> None:
    document_cache, ids = cache_of(labels)
    with pytest.raises(UsageError, match=re.escape(why)):
        named_pages(pages, ids, document_cache)


def test_sections_are_written_as_they_are_named(service: Service, context: ContextRow) -> None:
    ids = context.document_ids
    named = [Named(1, 3, 3), Named(1, 3, 4), Named(2, 2, 4, page=3), Named(2, 2, 2, page=3)]
    assert as_kept(named, ids, service.document_cache) == "1:3, 1:3-4, 2:3/2-4, 2:3/2"
    assert as_kept(named[:2], ids[:1], service.document_cache) == "3, 3-4"


def test_of_too_many_pages_the_first_are_read_and_a_warning_says_so(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.loops.answering.LONGEST_READ_AGAIN", 1100)
    monkeypatch.setattr("engine.LONGEST_READ_AGAIN", 1100)
    long = tmp_path / "Long.txt"
    long.write_text(book_text(200), encoding="utf-8")
    context = read(service, begin(service, add(service, long), "streaming", BUDGET).id, lambda _: None)
    session = service.store.sessions.add(context.id).id
    last = len(service.document_cache.document(context.document_ids[0]).pages)
    turn = answer(service, keep_question(service, session, "Xylophone?", f"1-{last}").id, AnswerOptions(max_tokens=4))
    assert turn.measurements["read_again_tokens"] == 1100
    assert any("only the first 1,100 tokens were read" in each for each in turn.measurements["warnings"])


def test_pages_without_text_cannot_be_read(service: Service, context: ContextRow) -> None:
    document = service.document_cache.document(context.document_ids[0])
    page = document.pages[0]
    blank = ingest.Page(1, "page 1", "", ingest.PageQuality(0, "none"))
    empty = ingest.Document(document.title, "pdf", document.sha256, (blank, page))
    service.document_cache._documents.get("d-empty", lambda: empty)
    stream = open_context(service, context.id).stream
    renamed = type(stream)(
        stream.ids, stream.starts, tuple(type(s)("d-empty", s.first, s.end, s.characters) for s in stream.stretches)
    )
    named = named_pages("1", ["d-empty"], service.document_cache)
    with pytest.raises(UsageError, match="There is no text on page 1"):
        tokens_of(named, ["d-empty"], renamed, service.document_cache)


@pytest.mark.parametrize("method", ["exact", "streaming"])
def test_named_pages_are_turned_to_before_the_answer(
    service: Service, worker: Worker, context: ContextRow, method: str
) -> None:
    """The worker does it, as for the page and the API; the turn names the pages and the way."""
    if method != context.method:
        context = read(service, begin(service, context.document_ids, method, BUDGET).id, lambda _: None)
    session = service.store.sessions.add(context.id).id
    for pages in ("2:3-3,1:1/2", ""):
        job = worker.ask(lambda: session, "Who?", AnswerOptions(max_tokens=4), pages)
        assert ended(service, service.store.jobs.all(subject_id=job.id)[0].id) == "done"
    turn, plain = service.store.turns.all(session)
    assert turn.pages == "2:3, 1:1/2"
    assert turn.measurements["read_again_tokens"] > PARAGRAPHS
    shown = turn_article(turn, {each: each for each in context.document_ids})
    assert "pages 2:3, 1:1/2 read again" in shown
    assert re.search(r'data-pages="[12]:\d/\d-\d">?', shown)
    assert plain.pages == ""
    assert plain.measurements["read_again_tokens"] == 0
    branch = service.store.sessions.branch(session, 1)
    assert [each.pages for each in service.store.turns.all(branch.id)] == [turn.pages]


def test_named_pages_are_counted_in_words() -> None:
    """The page said "looked at pages 9"."""
    one = ("9", "2:9", "3/40-45", "12 of the file", "iii (page 5 of the file)", "2:A-1 (page 5 of the file)")
    many = ("9-11", "9, 12", "9-11 of the file", "iii-x (pages 5-12 of the file)", "9 (page 12 of the file), 3")
    for pages, words in (*((each, "page") for each in one), *((each, "pages") for each in many)):
        assert pages_in_words(pages) == f"{words} {pages}"
        measured = {"time_to_first_token_seconds": 0.1, "tokens_per_second": 9.0, "answer_tokens": 3}
        numbers = {**measured, "read_again_tokens": 90}
        turn = TurnRow("t-a", "s-a", 0, "Who?", "I.", "done", [], numbers, None, 1, 0.0, 1.0, pages=pages)
        assert f">{words} {pages} read again<" in turn_article(turn, {})
    assert pages_in_words("9-11 + 12") == "pages 9-11 + page 12"


def test_printed_pages_from_the_question_to_the_turn(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [[(72, 100, f"On sheet {number} the fox slept.")] for number in range(1, 5)]
    plain, path = makers.pdf(tmp_path / "plain.pdf", words), tmp_path / "Printed.pdf"
    with pymupdf.open(plain) as document:
        rules = [(0, "r"), (2, "D")]
        document.set_page_labels([{"startpage": at, "prefix": "", "style": s, "firstpagenum": 1} for at, s in rules])
        document.set_toc([[1, "The fox", 3]])
        document.save(path)
    context = read(service, begin(service, add(service, path), "exact", BUDGET).id, lambda _: None)
    (id,), home = context.document_ids, service.home
    for page, sheet in (("1", 3), ("ii", 2), ("4 of the file", 4), ("page 1 (page 3 of the file)", 3)):
        assert f"On sheet {sheet} the fox" in in_process(home, capsys, "show", id, "--page", page)[1]
    status, _, err = in_process(home, capsys, "show", id, "--page", "i-2")
    assert (status, "'i-2' is not one page: name one." in err) == (2, True)
    assert "The fox (page 1 (page 3 of the file))" in in_process(home, capsys, "show", id)[1]
    asked = json.loads(
        in_process(home, capsys, "ask", context.id, "Who?", "--max-tokens", "4", "--pages", "1", "--json")[1]
    )
    assert asked["pages"] == "1 (page 3 of the file)"
    assert "page 1 (page 3 of the file) read again<" in turn_article(
        service.store.turns.get(asked["turn"]), {id: "Printed"}
    )
    branch = service.store.sessions.branch(asked["session"], 1)
    again = keep_question(service, branch.id, "Who?", service.store.turns.all(branch.id)[0].pages)
    assert again.pages == asked["pages"], "as it is filled in to be edited"


def test_a_question_about_pages_that_are_not_there_is_not_kept(
    service: Service, worker: Worker, context: ContextRow
) -> None:
    with pytest.raises(UsageError, match="There is no section 9"):
        worker.ask(lambda: service.store.sessions.add(context.id).id, "Who?", AnswerOptions(), "1:9")
    assert service.store.sessions.all(context.id) == []
    work_once(worker)
