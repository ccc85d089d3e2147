"""The form of documents: chapters are told from other lines, and only questions about the form are answered from it."""

from dataclasses import replace
from pathlib import Path

import pytest

import ingest
from app.asking.document_map import Chapter, chapters, form_answer, number_of
from app.asking.measurements import COUNTED
from app.asking.turns import answer, keep_question
from app.reading.readings import read
from app.service import Service
from app.web.chat_props import ChatProps
from app.web.views.turn import NOWHERE, turn_article
from ingest.document import page_label
from tests.app.helpers import SHORT, add, begin

ROMAN = ["Dedication", "A Book", ">I", ">II", ">III", "Colophon"]
PARTS = ["Part I", ">Chapter One: The Dog", ">Chapter Two", "Part II", ">Chapter One", ">Chapter Two: The Cat"]
PLAIN = ["The Redheaded League", "The Blue Carbuncle", "The Speckled Band"]
NUMBERED = ["Preface", "1 Spaces", ">1.1 Open", ">1.2 Closed", "2 Curves", "Index"]


def document(titles: list[str], format: str = "pdf", first: int = -1) -> ingest.Document:
    """Return a document with a page for each line of its contents; the page numbers that are printed begin later."""
    quality = ingest.PageQuality(4, "text")
    texts = [f"Words of page {number}." for number in range(1, len(titles) + 1)]
    labels = [page_label(number, str(number + first)) for number in range(1, len(titles) + 1)]
    pages = (
        ingest.Page(at, label, text, quality) for at, (label, text) in enumerate(zip(labels, texts, strict=True), 1)
    )
    toc = (ingest.TocEntry(1 + title.count(">"), title.strip(">"), at) for at, title in enumerate(titles, 1))
    return ingest.Document("T", format, "0", tuple(pages), tuple(toc))


@pytest.mark.parametrize(
    ("titles", "found"),
    [
        (ROMAN, [("I", 1, 3, 3), ("II", 2, 4, 4), ("III", 3, 5, 5)]),
        (
            PARTS,
            [
                ("Chapter One: The Dog", 1, 2, 2),
                ("Chapter Two", 2, 3, 3),
                ("Chapter One", 1, 5, 5),
                ("Chapter Two: The Cat", 2, 6, 6),
            ],
        ),
        (PLAIN, [(title, None, at, at) for at, title in enumerate(PLAIN, 1)]),
        (NUMBERED, [("1 Spaces", 1, 2, 4), ("2 Curves", 2, 5, 5)]),
        (["A Book", ">Morning", ">Evening"], [("Morning", None, 2, 2), ("Evening", None, 3, 3)]),
        ([], []),
    ],
)
def test_numbered_lines_are_the_chapters_and_else_those_of_one_level(
    titles: list[str], found: list[tuple[str, int | None, int, int]]
) -> None:
    assert chapters(document(titles)) == [Chapter(*each) for each in found]


@pytest.mark.parametrize(
    ("word", "value"), [("12", 12), ("XIV", 14), ("ix", 9), ("七", 7), ("十", 10), ("二十三", 23), ("dritte", None)]
)
def test_numbers_of_chapters_are_read(word: str, value: int | None) -> None:
    assert number_of(word) == value
    assert [number_of(each) for each in ("three", "seventh", "zwölf", "quince", "")] == [3, 7, 12, 15, None]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("How many pages has it?", "6 pages."),
        ("What is the number of pages in this document?", "6 pages."),
        ("How many words does the text contain?", "24 words."),
        (
            "How many chapters are there?",
            "3 chapters: I, page 2 (page 3 of the file); II, page 3",
        ),
        ("On which page does chapter 3 begin?", "III, page 4 (page 5 of the file)."),
        ("Where does the third chapter start?", "III, page 4 (page 5 of the file)."),
        ("What is chapter two called?", "II, page 3 (page 4 of the file)."),
        ("Where does chapter 7 begin?", "3 chapters: I,"),
        ("Wie viele Seiten hat das Dokument?", "6 Seiten."),
        ("Auf welcher Seite beginnt Kapitel 3?", "III, Seite 4 (Seite 5 der Datei)."),
        ("Wie viele Kapitel gibt es?", "3 Kapitel: I,"),
        ("¿Cuántos capítulos tiene el libro?", "3 capítulos: I,"),
        ("¿En qué página empieza el capítulo 2?", "II, página 3 (página 4 del archivo)."),
        ("Combien de pages compte ce document ?", "6 pages."),
        ("À quelle page commence le chapitre III ?", "III, page 4 (page 5 du fichier)."),
        ("この本は何章ありますか？", "3 章: I,"),
        ("第3章は何ページから始まりますか？", "III, 4 ページ"),
        ("这本书有多少章？", "3 章: I,"),
        ("第三章从第几页开始？", "III, 第 4 页"),
        ("这份文档一共有几页？", "6 页."),
    ],
)
def test_a_question_about_the_form_is_answered_in_its_language(question: str, said: str) -> None:
    told = form_answer(question, [("T", document(ROMAN))])
    assert told is not None
    assert told.text.startswith(said)
    if "III, " in said:
        assert told.pages == ((0, 5),)


@pytest.mark.parametrize(
    "question",
    [
        "How many pages did he tear out of the diary?",
        "How many words did she say to the keeper?",
        "What happens in chapter 3?",
        "What is chapter 3 about?",
        "Where is the hotel in chapter 3?",
        "Summarise chapter 2.",
        "Where does he begin?",
        "What is she called?",
        "Where am I?",
        "How many chapters are there, and who wrote them?",
        "Wie viele Seiten riss er heraus?",
        "Combien de mots a-t-elle écrits ?",
        "¿Cuántas páginas leyó Pedro?",
    ],
)
def test_any_other_question_is_left_to_the_model(question: str) -> None:
    assert form_answer(question, [("T", document(ROMAN))]) is None
    assert form_answer("How many chapters has it?", [("T", document([]))]) is None, "it has no contents"


def test_titles_and_several_documents_are_told_apart() -> None:
    book, paper = document(PLAIN, first=0), document(PARTS, "pptx")
    several = [("One", book), ("Two", paper)]
    told = form_answer("On what page does The Speckled Band start?", several)
    assert told is not None
    assert (told.text, told.pages) == ("One: The Speckled Band, page 3.", ((0, 3),))
    told = form_answer("How many pages do they have?", several)
    assert told is not None
    assert told.text == "One: 3 pages.\nTwo: 6 slides."
    told = form_answer("Where does chapter 1 begin?", several)
    assert told is not None
    assert told.pages == ((0, 1), (1, 2), (1, 5))


@pytest.mark.parametrize(("method", "budget"), [("exact", "320"), ("infinipot", "1200"), ("streaming", "320")])
def test_every_method_answers_it_alike(service: Service, tmp_path: Path, method: str, budget: str) -> None:
    path = tmp_path / "Book.md"
    path.write_text("\n\n".join(f"# Chapter {n}\n\nOn day {n} the sea was calm." for n in range(1, 5)))
    context = read(service, begin(service, add(service, path), method, {"budget": budget}).id, lambda _: None)
    session, pieces = service.store.sessions.add(context.id).id, list[str]()
    turn = answer(service, keep_question(service, session, "Where does chapter 3 begin?").id, SHORT, pieces.append)
    assert turn.answer == "".join(pieces) == "Chapter 3, section 3."
    assert turn.measurements["warnings"] == [COUNTED]
    assert [(each["page"], each["quote"]) for each in turn.sources] == [(3, "Chapter 3")]
    counted = answer(service, keep_question(service, session, "How many chapters has it?").id, SHORT)
    assert counted.answer.startswith("4 chapters: Chapter 1, section 1;")
    assert NOWHERE not in turn_article(counted, {})
    other = answer(service, keep_question(service, session, "Was the sea calm?").id, SHORT)
    assert other.measurements["answer_tokens"] > 0, "the model goes on behind it"
    turns, long = [counted, replace(counted, id="t-2", measurements={})], replace(context, tokens=10**5)
    assert [*ChatProps(service)._lists(long, turns)] == ["t-2"], "a whole text is not searched for its chapters"
