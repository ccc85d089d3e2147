"""Office files made by hand, and the namespaces and content types in their markup."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
import pymupdf
from docx.oxml import parse_xml as parse_docx_xml
from pptx.oxml import parse_xml as parse_pptx_xml
from pptx.util import Inches

from tests.ingest.makers import archive

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
M = "http://schemas.openxmlformats.org/officeDocument/2006/math"
RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
SHEET_NAMES = f'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="{RELATED}"'
SHEET_PART = "xl/worksheets/sheet1.xml"
SHEET_TYPES = "application/vnd.openxmlformats-officedocument.spreadsheetml"
TITLE, CONTENT, COMPARISON, ONLY_TITLE, BLANK = 0, 1, 4, 5, 6  # layouts
SLIDE_PART = "ppt/slides/slide1.xml"
SLIDE_NAMES = " ".join(
    (
        'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"',
        'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"',
        'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"',
        'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"',
        'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"',
        'xmlns:a14="http://schemas.microsoft.com/office/drawing/2010/main"',
        'xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram"',
        'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart"',
        'xmlns:cx="http://schemas.microsoft.com/office/drawing/2014/chartex"',
        'xmlns:p188="http://schemas.microsoft.com/office/powerpoint/2018/8/main"',
    )
)
ODF = "urn:oasis:names:tc:opendocument:xmlns:"
ODF_NAMES = " ".join(
    (
        *(f'xmlns:{name}="{ODF}{name}:1.0"' for name in ("office", "style", "text", "table")),
        f'xmlns:draw="{ODF}drawing:1.0" xmlns:svg="{ODF}svg-compatible:1.0"',
        'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xlink="http://www.w3.org/1999/xlink"',
    )
)
PNG = pymupdf.Pixmap(pymupdf.csGRAY, (0, 0, 4, 4)).tobytes("png")
SLIDE_TYPES = "application/vnd.openxmlformats-officedocument.presentationml"


def odf_paragraph(text: str, style: str = "") -> str:
    """Return a paragraph of an OpenDocument file."""
    return f'<text:p text:style-name="{style}">{text}</text:p>'


def word(path: Path, body: str) -> Path:
    """Write a Word document with a body of markup."""
    document = docx.Document()
    for element in parse_docx_xml(f'<w:body xmlns:w="{W}" xmlns:m="{M}">{body}</w:body>'):
        document.element.body.insert(len(document.element.body) - 1, element)
    document.save(str(path))
    return path


def listed(text: str, number: int | None = None, level: int | None = None, style: str = "") -> str:
    """Return the markup of a paragraph that is in a list by itself or by its style."""
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    depth = "" if level is None else f'<w:ilvl w:val="{level}"/>'
    own = "" if number is None else f'<w:numPr>{depth}<w:numId w:val="{number}"/></w:numPr>'
    return f"<w:p><w:pPr>{named}{own}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def workbook(path: Path, fill: Callable[[Any], None]) -> Path:
    """Write a workbook of openpyxl with one sheet."""
    book = openpyxl.Workbook()
    fill(book)
    book.save(str(path))
    return path


def bare_workbook(path: Path, rows: str, strings: str = "", styles: str = "", book: str = "", data: str = "") -> Path:
    """Write a workbook without any optional part.

    rows, strings, styles and book are markup; data replaces the whole sheet.
    """
    parts = {"worksheet": SHEET_PART, "sharedStrings": "xl/sharedStrings.xml", "styles": "xl/styles.xml"}
    relations = "".join(
        f'<Relationship Id="{kind}" Type="{RELATED}/{kind}" Target="/{part}"/>' for kind, part in parts.items()
    )
    whole = f'<Relationship Id="r" Type="{RELATED}/officeDocument" Target="xl/workbook.xml"/>'
    sheet = '<sheet name="S" r:id="worksheet"/>'
    members = {
        "_rels/.rels": f"<Relationships>{whole}</Relationships>",
        "xl/_rels/workbook.xml.rels": f"<Relationships>{relations}</Relationships>",
        "xl/workbook.xml": f"<workbook {SHEET_NAMES}>{book}<sheets>{sheet}</sheets></workbook>",
        SHEET_PART: data or f"<worksheet {SHEET_NAMES}><sheetData>{rows}</sheetData></worksheet>",
        "xl/sharedStrings.xml": f"<sst {SHEET_NAMES}>{strings}</sst>",
        "xl/styles.xml": f"<styleSheet {SHEET_NAMES}>{styles}</styleSheet>",
    }
    return archive(path, dict(members))


def slides(path: Path, *fill: Callable[[Any], None], layout: int = BLANK, title: str = "") -> Path:
    """Write a presentation with a slide for each function, which fills it."""
    presentation = pptx.Presentation()
    presentation.core_properties.title = title
    for each in fill:
        each(presentation.slides.add_slide(presentation.slide_layouts[layout]))
    presentation.save(str(path))
    return path


def text_box(shapes: Any, text: str, left: float, top: float, width: float = 2, height: float = 0.5) -> Any:
    """Add a text box; places are in inches, on a slide of 10 by 7.5."""
    added = shapes.add_textbox(Inches(left), Inches(top), Inches(width), Inches(height))
    added.text_frame.text = text
    return added


def add_picture(slide: Any, left: float, top: float, width: float = 1, height: float = 1) -> Any:
    return slide.shapes.add_picture(io.BytesIO(PNG), Inches(left), Inches(top), Inches(width), Inches(height))


def shape_xml(body: str) -> str:
    """Return the markup of a text box with some paragraphs."""
    return (
        f'<p:sp {SLIDE_NAMES}><p:nvSpPr><p:cNvPr id="9" name="T"/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr><a:xfrm>'
        f'<a:off x="0" y="0"/><a:ext cx="99" cy="99"/></a:xfrm></p:spPr><p:txBody><a:bodyPr/>{body}</p:txBody></p:sp>'
    )


def frame_xml(data: str) -> str:
    return (
        f'<p:graphicFrame {SLIDE_NAMES}><p:nvGraphicFramePr><p:cNvPr id="9" name="F"/><p:cNvGraphicFramePr/><p:nvPr/>'
        '</p:nvGraphicFramePr><p:xfrm><a:off x="0" y="0"/><a:ext cx="99" cy="99"/></p:xfrm><a:graphic>'
        f"<a:graphicData>{data}</a:graphicData></a:graphic></p:graphicFrame>"
    )


def fill_with(*shapes: str) -> Callable[[Any], None]:
    """Return a function that fills a slide with shapes."""

    def fill(slide: Any) -> None:
        for each in shapes:
            slide.shapes._spTree.append(parse_pptx_xml(each))

    return fill
