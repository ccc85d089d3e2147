"""The page in other languages: every text is there, used, and put together in the right way."""

import ast
import asyncio
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse
from starlette.testclient import TestClient

import app
from app.asking.named_pages import pages_in_words
from app.formatting import byte_size, percent, plural
from app.home import ASSETS
from app.jobs.worker import Worker
from app.language import LANGUAGES, figure, language_of, pattern_of, place_words, speaking, t, told, told_parts, words
from app.machine.good_for import good_for
from app.service import Service
from app.web.page import build_page
from app.web.page_language import PageLanguage
from app.web.static_texts import parts_of, static_texts, translate
from app.web.theme import SAID
from ingest import FORMATS
from ingest.document import Document, Page, PageQuality, page_label
from ingest.unsupported import ARCHIVES, OLE_STREAMS, OPEN_XML, OTHER_OLE, SIGNATURES, refusal
from tests.app.web.spoken import spoken, warned

ROOT = Path(app.__file__).parent.parent
PARTS = ("page", "sentences", "places")
FOR_EXPERTS = ("method", "budget", "preset-", "set-", "max-tokens")
"""Beginnings of the ids of fields whose texts stay English."""


def _placeholders(text: str) -> list[str]:
    return sorted(re.findall(r"\{\w+\}|%[a-zA-Z]", text))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_text_with_the_same_placeholders(language: str) -> None:
    for part in PARTS:
        here, german = words(language, part), words("de", part)
        assert list(here) == list(german)
        for text, said in here.items():
            dates = text.startswith("%d")
            assert dates or set(_placeholders(said)) == set(_placeholders(text)), text
            assert said.strip(), text
            assert not set('<>"') & set(said), text  # it goes into HTML and its attributes


@cache
def _templates() -> list[str]:
    """Return all texts of the program, with {} for the values, and those of the page's script."""
    found = SAID.findall((ASSETS / "page.js").read_text(encoding="utf-8"))
    for folder in ("app", "engine", "ingest", "sessions"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    found.append(
                        "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values)
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return [re.sub(r"\{+\w*\}+", "{}", text).casefold() for text in dict.fromkeys(found)]


@cache
def _patterns() -> list[tuple[int, re.Pattern[str]]]:
    """Return the texts that are filled in as patterns, each with its number of letters."""
    return [
        (len(re.sub(r"\W", "", each)), re.compile(re.escape(each).replace(r"\{\}", ".*"), re.DOTALL))
        for each in _templates()
        if "{}" in each
    ]


def _is_used(text: str) -> bool:
    wanted = re.sub(r"\{\w+\}", "{}", text).casefold()
    noun = re.fullmatch(r"(?:1|\{\}) (.+?)s?", wanted)
    if any(wanted in each for each in _templates()) or (noun and noun[1] in _templates()):
        return True
    least = 0.35 * len(re.sub(r"\W", "", wanted))  # else it would match nearly anything
    if any(own >= least and pattern.fullmatch(wanted) for own, pattern in _patterns()):
        return True
    return wanted.startswith("good for ") and wanted.removeprefix("good for ").removesuffix(".") in _templates()


def _coverages() -> Iterator[str]:
    """Yield lines that say which pages of a document have text."""
    text, ocr, blank = PageQuality(3, "text"), PageQuality(3, "ocr"), PageQuality(0, "none", pictured=False)
    lost, why = PageQuality(0, "none"), PageQuality(0, "none", ("could not be read: ink",))
    doubtful = PageQuality(3, "text", ("odd",))
    for format in ("pdf", "txt", "pptx"):
        for some in ([text], [text, text], [text, ocr], [text, ocr, blank, blank], [text, blank, doubtful]):
            for more in ([], [lost], [why], [lost, lost], [why, why]):
                made = enumerate([*some, *more], 1)
                pages = (
                    Page(number, f"page {number}", "" if each.characters == 0 else "abc", each) for number, each in made
                )
                yield Document("Kim", format, "0" * 64, tuple(pages)).coverage()


def test_no_text_is_left_that_nothing_shows() -> None:
    joined = {  # sentences that the code puts together, or in words for one thing and for several
        "a.docx has no text in it: if it holds scanned pictures, save it as PDF and use OCR.",
        "1 attached file was not read: a.png.",
        "a.xml is damaged at line 3 (no end) and at 7 more places: text may be missing there. Fetch it again.",
    }
    sentences = {*spoken(), *warned(), *_coverages(), *joined}
    unused = [text for part in PARTS[:2] for text in words("de", part) if not _is_used(text)]
    unheard = [text for text in unused if not any(pattern_of(text).search(each) for each in sentences)]
    assert unheard == []


def _shown() -> Iterator[str]:
    """Yield every text that the page's code puts into another language."""
    yield from SAID.findall((ASSETS / "page.js").read_text(encoding="utf-8"))
    for path in (ROOT / "app").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "t":
                given = node.args[0]
                for each in [given.body, given.orelse] if isinstance(given, ast.IfExp) else [given]:
                    if isinstance(each, ast.Constant):
                        yield str(each.value)


def test_everything_that_is_shown_has_its_translation() -> None:
    assert [text for text in _shown() if text not in words("de")] == []
    titles = {each.title for each in FORMATS.values()} - {"EPUB", "FictionBook", "HTML", "Markdown", "MOBI", "PDF"}
    assert titles <= set(words("de"))


def test_every_refusal_that_comes_to_the_page_has_its_translation() -> None:
    """One language stands for all, because all have the same texts."""
    with speaking("de"):
        left = {said for sentence in spoken() for said, known in told_parts(sentence) if not known or said in sentence}
        kinds = [kind for _, kind in [*SIGNATURES, *ARCHIVES, *OLE_STREAMS, *OPEN_XML.items()]] + [OTHER_OLE]
        for kind in kinds:
            assert all(known for _, known in told_parts(str(refusal(Path("x.bin"), kind)))), kind
    assert [each for each in left if re.search("[A-Za-z]{3}", each)] == []


def test_every_warning_that_comes_to_the_page_has_its_translation() -> None:
    """Japanese shows best whether English words are left within a translation."""
    left = {}
    with speaking("ja"):
        for sentence in warned():
            said = re.sub("`[^`]+`", "", told(sentence))
            english = set(re.findall(r"(?<![\w./])[a-z]{3,}", said)) & set(re.findall("[a-z]+", sentence))
            if english or not all(known for _, known in told_parts(sentence)):
                left[sentence] = said
    assert left == {}
    assert {"The text is damaged: words are missing in 7 places. Compare it with the original."} < set(warned())


def test_only_what_is_not_english_counts_as_a_title() -> None:
    with speaking("de"):
        assert told_parts("The page is odd: nobody has translated this.") == (
            ("The page is odd:", False),
            ("nobody has translated this.", False),
        )
        assert told_parts("Kim: Attached and not read: a.pdf, b.pdf and 7 more. Fetch it again.") == (
            ("Kim:", True),
            ("Angehängt und nicht gelesen: a.pdf, b.pdf und 7 weitere.", True),
            ("Laden Sie die Datei neu.", True),
        )
        reason = "7 of 9 characters are private to a font and have no known meaning"
        assert "Schrift eigen" in told(f"No text on page 2 ({reason}): the model will not know what is on it.")


def test_gradio_shows_the_components_in_the_language_of_the_browser(service: Service) -> None:
    async def build() -> gr.Blocks:  # inside a loop, because Gradio would open one of its own
        return build_page(service, Worker(service))

    page = asyncio.run(build())
    named = {text: block for block in page.blocks.values() for text in _texts_of(block)}
    with speaking("de"):
        left = [
            part
            for text in static_texts(page)
            for part in parts_of(text)
            if told(part) == part and not str(named[text].elem_id).startswith(FOR_EXPERTS)
        ]
    alike = {"Stockpot", "Chats", "Top-p", "Tokens."}
    assert [each for each in left if each not in alike and ":nf4" not in each] == []
    translations = translate(page).translations
    assert translations["de"]["Ask"] == "Fragen"
    assert "télécharger" not in translations["fr"]["upload_text.click_to_upload"], "that is to fetch something"
    assert "Zurück zum Dokument" in next(text for text in translations["de"].values() if "page-back" in text)
    assert {type(block.value).__name__ for block in page.blocks.values() if block.elem_id == "ask"} == {"I18nData"}


def _texts_of(block: Any) -> Iterator[str]:
    for name in ("label", "placeholder", "info", "value"):
        if isinstance(value := getattr(block, name, None), str):
            yield value
    if isinstance(block, gr.Radio):
        yield from (str(shown) for shown, _ in block.choices)


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("de-AT,de;q=0.9,en;q=0.8", "de"),
        ("fr", "fr"),
        ("zh-CN,zh;q=0.9", "zh-CN"),
        ("en-US,de;q=0.9", "en"),
        ("nl,de;q=0.9", "en"),  # Gradio's own words are Dutch then
        ("", "en"),
    ],
)
def test_the_first_language_of_the_browser_decides(accepted: str, language: str) -> None:
    assert language_of(accepted) == language


@pytest.mark.parametrize(("accepted", "language"), [("nl,de;q=0.9", "en"), ("zh-CN", "zh-CN")])
def test_gradio_speaks_the_language_of_the_page(accepted: str, language: str) -> None:
    """A Dutch browser had an upload box in Dutch on a page in English."""

    async def page(scope: Any, receive: Any, send: Any) -> None:
        coding = Headers(scope=scope).get("accept-encoding", "")
        await HTMLResponse(f"<head><title>Ä{coding}</title></head>")(scope, receive, send)

    shown = TestClient(PageLanguage(page)).get("/?new=1", headers={"Accept-Language": accepted}).text
    assert shown.startswith("<head><script>")
    assert shown.endswith("</script><title>Ä</title></head>")
    assert f"['language', '{language}']" in shown


def test_numbers_places_and_sentences_are_put_into_the_language() -> None:
    heading = "Contents, and page 3 of them"
    english = [
        plural(1200, "page"),
        byte_size(1.5e9),
        percent(0.081),
        place_words("page 3, paragraph 14"),
        told("Stopped."),
    ]
    assert english == ["1,200 pages", "1.5 GB", "8.1%", "page 3, paragraph 14", "Stopped."]
    with speaking("de"):
        assert plural(1200, "page") == "1.200 Seiten"
        assert plural(1, "page") == "1 Seite"
        assert byte_size(1.5e9) == "1,5 GB"
        assert percent(0.081) == "8,1 %"
        assert place_words(page_label(14, "xii")) == "Seite xii (Seite 14 der Datei)"
        assert place_words("page 3, paragraph 14") == "Seite 3, Absatz 14"
        assert place_words(pages_in_words("9, 12")) == "Seiten 9, 12"
        assert place_words(pages_in_words("+ 9")) == "+ Seite 9"
        assert place_words(pages_in_words("1-3 + 9")) == "Seiten 1-3 + Seite 9"
        assert [place_words(heading), place_words("Contents")] == [heading, "Contents"]  # a document's own words
        assert told("kim.pdf is encrypted: give its password and try again.").startswith("kim.pdf ist verschlüsselt")
        assert told("Stopped. Nobody has translated this.") == "Angehalten. Nobody has translated this."
        assert "demo" not in told(good_for("pocket").partition(" SmolLM2 is not installed")[0])
        assert t("{n} tokens", n=41_573) == "41.573 Tokens"
    with speaking("fr"):
        assert figure("1,234.5") == "1\u202f234,5"
        assert byte_size(1.5e9) == "1,5\u00a0Go"
