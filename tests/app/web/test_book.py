"""The right side: outline, map, contents and search of documents."""

from itertools import pairwise
from pathlib import Path

import pytest

from app.reading.memory_map import STRETCHES, Remembered
from app.reading.pages import DocumentPage
from app.search import Passage
from app.service import Service
from app.web.outline import Outlines, cells
from app.web.views.book import Book, book, found, no_book
from app.web.views.document_page import page_beside
from app.web.views.metrics_panel import Latency, Metrics, gauge_label, panel
from ingest import Page, PageQuality
from tests.app.helpers import add, book_text

EVIL = '<img src=x onerror="alert(1)">&"\''
CHAPTERS = "# The Storm\n\nThe sea rose.\n\n# The Calm\n\nThe lamp was out.\n"


@pytest.fixture
def two(service: Service, tmp_path: Path) -> list[str]:
    paths = [tmp_path / "Chapters.md", tmp_path / "Keeper.txt"]
    paths[0].write_text(CHAPTERS, encoding="utf-8")
    paths[1].write_text(book_text(40), encoding="utf-8")
    return add(service, *paths)


def test_an_outline_has_the_chapters_with_their_first_characters(service: Service, two: list[str]) -> None:
    outlines = Outlines(service)
    text, outline = service.document_cache.document(two[0]).text, outlines.of(two[0])
    assert [each.title for each in outline.chapters] == ["The Storm", "The Calm"]
    assert [text[each.start :].startswith(each.title) for each in outline.chapters] == [True, True]
    assert [outline.page_at(at) for at in (0, text.index("lamp"))] == [1, 2]
    assert outlines.of(two[1]).chapters == ()  # one section is no contents


def test_a_map_is_the_whole_text_or_what_is_remembered_of_it(service: Service, two: list[str]) -> None:
    known = [(id, Outlines(service).of(id)) for id in two]
    drawn = cells(known, [])
    assert {each.document for each in drawn} == set(two)
    assert abs(len(drawn) - STRETCHES) <= 2
    assert [each.start for each in drawn[1:]] == [
        each.end if each.document == following.document else 0 for each, following in pairwise(drawn)
    ]
    kept = [Remembered(two[0], 0, 9, "The Storm", 3, 0.5), Remembered("d-gone", 0, 9, "?", 3, 0.5)]
    assert [(each.document, each.page, each.share) for each in cells(known, kept)] == [(two[0], 1, 0.5)]


def test_the_map_leads_to_places_and_says_where_the_last_answer_looked(service: Service, two: list[str]) -> None:
    rows = [service.store.documents.get(id) for id in two]
    outlines = {id: Outlines(service).of(id) for id in two}
    source = {"document": two[0], "page": 2, "place": EVIL, "start": 30, "end": 40}
    drawn = cells([*outlines.items()], [])
    html = book(Book(rows, outlines, drawn, looked=[source, {**source, "document": "d-gone"}]))
    assert html.count('class="looked"') == 1
    assert f'data-href="documents/{two[0]}/pages/2?start=30&amp;end=40#passage"' in html
    assert "everything is remembered" in html
    assert html.count('class="tick"') == 2
    assert html.count("Ask about this one only") == 2
    assert 'data-pages="2:"' in html
    assert "<img" not in html
    kept = [Remembered(two[0], 0, 9, "The Storm", 3, 0.25)]
    html = book(Book(rows[:1], outlines, cells([*outlines.items()], kept), kept))
    assert "The Storm: 25% remembered" in html
    assert "darker: remembers more" in html
    assert "Ask about this one only" not in html
    assert "map" not in book(Book(rows, {}, [])).replace('href="', "")
    assert "<svg" not in no_book()


def test_found_passages_are_marked_and_never_markup() -> None:
    passage = Passage("d-a", EVIL, 3, EVIL, 7, 12, f"a {EVIL} b", [(2, 2 + len(EVIL))], None, "3/1-2")
    html = found([passage], several=True)
    assert "<img" not in html
    assert "<mark>&lt;img" in html
    assert 'href="documents/d-a/pages/3?start=7&amp;end=12#passage"' in html
    assert 'data-pages="3/1-2"' in html
    assert "Nothing found" in found([], several=False)


def test_a_page_beside_the_answer_is_as_printed_where_it_can_be(tmp_path: Path) -> None:
    page = Page(2, EVIL, f"a {EVIL} b", PageQuality(9, "text"))
    plain = page_beside(DocumentPage("d-a", EVIL, page, 100, (1, 3), None), 102, 104)
    assert "<img" not in plain
    assert '<mark id="passage">&lt;i</mark>' in plain
    assert 'href="documents/d-a/pages/1"' in plain
    assert 'href="documents/d-a/pages/3"' in plain
    printed = page_beside(DocumentPage("d-a", EVIL, page, 100, (2, 2), tmp_path / "a.pdf"), 102, 104)
    assert 'data-from="api/documents/d-a/pages/2/picture?start=102&amp;end=104"' in printed
    assert "Previous" not in printed
    assert "There is no text here." in page_beside(
        DocumentPage("d-a", "", Page(1, "1", "", page.quality), 0, (1, 1), None)
    )


def test_the_gauge_compares_the_first_word_with_reading_again() -> None:
    usage = {
        "entries": {"device": 5, "host": 0, "disk": 0},
        "bytes": {"device": 5_000_000, "host": 0, "disk": 1_000_000},
    }
    measured = Metrics(usage=usage, first_token_sec=0.4, latency=Latency([(1000, 0.4), (60_000, 0.5)], 500.0))
    assert gauge_label(measured) == "This computer · 6.0 MB · first word after 400 ms"
    html = panel(measured)
    assert html.count("<circle") == 2
    assert "if it read all of it again: 2 min 0 s" in html
    assert gauge_label(Metrics()) == "This computer"
    assert "<circle" not in panel(Metrics())
