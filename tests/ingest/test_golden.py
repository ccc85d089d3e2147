"""Real files, each with text that must and must not be in them."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ingest import IngestError, ingest
from tests.ingest.conftest import DATA
from tests.ingest.makers import check_invariants


@dataclass(frozen=True)
class Vector:
    file: str
    title: str
    pages: int
    must_include: tuple[str, ...]
    must_not_include: tuple[str, ...] = ()
    labels: dict[int, str] = field(default_factory=dict)
    toc: tuple[tuple[int, str, int], ...] = ()
    password: str | None = None


VECTORS = [
    Vector(
        "pdf/unstructured__multi-column-2p.pdf",
        "Dense Passage Retrieval for Open-Domain Question Answering",
        2,
        (
            "relies on efficient passage retrieval to select candidate contexts, where",  # de-hyphenated, lines joined
            "in high-dimensional, sparse vectors",  # a compound keeps its hyphen at a line's end
            "maps any text passage to a d-dimensional real-valued",
            "Barlas Oğuz",  # a breve that TeX set before its letter
            "for open-domain QA before ORQA",
            "advances of reading comprehension models",
        ),
        ("ef- ficient", "effi-", "highdimensional", "ddimensional"),
        {1: "page 1"},
    ),
    Vector(
        "pdf/sample-files__multicolumn.pdf",
        "Two-Column Document with Lorem Ipsum",
        3,
        (
            "Donec nonummy pellentesque ante. Phasellus",  # from the foot of one column to the head of the next
            "consectetuer adipiscing elit. Ut purus elit",
            "Two-Column Document with Lorem Ipsum\n\nYour Name\n\nJanuary 3, 2024\n\nAbstract",
        ),
        ("adip-", "\n\n1\n\n", "\n\n2\n\n"),
    ),
    Vector(
        "pdf/sample-files__GeoTopo-komprimiert.pdf",
        "Geometrie und Topologie",
        117,
        (
            "ist K nach Bemerkung 21 abgeschlossen. Nach Voraussetzung kann K mit endlich vielen offenen Kugeln",
            "Die Kugeloberfläche S^2 lässt sich durch strecken",
            "X = R^(n+1)",
            "f^−1(U)",
            "Topologische Grundbegriffe",
        ),
        ("Vorausset-", "TOPOLOGISCHE RÄUME", "WEGE UND KNOTEN", ". . . . ."),  # the last but one: running heads
        {2: "page ii (page 2 of the file)", 117: "page 114 (page 117 of the file)"},
    ),
    Vector(
        "pdf/docling__normal_4pages.pdf",
        "코로나-19 관련 보험약관상 재해보험금 지급문제 및 개선과제",
        4,
        ("국내 확진자는 9,661명", "(Pandemic) 단계에 돌입하였음을", "제1급감염병이란 생물테러감염병 또는 치명률이"),
        ("확 진자", "단계 에"),
    ),
    Vector(
        "pdf/sample-files__crazyones-pdfa.pdf",
        "The Crazy Ones",
        1,
        ("The misfits. The rebels.", "The ones who see things differently."),
        ("ﬁ",),  # its ligature
    ),
    Vector("pdf/pdfjs__vertical.pdf", "pdfjs vertical", 3, ("あいうえお", "日本語"), ("あ い",)),
    Vector(
        "pdf/pdfbox__BidiSample.pdf",
        "pdfbox BidiSample",  # its metadata name a file
        1,
        ("A line with an Arabic العربية word embedded.", "«self test»"),
    ),
    Vector("pdf/docling__right_to_left_02.pdf", "docling right to left 02", 1, ("الحكومة المصرية",), ("ـ",)),
    Vector("pdf/sample-files__habibi-rotated.pdf", "sample-files habibi-rotated", 4, ("حَبيبي habibi",)),
    Vector(
        "pdf/sample-files__mistitled_outlines_example.pdf",
        "sample-files mistitled outlines example",
        4,
        ("1 Foo | 2\n", "If you read this text, you will get no information. Really?"),
        ("Contents\n\n1\n",),
        toc=((1, "First", 2), (3, "Fifth", 3)),
    ),
    Vector("pdf/sample-files__libreoffice-form.pdf", "Example for a Form", 1, ("Alice", "Agree to privacy policy")),
    Vector(
        "pdf/sample-files__libreoffice-writer-password.pdf",
        "sample-files libreoffice-writer-password",
        1,
        ("Lorem ipsum",),
        password="openpassword",
    ),
    Vector("pdf/pypdf__r6-user-password.pdf", "pypdf r6-user-password", 1, (), password="asdfzxcv"),
    Vector(
        "epub/standardebooks__f-scott-fitzgerald_the-great-gatsby.epub",
        "The Great Gatsby",
        15,
        (
            "In my younger and more vulnerable years my father gave me some advice",
            "So we beat on, boats against the current, borne back ceaselessly into the past.",
            "Then wear the gold hat, if that will move her;\nIf you can bounce high",  # verse keeps its lines
        ),
        ("<p", "&mdash;", "\u2060", "\u00ad"),
        {3: "Dedication", 6: "Chapter II", 13: "Chapter IX"},
        toc=((1, "Dedication", 3),),
    ),
    Vector(
        "epub/epub3-samples__childrens-literature.epub",
        "Children's Literature",
        21,
        ("The following is one of Andersen's early stories",),
        ("\n\n174\n\n", "\n\n171\n\n"),  # numbers of printed pages
        {11: "194 THE NIGHTINGALE"},
        toc=((3, "194 THE NIGHTINGALE", 11),),
    ),
    Vector(
        "epub/unstructured__winter-sports.epub",
        "Winter Sports in Switzerland",
        30,
        ("There is an amazingly silly proverb which q",),
        (),
        {6: "CHAPTER I THE SUN-SEEKER"},
    ),
    Vector(
        "epub/epub3-samples__georgia-cfi.epub",
        "Georgia",
        10,
        ("GEORGIA, a southern state of the United States of America", "upper Savannah[1]"),
        (),
        {2: "Climate and Soils"},
    ),
    Vector("epub/epubcheck__ocf-minimal-valid.epub", "Minimal EPUB 2.0", 1, ("Call me Ishmael.",), (), {1: "Loomings"}),
    Vector("epub/docling__epub_purvis_poetry.epub", "Poetry", 19, ("The friends we’ve loved, the home we’ve left,\n",)),
    Vector(
        "docs/docling__word_sample.docx",
        "Swimming in the lake",
        4,
        (
            "- You can relax and look around\n- Paddle about",
            "Food | Calories per portion\nLeaves | Ash, Elm, Maple | 50",
            "Figure 1: This is a cute duckling",
        ),
        (),
        {3: "Let’s swim!"},
    ),
    Vector(
        "docs/docling__docx_lists.docx", "Test Document", 10, ("- List item 2\n-- List item 1.1\n-- List item 1.2",)
    ),
    Vector("docs/docling__word_tables.docx", "Test with tables", 1, ("Header 0.0 | Header 0.1 | Header 0.2",)),
    Vector("docs/unstructured__handbook-1p.docx", "unstructured handbook-1p", 1, ("28 U.S.C. § 586(b)",)),
    Vector(
        "docs/unstructured__ideas-page.html",
        "How to Get New Ideas",
        1,
        (
            "The way to get new ideas is to notice anomalies: what seems strange, or missing, or broken?",
            "Knowledge grows fractally.",
        ),
        ("function", "<", "csell"),
    ),
    Vector(
        "docs/unstructured__example-10k-1p.html",
        "unstructured example-10k-1p",
        1,
        ("Galaxy Gaming, Inc.", "Common stock | GLXZ | OTCQB marketplace"),
        ("style=", "0001438644"),
    ),
    Vector("docs/docling__formatting.html", "HTML Formatting Tags Demo", 1, ("written as H2O", "x^2 + y^3")),
    Vector(
        "docs/docling__wiki.md",
        "IBM",
        3,
        ("IBM was founded in 1911 as the Computing-Tabulating-Recording Company (CTR)",),
        ("# IBM", "**", "]("),
        {2: "1910s–1950s"},
    ),
    Vector("docs/docling__nested.md", "Nesting", 1, ("- abc\n-- abc123\n--- abc1234",), ("<ul>", "<li>")),
    Vector(
        "docs/pandoc__writer.fb2",
        "Pandoc Test Suite",
        24,
        ("“Hello,” said the spider. “‘Shelob’ is my name.”", "Here is the footnote."),
        ("<emphasis", "binary"),
        {4: "Paragraphs", 24: "Notes"},
    ),
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: Path(vector.file).name)
def test_real_file(vector: Vector, data: Path) -> None:
    document = ingest(data / vector.file, password=vector.password, ocr=False)
    assert (document.title, len(document.pages)) == (vector.title, vector.pages)
    for words in vector.must_include:
        assert words in document.text
    for words in vector.must_not_include:
        assert words not in document.text
    for number, label in vector.labels.items():
        assert document.pages[number - 1].label == label
    entries = [(entry.level, entry.title, entry.page) for entry in document.toc]
    for entry in vector.toc:
        assert entry in entries


FILES = sorted(file for folder in ("pdf", "epub", "docs") for file in DATA.glob(f"{folder}/*")) if DATA.is_dir() else []


@pytest.mark.skipif(not FILES, reason=f"no sample files at {DATA}")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_file_gives_a_document_or_an_ingest_error(file: Path) -> None:
    try:
        document = ingest(file, ocr=False)
    except IngestError as error:
        message = str(error)
    else:
        check_invariants(document)
        return
    assert file.name in message
    assert str(file.parent) not in message
