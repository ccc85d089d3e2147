"""Answers as of a page: what stands behind it makes no difference to anything that an answer tells."""

from pathlib import Path
from typing import Any

import pytest

from app.asking.answers import Place, ask_alone
from app.asking.named_pages import named_pages, pages_up_to
from app.asking.place import keep_place, known_pages, place_in
from app.asking.turns import answer, checked_pages, keep_question, with_documents
from app.errors import UsageError
from app.home import ASSETS
from app.reading.readings import read
from app.service import Service
from sessions import ContextRow
from tests.app.helpers import FACTS, SHORT, add, add_context, begin

METHODS: dict[str, dict[str, Any]] = {
    "full": {},
    "truncate": {"budget": "900"},
    "streaming": {"budget": "600"},
    "exact": {"budget": "320"},
    "infllm": {},
    "infinitehip": {},
    "recall": {"gist": "infinipot"},
    "infinipot": {"budget": "1200"},
    "knorm": {"budget": "900"},
    "tova": {"budget": "900"},
    "locret": {},
    "beacon": {},
}
TRAINED = ("locret", "beacon")
QUESTIONS = (
    "Who kept the lighthouse at Cape Orlen?",
    "Who stole the emerald of Zanzibar?",
    "What is it about?",
    "Did the sea swallow the “lamp that must never go dark”?",
)
BEFORE = f"# Morning\n\n{' '.join(f'On day {n} the sea was calm and nobody came.' for n in range(90))}\n\n{FACTS[0]}"
LATER = (
    "Captain Brandt stole the emerald of Zanzibar. The lighthouse at Cape Orlen burned, and its keeper drowned.",
    "All of it was a dream of the cook, who had slept through day 3. The sea was never there, and so went dark.",
)


def told(service: Service, context: ContextRow, pages: str, question: str) -> dict[str, Any]:
    """Return all that an answer tells, without numbers of the memory and the time."""
    said = ask_alone(service, Place(context.id, pages), question, SHORT)
    names = ("found", "sure", "unsupported", "quotations", "citations", "read_again_tokens")
    sources = [{**each, "document": ""} for each in said.sources]
    return {"answer": said.answer, "sources": sources, **{name: said.measurements.get(name) for name in names}}


@pytest.mark.parametrize("method", METHODS)
def test_what_comes_later_makes_no_difference(
    service: Service, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two texts that differ behind a page are one text to a reader who is at it."""
    monkeypatch.setattr("app.asking.sources.LEAST_SHARE", 0.0)
    model = "pocket" if method in TRAINED else None
    if model and not (ASSETS / "pocket" / "config.json").exists():
        pytest.skip("the model that ships has not been trained")
    contexts = []
    for number, later in enumerate(LATER):
        path = tmp_path / f"Book {number}.md"
        path.write_text(f"{BEFORE}\n\n# Evening\n\n{later}\n\n# Night\n\n{later * 3}", encoding="utf-8")
        row = begin(service, add(service, path), method, METHODS[method], model)
        contexts.append(read(service, row.id, lambda _: None))
    for question in QUESTIONS:
        one, other = (told(service, each, "1", question) for each in contexts)
        assert one == other
        assert {each["page"] for each in one["sources"]} <= {1}
    first = told(service, contexts[0], "1", QUESTIONS[0])
    assert any("Cape Orlen" in each["quote"] for each in first["sources"]), "what came before is found"
    one, other = (told(service, each, "", QUESTIONS[1]) for each in contexts)
    assert one != other, "without a place it makes one"


def test_a_turn_keeps_the_pages_that_were_known(service: Service, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.md" for name in ("First", "Second")]
    for path in paths:
        path.write_text("\n\n".join(f"# Part {n}\n\nOne of {path.stem}.\n\nTwo." for n in range(1, 5)))
    context = read(service, begin(service, add(service, *paths), "exact", {"budget": "320"}).id, lambda _: None)
    ids, cache = context.document_ids, service.document_cache
    for place, pages in (
        ("1:3", "1:1-3"),
        ("2:2", "1:, 2:1-2"),
        ("2:3/1", "1:, 2:1-2, 2:3/1"),
        ("1:1/2", "1:1/1-2"),
        ("2:4", ""),
    ):
        assert pages_up_to(place, ids, cache) == pages
        assert not pages or named_pages(pages, ids, cache)
    session = service.store.sessions.add(context.id).id
    pages = with_documents(service, context, "", [], "2:2")
    turn = answer(service, keep_question(service, session, "What is Part 1 of the second?", pages).id, SHORT)
    assert turn.pages == "1:, 2:1-2"
    for place, why in (("1:1-2", "is not one page"), ("1:9", "There is no section 9"), ("1:1, 2:1", "is not one page")):
        with pytest.raises(UsageError, match=why):
            pages_up_to(place, ids, cache)
    with pytest.raises(UsageError, match="not both"):
        with_documents(service, context, "1:2", [], "2:2")
    for pages, documents, up_to, kept in (
        ("+1:1", [], "2:2", "1:, 2:1-2 + 1:1"),
        ("+1:1", ["2"], "", "2: + 1:1"),
        ("2:1-2 +1:1, 1:2", ["1"], "", "1:, 2:1-2 + 1:1, 1:2"),
        ("+ 2:", [], "", "+ 2:"),
    ):
        assert checked_pages(service, context, with_documents(service, context, pages, documents, up_to)) == kept
        assert checked_pages(service, context, kept) == kept
    turn = answer(service, keep_question(service, session, "What is Part 1?", "+1:1").id, SHORT)
    assert (turn.pages, turn.status) == ("+ 1:1", "done")
    behind = keep_question(service, session, "What is Part 1?", "1:, 2:1-2 + 2:3")
    with pytest.raises(UsageError, match="begin the text"):
        answer(service, behind.id, SHORT)


def test_a_place_belongs_to_its_document(service: Service, tmp_path: Path) -> None:
    """It is known wherever the document was read, and what stands behind it in any context is not."""
    paths = [tmp_path / f"{name}.md" for name in ("First", "Second", "Third")]
    for path in paths:
        path.write_text("\n\n".join(f"# Part {n}\n\nOne of {path.stem}." for n in range(1, 4)))
    ids = add(service, *paths)
    every, alone = (add_context(service, *map(service.store.documents.get, each)) for each in (ids, ids[1:2]))
    assert known_pages(service, every) == ""
    keep_place(service, ids[1], " 2 ")
    assert [place_in(service, id) for id in ids] == ["", "2", ""]
    assert (known_pages(service, every), known_pages(service, alone)) == ("1:, 2:1-2", "1-2")
    with pytest.raises(UsageError, match="There is no section 9"):
        keep_place(service, ids[1], "9")
    assert place_in(service, ids[1]) == "2", "as before"
    keep_place(service, ids[1], "3")
    assert (known_pages(service, every), known_pages(service, alone)) == ("1:, 2:", ""), "the third is not known"
    keep_place(service, ids[1], "")
    assert known_pages(service, every) == ""
    keep_place(service, ids[1], "1")
    service.store.documents.delete(ids[1])
    assert place_in(service, ids[1]) == ""
