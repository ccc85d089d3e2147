"""Notes of a chat: kept answers and passages, listed, exported, and highlighted in copies of PDFs."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import docx
import pymupdf
import pytest

from app.notes import highlighted_pdf, notes_of, quoted_pdfs
from app.service import Service
from app.word import as_docx
from ingest import PasswordNeeded
from sessions import NotFound, StoreError
from tests.app.helpers import add, add_context, in_process
from tests.ingest import makers

LINES = ("The keeper of the lamp was Maren Hollis.", "On Monday it rained all day.", "The vault opens with 48213.")
ANSWER = "**Maren** kept it. 1872\x0c\n\n- by *night*\n\n3. and by day\n\n```\nlamp < 2\n```"


def source(document: str, words: str, text: str) -> dict[str, Any]:
    """Return a source of an answer: words on the first page of a document."""
    start = text.index(words)
    place = {"document": document, "page": 1, "place": "page 1", "start": start, "end": start + len(words)}
    return {**place, "quote": words, "weight": 0.4}


@pytest.fixture
def chat(service: Service, tmp_path: Path) -> tuple[str, str]:
    """Return a chat of two questions over a PDF, with two and one sources, and the id of the PDF."""
    lines = [[(50.0, 100.0 + 60 * at, line) for at, line in enumerate(LINES)]]
    [document] = add(service, makers.pdf(tmp_path / "lamp.pdf", lines))
    text = service.document_cache.document(document).text
    store = service.store
    session = store.sessions.add(add_context(service, store.documents.get(document)).id, "About the lamp").id
    first, second = ([source(document, line, text) for line in each] for each in (LINES[:2], LINES[2:]))
    for question, answer, sources in (("Who kept it?", ANSWER, first), ("Which key?", "48213", second)):
        turn = store.turns.add(session, question)
        store.turns.finish(turn.id, answer=answer, sources=sources)
    return session, document


def annotations(pdf: bytes, password: str = "") -> list[tuple[str, str, str]]:
    """Return the kind, the words below and the comment of each annotation of the first page."""
    with pymupdf.open(stream=pdf) as document:
        assert not password or document.authenticate(password)
        page = document[0]
        return [
            (each.type[1], " ".join(page.get_textbox(each.rect).split()), each.info["content"])
            for each in page.annots()
        ]


def test_notes_are_what_was_kept_and_nothing_else(service: Service, chat: tuple[str, str]) -> None:
    session, _ = chat
    first, second = service.store.turns.all(session)
    service.store.turns.keep(first.id, [2])
    service.store.turns.keep(second.id, [0])
    notes = notes_of(service, session)
    assert [(each.name, each.answer, [one["quote"] for one in each.sources]) for each in notes] == [
        ("1.2", "", [LINES[1]]),
        ("2", "48213", [LINES[2]]),
    ]
    assert {(one["title"], one["page"]) for each in notes for one in each.sources} == {("lamp", 1)}
    said = service.store.export_session(session, notes=True)
    assert "Maren" not in said
    assert f"- lamp, page 1 (40%): “{LINES[1]}”" in said
    assert "48213\n\n1. lamp, page 1" in said
    with pytest.raises(StoreError, match="2 sources"):
        service.store.turns.keep(first.id, [1, 3])
    service.store.turns.keep(second.id, [], drop=[0, 1])
    assert [each.name for each in notes_of(service, session)] == ["1.2"]
    branch = service.store.sessions.branch(session, 2)
    assert [each.name for each in notes_of(service, branch.id)] == ["1.2"]


def test_a_copy_of_the_pdf_has_the_passages_highlighted_and_the_file_stays(
    service: Service, chat: tuple[str, str]
) -> None:
    session, document = chat
    turn = service.store.turns.all(session)[0]
    with pytest.raises(NotFound, match="d-222222"):
        highlighted_pdf(service, session, "d-222222")
    service.store.turns.keep(turn.id, [1])
    kept = service.store.documents.file(document)
    assert kept is not None
    before = hashlib.sha256(kept.read_bytes()).hexdigest()
    [(kind, words, comment)] = annotations(highlighted_pdf(service, session, document))
    assert (kind, words) == ("Highlight", LINES[0])
    assert "Who kept it?" in comment
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == before
    assert annotations(kept.read_bytes()) == []
    assert quoted_pdfs(service, session) == {document: "lamp"}


def test_a_passage_that_is_not_in_print_becomes_a_comment(service: Service, chat: tuple[str, str]) -> None:
    """As on a scan, whose text lies nowhere on the page."""
    session, document = chat
    turn = service.store.turns.all(session)[0]
    service.store.turns.keep(turn.id, [2])
    kept = service.store.documents.file(document)
    assert kept is not None
    with pymupdf.open() as blank:
        blank.new_page()
        kept.write_bytes(blank.tobytes())
    [(kind, _, comment)] = annotations(highlighted_pdf(service, session, document))
    assert kind == "Text"
    assert LINES[1] in comment


def test_the_copy_of_an_encrypted_pdf_has_its_password(service: Service, chat: tuple[str, str]) -> None:
    session, document = chat
    service.store.turns.keep(service.store.turns.all(session)[0].id, [1])
    kept = service.store.documents.file(document)
    assert kept is not None
    with pymupdf.open(kept) as plain:
        locked = plain.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="swordfish")
    kept.write_bytes(locked)
    with pytest.raises(PasswordNeeded, match=f"lamp is encrypted.*stockpot notes {session} --highlight"):
        highlighted_pdf(service, session, document)
    copy = highlighted_pdf(service, session, document, "swordfish")
    with pymupdf.open(stream=copy) as opened:
        assert opened.needs_pass
    assert len(annotations(copy, "swordfish")) == 1


def test_notes_are_kept_listed_and_written_by_commands(
    service: Service, chat: tuple[str, str], tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    session, document = chat

    def run(*arguments: str) -> tuple[int, bytes, str]:
        status, out, err = in_process(service.home, capsysbinary, *arguments)  # type: ignore[arg-type]
        return status, out, err.decode()  # type: ignore[attr-defined, return-value]

    status, out, _ = run("notes", session, "--keep", "1", "--keep", "2.1", "--json")
    found = json.loads(out)
    assert [(each["name"], each["question"]) for each in found] == [("1", "Who kept it?"), ("2.1", "Which key?")]
    status, out, err = run("notes", session, "--keep", "2", "--keep", "3")
    assert (status, out) == (2, b"")
    assert "no question 3" in err
    assert run("notes", session, "--keep", "1.0")[0] == 2
    listed = run("notes", session, "--highlight", str(tmp_path / "marked"))[1].decode().splitlines()
    assert listed[0].startswith("1     **Maren** kept it.")
    assert listed[-1] == f"2.1   lamp, page 1: {LINES[2]}"
    [copy] = (tmp_path / "marked").iterdir()
    assert copy.name == f"lamp ({document}).pdf"
    assert len(annotations(copy.read_bytes())) == 3
    word = docx.Document(io.BytesIO(run("export", session, "--notes", "--format", "docx")[1]))
    texts = [each.text for each in word.paragraphs]
    assert texts[0] == "About the lamp"
    assert [texts.count(each) for each in ("1. Who kept it?", "2. Which key?", "48213")] == [1, 1, 0]
    assert run("notes", session, "--drop", "1", "--drop", "2.1")[1] == b""


def test_markdown_keeps_its_form_in_word() -> None:
    word = docx.Document(io.BytesIO(as_docx(f"# Lamps\n\n{ANSWER}\n\n> so <b>it</b> was")))
    assert [(each.style.name, each.text) for each in word.paragraphs] == [
        ("Heading 1", "Lamps"),
        ("Normal", "Maren kept it. 1872\ufffd"),
        ("Normal", "• by night"),
        ("Normal", "3. and by day"),
        ("Normal", "lamp < 2"),
        ("Quote", "so <b>it</b> was"),
    ]
    bold, plain = word.paragraphs[1].runs
    assert (bold.text, bold.bold, plain.bold) == ("Maren", True, None)
    assert [run.text for run in word.paragraphs[2].runs if run.italic] == ["night"]
