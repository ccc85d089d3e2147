"""XLSX: a sheet is a section, a long one several, each of which says which rows are in it.

Rows are lines of cells under the headings of their columns. Below them stand text boxes, charts and diagrams. Hidden
sheets are read as well: their labels and a warning say so. Left out: what is printed above and below each page. Files
within the sheets, and formulas without results, are named in a warning.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path

from ingest.clean import doubts, tidy
from ingest.document import PARAGRAPH_SEPARATOR, Page, PageQuality, Reading, TocEntry, count, listed
from ingest.errors import TooLarge
from ingest.limits import Limits, check_archive
from ingest.office.common import damaged, missing, misunderstood, without_text
from ingest.office.drawings import Drawings
from ingest.office.grid import paragraphs
from ingest.office.package import Package
from ingest.office.workbook import Sheet, Workbook
from ingest.office.worksheet import Worksheet
from ingest.sections import UNTITLED, distinct

MOST_NAMED = 12  # sheets, in a warning


def read(path: Path, limits: Limits) -> Reading:
    """Read a workbook.

    Raises:
        BrokenFile, TooLarge, EmptyDocument.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path.name, limits)
            package = Package(archive, limits)
            walk = _Walk(Workbook(package, path.name, limits), path.name, limits)
            for sheet in walk.book.sheets:
                walk.read(sheet)
            core = package.xml("docProps/core.xml")
    except TooLarge:
        raise
    except Exception as error:  # BrokenFile, KeyError, BadZipFile, XMLSyntaxError, ...: by where the package is damaged
        raise damaged(path.name, "an Excel workbook", error, "Excel or LibreOffice") from error
    if not walk.pages:
        raise without_text(path.name, walk.warnings())
    title = None if core is None else core.findtext("{*}title")
    return Reading(distinct(walk.pages, [""] * len(walk.pages)), walk.toc, [title], walk.warnings())


@dataclass
class _Piece:
    """A part of a sheet, as long as a section should be."""

    texts: list[str]
    first: int = 0  # row
    last: int = 0

    @property
    def rows(self) -> str:
        return f"row {self.first}" if self.first == self.last else f"rows {self.first} to {self.last}"


class _Walk:
    def __init__(self, book: Workbook, name: str, limits: Limits) -> None:
        self.book = book
        self.pages: list[Page] = []
        self.toc: list[TocEntry] = []
        self._name, self._limits = name, limits
        self._characters = self._uncalculated = 0
        self._hidden: list[str] = []  # sheets
        self._embedding: list[str] = []  # sheets with files in them
        self._lost: list[str] = []  # cells
        self._drawings = Drawings()

    def warnings(self) -> list[str]:
        """What a person should know of the sheets that were read."""
        said = list(dict.fromkeys(self.book.package.doubts))
        said += misunderstood(self._drawings.broken) + missing(self.book.lost)
        if self._hidden:
            said.append(f"Hidden in the workbook, but read: {listed(self._hidden, MOST_NAMED)}.")
        if self._embedding:
            said.append(
                f"Not read: files within {listed(self._embedding, MOST_NAMED)}. Save them from there and add them."
            )
        if self._lost:
            said.append(f"Not read: the text of {listed(self._lost, MOST_NAMED)}, which the workbook lacks.")
        if self._uncalculated:
            said.append(
                f"{count(self._uncalculated, 'formula')} without a result, as a program wrote them that does not "
                "calculate: open the workbook in Excel or LibreOffice, save it and add it again."
            )
        return said

    def read(self, sheet: Sheet) -> None:
        """Read the next sheet; one without words is no section."""
        worksheet = Worksheet(self.book, sheet)
        pieces = self._pieces(worksheet)
        self._uncalculated += worksheet.uncalculated
        self._lost += [f"{cell} of {sheet.name}" for cell in worksheet.lost]
        if worksheet.embeds:
            self._embedding.append(sheet.name)
        if not pieces:
            return
        if sheet.hidden:
            self._hidden.append(sheet.name)
        self.toc.append(TocEntry(1, sheet.name, len(self.pages) + 1))
        label = f"{sheet.name} (hidden)" if sheet.hidden else sheet.name
        for piece in pieces:
            text = tidy(PARAGRAPH_SEPARATOR.join([sheet.name, *piece.texts]))
            quality = PageQuality(len(text), "text", doubts(text, in_print=False))
            within = f"{label}, {piece.rows}" if len(pieces) > 1 else label
            self.pages.append(Page(len(self.pages) + 1, within, text, quality))

    def _pieces(self, worksheet: Worksheet) -> list[_Piece]:
        pieces: list[_Piece] = []
        size = 0
        for paragraph in paragraphs(worksheet.rows()):
            self._count(paragraph.text)
            size += len(paragraph.text)
            if not pieces or size > UNTITLED:
                pieces.append(_Piece([], paragraph.first))
                size = len(paragraph.text)
            pieces[-1].texts.append(paragraph.text)
            pieces[-1].last = paragraph.last
        for text in filter(None, map(tidy, worksheet.beside(self._drawings))):
            self._count(text)
            pieces = pieces or [_Piece([])]
            pieces[-1].texts.append(text)
        return pieces

    def _count(self, text: str) -> None:
        self._characters += len(text)
        self._limits.check(self._name, "characters", self._characters, self._limits.characters)
