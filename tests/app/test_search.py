"""Search in the text of documents."""

import json
from pathlib import Path

import pytest

from app.search import index_documents, pieces_of, search_documents, search_everything
from app.service import Service
from tests.app.helpers import add, add_context, add_document, book_text, in_process


def texts(service: Service, tmp_path: Path) -> list[str]:
    paths = [tmp_path / "The Keeper.txt", tmp_path / "Another.txt"]
    paths[0].write_text(book_text(40), encoding="utf-8")
    paths[1].write_text("He had a snakish temper.\n\nThe lamp was out.", encoding="utf-8")
    return add(service, *paths)


def test_a_phrase_is_found_on_its_page_with_its_characters(service: Service, tmp_path: Path) -> None:
    keeper, other = texts(service, tmp_path)
    [found] = search_documents(service, '"pass key"', 5)
    text = service.document_cache.document(keeper).text
    assert (found.document, found.title, found.context) == (keeper, "The Keeper", None)
    assert text[found.start : found.end] == "pass key"
    assert found.place.endswith("paragraph 22")
    assert found.pages == "1/20-24"
    assert {each.document for each in search_documents(service, "lamp", 5)} == {keeper, other}
    assert [each.document for each in search_documents(service, "lamp", 5, [other])] == [other]


def test_a_passage_is_named_for_the_latest_context_of_its_document(service: Service, tmp_path: Path) -> None:
    keeper, other = (service.store.documents.get(id) for id in texts(service, tmp_path))
    add_context(service, keeper)
    both = add_context(service, keeper, other)
    [found] = search_documents(service, "snakish", 5)
    assert (found.context, found.pages) == (both, "2:1/1-3")
    assert search_documents(service, "snakish", 5, context=both)[0].pages == "2:1/1-3"


def test_pieces_are_the_whole_text_cut_between_paragraphs(service: Service, tmp_path: Path) -> None:
    document = service.document_cache.document(texts(service, tmp_path)[0])
    pieces = [*pieces_of(document)]
    assert len(pieces) == 2
    assert "".join(text for _, _, text in pieces) == document.text
    assert all(document.text[start : start + len(text)] == text for _, start, text in pieces)


def test_a_document_without_text_is_left_out(service: Service, tmp_path: Path) -> None:
    broken = add_document(service, "Broken").id
    texts(service, tmp_path)
    index_documents(service)
    assert service.store.search.unindexed() == [broken]
    assert len(search_documents(service, "snakish", 5)) == 1


def test_the_command_and_the_api_find_documents_beside_chats(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keeper, other = (service.store.documents.get(id) for id in texts(service, tmp_path))
    context = add_context(service, keeper, other)
    session = service.store.sessions.add(context.id, "The snakish one")
    assert [type(each).__name__ for each in search_everything(service, "snakish", 20)] == ["SearchHit", "Passage"]
    status, out, _ = in_process(service.home, capsys, "search", "snakish", "--json")
    [chat, passage] = json.loads(out)
    assert (status, chat["session"], chat["document"]) == (0, session.id, None)
    assert chat.keys() == passage.keys()
    assert (passage["document"], passage["page"], passage["pages"]) == (other.id, 1, "2:1/1-3")
    assert (passage["context"], passage["snippet"]) == (context.id, "He had a snakish temper.\n\nThe lamp was out.")
    status, out, _ = in_process(service.home, capsys, "search", "snakish", "--document", "Another")
    assert out.startswith(other.id)
    assert f"stockpot ask {context.id} \"...\" --pages '2:1/1-3'" in out
    status, out, err = in_process(service.home, capsys, "search", "nowhere", "--document", "Another")
    assert (status, out, err) == (0, "", "Nothing was found.\n")
