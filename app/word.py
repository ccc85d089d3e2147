"""Markdown as a Word document, to be edited there."""

import io
import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

DEEPEST = 200
"""Most nested lists and quotations; the parser would leave out all text after deeper ones."""
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Characters that XML cannot hold."""


def as_docx(markdown: str) -> bytes:
    """Return Markdown as a DOCX file, with its headings, lists, quotations and code. HTML stays as it is written."""
    import docx
    from docx.shared import Inches

    document = docx.Document()
    document.core_properties.author = ""
    style, sign, level, quoted = "Normal", "", 0, 0
    for token in MarkdownIt("commonmark", {"maxNesting": DEEPEST}).parse(_UNPRINTABLE.sub("\ufffd", markdown)):
        level += {"list_item_open": 1, "list_item_close": -1}.get(token.type, 0)
        quoted += {"blockquote_open": 1, "blockquote_close": -1}.get(token.type, 0)
        if token.type == "heading_open":
            style = f"Heading {token.tag[1]}"
        elif token.type == "list_item_open":
            sign = f"{token.info}{token.markup} " if token.info else "• "
        elif token.content or token.type == "inline":
            paragraph = document.add_paragraph(sign, "Quote" if quoted else style)
            paragraph.paragraph_format.left_indent = Inches(0.3 * level) if level else None
            for text, bold, italic, code in _runs(token):
                run = paragraph.add_run(text)
                run.bold, run.italic = bold or None, italic or None
                run.font.name = "Courier New" if code else None
            style, sign = "Normal", ""
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def _runs(token: Token) -> list[tuple[str, bool, bool, bool]]:
    """Return the pieces of a paragraph's text, each with whether it is bold, italic and code."""
    if token.children is None:
        return [(token.content.rstrip("\n"), False, False, token.type in ("fence", "code_block"))]
    runs, strong, em = [], 0, 0
    for child in token.children:
        strong += child.nesting if child.type.startswith("strong_") else 0
        em += child.nesting if child.type.startswith("em_") else 0
        text = {"softbreak": " ", "hardbreak": "\n"}.get(child.type, child.content)
        if text:
            runs.append((text, strong > 0, em > 0, child.type == "code_inline"))
    return runs
