"""The pages of documents: their texts, and pictures of printed pages."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pymupdf
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.api.error_handlers import add_error_handlers
from app.api.routes import MOST_DRAWN, router
from app.errors import NotFound
from app.jobs.worker import Worker
from app.reading.documents import IngestOptions, add_documents
from app.reading.pages import page_of, picture_of_page
from app.service import Service
from app.web.views.document_page import document_page
from ingest import PasswordNeeded, TocEntry
from tests.app.helpers import PATIENCE_SEC, in_process
from tests.ingest import makers

PRINT = [[(50.0, 100.0, "The keeper of the lamp was Orla Quent.")], [(50.0, 300.0, "It was lit.")]]
PNG = b"\x89PNG\r\n"


def kept(service: Service, file: Path, password: str | None = None) -> str:
    [row] = add_documents(service, [file], IngestOptions(password=password), lambda *_: None).documents
    return row.id


def test_a_page_knows_where_it_stands(service: Service, tmp_path: Path) -> None:
    file = makers.pdf(tmp_path / "lamp.pdf", PRINT)
    with pymupdf.open(file) as pdf:
        pdf.set_toc([[1, "How it was lit", 2]])
        pdf.saveIncr()
    id = kept(service, file)
    first, second = page_of(service, id, 1), page_of(service, id, 2)
    assert first.contents == second.contents == (TocEntry(1, "How it was lit", 2),)
    assert (first.page.text, first.start, first.numbers) == ("The keeper of the lamp was Orla Quent.", 0, (1, 2))
    assert service.document_cache.document(id).text[second.start :] == second.page.text
    with pytest.raises(NotFound, match=r"no page 3 in .*: its pages are 1 to 2"):
        page_of(service, id, 3)


def test_a_page_is_drawn_with_what_a_source_says_marked(service: Service, tmp_path: Path) -> None:
    id = kept(service, makers.pdf(tmp_path / "lamp.pdf", PRINT))
    second = page_of(service, id, 2)
    plain = picture_of_page(second)
    assert plain.startswith(PNG)
    assert picture_of_page(second, second.start, second.start + 3) != plain
    assert picture_of_page(second, 0, second.start) == plain  # text of the page before


def test_what_is_no_pdf_has_no_printed_page(service: Service, book: Path) -> None:
    with pytest.raises(NotFound, match="only those of a PDF"):
        picture_of_page(page_of(service, kept(service, book), 1))


def test_an_encrypted_file_is_named_by_its_title(service: Service, tmp_path: Path) -> None:
    """The home keeps it under another name, and without its password."""
    locked = {"encryption": pymupdf.PDF_ENCRYPT_AES_256, "user_pw": "swordfish"}
    id = kept(service, makers.pdf(tmp_path / "Lamp book.pdf", PRINT, **locked), "swordfish")
    found = page_of(service, id, 1)
    # The sentence was "Give its password", without a field for it.
    with pytest.raises(
        PasswordNeeded, match=f"^{found.title} is encrypted.*PASSWORD=... stockpot show {id} --page '1 of the file' "
    ):
        picture_of_page(found)
    assert picture_of_page(found, password="swordfish").startswith(PNG)


def test_the_page_by_itself_leads_to_others_and_shows_the_print(service: Service, tmp_path: Path, book: Path) -> None:
    id = kept(service, makers.pdf(tmp_path / "lamp.pdf", PRINT))
    first = document_page(page_of(service, id, 1), 4, 10)
    assert f'data-from="../../../api/documents/{id}/pages/1/picture?start=4&amp;end=10"' in first
    assert f'href="../../../api/documents/{id}/file#page=1"' in first
    assert ('<a href="2">Next</a>' in first, "Previous" in first, "<span>1 of 2</span>" in first) == (True, False, True)
    assert all(each in first for each in ('<html lang="en">', '<div id="text" lang="">'))  # for screen readers
    second = document_page(page_of(service, id, 2))
    assert ('<a href="1">Previous</a>' in second, "Next" in second) == (True, False)
    alone = document_page(page_of(service, kept(service, book), 1))
    assert not any(each in alone for each in ("<img", "<nav", "fetch("))


def test_pictures_come_over_http(service: Service, tmp_path: Path) -> None:
    id = kept(service, makers.pdf(tmp_path / "lamp.pdf", PRINT))
    lost = kept(service, makers.pdf(tmp_path / "other.pdf", PRINT[:1]))
    original = service.store.documents.file(lost)
    assert original is not None
    original.unlink()
    app = FastAPI()
    app.include_router(router(service, Worker(service)))
    add_error_handlers(app)
    with TestClient(app, base_url="http://127.0.0.1/api/documents") as http:
        shown = http.get(f"{id}/pages/1/picture", params={"start": 4, "end": 10})
        assert (shown.headers["content-type"], shown.content[:6]) == ("image/png", PNG)
        file = http.get(f"{id}/file")
        assert file.content.startswith(b"%PDF")
        assert file.headers["cache-control"] == shown.headers["cache-control"] == "no-store"
        for path, words in ((f"{id}/pages/9/picture", "no page 9"), (f"{lost}/pages/1/picture", "of a PDF")):
            refused = http.get(path)
            assert (refused.status_code, words in refused.json()["error"]) == (404, True)


def test_many_pictures_leave_the_server_free_for_all_else(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty requests started forty processes, and nothing else was answered until they ended."""
    id = kept(service, makers.pdf(tmp_path / "lamp.pdf", PRINT))
    drawn, enough = threading.Semaphore(0), threading.Event()
    begun: list[int] = []

    def draw(*_: object) -> bytes:
        begun.append(1)
        drawn.release()
        enough.wait(PATIENCE_SEC)
        return PNG

    monkeypatch.setattr("app.api.routes.picture_of_page", draw)
    app = FastAPI()
    app.include_router(router(service, Worker(service)))
    with TestClient(app, base_url="http://127.0.0.1") as http, ThreadPoolExecutor(61) as callers:
        asked = [callers.submit(http.get, f"/api/documents/{id}/pages/1/picture") for _ in range(60)]
        for _ in range(MOST_DRAWN):
            assert drawn.acquire(timeout=PATIENCE_SEC)
        answer = callers.submit(lambda: http.get(f"/api/documents/{id}"))
        try:
            assert answer.result(PATIENCE_SEC).status_code == 200
            assert len(begun) == MOST_DRAWN
        finally:
            enough.set()
        assert {each.result(PATIENCE_SEC).status_code for each in asked} == {200}


def test_show_writes_a_picture(service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    id = kept(service, makers.pdf(tmp_path / "lamp.pdf", PRINT))
    file = str(tmp_path / "page.png")
    assert in_process(service.home, capsys, "show", id, "--page", "1", "--picture", file)[:2] == (0, f"{file}\n")
    plain = Path(file).read_bytes()
    marked = ("show", id, "--page", "1", "--picture", file, "--mark", "4", "10", "--json")
    facts = {"document": id, "page": 1, "place": "page 1", "picture": file}
    assert json.loads(in_process(service.home, capsys, *marked)[1]) == facts
    assert Path(file).read_bytes() not in (plain, b"")
    for nowhere in (tmp_path, tmp_path / "none" / "page.png"):
        said = in_process(service.home, capsys, "show", id, "--page", "1", "--picture", str(nowhere))
        assert (said[:2], f"{nowhere} cannot be written" in said[2]) == ((1, ""), True)
    for wrong in (("--picture", file), ("--page", "1", "--mark", "4", "10")):
        status, out, err = in_process(service.home, capsys, "show", id, *wrong)
        assert (status, out, " goes with " in err) == (2, "", True)
