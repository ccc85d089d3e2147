"""Forged saved states with right checksums: refused with a sentence before memory is allocated."""

import hashlib
import json
import random
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import engine
from app.asking.turns import answer, keep_question
from app.errors import AppError
from app.reading.open_context import open_context, open_conversation
from app.reading.readings import read
from app.service import Service
from sessions import Part, StoreCorrupt, StoreError, TensorFolder
from tests.app.helpers import SHORT, add, begin

METHODS = ("exact", "infinipot", "infinitehip", "streaming")
ODD: list[Any] = [None, True, -1, 0, 1, 2**31, 2**63, -(2**63), 10**30, 1.5, "", "x", "../../x", [], [0], {}, {"a": 1}]
LEAST_BYTES = 1 << 30  # most memory that opening a forged state may take


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[tuple[Service, dict[str, Path]]]:
    """Return a service with one context of each method, and copies of their folders."""
    folder = tmp_path_factory.mktemp("forged")
    book = folder / "Book.txt"
    book.write_text("The keeper was Maren Hollis, who kept a diary. " * 30)
    with closing(Service(folder / "home", str(tiny), "cpu")) as service:
        ids = add(service, book)
        copies = {}
        for method in METHODS:
            row = read(service, begin(service, ids, method, {"budget": 1024}).id, lambda report: None)
            copies[row.id] = folder / row.id
            shutil.copytree(service.store.contexts.state(row.id).path, copies[row.id])
        yield service, copies


def forge(folder: TensorFolder, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest, and make its checksum fit."""
    state = json.loads(json.loads((folder.path / "manifest.json").read_text())["state"])
    said = change(state)
    text = said if isinstance(said, str) and said == DEEP else json.dumps(state)
    whole = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "state": text}
    (folder.path / "manifest.json").write_text(json.dumps(whole))


def restore(service: Service, copies: dict[str, Path], context: str) -> TensorFolder:
    folder = service.store.contexts.state(context)
    shutil.rmtree(folder.path)
    shutil.copytree(copies[context], folder.path)
    service.forget_open()
    return folder


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*at, key))


def oddly(chance: random.Random) -> Callable[[dict[str, Any]], None]:
    """Yield the facts with one of them removed, or replaced."""

    def change(state: dict[str, Any]) -> None:
        *way, last = chance.choice([*places(state)])
        held: Any = state
        for key in way:
            held = held[key]
        if chance.random() < 0.25:
            del held[last]
        else:
            held[last] = chance.choice(ODD)

    return change


@pytest.mark.parametrize("seed", range(4))
def test_any_fact_may_be_another(home: tuple[Service, dict[str, Path]], seed: int) -> None:
    """A state that opens all the same, because the fact does not matter, can be asked."""
    service, copies = home
    chance = random.Random(seed)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for trial in range(60):
        context = chance.choice([*copies])
        forge(restore(service, copies, context), oddly(chance))
        try:
            open_context(service, context)
            if trial % 6 == 0:
                session = service.store.sessions.add(context).id
                answer(service, keep_question(service, session, "Who?").id, SHORT)
        except (AppError, StoreError, engine.EngineError):
            pass
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < most + LEAST_BYTES // 1024


DEEP = "[" * 100_000
FORGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "tokens beyond the text": lambda state: state["meta"]["context"].update(source_tokens=2**31),
    "seen beyond the text": lambda state: state["meta"]["context"]["memory"].update(seen=2**40),
    "nested too deep": lambda state: DEEP,
    "facts nested too deep": lambda state: state["meta"].update(deep=json.loads("[" * 500 + "]" * 500)),
    "no layout": lambda state: state.pop("version"),
    "no length": lambda state: state["parts"]["tokens"].pop("bytes"),
    "no checksum": lambda state: state["parts"]["tokens"].pop("crc32"),
    "larger than its file": lambda state: state["parts"]["tokens"]["tensors"].update(ids=["torch.int32", [2**40]]),
    "another shape": lambda state: state["parts"]["tokens"]["tensors"].update(ids=["torch.int32", [3]]),
    "another path": lambda state: state["parts"]["tokens"].update(file="/etc/passwd"),
    "stretches with a gap": lambda state: state["meta"]["stretches"][0].update(first=5),
}


@pytest.mark.parametrize("kind", FORGED)
def test_each_is_refused_in_words(home: tuple[Service, dict[str, Path]], kind: str) -> None:
    service, copies = home
    for context in copies:
        forge(
            restore(service, copies, context),
            lambda state: text if isinstance(text := FORGED[kind](state), str) else None,
        )
        with pytest.raises(StoreCorrupt, match="delete c-"):
            open_context(service, context)
        restore(service, copies, context)


def test_places_of_another_length_are_refused_before_an_answer(home: tuple[Service, dict[str, Path]]) -> None:
    """An IndexError came during the answer."""
    service, copies = home
    context = next(iter(copies))
    folder = restore(service, copies, context)
    parts, meta = folder.load()
    parts = {name: {key: x.clone() for key, x in part.items()} for name, part in parts.items()}
    parts["tokens"]["starts"] = parts["tokens"]["starts"][:-5].clone()
    other = TensorFolder(folder.path)
    other.save(
        {name: Part(part) for name, part in parts.items()}, meta, service.store.contexts.get(context).fingerprint
    )
    with pytest.raises(StoreCorrupt, match="places of them"):
        open_context(service, context)
    restore(service, copies, context)


def test_a_tail_of_other_facts_is_refused(home: tuple[Service, dict[str, Path]]) -> None:
    service, copies = home
    context = next(iter(copies))
    restore(service, copies, context)
    session = service.store.sessions.add(context).id
    answer(service, keep_question(service, session, "Who?").id, SHORT)
    for turns in (-1, "x", None):
        forge(
            service.store.sessions.state(session),
            lambda state, value=turns: state["meta"]["conversation"].update(turns=value),
        )
        service.forget_open()
        with pytest.raises(StoreCorrupt, match="branch s-"):
            open_conversation(service, session)
