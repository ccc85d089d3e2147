"""Complete lists: the places of a text, items that stand in theirs, and equal items as one."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.asking import whole_list as module
from app.asking.answers import Checked, Place
from app.asking.sources import source_at
from app.asking.sweep import Finding, Item, sweep
from app.asking.table_text import written
from app.asking.whole_list import LIST, cut, entries, list_question, merged, places_of, whole_list
from app.reading.document_cache import DocumentCache
from app.reading.open_context import open_context
from app.reading.token_stream import Stretch
from app.service import Service
from ingest.document import Document, Page, PageQuality, TocEntry
from tests.app.helpers import add, book_text, read_through

SENTENCE = f"{'x' * 39}."


def paged(*texts: str, chapters: Sequence[int] = ()) -> Document:
    pages = tuple(Page(n, f"page {n}", text, PageQuality(len(text), "text")) for n, text in enumerate(texts, 1))
    return Document("Kim", "pdf", "0" * 64, pages, tuple(TocEntry(1, "Chapter", each) for each in chapters))


@pytest.mark.parametrize(
    ("document", "places"),
    [
        (paged(SENTENCE, f"{SENTENCE}\n\n{SENTENCE}"), [f"{SENTENCE}\n\n{SENTENCE}", SENTENCE]),
        (paged(SENTENCE * 2, f"{SENTENCE}\n\n{SENTENCE}", chapters=[2]), [SENTENCE * 2, f"{SENTENCE}\n\n{SENTENCE}"]),
        (paged(f"{SENTENCE} x\n\n{SENTENCE} {SENTENCE}"), [f"{SENTENCE} x\n\n{SENTENCE}", SENTENCE]),
        (paged(f"{SENTENCE} {SENTENCE}\n\n{SENTENCE}"), [f"{SENTENCE} {SENTENCE}", SENTENCE]),
        (paged("x" * 250), ["x" * 100, "x" * 100, "x" * 50]),
        (paged("The whole."), ["The whole."]),
    ],
    ids=["paragraph", "chapter", "sentence", "last paragraph", "anywhere", "one"],
)
def test_places_end_with_a_chapter_or_else_a_paragraph_or_a_sentence(document: Document, places: list[str]) -> None:
    length = len(document.text)  # a token for each character
    edges = list(cut(document, Stretch("d", 0, length, length), range(length), 100))
    assert [document.text[start:end].strip() for start, end in edges] == places
    assert [0, *(end for _, end in edges)] == [*(start for start, _ in edges), length], "nothing is left out"


def test_the_places_of_a_context_have_each_token_once(service: Service, tmp_path: Path) -> None:
    paths = [tmp_path / f"Book {number}.txt" for number in (100, 300)]
    for path, paragraphs in zip(paths, (100, 300), strict=True):
        path.write_text(book_text(paragraphs), encoding="utf-8")
    context, opened = read_through(service, add(service, *paths)), None
    opened = open_context(service, context.id)
    asked = [opened.stream.between(each.document, each.start, each.end) for each in places_of(service, context.id)]
    assert len(asked) > 4
    assert [token for tokens in asked for token in tokens] == [*range(len(opened.stream.ids))]
    assert max(map(len, asked)) <= opened.model.spec.window // 2


@pytest.mark.parametrize(
    ("items", "stand"),
    [
        (["the Swan"], [("the Swan", "The Swan sank.", False)]),
        (["Swan", "a heron", "swan"], [("Swan", "The Swan sank.", False), ("swan", "The Swan sank.", False)]),
        (["sinking Swan"], []),
        (["boat of Renn"], [("boat of Renn", "Renn's old boat lay there.", True)]),
        (["Renn's Swan"], []),
        (["Petrel"], []),
    ],
    ids=["words", "not there", "nor in other words", "in other words", "of two sentences", "of another place"],
)
def test_an_item_stands_in_a_sentence_of_its_place(items: list[str], stand: list[tuple[str, str, bool]]) -> None:
    text = "The Petrel was lost. The Swan sank. Renn's old boat lay there."
    cache = DocumentCache(lambda id: paged(text))
    place = source_at(cache, "d", text.index("The Swan"), len(text), 1.0)
    told = LIST.items(Checked(json.dumps(items), "", [vars(place)], {}), cache)
    assert [(each.answer, each.quote, each.doubtful) for each in told] == stand
    assert all(text[each.start : each.end] == each.quote for each in told)


def test_the_items_of_a_cut_list_are_those_before_the_cut() -> None:
    assert entries('["The \\"Swan\\"", "- Petrel.", "", "Petrel", "Her') == ['The "Swan"', "Petrel"]
    assert entries('["None", "The text does not mention any."]') == []


def found(*answers: str) -> Finding:
    items = [Item(each, False, None, "d", at, f"page {at}", each, at, at) for at, each in enumerate(answers, 1)]
    return Finding(Place("c"), "Which?", tuple(reversed(items)), "[]")


def test_equal_items_become_one_and_others_stay() -> None:
    first = found("Robinson", "the Swan", "boat 12", "twelve men", "Robins")
    rows = merged([first, found("swan", "Boat 21", "12 men", "SWAN", "Robinson’s"), found("A swan")])
    assert [(each.answer, len(each.items)) for each in rows] == [
        ("Robinson", 1),
        ("the Swan", 3),
        ("boat 12", 1),
        ("twelve men", 2),
        ("Robins", 1),
        ("Boat 21", 1),
        ("Robinson’s", 1),
    ]


@pytest.mark.parametrize(
    ("question", "items"),
    [
        ("Who is who?", [("Fitzwilliam Darcy / Mr. Darcy / Darcy", 1, [2]), ("Mr. Bingley", 2, [])]),
        (
            "List all the ships",
            [("Mr. Darcy", 1, []), ("Mr. Bingley", 2, []), ("Darcy", 1, [2]), ("Fitzwilliam Darcy", 3, [])],
        ),
    ],
)
def test_names_of_one_person_are_one_item_with_its_places(
    monkeypatch: pytest.MonkeyPatch, service: Service, question: str, items: list[tuple[str, int, list[int]]]
) -> None:
    monkeypatch.setattr(module, "titles_before_places", lambda service, id: {})
    findings = [found("Mr. Darcy", "Mr. Bingley"), found("Darcy"), found("x", "Darcy", "Fitzwilliam Darcy")]
    findings[2] = replace(findings[2], items=findings[2].items[:2])
    told = whole_list(service, "c", question, [Place("c")]).told(findings)
    said = [(each["answer"], each["page"], [also["page"] for also in each["also"]]) for each in told["items"]]
    assert (said, told["count"]) == (items, len(items))


def test_a_list_is_told_with_what_was_searched_and_dropped(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "The Keeper.txt"
    path.write_text(book_text(100), encoding="utf-8")
    context = read_through(service, add(service, path))
    monkeypatch.setattr(module, "LIST", replace(LIST, options=replace(LIST.options, max_tokens=12)))
    task = whole_list(service, context.id, "How many keepers are there?")
    findings = list(sweep(service, task))
    assert {each.question for each in findings} == {"Which keepers are there?"}
    told = task.told(findings[:1])
    assert (told["searched"], told["places"]) == (1, len(task.places))
    said = sum(len(entries(each.said)) for each in findings)
    told = task.told(findings)
    assert told["dropped"] == said - sum(len(each.items) for each in findings)
    assert told["count"] == len(told["items"]) <= said
    where = {"document": "d", "page": 3, "label": "page 3", "quote": "So =1|2.", "start": 0, "end": 8}
    told["items"] = [{"answer": "=1|2", "doubtful": True, "sure": None, **where, "also": [where | {"label": "page 9"}]}]
    assert written(told, "md") == "|  | found | place |\n| --- | --- | --- |\n| 1 | =1\\|2 ? | page 3; page 9 |\n"
    [line] = csv.DictReader(io.StringIO(written(told, "csv")))
    assert line == {"found": "'=1|2", "place": "page 3; page 9", "doubtful": "?", "quote": "So =1|2."}


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("List all the ships.", "List all the ships."),
        ("Name every bird", "Name every bird"),
        ("What are all the towns?", "What are all the towns?"),
        ("How many ships are named?", "Which ships are named?"),
        ("How many times is he named?", None),
        ("Name the captain.", None),
        ("What is the list price?", None),
        ("Who built it?", None),
        ("Who is who in the book?", "List all the people in the book?"),
        ("Who's who?", "List all the people?"),
        ("Wer ist wer?", "Nenne alle Personen?"),
        ("Qui est qui ?", "Cite toutes les personnes ?"),
        ("¿Quién es quién?", "Enumera todas las personas?"),
        ("谁是谁?", "列出所有人物?"),
        ("誰が誰ですか?", "すべての登場人物を挙げてください?"),
        ("Nenne alle Schiffe", "Nenne alle Schiffe"),
        ("Wie viele Schiffe werden genannt?", "Welche Schiffe werden genannt?"),
        ("Wie viel kostet es?", None),
        ("Énumérez toutes les villes", "Énumérez toutes les villes"),
        ("Combien de navires y a-t-il ?", "Quels navires y a-t-il ?"),
        ("Combien coûte-t-il ?", None),
        ("Enumera todos los barcos", "Enumera todos los barcos"),
        ("¿Cuántos barcos hay?", "¿Qué barcos hay?"),
        ("¿Cuánto cuesta?", None),
        ("列出所有的船", "列出所有的船"),
        ("文中提到了多少艘船?", "文中提到了有哪些船?"),
        ("谁是船长?", None),
        ("すべての鳥を挙げてください", "すべての鳥を挙げてください"),
        ("何人の船長がいますか?", "どの船長がいますか?"),
        ("誰ですか?", None),
    ],
)
def test_a_question_for_a_list_or_a_count_is_recognised(question: str, asked: str | None) -> None:
    assert list_question(question) == asked
