"""HTML of the views: no text from a document, a model or a person is ever markup."""

import re
from dataclasses import replace
from html import escape
from typing import Any

from app.reading.pages import DocumentPage
from app.web.views.document_page import document_page
from app.web.views.markup import sparkline, thin
from app.web.views.metrics_panel import Metrics, panel
from app.web.views.reading_card import context_head, ingest_card, reading_card
from app.web.views.sweep import self_test, table, whole_list
from app.web.views.turn import conversation, live_turn
from ingest import Page, PageQuality, TocEntry
from sessions import ContextRow, DocumentRow, JobRow
from tests.app.web.rows import EVIL, turn


def context(**changes: Any) -> ContextRow:
    fields: dict[str, Any] = {
        "id": "c-abcdef",
        "title": EVIL,
        "model": EVIL,
        "method": EVIL,
        "settings": {},
        "budget": 512,
        "fingerprint": "f",
        "tokens": 10,
        "document_ids": [],
        "status": "failed",
        "tokens_read": 5,
        "read_before": 0,
        "seconds": 1.0,
        "usage": {"entries": {"device": 5, "host": 0, "disk": 0}, "bytes": {"device": 5, "host": 0, "disk": 0}},
        "warnings": [EVIL],
        "error": EVIL,
        "created_at": 0.0,
        "updated_at": 0.0,
    }
    return ContextRow(**{**fields, **changes})


DOCUMENT = DocumentRow("d-abcdef", "0" * 64, EVIL, EVIL, 1, 5, [EVIL], EVIL, 5, 0.0)
JOB = JobRow(
    "j-abcdef",
    "ingest",
    "upload",
    {"files": [EVIL]},
    "failed",
    EVIL,
    0,
    0,
    {},
    EVIL,
    False,
    None,
    0,
    0.0,
    0.0,
    None,
    None,
)


ITEM = {"answer": "Swan", "doubtful": True, "document": "d-a", "page": 3, "label": "page 3", "quote": "The swan."}
ITEM |= {"start": 7, "end": 16}
FOUND = {"count": 1, "searched": 2, "places": 9, "dropped": 3, "items": [ITEM | {"also": [ITEM | {"page": 5}]}]}


def test_no_view_lets_markup_through() -> None:
    shown = [
        conversation([turn(), turn(status="failed", error=EVIL)], {"d-abcdef": EVIL, "d-other": "Other"}),
        live_turn(turn(status="answering"), EVIL),
        live_turn(turn(status="answering", answer=""), EVIL),
        context_head(context(), [DOCUMENT], [EVIL]),
        reading_card(context(), [DOCUMENT], None, {}),
        ingest_card(JOB, EVIL),
        ingest_card(replace(JOB, progress={"locked": True, "left_out": [EVIL]}), EVIL),
        whole_list(
            replace(JOB, status="failed", error=EVIL), {**FOUND, "items": [ITEM | {"answer": EVIL, "also": []}]}, None
        ),
        whole_list(JOB, {**FOUND, "items": [ITEM | {"also": [ITEM | {"label": EVIL, "quote": EVIL}]}]}, None),
        document_page(
            DocumentPage("d-a", EVIL, Page(1, EVIL, f"a {EVIL} b", PageQuality(9, "text")), 0, (1, 1), None), 2, 9
        ),
    ]
    for html in shown:
        assert "<img" not in html
        assert "&lt;img" in html


def test_a_search_of_the_whole_text_is_offered_followed_and_told() -> None:
    assert "Search the whole text (about 2 minutes)</button>" in whole_list(None, None, 118.0)
    assert "Search the whole text</button>" in whole_list(None, None, None)
    running = replace(JOB, status="running", done=2, total=9, progress={"left": 61.0})
    html = whole_list(running, FOUND, None)
    assert "Searching the whole text · 2 of 9 places · about 1 minute left" in html
    assert 'data-action="rest"' in html
    assert 'data-action="whole"' not in html
    html = whole_list(replace(running, status="cancelled"), FOUND, None)
    assert "Go on searching</button>" in html
    done = whole_list(replace(running, status="done"), FOUND, None)
    assert "<button" not in done
    for each in (html, done):
        assert "1 found in 2 places of the text. 3 left out" in each
        assert each.index("documents/d-a/pages/3?start=7&amp;end=16#passage") < each.index("documents/d-a/pages/5?")
        assert f'href="api/sweeps/{JOB.id}?format=csv"' in each
    assert "Go on searching" in whole_list(replace(running, status="failed"), None, None)


def test_a_cell_of_a_table_leads_to_its_page() -> None:
    cells = [{"found": True, **ITEM}, {"found": False, "said": "12"}]
    row = {"document": "d-a", "title": EVIL, "context": "c-a", "cells": cells}
    columns = [{"heading": each, "question": f"{each}?"} for each in (EVIL, "n", "more")]
    job = replace(JOB, status="done")
    html = table(job, EVIL, {"columns": columns, "rows": [row], "joined": [{"answers": [], "nothing": []}] * 3})
    assert "<img" not in html
    assert '<a href="documents/d-a/pages/3?start=7&amp;end=16#passage"' in html
    assert html.endswith(
        'not found</td><td></td></tr></tbody></table></div><p><button type="button" data-action="remove">'
        f'Remove</button> <a href="api/sweeps/{JOB.id}?format=csv" download>CSV</a> '
        f'<a href="api/sweeps/{JOB.id}?format=md" download>Markdown</a></p></div>'
    )
    assert "Remove" not in table(replace(job, status="running"), "", None)


def test_cards_of_a_self_test_are_folded_and_scored() -> None:
    right = {"alone": False, "found": True}
    card = {**ITEM, "question": EVIL, "chapter": EVIL, "alone": EVIL, "found": "412", "right": right}
    scores = {"n": 1, "alone": 0, "found": 1, "interval": {"alone": (0.0, 0.79), "found": (0.21, 1.0)}}
    told = {"model": EVIL, "cards": [card], "chapters": [{"chapter": EVIL, **scores}], "all": scores}
    html = self_test(replace(JOB, status="done"), told)
    assert "<img" not in html
    assert "1 question, 0 right from memory alone (0–79%), 1 with passages (21–100%)" in html
    assert '<a href="documents/d-a/pages/3?start=7&amp;end=16#passage"' in html
    assert "✗ From memory alone" in html
    assert "✓ With passages: 412" in html
    assert f'href="api/sweeps/{JOB.id}?format=tsv"' in html
    assert 'data-action="whole"' in self_test(None, None)


def test_reasoning_is_folded_and_never_markup() -> None:
    for html in (
        conversation([turn(reasoning=EVIL)], {}),
        live_turn(turn(status="answering", answer="", reasoning=EVIL), "Thinking"),
    ):
        assert '<details class="reasoning"' in html
        assert "<details open" not in html.split("</details>")[0]
        assert "<img" not in html
    assert "reasoning" not in conversation([turn()], {})


def test_the_panel_says_what_open_contexts_take_and_may_take() -> None:
    html = panel(Metrics(open_bytes={"device": 0, "host": 1_500_000_000}, open_limit=8_000_000_000))
    assert "Open documents, at most 8.0 GB" in html
    assert "1.5 GB in memory" in html
    assert "in GPU" not in html
    assert "Open documents" not in panel(Metrics())


def test_quotations_are_marked_by_whether_they_are_there() -> None:
    answer = "It says “yes” and “no”."
    there = {"start": 8, "end": 13, "document": "d-abcdef", "page": 3, "place": "page 3"}
    absent = {"start": 18, "end": 22, "document": None, "page": None, "place": None}
    measured = {**turn().measurements, "quotations": [there, absent]}
    html = conversation([turn(answer=answer, measurements=measured, sources=[])], {})
    assert '<q class="verified" title="These words are on page 3">“yes”</q>' in html
    unverified = '<span class="unverified" title="These words are not in the documents">“no”'
    assert f'{unverified}<span class="sr"> (these words are not in the documents)</span></span>' in html


def test_sentences_have_the_number_of_the_place_that_they_rested_on() -> None:
    answer = "It is lit. It was **dark.**"
    source = {"document": "d-a", "quote": "Lit.", "weight": 0.3, "start": 7, "end": 12}
    sources = [{**source, "page": page, "place": f"page {page}"} for page in (3, 3, 5)]
    cited = [{"start": 0, "end": 10, "source": 2}, {"start": 10, "end": 27, "source": 1}]
    measured = {**turn().measurements, "citations": cited}
    html = conversation([turn(answer=answer, measurements=measured, sources=sources)], {})
    said = html.split('data-said="')[1].split("</div>")[0]
    numbers = re.findall(r'data-place="(\d)" title="The model looked most at page (\d)"', said)
    assert numbers == [("2", "5"), ("1", "3")]
    assert re.search(r"It is lit\.<button .*</button> It was <strong>dark\.</strong><button", said)
    assert re.findall(r'<span class="number">(\d)</span><b>page (\d)', html) == [("1", "3"), ("2", "5")]
    assert 'class="number"' not in conversation([turn(answer=answer, sources=sources)], {})


def test_a_page_has_one_link_however_many_passages_it_has() -> None:
    source = {"document": "d-a", "quote": "Lit.", "place": "section 1"}
    passages = [(3, 7, 0.1), (3, 40, 0.3), (4, 90, 0.2)]
    sources = [{**source, "page": page, "start": at, "end": at + 5, "weight": weight} for page, at, weight in passages]
    html = conversation([turn(sources=sources)], {})
    assert re.findall(r'href="documents/d-a/pages/(\d)\?start=(\d+)', html) == [("3", "40"), ("4", "90")]
    assert html.count("<blockquote>") == 3


def test_an_answer_that_found_nothing_has_its_passages_folded_as_the_closest() -> None:
    """They were shown like those of any other answer."""
    for found in (True, False):
        html = conversation([turn(measurements={**turn().measurements, "found": found})], {}, last=True)
        assert ("Where the model looked" in html) == found
        assert ("Closest passages" in html) == (not found)
        assert ('sources" open>' in html) == found


def test_what_is_copied_is_what_the_model_wrote() -> None:
    html = conversation([turn(answer='**"A"** <b>', sources=[])], {})
    assert 'data-said="**&quot;A&quot;** &lt;b&gt;"' in html


def test_the_question_of_every_turn_that_ended_can_be_edited() -> None:
    for status in ("done", "cancelled", "failed"):
        html = conversation([turn(status=status, position=2, measurements={})], {})
        assert 'data-action="edit"' in html
        assert 'aria-label="Edit question 3"' in html
    assert "data-action" not in live_turn(turn(status="answering"), "Thinking")


def test_a_cancelled_turn_says_so_and_keeps_what_there_was() -> None:
    html = conversation([turn(status="cancelled", answer="half an ans", measurements={}, sources=[])], {})
    assert "half an ans" in html
    assert "Stopped." in html


def test_histories_are_thinned_to_means() -> None:
    assert thin([1.0, 2.0, 3.0]) == [1.0, 2.0, 3.0]
    assert thin([float(n) for n in range(100)], 4) == [12.0, 37.0, 62.0, 87.0]
    assert 'aria-label="speed"' in sparkline([1.0, 3.0], "speed")
    assert "<svg" in panel(Metrics(answer_history=[1.0, 3.0]))
    assert "<svg" not in panel(Metrics(answer_history=[1.0]))


def test_a_job_says_what_it_is_doing() -> None:
    waiting = replace(JOB, status="queued", stage="")
    assert "Waiting for its turn" in ingest_card(waiting, "A book")
    running = replace(JOB, status="running", stage="")
    assert "Waiting" not in ingest_card(running, "A book")
    stopping = replace(JOB, status="running", stage="turning text into tokens: 40%", cancel_requested=True)
    assert "Stopping" in ingest_card(stopping, "A book")
    assert "Stopping" in reading_card(context(status="reading"), [], stopping, {})


def test_how_far_a_reading_is_is_told_in_pages_slides_or_sections() -> None:
    for formats, words in ((["pdf"], "4 pages"), (["pptx", "pptx"], "8 slides"), (["pdf", "pptx"], "8 sections")):
        documents = [replace(DOCUMENT, format=each, pages=4) for each in formats]
        assert f" of {words}" in reading_card(context(status="reading"), documents, None, {})


def test_an_upload_that_failed_says_what_is_kept_of_it() -> None:
    for progress, kept, words in (
        ({"locked": True}, 1, "1 other file is ready and kept here."),
        ({}, 2, "The text of 2 documents is kept: New document lists them, to be read in another way."),
        ({}, 1, "Its text is kept: New document lists it, to be read in another way."),
    ):
        assert words in ingest_card(replace(JOB, progress=progress), "A book", kept)
    assert "kept" not in ingest_card(JOB, "A book")
    assert "Nothing new was kept" in ingest_card(replace(JOB, status="cancelled"), "A book")  # the rest stays


def test_an_upload_that_needs_a_password_says_what_else_is_the_matter() -> None:
    """A broken file beside an encrypted one was not mentioned until the others had been read without both."""
    locked = {"locked": True, "left_out": ["torn.pdf cannot be opened.", "scan.pdf has no text."]}
    shown = ingest_card(replace(JOB, progress=locked), "Books", 5)
    assert "5 other files are ready" in shown
    assert "2 other files cannot be read" in shown
    assert "<li>torn.pdf cannot be opened.</li>" in shown


def test_a_file_that_cannot_be_read_is_said_while_the_others_are_opened() -> None:
    """It was named only at the end, which takes long with a large file."""
    running = replace(JOB, status="running", progress={"left_out": ["torn.pdf cannot be opened."]})
    assert "1 file cannot be read" in ingest_card(running, "Books")
    assert "<li>torn.pdf cannot be opened.</li>" in ingest_card(running, "Books")
    assert "cannot be read" not in ingest_card(replace(running, status="failed"), "Books")  # the reason names it
    assert "1 other file cannot be read" in ingest_card(replace(running, status="failed"), "Books", 2)


def test_one_place_is_listed_once() -> None:
    """Two passages of one paragraph looked like two places with the same name."""
    passages = [("d-a", "page 3", "First.", 0.3), ("d-b", "page 3", "Other.", 0.2), ("d-a", "page 3", "Second.", 0.1)]
    sources = [
        {"document": d, "page": 3, "place": place, "quote": quote, "weight": w, "start": 7, "end": 12}
        for d, place, quote, w in passages
    ]
    html = conversation([turn(sources=sources)], {"d-a": "A", "d-b": "B"})
    assert "2 places" in html
    assert html.count("<li>") == 2
    assert 'documents">40% of the attention</span>' in html
    assert html.index(">First") < html.index(">Second") < html.index(">Other")
    assert html.count('href="documents/d-a/pages/3?start=7&amp;end=12#passage"') == 1


def test_places_are_in_the_order_of_the_shares_that_are_shown() -> None:
    """A place with one passage of 8 % stood above one with two passages of 11 % together."""
    passages = [("page 3", 0.08), ("page 5", 0.06), ("page 5", 0.05)]
    sources = [{"document": "d-a", "page": 3, "place": place, "quote": "Lit.", "weight": w} for place, w in passages]
    measured = {**turn().measurements, "citations": [{"start": 0, "end": 10, "source": 0}]}
    html = conversation([turn(answer="It is lit. Is it?", sources=sources, measurements=measured)], {"d-a": "A"})
    assert re.findall(r'<span class="number">(\d)</span><b>(page \d)</b>', html) == [("1", "page 5"), ("2", "page 3")]
    assert 'data-place="2" title="The model looked most at page 3"' in html


def test_a_page_by_itself_marks_the_passage() -> None:
    page = Page(3, "page 3", "The lamp.\n\nIt is lit.", PageQuality(21, "text"))
    shown = DocumentPage("d-a", "A", page, 100, (1, 3), None)
    assert 'The lamp.\n\n<mark id="passage">It is</mark> lit.</div>' in document_page(shown, 111, 116)
    for start, end in ((0, 0), (116, 111), (91, 96), (190, 195)):
        assert "<mark" not in document_page(shown, start, end)


def test_lines_of_coverage_are_all_there_or_folded() -> None:
    assert context_head(context(), [DOCUMENT] * 3, ["one", "two", "three"]).count("<details") == 1  # of the warnings
    folded = context_head(context(), [DOCUMENT] * 7, [f"line {number}" for number in range(7)])
    assert "7 documents: what of each has text" in folded
    assert "<li>7. line 6</li>" in folded  # the number that names its pages


def test_the_head_of_a_context_counts_the_formats_of_its_documents() -> None:
    """Two hundred texts were listed as "TXT, TXT, TXT, ..."."""
    documents = [replace(DOCUMENT, format=each) for each in ("pdf", "txt", "txt")]
    assert " · PDF, 2 TXT<" in context_head(context(), documents, ["one", "two", "three"])


def test_what_the_tab_says_is_the_title_and_how_far_it_is_read() -> None:
    for status, words in (("reading", "50% · "), ("paused", "50% · "), ("ready", "")):
        row, expected = context(status=status), f'data-tab="{words}{escape(EVIL)}"'
        assert expected in context_head(row, [], [], 0.5)
        assert expected in reading_card(row, [], None, {})


def test_what_the_tab_says_is_short_and_says_what_became_of_files() -> None:
    """It had 200 characters for 13 files, and "Stockpot" for files that could not be read."""
    long = ", ".join(f"Letter {number}.txt" for number in range(13))
    tabs = [
        context_head(context(status="ready", title=long), [], []),
        reading_card(context(status="reading", title=long), [], None, {}),
        ingest_card(replace(JOB, status="running"), long),
        ingest_card(JOB, "Letters"),
        ingest_card(replace(JOB, progress={"locked": True}), "Letters"),
    ]
    said = [re.findall('data-tab="([^"]*)"', html) for html in tabs]
    cut = "Letter 0.txt, Letter 1.txt, Letter 2.txt, Letter 3.txt, Let…"
    assert said == [[cut], [f"50% · {cut}"], [cut], ["Could not be read · Letters"], ["Needs a password · Letters"]]


def test_what_a_card_is_of_is_listed_where_it_is_several_things() -> None:
    """13 titles stood one after another in a heading of ten lines."""
    names = [f"Letter {number}.txt" for number in range(13)]
    assert "<summary>13 files</summary><ul><li>Letter 0.txt</li>" in ingest_card(JOB, "Letters", names=names)
    kept = replace(JOB, payload={"files": [], "documents": ["d-a"]})
    assert "<summary>13 documents</summary>" in ingest_card(kept, "Letters", names=names)
    documents = [replace(DOCUMENT, id=f"d-{name}", title=name) for name in names]
    shown = reading_card(context(status="reading", warnings=[]), documents, None, {})
    assert "<summary>13 documents</summary>" in shown
    assert shown.count('target="_blank"') == 13
    assert "<summary>" not in ingest_card(JOB, "A letter", names=names[:1])
    assert "<summary>" not in reading_card(context(status="reading", warnings=[]), documents[:1], None, {})


def test_the_title_of_each_document_leads_to_its_first_page() -> None:
    """Only a citation led to a page."""
    one, other = (replace(DOCUMENT, id=f"d-{title}", title=f"<{title}>") for title in ("a", "b"))
    link = '<a href="documents/d-{0}/pages/1" target="_blank" rel="noopener" title="{1}">&lt;{0}&gt;</a>'
    a, b = (link.format(title, "Read it from its first page") for title in ("a", "b"))
    assert f"<h1>{a}</h1>" in context_head(context(title="<a>"), [one], ["Thin."])
    renamed = context_head(context(title="Mine"), [one], ["<a>: Thin."])
    assert ("<h1>Mine</h1>" in renamed, f"<span>{a}: Thin.</span>" in renamed) == (True, True)
    for count in (2, 4):  # once visible, once folded
        shown = context_head(context(), [one, other] * (count // 2), ["<a>: Thin.", "<b>: Bold."] * (count // 2))
        assert (shown.count(f"{a}: Thin."), shown.count(f"{b}: Bold.")) == (count // 2, count // 2)


def test_a_page_by_itself_lists_the_contents_folded() -> None:
    page = Page(3, "page 3", "It is lit.", PageQuality(10, "text"))
    contents = (TocEntry(1, EVIL, 3), TocEntry(9, "The lamp", 12))
    html = document_page(DocumentPage("d-a", "A", page, 0, (1, 12), None, contents))
    assert "<details><summary>Contents</summary>" in html
    assert re.findall(r'<li style="--level:(\d+)"><a href="(\d+)">([^<]+)</a>', html) == [
        ("1", "3", escape(EVIL)),
        ("6", "12", "The lamp"),
    ]
    assert "<details" not in document_page(DocumentPage("d-a", "A", page, 0, (1, 12), None))


def test_files_that_were_left_out_are_said_in_plain_sight_until_the_talk_begins() -> None:
    thin = "1 of 2 pages has text."
    warnings = ["Left out: a.pdf is encrypted.", "Left out: b.txt is empty.", "Odd font.", f"Books: {thin}"]
    row = context(status="ready", warnings=warnings)
    fresh, later = (context_head(row, [DOCUMENT], [thin], expanded=each) for each in (True, False))
    assert fresh.count(thin) == 1  # visible lines are not repeated
    assert "2 files were left out" in fresh
    assert "1 warning<" in fresh
    assert "<li>a.pdf is encrypted.</li>" in fresh
    assert '<details class="warnings left-out" data-fold="c-abcdef left-out" open>' in fresh
    # Such as a warning of poor answers.
    assert '<details class="warnings doubts" data-fold="c-abcdef doubts" open>' in fresh
    assert " open" not in later
    assert "2 files were left out" in later


def test_files_that_were_left_out_are_said_while_the_others_are_read() -> None:
    """They were named while files were opened and after the reading, but not in between."""
    warnings = ["Left out: a.pdf is encrypted.", "Books: 1 of 2 pages has text."]
    shown = reading_card(context(status="reading", warnings=warnings), [DOCUMENT], None, {})
    assert '<details class="warnings left-out" data-fold="c-abcdef left-out" open>' in shown
    assert "<li>a.pdf is encrypted.</li>" in shown
    assert "<li>Books: 1 of 2 pages has text.</li>" in shown
    assert "<details" not in reading_card(context(status="reading", warnings=[]), [DOCUMENT], None, {})
