"""The HTTP API of a real server."""

import errno
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docx
import httpx
import pytest
from fastapi import FastAPI, UploadFile
from starlette.testclient import TestClient

from app.api.error_handlers import MOST_BODY, add_error_handlers, status_of
from app.api.routes import MEDIA
from app.errors import UsageError
from engine import OutOfMemory
from sessions import DiskFull, InUse, NotFound, Store, StoreCorrupt, StoreFailing
from tests.app.helpers import FACTS, PATIENCE_SEC, Server, book_text, wait_for


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("api") / "home", str(tiny)).start()
    yield server
    server.stop()


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SEC) as client:
        yield client


def until(http: httpx.Client, path: str, *states: str) -> dict[str, Any]:
    wait_for(lambda: http.get(path).json()["status"] in states, f"{path} to be {' or '.join(states)}")
    found: dict[str, Any] = http.get(path).json()
    return found


def delete(http: httpx.Client, document: str) -> Any:
    """Delete a document and return the response; the worker releases it a moment after its last answer."""
    answers: list[httpx.Response] = []

    def taken() -> bool:
        answers.append(http.delete(f"/api/documents/{document}"))
        return answers[-1].status_code != 409

    wait_for(taken, "the worker to let go of the document")
    return answers[-1].json()


def test_the_description_of_the_api_says_what_comes(http: httpx.Client, server: Server) -> None:
    """It named status 422, other fields of errors, no other refusals, and JSON for a picture."""
    described = http.get("/api/openapi.json").json()
    refused = {"application/json": {"schema": {"$ref": "#/components/schemas/Refused"}}}
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            answers = route["responses"]
            assert "422" not in answers, (method, path)
            if path.startswith("/api/"):
                assert all(answers[status]["content"] == refused for status in ("400", "404", "409", "500", "507"))
            elif path.startswith("/v1/"):
                assert {"400", "404", "500"} < set(answers)
    assert set(described["components"]["schemas"]["Refused"]["properties"]) == {"error"}

    def content(path: str, status: str = "200", method: str = "get") -> Any:
        return described["paths"][path][method]["responses"][status]["content"]

    page = "/api/documents/{id}/pages/{number}"
    files = ("/api/documents/{id}/file", page, f"{page}/picture", "/api/sessions/{id}/export")
    assert [set(content(path)) for path in files] == [
        {"application/pdf"},
        {"text/plain"},
        {"image/png"},
        {"text/markdown", "application/json", MEDIA["docx"]},
    ]
    assert "text/event-stream" in content("/v1/chat/completions", method="post")
    job = content("/api/contexts", "202", "post")["application/json"]["schema"]["$ref"].rpartition("/")[2]
    came = http.post("/api/contexts", files=[("files", ("torn.pdf", b"%PDF-1.4 nonsense"))]).json()
    assert set(described["components"]["schemas"][job]["properties"]) == set(came)


def test_a_file_becomes_a_context_is_asked_exported_and_deleted(http: httpx.Client, server: Server) -> None:
    assert http.get("/healthz").json() == {"status": "ok"}
    files = [("files", ("The Keeper.txt", book_text(20).encode()))]
    settings = {"method": "exact", "budget": "320", "settings": '{"top_k": 64}'}
    job = http.post("/api/contexts", files=files, data=settings).json()
    job = until(http, f"/api/jobs/{job['id']}", "done", "failed")
    context = until(http, f"/api/contexts/{job['progress']['context']}", "ready", "failed")
    context["job"] = None  # it ends a moment later
    assert (context["status"], context["title"], context["budget"]) == ("ready", "The Keeper", 320)
    assert context["settings"]["top_k"] == 64
    assert not list((server.home / "uploads").glob("*/The Keeper.txt"))

    refused = http.post(f"/api/contexts/{context['id']}/resume")
    assert (refused.status_code, "has been read" in refused.json()["error"]) == (409, True)
    wait_for(lambda: http.get(f"/api/contexts/{context['id']}").json() == context, "the context to be as it was")

    session = http.post("/api/sessions", json={"context": context["id"], "title": "First"}).json()
    asked = http.post(f"/api/sessions/{session['id']}/turns", json={"question": "Who?", "max_tokens": 8})
    assert asked.status_code == 202
    turn = until(http, f"/api/turns/{asked.json()['id']}", "done", "failed")
    assert turn["status"] == "done"
    assert turn["measurements"]["answer_tokens"] == 8
    assert http.get("/api/search", params={"query": "who"}).json()[0]["session"] == session["id"]

    branch = http.post(f"/api/sessions/{session['id']}/branch", json={"turns": 1})
    assert (branch.status_code, branch.json()["turns"]) == (201, 1)
    asked = http.post(f"/api/sessions/{branch.json()['id']}/turns", json={"question": "And?", "max_tokens": 8})
    assert until(http, f"/api/turns/{asked.json()['id']}", "done", "failed")["status"] == "done"
    turns = http.get(f"/api/sessions/{branch.json()['id']}/turns").json()
    assert [(each["question"], each["answer"]) for each in turns[:-1]] == [("Who?", turn["answer"])]
    assert http.get(f"/api/sessions/{session['id']}").json()["turns"] == [turn]
    refused = http.post(f"/api/sessions/{session['id']}/branch", json={"turns": 2})
    assert (refused.status_code, "has 1 turn" in refused.json()["error"]) == (400, True)

    exported = http.get(f"/api/sessions/{session['id']}/export", params={"format": "md"})
    assert "attachment" in exported.headers["content-disposition"]
    assert "Who?" in exported.text
    kept = http.patch(f"/api/turns/{turn['id']}", json={"keep": [0]}).json()
    assert kept["kept"] == [0]
    assert http.patch(f"/api/turns/{turn['id']}", json={"keep": [99]}).status_code == 400
    told = {"format": "docx", "notes": True}
    word = docx.Document(io.BytesIO(http.get(f"/api/sessions/{session['id']}/export", params=told).content))
    assert "1. Who?" in [each.text for each in word.paragraphs]
    assert http.get(f"/api/sessions/{session['id']}/highlights/{context['document_ids'][0]}").status_code == 404
    document = context["documents"][0]["id"]
    page = http.get(f"/api/documents/{document}/pages/1")
    assert page.headers["content-type"].startswith("text/plain")
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "Maren Hollis" in page.text
    assert http.get(f"/api/documents/{document}/pages/99").status_code == 404
    start = page.text.index("Maren Hollis") - page.text.index("\n\n") - 2
    shown = http.get(f"/documents/{document}/pages/1", params={"start": start, "end": start + 5})
    assert shown.headers["content-type"].startswith("text/html")
    assert '<mark id="passage">Maren</mark> Hollis' in shown.text
    assert http.get(f"/documents/{document}/pages/99").status_code == 404
    assert http.get(f"/api/documents/{document}/file").status_code == 404  # only a PDF is shown as it is

    assert http.patch(f"/api/sessions/{session['id']}", json={"title": "Second"}).json()["title"] == "Second"
    assert delete(http, document) == {"deleted": document}
    assert [http.get(f"/api/{noun}").json() for noun in ("documents", "contexts", "sessions")] == [[], [], []]
    assert http.get(f"/api/turns/{turn['id']}").status_code == 404


def test_what_cannot_be_done_is_refused_with_a_sentence(http: httpx.Client) -> None:
    files = [("files", ("a.txt", b"words"))]
    for data, words in (({"method": "magic"}, "magic"), ({"method": "exact", "budget": "3"}, "budget of 3")):
        refused = http.post("/api/contexts", files=files, data=data)
        assert refused.status_code == 400
        assert words in refused.json()["error"]
    for data, words in (
        ({"preset": "wide"}, "preset: Extra inputs are not permitted"),
        ({"settings": "{"}, "settings: Invalid JSON"),
        ({"method": "exact", "settings": '{"top_k": [1]}'}, "wants a whole number for 'top_k'"),
        ({"model": "/no/such/model"}, "There is no model at '/no/such/model'"),
    ):
        refused = http.post("/api/contexts", files=files, data=data)
        assert (refused.status_code, words in refused.json()["error"]) == (400, True), refused.text
    assert "context: Field required" in http.post("/api/sessions", json={"ctx": "x", "title": "y"}).json()["error"]
    for path, body in (
        ("sessions", {"context": "c-222222"}),
        ("sessions/s-222222/turns", {"question": "Who?"}),
        ("sessions/s-222222/branch", {"turns": 1}),
    ):
        refused = http.post(f"/api/{path}", json={**body, "max_token": 8})
        assert "max_token: Extra inputs are not permitted" in refused.json()["error"]
    refused = http.patch("/api/sessions/s-222222", json={"title": "New", "tittle": "x"})
    assert "tittle: Extra inputs are not permitted" in refused.json()["error"]
    assert http.post("/api/sessions", content=b"{").status_code == 400
    form = {"content-type": "application/x-www-form-urlencoded"}  # curl's default
    refused = http.post("/api/sessions", content=b'{"context": "c-222222"}', headers=form)
    assert "Content-Type: application/json" in refused.json()["error"]
    refused = http.post("/api/sessions", content=b'{"context": "\xff"}', headers={"content-type": "application/json"})
    assert (refused.status_code, "send JSON in UTF-8" in refused.json()["error"]) == (400, True)
    for asked in (http.get("/api/nope"), http.put("/api/sessions", json={})):
        assert (asked.status_code, "describes what there is" in asked.json()["error"]) == (404, True)
    for path in ("/nope", "/healthz/more", "/api"):
        asked = http.get(path)
        assert (asked.status_code, set(asked.json())) == (404, {"error"})
    asked = http.get("/nope", headers={"accept": "text/html"})
    assert (asked.status_code, "There is no /nope: the page is at /" in asked.text) == (404, True)
    assert "What is being read names its job." in http.get("/api/jobs/j-222222").json()["error"]
    for limit in (0, 1001, 10**30):
        refused = http.get("/api/search", params={"query": "words", "limit": limit})
        assert (refused.status_code, set(refused.json())) == (400, {"error"})
    for path in ("/api/sessions/s-222222", "/api/turns/t-222222", "/api/jobs/j-222222", "/api/turns/../../etc"):
        assert http.get(path).status_code == 404
    job = http.post("/api/contexts", files=[("files", ("torn.pdf", b"%PDF-1.4 nonsense"))]).json()
    ended = until(http, f"/api/jobs/{job['id']}", "done", "failed")
    assert ended["status"] == "failed"
    assert "torn.pdf" in ended["error"]


def test_documents_are_added_to_what_has_been_read(http: httpx.Client, server: Server) -> None:
    base = server.read(("Keeper.txt", book_text(8).encode()), method="exact", budget="320")
    job = server.upload(("Letter.txt", b"Beatrice Vale leads Project Kestrel."), add_to=base["id"])
    both = server.context_of(job["id"], "ready")
    assert (both["document_ids"][:1], both["settings"]) == (base["document_ids"], base["settings"])
    assert both["tokens"] > base["tokens"]
    session = http.post("/api/sessions", json={"context": base["id"]}).json()["id"]
    branch = http.post(f"/api/sessions/{session}/branch", json={"turns": 0, "context": both["id"]}).json()
    assert branch["context_id"] == both["id"]
    form = {"documents": both["document_ids"][1:], "add_to": base["id"], "method": "exact"}
    refused = http.post("/api/contexts", data=form)
    assert (refused.status_code, "give none" in refused.json()["error"]) == (400, True)
    refused = http.post("/api/contexts", data={**form, "method": "", "add_to": "c-222222"})
    assert refused.status_code == 404


def test_documents_that_are_kept_are_read_again_alone_or_with_files(http: httpx.Client, server: Server) -> None:
    """Another method needed the file again, although the home has a copy."""
    first = server.read(("Keeper.txt", book_text(8).encode()), method="exact", budget="320")
    [document] = first["document_ids"]
    job = http.post("/api/contexts", data={"documents": [document], "method": "streaming", "title": "Kept"}).json()
    again = server.context_of(job["id"], "ready")
    assert (again["document_ids"], again["method"], again["title"]) == ([document], "streaming", "Kept")

    files = [("files", ("Fox.txt", b"The fox slept under boat number 7."))]
    given = {"documents": [document, document], "method": "streaming"}
    both = server.context_of(http.post("/api/contexts", files=files, data=given).json()["id"], "ready")
    assert both["title"] == "Keeper and Fox"
    job = http.post("/api/contexts", files=files, data={**given, "title": " The fox and the keeper "}).json()
    titled = server.context_of(job["id"], "ready")  # the same reading with another title
    assert (titled["id"], titled["title"]) == (both["id"], "The fox and the keeper")
    assert [row["title"] for row in titled["documents"]] == ["Keeper", "Fox"]
    again = http.patch(f"/api/contexts/{both['id']}", json={"title": ""}).json()
    assert again["title"] == "Keeper and Fox"

    before = http.get("/api/documents").json()
    files = [("files", ("New.txt", b"Words that nobody has read yet."))]
    refused = http.post("/api/contexts", files=files, data={"documents": [document, "d-222222"]})
    assert (refused.status_code, "There is no document d-222222" in refused.json()["error"]) == (404, True)
    refused = http.post("/api/contexts", data={"method": "exact"})
    assert (refused.status_code, "Send files" in refused.json()["error"]) == (400, True)
    assert http.get("/api/documents").json() == before
    assert list((server.home / "uploads").glob("*/New.txt")) == []
    for id in both["document_ids"]:
        assert delete(http, id) == {"deleted": id}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("n"), 400),
        (NotFound("n"), 404),
        (InUse("n"), 409),
        (DiskFull(Path(), None, 0), 507),
        (StoreCorrupt("n"), 500),
        (StoreFailing("n"), 500),
        (OSError(5, "n"), 500),
        (MemoryError(), 500),
        (OutOfMemory("n"), 500),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_status_says_whose_fault_it_is(error: Exception, status: int) -> None:
    """A full disk and a lack of memory were answered as bad requests."""
    assert status_of(error) == status


@pytest.mark.parametrize("path", ["/api/sessions", "/v1/chat/completions"])
def test_a_body_that_is_far_too_large_is_not_taken(http: httpx.Client, path: str) -> None:
    body, kind = b" " * (MOST_BODY + 1), {"content-type": "application/json"}
    assert http.post(path, content=body, headers=kind).status_code == 413
    assert "larger than 16.8 MB" in http.post(path, content=iter([body]), headers=kind).text  # of unknown length
    assert http.get("/healthz").json() == {"status": "ok"}


def test_a_disk_that_fills_up_while_a_file_comes_is_no_bad_request(monkeypatch: pytest.MonkeyPatch) -> None:
    app = FastAPI()
    add_error_handlers(app)

    @app.post("/take")
    def take(file: UploadFile) -> int:
        return file.size or 0

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("starlette.datastructures.UploadFile.write", full)
    refused = TestClient(app).post("/take", files={"file": ("a.txt", b"words")})
    assert (refused.status_code, "No room on the disk" in refused.json()["error"]) == (507, True)


def test_an_answer_is_stopped(http: httpx.Client, server: Server) -> None:
    """Nothing named the job of an answer, so it could not be cancelled."""
    context = server.read(("Keeper.txt", book_text(8).encode()), method="streaming", budget="256")
    session = http.post("/api/sessions", json={"context": context["id"]}).json()["id"]
    asked = {"question": "Who?", "max_tokens": 50_000}
    with server.held_back():
        turn = http.post(f"/api/sessions/{session}/turns", json=asked).json()["id"]
        wait_for(lambda: bool(http.get(f"/api/turns/{turn}").json()["answer"]), "the first words")
        assert http.post(f"/api/turns/{turn}/cancel").status_code == 200
        ended = until(http, f"/api/turns/{turn}", "done", "failed", "cancelled")
    assert (ended["status"], bool(ended["answer"])) == ("cancelled", True)
    assert http.post(f"/api/turns/{turn}/cancel").json() == ended  # a finished one does not change
    assert http.post("/api/turns/t-222222/cancel").status_code == 404
    assert delete(http, context["document_ids"][0]) == {"deleted": context["document_ids"][0]}


def test_pages_are_named_with_a_question(http: httpx.Client, server: Server) -> None:
    context = server.read(("Pages.txt", book_text(9).encode()), method="streaming", budget="256")
    path = f"/api/sessions/{http.post('/api/sessions', json={'context': context['id']}).json()['id']}/turns"
    refused = http.post(path, json={"question": "Who?", "pages": "1/99"})
    assert refused.status_code == 400
    assert "There is no paragraph 99 in section 1" in refused.json()["error"]
    assert http.get(path).json() == []
    asked = http.post(path, json={"question": "Who?", "pages": "1/4-5", "max_tokens": 4}).json()
    turn = until(http, f"/api/turns/{asked['id']}", "done", "failed")
    assert turn["pages"] == "1/4-5"
    assert turn["measurements"]["read_again_tokens"] > 50
    asked = http.post(path, json={"question": "Who?", "up_to": "1/3", "max_tokens": 4}).json()
    assert until(http, f"/api/turns/{asked['id']}", "done", "failed")["pages"] == "1/1-3"


def test_a_thing_is_named_by_its_kind_and_its_whole_id(http: httpx.Client, server: Server) -> None:
    """`DELETE /api/sessions/X` deleted a document with the title X, or with an id that begins with X."""
    context = server.read(("Keepsake.txt", book_text(8).encode()), method="streaming", budget="256")
    document = context["document_ids"][0]
    session = http.post("/api/sessions", json={"context": context["id"], "title": "Keepsake"}).json()["id"]
    mine = {"documents": document, "contexts": context["id"], "sessions": session}
    for noun in mine:
        others = [id for other, id in mine.items() if other != noun]
        for name in (*others, mine[noun][:-1], mine[noun][2:], mine[noun].upper(), "Keepsake"):
            path = f"/api/{noun}/{name}"
            answers = [http.get(path), http.delete(path)]
            if noun != "contexts":
                answers.append(http.patch(path, json={"title": "Other"}))
            assert [each.status_code for each in answers] == [404] * len(answers), path
            assert "error" in answers[1].json()
    assert http.post("/api/sessions", json={"context": "Keepsake"}).status_code == 404
    for noun, id in mine.items():
        assert http.get(f"/api/{noun}/{id}").json()["title"] == "Keepsake"
    assert http.patch(f"/api/documents/{document}", json={"title": "Kept"}).json()["title"] == "Kept"
    assert delete(http, document) == {"deleted": document}


def test_what_is_being_read_is_not_deleted_under_the_worker(http: httpx.Client, server: Server) -> None:
    with server.held_back():
        files = [("files", ("Long.txt", book_text(30).encode()))]
        job = http.post("/api/contexts", files=files, data={"method": "exact", "budget": "320"}).json()
        job = until(http, f"/api/jobs/{job['id']}", "done", "failed")
        path = f"/api/contexts/{job['progress']['context']}"
        with Store(server.home) as store:
            reading = job["progress"]["context"]
            wait_for(lambda: bool(store.jobs.all("running", reading)), "the reading to begin")
        under_way = http.get(path).json()["job"]
        assert (under_way["id"], under_way["status"]) == (job["progress"]["reading"], "running")
        assert http.delete(path).status_code == 409
        assert http.get(path).json()["status"] == "reading"
        assert http.post(f"/api/jobs/{under_way['id']}/cancel").json()["cancel_requested"]
        assert until(http, path, "paused", "ready")["status"] == "paused"
        wait_for(lambda: http.get(path).json()["job"] is None, "its job to end")


def test_whatever_changes_in_the_form_changes_what_it_says_to_expect(http: httpx.Client) -> None:
    page = http.get("/config").json()
    names = {each["id"]: each["props"].get("elem_id") or "" for each in page["components"]}
    does = [each for each in page["dependencies"] if "estimate" in [names[id] for id in each["outputs"]][:1]]
    own = {name for name in names.values() if name.startswith(("set-", "budget-"))}
    asked = {"files", "kept", "add-to", "method", "model"} | own
    assert all({names[id] for id in each["inputs"]} == asked and each["queue"] is False for each in does)
    targets = {(names.get(id), event) for each in does for id, event in each["targets"]}
    assert {name for name, event in targets if event == "change"} == asked - {"model"} | {"filled"}
    assert targets >= {(None, "load"), ("new-reading", "click"), ("", "tick")}


def test_a_page_that_is_not_there_is_said_on_a_page(http: httpx.Client, server: Server) -> None:
    """Browsers were shown JSON."""
    [document] = server.read(("Lamp.txt", b"The lamp was lit."))["document_ids"]
    for path, words in ((f"{document}/pages/9", "There is no page 9"), ("d-222222/pages/1", "d-222222")):
        answer = http.get(f"/documents/{path}")
        assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert words in answer.text


def test_an_introduction_is_asked_for_and_told(http: httpx.Client, server: Server) -> None:
    context = server.read(("Lighthouse.txt", book_text(8).encode()), method="exact", budget="320")
    assert http.get(f"/api/contexts/{context['id']}").json()["introduction"] is None
    job = http.post(f"/api/contexts/{context['id']}/introduction").json()["job"]
    assert job["kind"] == "introduce"
    wait_for(lambda: http.get(f"/api/jobs/{job['id']}").json()["status"] == "done", "the introduction")
    told = http.get(f"/api/contexts/{context['id']}").json()["introduction"]
    assert told["done"]
    assert set(told) == {"summary", "questions", "done"}
    assert http.post(f"/api/contexts/{context['id']}/introduction").json() == {"job": None}, "it is made once"
    assert http.post("/api/contexts/c-222222/introduction").status_code == 404


def test_a_recap_is_asked_for_and_told(http: httpx.Client, server: Server) -> None:
    text = "\n\n".join(f"# Part {n}\n\n{FACTS[n % 2]}" for n in range(1, 4))
    context = server.read(("Parts.md", text.encode()), method="exact", budget="320")
    path = f"/api/contexts/{context['id']}/recap"
    assert "There is no section 9" in http.post(path, json={"up_to": "9"}).json()["error"]
    job = http.post(path, json={"up_to": "2"}).json()["job"]
    assert until(http, f"/api/jobs/{job['id']}", "done", "failed")["status"] == "done"
    told = http.get(path).json()
    assert [each["title"] for each in told] == ["Part 1", "Part 2", "Part 3"]
    assert [each["sentences"] is None for each in told] == [False, False, True]
    assert http.get(path, params={"up_to": "2"}).json() == told[:2]


def test_a_whole_text_is_searched_and_documents_fill_a_table(http: httpx.Client, server: Server) -> None:
    context = server.read(("Lists.txt", book_text(120).encode()), method="exact", budget="320")
    for wrong in (
        {},
        {"question": "Who?", "columns": ["author"]},
        {"columns": [" "]},
        {"question": " ", "context": ""},
    ):
        assert http.post("/api/sweeps", json=wrong).status_code in (400, 404)
    wanted = {"context": context["id"], "question": "List all the boats."}
    job = http.post("/api/sweeps", json=wanted).json()
    assert until(http, f"/api/jobs/{job['id']}", "done", "failed")["status"] == "done"
    told = http.get(f"/api/sweeps/{job['id']}").json()
    assert told["searched"] == told["places"] > 1
    assert told["count"] == len(told["items"])
    head, *rows = http.get(f"/api/sweeps/{job['id']}", params={"format": "csv"}).text.splitlines()
    assert (head, len(rows) >= told["count"]) == ("found,place,doubtful,quote", True)
    again = http.post("/api/sweeps", json=wanted).json()
    assert until(http, f"/api/jobs/{again['id']}", "done", "failed")["attempts"] == 1
    assert http.get(f"/api/sweeps/{again['id']}").json() == told, "what was found is kept"
    [document] = context["document_ids"]
    table = http.post("/api/sweeps", json={"documents": [document], "columns": ["keeper: Who was the keeper?"]}).json()
    until(http, f"/api/jobs/{table['id']}", "done", "failed")
    [row] = http.get(f"/api/sweeps/{table['id']}").json()["rows"]
    assert (row["document"], len(row["cells"])) == (document, 1)
    assert http.get(f"/api/sweeps/{table['id']}", params={"format": "md"}).text.startswith("| document | keeper |")
    both = {"documents": [document, document], "compare": True}
    assert "two documents" in http.post("/api/sweeps", json=both).json()["error"]
    assert http.post("/api/sweeps", json={**both, "columns": ["keeper"]}).status_code == 400
    tested = http.post("/api/sweeps", json={"context": context["id"], "cards": 1}).json()
    until(http, f"/api/jobs/{tested['id']}", "done", "failed")
    assert http.get(f"/api/sweeps/{tested['id']}").json()["all"]["n"] == 0, "a tiny model makes no questions"
    assert http.get(f"/api/sweeps/{tested['id']}", params={"format": "tsv"}).text == ""
    assert "1 to 200" in http.post("/api/sweeps", json={"context": context["id"], "cards": 201}).json()["error"]
    assert http.get("/api/sweeps/j-222222").status_code == 404
    delete(http, document)
    assert http.get(f"/api/sweeps/{table['id']}").status_code == 404


def test_a_question_is_put_to_one_of_several_documents(http: httpx.Client, server: Server) -> None:
    files = [("Book.txt", book_text(9).encode()), ("Note.txt", b"The lamp is out, says the note.")]
    context = server.read(*files, method="exact", budget="320")
    path = f"/api/sessions/{http.post('/api/sessions', json={'context': context['id']}).json()['id']}/turns"
    refused = http.post(path, json={"question": "Who?", "documents": ["Emma"]})
    assert (refused.status_code, "names none of the documents" in refused.json()["error"]) == (400, True)
    asked = http.post(path, json={"question": "Who?", "documents": [context["document_ids"][1]], "max_tokens": 2})
    assert asked.json()["pages"] == "2:"
    assert until(http, f"/api/turns/{asked.json()['id']}", "done", "failed")["status"] == "done"
    [found] = http.get("/api/search", params={"query": "says the note", "document": context["document_ids"][1]}).json()
    assert (found["document"], found["context"], found["pages"]) == (
        context["document_ids"][1],
        context["id"],
        "2:1/1-3",
    )
    assert http.get("/api/search", params={"query": "note", "document": "d-222222"}).status_code == 404
