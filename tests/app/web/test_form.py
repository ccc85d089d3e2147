"""The form of a new document: what to expect, its memory in plain words, folders, models to fetch."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

import engine
from app.errors import AppError
from app.jobs.model_fetcher import FETCH
from app.jobs.uploads import name_of
from app.jobs.worker import Worker
from app.machine import hub_download
from app.machine.gguf_names import split_tag
from app.machine.recommended import RECOMMENDED, form_in
from app.reading.methods import essentials_for
from app.service import Service
from app.web.actions import Actions
from app.web.model_field import fetch_line, model_choices
from app.web.new_reading import ESSENTIALS, EVERYTHING
from app.web.tab_state import Selection, TabState
from sessions import JobRow
from tests.app.helpers import add, add_document, book_text, wait_for
from tests.app.hub_server import Hub, point_to
from tests.engine.gguf_files import tiny_network, write_gguf

SMALL = RECOMMENDED[0].name
KEYS = [("infinipot", "budget"), ("exact", "budget"), ("infinipot", "keep")]


def actions_of(service: Service, worker: Worker | None = None) -> Actions:
    return Actions(service, worker or Worker(service), TabState(service), KEYS, ["exact", "infinipot"], [])


def words(update: str) -> str:
    return re.sub("<.*?>", "", update)


def test_it_says_what_to_expect_or_why_not(service: Service) -> None:
    form = actions_of(service).form

    def said(method: str, budget: int | None, model: str | None, keep: float) -> str:
        return words(form.estimate(None, None, None, method, model, budget, budget, keep)[0])

    assert said("infinipot", 512, None, 0.25).startswith("There is room for a text of any length.")
    for method, budget, model, keep, expected in (
        ("infinipot", 512, None, 7, "keep"),
        ("exact", 3, "", 0.25, "budget of 3"),
        ("exact", 512, "<b>/none", 0.25, "&lt;b&gt;/none is not on this computer yet"),
    ):
        line = said(method, budget, model, keep)
        assert expected in line
        assert "There is room" not in line


def test_the_time_follows_the_last_telling_reading(service: Service) -> None:
    form = actions_of(service).form
    for tokens, seconds in ((18_000, 3_600.0), (900, 9.0)):  # the last reading is too short to say anything
        row = service.store.contexts.add(
            model=service.models.default,
            method="infinipot",
            settings=engine.make_method("infinipot", budget=512, keep=0.25).settings(),
            budget=512,
            fingerprint="0" * 64,
            document_ids=[add_document(service, f"Note {tokens}").id],
            tokens=tokens,
        )
        service.store.contexts.update(row.id, tokens_read=tokens, seconds=seconds)
    line = words(form.estimate(None, None, None, "infinipot", None, 512, 512, 0.25)[0])
    hours = re.search(r"takes about (\d+) hours to read", line)
    assert hours, line
    assert 3 <= int(hours[1]) <= 9  # 112,500 tokens at 5 tokens/s


def test_the_chosen_files_and_documents_are_told_from_their_own_text(
    service: Service, tmp_path: Path, book: Path
) -> None:
    form = actions_of(service).form
    [kept] = add(service, book)
    file = tmp_path / "pg2226.txt"
    file.write_text("Title: Kim\n\n" + book_text(300), encoding="utf-8")
    given = ([str(file)], [kept], "", "exact", None, 512, 320, 0.25)
    line, timer, *_ = form.estimate(*given)
    assert (words(line), timer["active"]) == ("Opening pg2226.txt …", True)
    wait_for(lambda: not form.estimate(*given)[1]["active"], "the file to be opened")
    assert re.fullmatch(
        r"The Keeper and Kim · about \d+ pages · .+ · [\d.]+ .B · it fits", words(form.estimate(*given)[0])
    )
    broken = tmp_path / "torn.pdf"
    broken.write_bytes(b"%PDF-1.4 nonsense")
    given = ([str(broken), str(file)], [], "", "exact", None, 512, 320, 0.25)
    wait_for(lambda: not form.estimate(*given)[1]["active"], "both files to be opened")
    line, *_, start = form.estimate(*given)
    assert words(line).startswith("Kim · ")
    assert "torn.pdf" in line, "what is left out is said"
    assert start["interactive"]
    for add_to in ("", "c-1"):  # added to others, it is told without a forecast
        line, *_, start = form.estimate([str(broken)], [], add_to, "exact", None, 512, 320, 0.25)
        assert "torn.pdf" in line
        assert not start["interactive"], "there is nothing to read"


def test_an_upload_is_named_by_its_documents_as_soon_as_they_are_made(service: Service, book: Path) -> None:
    [document] = add(service, book)
    service.store.documents.rename(document, "The lamp")
    job = service.store.jobs.add("ingest", "upload", {"files": ["uploads/1/pg2226.txt"], "title": None})
    assert name_of(service, job) == "pg2226.txt"
    assert name_of(service, service.store.jobs.update(job.id, progress={"documents": [document]})) == "The lamp"


def test_memory_in_plain_words_is_a_method_and_a_method_such_a_memory(service: Service) -> None:
    form, default = actions_of(service).form, engine.DEFAULT_METHOD
    assert essentials_for(service.models.default) == "infinipot", "this model has no trained heads"
    assert essentials_for("pocket") == "locret"
    for memory, method in ((ESSENTIALS, "infinipot"), (EVERYTHING, default)):
        chosen, *shown = form.choose_memory(memory, None)
        assert chosen["value"] == method
        assert [each["visible"] for each in shown] == [owner == method for owner in ("exact", "infinipot")]
        assert form.choose_method(method, None)[0]["value"] == memory
    assert form.choose_method("streaming", None)[0]["value"] is None
    *_, method, _, _ = form.choose_model("pocket", ESSENTIALS)
    assert method["value"] == "locret"
    *_, method, _, _ = form.choose_model("pocket", EVERYTHING)
    assert "value" not in method


def test_a_folder_brings_the_files_that_can_be_read(service: Service) -> None:
    form = actions_of(service).form
    files, emptied = form.take_folder(["/a/first.pdf"], ["/b/z.epub", "/b/.hidden.txt", "/b/tool.exe", "/b/c/a.txt"])
    assert files["value"] == ["/a/first.pdf", "/b/c/a.txt", "/b/z.epub"]
    assert emptied["value"] is None
    with pytest.raises(AppError, match="no file in this folder"):
        form.take_folder(None, ["/b/tool.exe"])


def test_models_are_listed_with_their_size_and_whether_they_fit(service: Service) -> None:
    choice, _ = actions_of(service).form.find_models()
    pocket = next(label for label, name in choice["choices"] if name == "pocket")
    assert re.fullmatch(r"Pocket, a demo · [\d.]+ MB · fits", pocket)
    [named] = [each for each in choice["choices"] if each[1] == "pocket"]
    assert named in model_choices(_found(service), 1 << 40, form_in("cpu"))
    assert all("too large" in label for label, _ in model_choices(_found(service), 0, form_in("cpu")))


def _found(service: Service) -> list[Any]:
    from app.machine.local_models import local_models

    return local_models(service.home)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    repository, tag = split_tag(SMALL)
    folder = tmp_path / "published"
    folder.mkdir()
    write_gguf(folder / f"little-{tag}.gguf", tiny_network("llama"), "llama")
    hub = Hub(repository, folder)
    point_to(hub.url, monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub_download, "PAUSE_SEC", 0.0)
    yield hub
    hub.close()


def ended(service: Service) -> JobRow:
    wait_for(lambda: service.store.jobs.all(kind=FETCH)[-1].finished_at is not None, "the fetch to end")
    return service.store.jobs.all(kind=FETCH)[-1]


def test_a_model_is_fetched_and_chosen(service: Service, worker: Worker, hub: Hub) -> None:
    actions, tab_state = actions_of(service, worker), TabState(service)
    assert tab_state.props(Selection())["stop_fetching"] == {"visible": False}
    actions.form.fetch(Selection(), SMALL)
    job = ended(service)
    assert (job.status, job.done, job.total) == ("done", job.total, job.total)
    assert job.total > 10_000
    props = tab_state.props(Selection())
    assert job.id in props["fetched"]["value"]
    assert "Qwen2.5 Coder 1.5B is here." in props["fetching"]["value"]
    choice, *_ = actions.form.find_fetched()
    assert choice["value"] == f"little-{split_tag(SMALL)[1]}"
    assert choice["value"] in [name for _, name in choice["choices"]]


def test_a_broken_fetch_says_so_and_goes_on_from_what_has_come(service: Service, worker: Worker, hub: Hub) -> None:
    actions = actions_of(service, worker)
    hub.cut_at, hub.cuts = 1_000, 99  # the connection breaks each time
    actions.form.fetch(Selection(), SMALL)
    service.store.jobs.request_cancel(service.store.jobs.all(kind=FETCH)[-1].id)
    assert ended(service).status == "cancelled"
    assert "to go on from what has come" in fetch_line(ended(service))
    hub.page = b"<html>Log in</html>"
    actions.form.fetch(Selection(), SMALL)
    job = ended(service)
    assert job.status == "failed"
    assert "see that this machine has a network" in (job.error or "")
    assert "see that this machine has a network" in TabState(service).props(Selection())["fetching"]["value"]
    hub.page, hub.cuts = b"", 0
    actions.form.fetch(Selection(), SMALL)
    assert ended(service).status == "done"
    assert len(service.store.jobs.all(kind=FETCH)) == 1, "the jobs before it are over"


def test_a_model_under_way_is_not_fetched_twice(service: Service) -> None:
    worker = Worker(service)  # not running
    first = worker.fetcher.fetch("Qwen/Qwen3-0.6B")
    assert worker.fetcher.fetch("Qwen/Qwen3-0.6B").id == first.id
    line = fetch_line(first)
    assert "Waiting to fetch Qwen/Qwen3-0.6B" in line
    actions_of(service, worker).form.stop_fetching(Selection())
    assert service.store.jobs.get(first.id).status == "cancelled"
    assert fetch_line(None) == ""
    with pytest.raises(AppError, match="Choose the model"):
        actions_of(service, worker).form.fetch(Selection(), None)
