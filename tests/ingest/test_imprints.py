"""Imprints, colophons and licences are known as such, in e-books and in texts of Project Gutenberg."""

from pathlib import Path

import pytest

from ingest import Document, ingest
from tests.ingest.makers import epub

STORY = "<h2>{}</h2><p>The keeper lit the lamp and wrote the day in her book.</p>"
LICENCE = "<h2>{}</h2><p>You may copy it under the terms of the licence.</p>"
GUTENBERG = """The Project Gutenberg eBook of Kim

Title: Kim

Author: Rudyard Kipling

*** START OF THE PROJECT GUTENBERG EBOOK KIM ***

CHAPTER I

{story}

*** END OF THE PROJECT GUTENBERG EBOOK KIM ***

Updated editions will replace the previous one.

THE FULL PROJECT GUTENBERG LICENSE

PLEASE READ THIS BEFORE YOU DISTRIBUTE OR USE THIS WORK
"""


def read(document: Document) -> list[str]:
    return [page.label for page in document.pages if page not in document.imprints]


@pytest.mark.parametrize("kind", ["imprint", "colophon", "copyright-page", "backmatter copyright-page"])
def test_an_epub_names_its_imprints(tmp_path: Path, kind: str) -> None:
    body = f'<section epub:type="{kind}">{LICENCE.format("A word")}</section>'
    chapters = {"a.xhtml": STORY.format("One"), "b.xhtml": body, "c.xhtml": STORY.format("Two")}
    document = ingest(epub(tmp_path / "book.epub", chapters))
    assert read(document) == ["One", "Two"]
    assert [page.label for page in document.imprints] == ["A word"]
    assert "Not read: A word." in document.coverage()
    [(start, end)] = document.left_out
    assert document.text[start:end].startswith("A word\n\nYou may copy")
    assert document.text[end:].startswith("Two")
    assert "A word" in [entry.title for entry in document.toc], "it is shown"


def test_one_without_a_heading_is_no_part_of_the_chapter_before_or_behind_it(tmp_path: Path) -> None:
    licence = '<section epub:type="copyright-page"><p>You may copy it.</p></section>'
    chapters = {
        "title.xhtml": "<h1>Made by Hand</h1>",
        "a.xhtml": licence,
        "b.xhtml": "<p>The keeper lit the lamp.</p>",
        "c.xhtml": STORY.format("Two"),
        "d.xhtml": licence,
    }
    document = ingest(epub(tmp_path / "book.epub", chapters))
    assert [page.text for page in document.imprints] == ["You may copy it."] * 2
    assert "Made by Hand" in document.pages[0].text
    assert not document.pages[0].imprint


def test_the_guide_of_an_older_epub_and_titles_name_them_too(tmp_path: Path) -> None:
    chapters = {"a.xhtml": STORY.format("One"), "b.xhtml": LICENCE.format("A word"), "c.xhtml": STORY.format("Two")}
    path = epub(tmp_path / "plain.epub", chapters)
    assert not ingest(path).imprints
    chapters["d.xhtml"] = LICENCE.format("Uncopyright")
    assert [page.label for page in ingest(epub(tmp_path / "titled.epub", chapters)).imprints] == ["Uncopyright"]
    long = LICENCE.format("Imprint") + "<p>She read on, and on.</p>" * 2_000
    assert not ingest(epub(tmp_path / "novel.epub", {**chapters, "d.xhtml": long})).imprints, "a chapter of a novel"
    items = "".join(f'<item id="{n}" href="{n}" media-type="application/xhtml+xml"/>' for n in chapters)
    spine = "".join(f'<itemref idref="{n}"/>' for n in chapters)
    package = (
        f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest><spine>{spine}</spine>'
        '<guide><reference type="copyright-page" href="b.xhtml"/></guide></package>'
    )
    guided = epub(tmp_path / "guided.epub", chapters, **{"book__package.opf": package})
    assert [page.label for page in ingest(guided).imprints] == ["A word", "Uncopyright"]


def test_words_of_project_gutenberg_are_no_part_of_the_book(tmp_path: Path) -> None:
    story = "\n\n".join(f"He sat, in defiance of municipal orders, astride the gun number {n}." for n in range(40))
    path = tmp_path / "pg2226.txt"
    path.write_text(GUTENBERG.format(story=story), encoding="utf-8")
    document = ingest(path)
    assert document.title == "Kim"
    kept = "".join(page.text for page in document.pages if not page.imprint)
    assert "astride the gun number 0." in kept
    assert "astride the gun number 39." in kept
    for word in ("START OF", "END OF", "Author:", "Updated editions", "PLEASE READ"):
        assert word not in kept
        assert word in document.text
    assert len(document.left_out) == 2


def test_a_text_about_project_gutenberg_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "essay.txt"
    middle = "*** END OF THE PROJECT GUTENBERG EBOOK KIM *** is a line that ends many books."
    path.write_text(f"{middle}\n\n" + "The archive is old, and this is about it.\n\n" * 50, encoding="utf-8")
    assert not ingest(path).imprints


def test_a_document_of_nothing_else_is_read(tmp_path: Path) -> None:
    body = '<section epub:type="imprint"><p>You may copy it.</p></section>'
    document = ingest(epub(tmp_path / "only.epub", {"a.xhtml": body}))
    assert (document.imprints, document.left_out) == ((), ())


def test_it_is_kept_in_json_and_other_documents_are_as_they_were(tmp_path: Path) -> None:
    chapters = {"a.xhtml": STORY.format("One"), "b.xhtml": LICENCE.format("Colophon")}
    document = ingest(epub(tmp_path / "book.epub", chapters))
    data = document.to_json()
    assert Document.from_json(data) == document
    assert ["imprint" in page for page in data["pages"]] == [False, True]
