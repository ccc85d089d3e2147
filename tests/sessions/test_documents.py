"""The table of documents."""

from pathlib import Path

import pytest

from sessions import DiskFull, InUse, Store, StoreCorrupt, StoreError
from sessions import documents as documents_module
from tests.sessions.helpers import Filled


def test_a_document_comes_back_as_it_was_added(filled: Filled, tmp_path: Path) -> None:
    file = tmp_path / "Émile ../x.PDF".replace("/", "_")
    file.write_bytes(b"%PDF-1.7 bytes")
    content = {"pages": [{"text": "naïve \ud800 text", "boxes": [1.5, 2]}], "toc": []}
    row = filled.document(title="  Émile ", content=content, file=file, warnings=["page 2 has no text"])
    store = filled.store
    assert (row.title, row.pages, row.characters, row.warnings) == ("Émile", 3, 12, ["page 2 has no text"])
    assert (row.file_name, row.file_bytes) == (file.name, 14)
    (page,) = store.documents.content(row.id)["pages"]
    assert page == {"text": "naïve \ufffd text", "boxes": [1.5, 2]}  # a lone surrogate cannot be written in UTF-8
    kept = store.documents.file(row.id)
    assert kept is not None
    assert kept.name == "original.pdf"
    assert kept.read_bytes() == file.read_bytes()
    assert kept.parent.parent == store.home / "documents"
    assert store.folders.size(row.id) == 14 + (kept.parent / "content.json").stat().st_size


def test_the_same_file_is_kept_once(filled: Filled) -> None:
    first = filled.document(title="Emma")
    assert filled.document(title="Emma again", content={"other": 1}) == first
    assert filled.store.documents.find("a" * 64) == first
    assert filled.store.documents.find("b" * 64) is None
    assert filled.store.documents.file(first.id) is None
    assert len(filled.store.documents.all()) == 1
    assert len(list((filled.store.home / "documents").iterdir())) == 1


def test_altered_or_missing_text_is_an_error(filled: Filled) -> None:
    row = filled.document()
    path = filled.store.home / "documents" / row.id / "content.json"
    path.write_bytes(path.read_bytes().replace(b"one", b"ONE"))
    with pytest.raises(StoreCorrupt, match="read its file again"):
        filled.store.documents.content(row.id)
    path.unlink()
    with pytest.raises(StoreCorrupt):
        filled.store.documents.content(row.id)


def test_a_warning_with_an_undecodable_file_name_is_cleaned(filled: Filled) -> None:
    """Such a warning made the list of contexts fail, as UTF-8 cannot hold the name."""
    row = filled.document(warnings=["B\udcfccher.pdf was left out."])
    assert row.warnings == ["B\ufffdcher.pdf was left out."]
    assert filled.store.documents.get(row.id).warnings == row.warnings


def test_titles_are_cleaned_and_not_empty(filled: Filled) -> None:
    row = filled.document(title="\udcff odd")
    assert row.title == "\ufffd odd"
    assert filled.store.documents.rename(row.id, " Emma, vol. 1 ").title == "Emma, vol. 1"
    with pytest.raises(StoreError, match="cannot be empty"):
        filled.store.documents.rename(row.id, "  ")


def test_no_room_for_a_document(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_module, "disk_free", lambda _: 10)
    with pytest.raises(DiskFull, match="10 are free"):
        filled.document()
    assert filled.store.documents.all() == []
    assert not list((filled.store.home / "incoming").iterdir())


def test_a_document_is_replaced_in_one_step(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old document was deleted first, so a full disk left neither."""
    store, old, file = filled.store, filled.document(file=Path(__file__)), Path(__file__)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    for name, fails, error in (("disk_free", lambda _: 10, DiskFull), ("os.rename", crash, KeyboardInterrupt)):
        with monkeypatch.context() as patch:
            patch.setattr(f"sessions.documents.{name}", fails)
            with pytest.raises(error):
                filled.document(content={"pages": ["new"]}, file=file, instead_of=old.id)
        store.folders.sweep()
        assert store.documents.all() == [old]
        assert store.documents.content(old.id) == {"pages": ["one", "two"]}
        assert store.documents.file(old.id).exists()
    new = filled.document(content={"pages": ["new"]}, file=file, instead_of=old.id)
    assert new.id != old.id
    assert store.documents.all() == [new]
    assert store.documents.content(new.id) == {"pages": ["new"]}
    assert [each.name for each in (store.home / "documents").iterdir()] == [new.id]
    assert filled.document(content={"pages": ["newer"]}, instead_of=old.id) == new  # another program was first


def test_a_document_that_was_read_is_not_replaced(filled: Filled) -> None:
    store, context = filled.store, filled.context()
    [old] = store.documents.all()
    with pytest.raises(InUse, match=f"delete {old.id} with what was read of it"):
        filled.document(content={"pages": ["new"]}, instead_of=old.id)
    assert (store.documents.all(), store.contexts.all()) == ([old], [context])
    assert store.documents.content(old.id) == {"pages": ["one", "two"]}
    assert not list((store.home / "incoming").iterdir())


def test_a_crash_between_rename_and_commit_leaves_no_document(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # The last thing before the commit, after the folder has its final name.
        real = documents_module.flush_directory
        patch.setattr(documents_module, "flush_directory", lambda p: crash(p) if p.name == "documents" else real(p))
        with pytest.raises(KeyboardInterrupt):
            filled.document()
    assert len(list((filled.store.home / "documents").iterdir())) == 1
    assert filled.store.documents.all() == filled.store.folders.strays() == []
    with Store(filled.store.home) as again:
        assert list((again.home / "documents").iterdir()) == []
    assert filled.document().title == "Emma"
