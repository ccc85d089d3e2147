"""Annotations of a PDF page: comments, form fields and attached files."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import pymupdf

from ingest.clean import comment_text, one_line, tidy
from ingest.print.lines import Line, LineBlock
from ingest.wording import count, listed

_NO_COMMENTS = (  # annotations whose words MuPDF gives as print, and those whose words come from a program
    *(pymupdf.PDF_ANNOT_FREE_TEXT, pymupdf.PDF_ANNOT_LINK, pymupdf.PDF_ANNOT_POPUP, pymupdf.PDF_ANNOT_WIDGET),
    *(pymupdf.PDF_ANNOT_FILE_ATTACHMENT, pymupdf.PDF_ANNOT_STAMP, pymupdf.PDF_ANNOT_REDACT),
)
_MARKING = (
    *(pymupdf.PDF_ANNOT_HIGHLIGHT, pymupdf.PDF_ANNOT_UNDERLINE, pymupdf.PDF_ANNOT_SQUIGGLY),
    pymupdf.PDF_ANNOT_STRIKE_OUT,
)


def fill_in(page: Any, blocks: list[LineBlock]) -> list[LineBlock]:
    """Return the lines of a form, with a line below them for each filled field: its printed label and its value.

    MuPDF gives the appearance of fields as print: a tick is a letter of a symbol font. Such lines are dropped.
    """
    fields = [widget for widget in page.widgets() if tidy(str(widget.field_value or "")) not in ("", "Off")]
    boxes = [widget.rect * page.rotation_matrix for widget in fields]

    def shown_by_field(line: Line) -> bool:
        middle = pymupdf.Point((line.x0 + line.x1) / 2, (line.y0 + line.y1) / 2)
        return any(middle in box for box in boxes)

    printed = [kept for block in blocks if (kept := [line for line in block if not shown_by_field(line)])]
    lines = []
    for widget, box in zip(fields, boxes, strict=True):
        ticked = widget.field_type in (pymupdf.PDF_WIDGET_TYPE_CHECKBOX, pymupdf.PDF_WIDGET_TYPE_RADIOBUTTON)
        value = "yes" if ticked else one_line(str(widget.field_value))
        name = one_line(widget.field_label or "") or _beside(box, printed, ticked) or one_line(widget.field_name or "")
        lines.append(f"{name.rstrip(' :')}: {value}" if name else value)
    return [*printed, *below_print(page, lines)]


def comments(page: Any) -> Iterator[str]:
    """Yield the comments on a page, a line each."""
    annotation = page.first_annot  # neither links nor fields
    while annotation:
        kind, said = annotation.type[0], annotation.info
        text, author = one_line(said["content"]), one_line(said["title"])
        hidden = annotation.flags & pymupdf.PDF_ANNOT_IS_HIDDEN
        # An annotation written into the page itself has no xref.
        state = annotation.xref and page.parent.xref_get_key(annotation.xref, "StateModel")[0] != "null"
        # A state only accepts another comment. Some programs repeat the marked words as the comment of a mark.
        left_out = not text or hidden or state or kind in _NO_COMMENTS
        if not left_out and not (kind in _MARKING and text in one_line(page.get_textbox(annotation.rect))):
            yield comment_text(author, text)
        annotation = annotation.next


def attached_files(page: Any) -> tuple[str, ...]:
    """Return the names of the files that are attached to places on a page."""
    found, annotation = [], page.first_annot
    while annotation:
        if annotation.type[0] == pymupdf.PDF_ANNOT_FILE_ATTACHMENT:
            found.append(one_line(annotation.file_info.get("filename") or annotation.info["content"]) or "a file")
        annotation = annotation.next
    return tuple(found)


def attachments_warning(document: Any, pinned: list[str]) -> list[str]:
    """Return a warning that names attached files. pinned: those attached to places on pages."""
    names = []
    with suppress(Exception):  # a damaged list of files is no reason to lose the book
        names = [one_line(name) for name in document.embfile_names()]
    names += pinned
    if not names:
        return []
    were = "was" if len(names) == 1 else "were"
    return [f"{count(len(names), 'attached file')} {were} not read: {listed(names, 5)}."]


def xfa_warning(document: Any) -> list[str]:
    """Return a warning about an XFA form: Adobe's programs make its pages, and the file only shows "please wait"."""
    try:
        catalog = document.pdf_catalog()
        form = document.xref_get_key(catalog, "AcroForm/XFA")[0] != "null"
        fields = document.xref_get_key(catalog, "AcroForm/Fields")[1].strip("[ ]")
        late = document.xref_get_key(catalog, "NeedsRendering")[1] == "true"
    except Exception:  # damaged: it is no such form
        return []
    if not form or (fields not in ("", "null") and not late):
        return []
    return [
        "The words of the form are kept as XFA, from which Adobe's programs make its pages: they were not read. "
        "Open it in Adobe Reader, print it to a PDF and add that."
    ]


def below_print(page: Any, texts: Iterable[str]) -> list[LineBlock]:
    """Return texts as lines in the middle of a page, where no running head is looked for."""
    y = page.rect.y1 / 2
    lines = [Line(text, 0, y, 1, y, 0, monospaced=True) for text in texts]
    return [lines] if lines else []


def _beside(box: pymupdf.Rect, blocks: list[LineBlock], either: bool) -> str:
    """Return the words nearest to a field in its row. either: words after the field count too, as beside tick boxes."""
    near = []
    for line in (line for block in blocks for line in block):
        if min(line.y1, box.y1) - max(line.y0, box.y0) > 0.5 * min(line.y1 - line.y0, box.height):
            if line.x1 < box.x0 + 2:
                near.append((box.x0 - line.x1, line.text))
            elif either and line.x0 > box.x1 - 2:
                near.append((line.x0 - box.x1, line.text))
    return min(near, default=(0, ""))[1]
