"""Documents as data: places, coverage, storage, fingerprints."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ingest import Document, Page, PageQuality, fingerprint, ingest
from tests.ingest import makers


def page(number: int, text: str, label: str = "", source: str = "text", *warnings: str) -> Page:
    return Page(number, label or f"page {number}", text, PageQuality(len(text), source if text else "none", warnings))


PAPER = Document("A Paper", "pdf", "0" * 64, (page(1, "First."), page(2, ""), page(3, "Third, the last.")))
BOOK = Document(
    "A Book",
    "epub",
    "0" * 64,
    (
        page(1, "I\n\nThe Storm\n\nIt rained.\n\nIt\nrained on.", "Chapter I: The Storm"),
        page(2, "Then the sun came out.\n\nThe end.", "Chapter II"),
    ),
)


@pytest.mark.parametrize(
    ("words", "label"),
    [
        ("The Storm", "Chapter I: The Storm"),
        ("It rained.", "Chapter I: The Storm, paragraph 1"),
        ("rained on", "Chapter I: The Storm, paragraph 2"),
        ("Then the sun", "Chapter II, paragraph 1"),
        ("The end", "Chapter II, paragraph 2"),
    ],
)
def test_a_place_in_a_book_is_chapter_and_paragraph(words: str, label: str) -> None:
    assert BOOK.locate(BOOK.text.index(words)).label == label


def test_pages_and_paragraphs_are_where_they_are_said_to_be() -> None:
    def text(*place: int) -> str:
        return BOOK.text[slice(*BOOK.span(*place))].strip()

    assert [BOOK.paragraphs(number) for number in (1, 2)] == [2, 2]
    assert text(1) == BOOK.pages[0].text
    assert text(2) == BOOK.pages[1].text
    assert (text(1, 1, 1), text(1, 2, 2), text(2, 1, 1)) == ("It rained.", "It\nrained on.", "Then the sun came out.")
    assert text(1, 0, 1) == "I\n\nThe Storm\n\nIt rained."
    assert text(1, 2, 9) == "It\nrained on."
    assert text(1, 3, 9) == ""
    for offset, letter in enumerate(BOOK.text):
        found = re.search(r"paragraph (\d)", BOOK.locate(offset).label)
        if found and not letter.isspace():
            start, end = BOOK.span(BOOK.locate(offset).page, int(found[1]), int(found[1]))
            assert start <= offset < end
    assert PAPER.span(2) == (8, 8)
    assert PAPER.text[slice(*PAPER.span(3))] == "Third, the last."


def test_every_character_is_on_its_page() -> None:
    text, owners = "", []
    for number, one in enumerate(PAPER.pages, 1):
        owners += [number] * len(one.text) + [number] * 2
        text += one.text + "\n\n"
    assert PAPER.text == text[:-2]
    assert PAPER.page_starts == [0, 8, 10]
    assert [PAPER.locate(offset).page for offset in range(len(PAPER.text))] == owners[:-2]
    assert PAPER.locate(len(PAPER.text)).label == "page 3"
    for outside in (-1, len(PAPER.text) + 1):
        with pytest.raises(ValueError, match=str(outside)):
            PAPER.locate(outside)


def test_coverage_names_pages_and_the_next_step() -> None:
    assert BOOK.coverage() == "2 of 2 sections have text."
    line = PAPER.coverage()
    assert line.startswith("2 of 3 pages have text. No text on page 2")
    assert "Tesseract" in line
    scans = replace(
        PAPER,
        pages=tuple(page(n, "" if n in (3, 4, 5, 9) else "x", "", "ocr" if n == 1 else "text") for n in range(1, 11)),
    )
    assert "pages 3-5, 9:" in scans.coverage()
    assert "; page 1 by OCR." in scans.coverage()


def test_a_document_survives_json() -> None:
    for document in (PAPER, BOOK):
        again = Document.from_json(json.loads(json.dumps(document.to_json())))
        assert again == document
        assert hash(again) == hash(document)
    with pytest.raises(ValueError, match="version 99"):
        Document.from_json({**PAPER.to_json(), "version": 99})


def test_equal_files_have_equal_fingerprints_whatever_their_names(tmp_path: Path) -> None:
    one, two, other = tmp_path / "one.txt", tmp_path / "two.md", tmp_path / "other.txt"
    one.write_text("The same words.")
    two.write_text("The same words.")
    other.write_text("The same words!")
    assert ingest(one).sha256 == ingest(two).sha256 == fingerprint(one)
    assert fingerprint(one) == hashlib.sha256(b"The same words.").hexdigest()
    assert fingerprint(other) != fingerprint(one)


def test_progress_is_reported_page_by_page(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    ingest(
        makers.pdf(tmp_path / "a.pdf", [[(50, 300, f"Page {n} says so.")] for n in range(3)]),
        on_page=lambda *step: steps.append(step),
    )
    assert steps == [(1, 3), (2, 3), (3, 3)]


class Cancelled(Exception):
    pass


def test_what_the_callback_raises_comes_out_as_it_is(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 2:
            raise Cancelled

    book = makers.epub(tmp_path / "a.epub", {f"{n}.xhtml": f"<h1>{n}</h1><p>Words.</p>" for n in range(3)})
    for path in (makers.pdf(tmp_path / "a.pdf", [[(50, 300, "Words.")]] * 3), book):
        with pytest.raises(Cancelled):
            ingest(path, on_page=stop)
        assert len(ingest(path).pages) == 3  # and the reader is free for the next one


def test_the_sample_book() -> None:
    book = Path(__file__).resolve().parents[2] / "assets" / "sample" / "three-adventures-and-a-register.html"
    document = ingest(book)
    assert document.title == "Three Adventures, and a Register"
    assert [entry.title for entry in document.toc] == [one.label for one in document.pages]
    assert document.locate(document.text.index("Henry Baker")).page == 2
    assert document.locate(document.text.index("Mr. Jabez Wilson")).page == 1
    assert document.locate(document.text.index("swamp adder")).page == 3
    assert document.text.count("Ilsa Venn was born in Corvantes.") == 1
    assert not document.warnings


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("The_Tides.txt", "The Tides"),
        ("Report v1.2 final.txt", "Report v1.2 final"),
        ("Mr. Smith goes to the sea", "Mr. Smith goes to the sea"),
        ("Minutes 2024.11.03.txt", "Minutes 2024.11.03"),
        ("书名.第二卷", "书名.第二卷"),
    ],
)
def test_a_text_is_called_after_its_file(tmp_path: Path, name: str, title: str) -> None:
    """What came after a dot was taken for a suffix: of a file without one the title was "Mr"."""
    (tmp_path / name).write_text("The sea was calm, and the lamp was lit.")
    assert ingest(tmp_path / name).title == title
