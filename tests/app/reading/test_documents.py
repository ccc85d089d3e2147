"""Files become documents: known files, files that are left out, and errors that end the work."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ingest
from app.errors import AppError
from app.reading.documents import IngestOptions, add_documents
from app.service import Service
from ingest import BrokenFile, Document, Limits, OcrUnavailable, TooLarge
from ingest.document import OCR_FOUND_NOTHING
from ingest.subprocess import ingest_in_subprocess
from sessions import ContextRow, DiskFull, DocumentRow, InUse, ReadOnlyHome
from tests.app.helpers import begin
from tests.ingest import makers

OCR = IngestOptions(ocr=True)


def scan(tmp_path: Path) -> Path:
    """Return a PDF with a page that has no text."""
    return makers.pdf(tmp_path / "scan.pdf", [[(50, 300, "The keeper of the lamp was Orla Quent.")], []], scans=[2])


def add(service: Service, *sources: Path | DocumentRow, options: IngestOptions = IngestOptions()) -> list[str]:  # noqa: B008
    return [row.id for row in add_documents(service, sources, options, lambda *_: None).documents]


@pytest.fixture
def recognising(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that Tesseract is installed, and finds nothing."""
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    (tmp_path / "eng.traineddata").touch()


def test_a_known_document_stays_where_ocr_is_asked_for_and_impossible(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was deleted first, or the advice was to delete it."""
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    file = scan(tmp_path)
    ids = add(service, file)
    for read in (False, True):
        if read:
            begin(service, ids, "exact", {"budget": 320})
        with pytest.raises(OcrUnavailable, match="Tesseract"):
            add(service, file, options=OCR)
        assert [row.id for row in service.store.documents.all()] == ids


def test_a_home_that_cannot_be_written_refuses_a_file_before_it_is_opened(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was parsed first, which may take minutes."""
    monkeypatch.setattr(service.store.database, "read_only", True)
    with pytest.raises(ReadOnlyHome):
        add(service, tmp_path / "not there.txt")


def test_a_known_document_is_replaced_by_one_with_ocr_unless_it_was_read(
    service: Service, recognising: None, tmp_path: Path
) -> None:
    file = scan(tmp_path)
    before = add(service, file)
    after = add(service, file, options=OCR)
    assert after != before
    assert [row.id for row in service.store.documents.all()] == after
    begin(service, after, "exact", {"budget": 320})
    with pytest.raises(AppError, match=f"delete {after[0]}, then read the file again"):
        add(service, file, options=OCR)


def test_a_document_in_which_ocr_found_nothing_is_not_to_be_deleted_for_it(service: Service, tmp_path: Path) -> None:
    """A book with a plate or a cover was said to have been read without OCR."""
    file = scan(tmp_path)
    document = ingest.ingest(file)
    plate = document.pages[1]
    looked_at = replace(plate, quality=replace(plate.quality, pictured=True, warnings=(OCR_FOUND_NOTHING,)))
    content = replace(document, pages=[document.pages[0], looked_at]).to_json()
    row = service.store.documents.add(
        sha256=document.sha256, title="Scan", format="pdf", pages=2, characters=9, content=content, file=file
    )
    begin(service, [row.id], "exact", {"budget": 320})
    assert add(service, file, options=OCR) == [row.id]


def test_what_is_read_of_a_document_while_ocr_goes_on_stays(
    service: Service, recognising: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was deleted with its sessions, because contexts were looked for before half an hour of OCR."""
    file = scan(tmp_path)
    [id] = add(service, file)
    contexts: list[ContextRow] = []

    def read_meanwhile(*given: Any, **settings: Any) -> Document:
        contexts.append(begin(service, [id], "exact", {"budget": 320}))
        return ingest_in_subprocess(*given, **settings)

    monkeypatch.setattr("app.reading.documents.ingest_in_subprocess", read_meanwhile)
    with pytest.raises(InUse, match=f"delete {id} with what was read of it, then read the file again"):
        add(service, file, options=OCR)
    assert [row.id for row in service.store.documents.all()] == [id]
    assert service.store.contexts.all() == contexts


def test_a_title_that_somebody_gave_stays_where_ocr_is_asked_for(
    service: Service, recognising: None, tmp_path: Path
) -> None:
    file = scan(tmp_path)
    service.store.documents.rename(*add(service, file), "The Lamp")
    for options, title in ((OCR, "The Lamp"), (IngestOptions(title="The Log", ocr=True), "The Log")):
        assert service.store.documents.get(*add(service, file, options=options)).title == title


def test_a_document_that_is_kept_is_not_read_with_ocr_without_its_file(service: Service, tmp_path: Path) -> None:
    [id] = add(service, scan(tmp_path))
    row = service.store.documents.get(id)
    assert add(service, row) == [id]
    with pytest.raises(AppError, match=f"delete {id}, then read the file again"):
        add(service, row, options=OCR)


def test_what_is_no_file_or_too_large_is_not_read_at_all(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe without a writer was waited for, and a file of any size was hashed before it was refused."""
    pipe, large = tmp_path / "pipe.txt", tmp_path / "large.txt"
    os.mkfifo(pipe)
    monkeypatch.setattr("ingest.fingerprint", lambda path: pytest.fail(f"{path} was read"))
    for path, words in ((pipe, "is no file: save"), (tmp_path, "is a folder"), (Path("/dev/zero"), "is no file")):
        with pytest.raises(BrokenFile, match=words):
            add(service, path)
    with large.open("wb") as handle:
        handle.truncate(Limits().file_bytes + 1)  # takes no room on the disk
    with pytest.raises(TooLarge, match="bytes"):
        add(service, large)


def test_one_file_of_several_that_cannot_be_kept_is_left_out(
    service: Service, book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that was not in the file ended the others too."""
    other = tmp_path / "other.txt"
    other.write_text("A text about a harbour.", encoding="utf-8")
    keep = service.store.documents.add

    for error in (AppError("It was read without OCR."), DiskFull(tmp_path, 9, 1)):

        def refuse(*, title: str, error: Exception = error, **fields: object) -> object:
            if title == "other":
                raise error
            return keep(title=title, **fields)  # type: ignore[arg-type]

        monkeypatch.setattr(service.store.documents, "add", refuse)
        added = add_documents(service, [other, book], IngestOptions(), lambda *_: None)
        assert ([row.title for row in added.documents], added.failures) == (["The Keeper"], [error])
        assert str(error) in added.warnings[0]
        with pytest.raises(type(error)):
            add(service, other)


def test_a_file_made_to_take_for_ever_can_be_stopped(service: Service, tmp_path: Path) -> None:
    """The whole program waited for its one page, with ever more memory."""
    asked = 0

    def stop(name: str, done: int, total: int) -> None:
        nonlocal asked
        asked += 1
        if asked == 25:  # a few seconds later the page is being read
            raise AppError("Stop.")

    with pytest.raises(AppError, match="Stop"):
        add_documents(service, [makers.unfolding_pdf(tmp_path / "bomb.pdf")], IngestOptions(), stop)
    assert asked == 25


def test_what_the_caller_raises_ends_it_and_is_no_fault_of_a_file(service: Service, book: Path) -> None:
    locked = InUse("Another process keeps the store locked.")

    def on_page(name: str, done: int, total: int) -> None:
        raise locked

    with pytest.raises(InUse) as caught:
        add_documents(service, [book, book], IngestOptions(), on_page)
    assert caught.value is locked


def test_files_that_are_the_same_are_read_once_and_that_is_said(service: Service, tmp_path: Path) -> None:
    """The second was not mentioned at all."""
    for name in ("Keeper.txt", "Copy.txt"):
        (tmp_path / name).write_text("The keeper lit the lamp.", encoding="utf-8")
    added = add_documents(service, [tmp_path / "Keeper.txt", tmp_path / "Copy.txt"], IngestOptions(), lambda *_: None)
    assert [row.title for row in added.documents] == ["Keeper"]
    assert added.warnings == ["Left out: Copy.txt is the same as 'Keeper', which is read once."]
    again = add_documents(service, [*added.documents, *added.documents], IngestOptions(), lambda *_: None)
    assert not again.warnings, "an id that is named twice"


def test_a_title_for_a_document_that_is_known_is_that_of_the_reading(service: Service, tmp_path: Path) -> None:
    """It renamed the document, and with it all of its contexts."""
    (tmp_path / "Keeper.txt").write_text("The keeper lit the lamp.", encoding="utf-8")
    [row] = add_documents(service, [tmp_path / "Keeper.txt"], IngestOptions(), lambda *_: None).documents
    for source in (row, tmp_path / "Keeper.txt"):
        added = add_documents(service, [source], IngestOptions(title="The Lamp"), lambda *_: None)
        assert (added.title, [each.title for each in added.documents]) == ("The Lamp", ["Keeper"])
