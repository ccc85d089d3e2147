"""Full-text search in documents."""

import pytest

from sessions import StoreError
from tests.sessions.helpers import Filled

BOOK = [(1, 0, "Chapter I\n\nHe had a snakish temper, like a Café owner."), (2, 60, "Nothing of the kind. A temper.")]


def test_a_phrase_finds_its_page_and_its_characters(filled: Filled) -> None:
    store, document = filled.store, filled.document()
    assert store.search.unindexed() == [document.id]
    assert store.search.pages("temper") == []
    store.search.index(document.id, BOOK)
    assert store.search.unindexed() == []
    [hit] = store.search.pages('"snakish temper"')
    assert (hit.document_id, hit.page) == (document.id, 1)
    assert BOOK[0][2][hit.start : hit.end] == "snakish temper"
    assert [hit.snippet[start:end] for start, end in hit.highlights] == ["snakish temper"]
    assert {each.page for each in store.search.pages("temper")} == {1, 2}
    assert [each.start for each in store.search.pages("kind")] == [60 + BOOK[1][2].index("kind")]
    assert len(store.search.pages("cafe tem")) == 1
    assert store.search.pages("kind snakish") == store.search.pages("!!!") == []
    with pytest.raises(StoreError, match="1 to 1,000 hits"):
        store.search.pages("temper", 0)


def test_a_search_keeps_to_the_documents_that_are_named(filled: Filled) -> None:
    store, documents = filled.store, [filled.document(letter * 64) for letter in "ab"]
    for each in documents:
        store.search.index(each.id, BOOK)
    assert {hit.document_id for hit in store.search.pages("snakish")} == {each.id for each in documents}
    assert [hit.document_id for hit in store.search.pages("snakish", 20, [documents[1].id])] == [documents[1].id]
    assert store.search.pages("snakish", 20, []) == []


def test_the_words_of_a_long_piece_are_found_where_they_stand(filled: Filled) -> None:
    text = "temper " + "word " * 400 + "a snakish temper at last"
    filled.store.search.index(filled.document().id, [(3, 1000, text)])
    [hit] = filled.store.search.pages("snakish temper")
    assert 1000 + text.index("snakish") in range(hit.start, hit.end)


def test_a_deleted_document_is_not_found_and_a_repaired_index_fills_again(filled: Filled) -> None:
    store, gone, kept = filled.store, filled.document("a" * 64), filled.document("b" * 64)
    store.search.index(gone.id, [(1, 0, "Zanzibarian")])
    store.search.index(kept.id, BOOK)
    store.documents.delete(gone.id)
    assert store.search.pages("zanzibarian") == []
    assert b"anzibarian" not in b"".join(path.read_bytes() for path in store.home.glob("stockpot.db*"))
    assert store.search.is_intact()
    store.database.connection.execute("DELETE FROM pieces_fts_docsize")
    assert not store.search.is_intact()
    store.search.rebuild()
    assert store.search.is_intact()
    assert store.search.unindexed() == [kept.id]
    store.search.index(kept.id, BOOK)
    store.search.index(kept.id, BOOK)  # once is enough
    assert len(store.search.pages("snakish")) == 1
    store.search.index(gone.id, BOOK)
    assert len(store.search.pages("snakish")) == 1
