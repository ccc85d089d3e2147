"""Questions to chosen documents of several."""

import json
from pathlib import Path

import pytest

from app.asking.named_pages import Named, all_of, as_kept, named_pages, pages_in_words
from app.asking.turns import with_documents
from app.errors import UsageError
from app.jobs.worker import Worker
from app.reading.readings import read
from app.service import Service
from sessions import ContextRow
from tests.app.helpers import BUDGET, add, begin, book_text, in_process

NAMES = [("d-abcdef", "Kim"), ("d-ghijkl", "Kim, again"), ("d-mnopqr", "2001")]


@pytest.fixture
def context(service: Service, tmp_path: Path) -> ContextRow:
    """Return a context of a book and a note."""
    paths = [tmp_path / "Book.txt", tmp_path / "Note.txt"]
    paths[0].write_text(book_text(12), encoding="utf-8")
    paths[1].write_text("The lamp is out.", encoding="utf-8")
    return read(service, begin(service, add(service, *paths), "exact", BUDGET).id, lambda _: None)


@pytest.mark.parametrize(
    ("texts", "pages"),
    [(["2"], "2:"), (["kim"], "1:"), (["d-gh"], "2:"), (["Kim, "], "2:"), (["2001", "1", "3"], "3:, 1:"), ([], "")],
)
def test_documents_are_named_by_number_id_or_title(texts: list[str], pages: str) -> None:
    assert all_of(texts, NAMES) == pages


@pytest.mark.parametrize(("text", "why"), [("ki", "names several"), ("4", "names none"), (" ", "names none")])
def test_a_name_that_fits_none_or_several_is_refused_with_what_there_is(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=rf"{why} of .*: 1\. Kim; 2\. Kim, again; 3\. 2001\."):
        all_of([text], NAMES)


def test_a_whole_document_has_a_name_of_its_own(service: Service, context: ContextRow) -> None:
    ids, known = context.document_ids, service.document_cache
    assert named_pages("2:, 1:1/2-3", ids, known) == [Named(2, 1, 1), Named(1, 2, 3, 1)]
    assert as_kept(named_pages("2:, 1:1/2-3", ids, known), ids, known) == "2:, 1:1/2-3"
    assert as_kept(named_pages("2:", ids, known), [ids[1]] * 2, known) == "2:"
    assert [pages_in_words(each) for each in ("2:", "1:, 2:", "2:, 1:1/2-3", "3")] == [
        "document 2",
        "documents 1, 2",
        "document 2 and page 1:1/2-3",
        "page 3",
    ]
    assert with_documents(service, context, "1:1/2", ["Note"]) == "2:, 1:1/2"
    assert with_documents(service, context, "1:1/2", []) == "1:1/2"


def test_a_question_is_put_to_one_document(
    service: Service, context: ContextRow, worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("ask", context.id, "Is the lamp out?", "--max-tokens", "4", "--json")
    status, out, _ = in_process(service.home, capsys, *arguments, "--documents", "note")
    assert (status, json.loads(out)["pages"]) == (0, "2:")
    status, _, err = in_process(service.home, capsys, *arguments, "--documents", "Emma")
    assert status == 2
    assert err.endswith("names none of the documents that were read. Write one of their numbers: 1. Book; 2. Note.\n")
