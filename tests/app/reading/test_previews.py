"""Files are opened in the background to tell how long they are."""

from pathlib import Path

import pytest

from app.reading.previews import PAGE_CHARACTERS, Length, Preview, length_of, pages_in_words, preview_of
from app.service import Service
from ingest import ingest
from tests.app.helpers import add, book_text, wait_for


def opened(service: Service, path: Path) -> Preview:
    wait_for(lambda: service.previews.get(path) is not None, "the file to be opened")
    found = service.previews.get(path)
    assert found is not None
    return found


def test_a_file_tells_title_and_length_and_nothing_is_kept(service: Service, tmp_path: Path) -> None:
    text = book_text(400)
    path = tmp_path / "pg2226.txt"
    path.write_text(f"Title: Kim\n\nAuthor: Rudyard Kipling\n\n{text}", encoding="utf-8")
    assert service.previews.get(path) is None, "it is opened in the background"
    found = opened(service, path)
    assert (found.title, found.reason) == ("Kim", "")
    assert found.length.pages == pytest.approx(len(text) / PAGE_CHARACTERS, abs=2)
    assert found.tokens(lambda piece: len(piece) // 4) == pytest.approx(len(text) / 4, rel=0.02)
    assert not service.store.documents.all()


def test_a_known_file_has_the_title_that_it_was_given(service: Service, book: Path) -> None:
    [document] = add(service, book)
    service.store.documents.rename(document, "The lamp")
    assert opened(service, book).title == "The lamp"


def test_a_file_that_cannot_be_opened_says_why(service: Service, tmp_path: Path) -> None:
    broken = tmp_path / "torn.pdf"
    broken.write_bytes(b"%PDF-1.4 nonsense")
    assert "torn.pdf" in opened(service, broken).reason
    assert "not there" in opened(service, tmp_path / "gone.txt").reason


def test_only_pages_in_print_are_counted_exactly() -> None:
    printed, flowing = Length(12, 9), length_of("txt", 3, 700_000)
    assert pages_in_words([printed]) == "12 pages"
    assert pages_in_words([printed, flowing]) == "about 480 pages"
    assert pages_in_words([Length(0, 20)]) == "about 1 page"


def test_a_short_text_is_sampled_whole(book: Path) -> None:
    document = ingest(book)
    found = preview_of(document)
    assert found.samples == (document.text,)
    assert found.tokens(len) == len(document.text)
    assert Preview("Nothing").tokens(len) == 0
