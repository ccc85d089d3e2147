"""Sheets of a workbook as pages: a sheet is a section, a long sheet several, with their rows in the labels."""

from collections.abc import Iterable
from dataclasses import dataclass

from ingest.clean import text_warnings, tidy
from ingest.document import PARAGRAPH_SEPARATOR, Page, PageQuality, TocEntry
from ingest.limits import Limits
from ingest.office.grid import Row, sheet_paragraphs
from ingest.sections import UNTITLED
from ingest.wording import listed

MOST_NAMED = 12  # sheets named in a warning


@dataclass
class _Piece:
    """A part of a sheet that fits one section."""

    texts: list[str]
    first: int = 0  # number of a row
    last: int = 0

    @property
    def rows(self) -> str:
        return f"row {self.first}" if self.first == self.last else f"rows {self.first} to {self.last}"


class SheetPages:
    """The pages of the sheets added so far."""

    def __init__(self, name: str, limits: Limits) -> None:
        """Begin without sheets. name: the file's."""
        self.pages: list[Page] = []
        self.toc: list[TocEntry] = []
        self._name, self._limits = name, limits
        self._characters = 0
        self._hidden: list[str] = []  # sheets

    def add(self, name: str, hidden: bool, rows: Iterable[Row], loose: Iterable[str]) -> None:
        """Add the next sheet. A sheet without words gets no section.

        Args:
            name: the sheet's.
            hidden: whether the program hides it.
            rows: its rows with words.
            loose: its texts outside of rows, read after the rows.

        Raises:
            TooLarge: the file has too many characters.
        """
        pieces = self._pieces(rows, loose)
        if not pieces:
            return
        if hidden:
            self._hidden.append(name)
        self.toc.append(TocEntry(1, name, len(self.pages) + 1))
        label = f"{name} (hidden)" if hidden else name
        for piece in pieces:
            text = tidy(PARAGRAPH_SEPARATOR.join([name, *piece.texts]))
            quality = PageQuality(len(text), "text", text_warnings(text, in_print=False))
            within = f"{label}, {piece.rows}" if len(pieces) > 1 else label
            self.pages.append(Page(len(self.pages) + 1, within, text, quality))

    def hidden_warning(self) -> list[str]:
        """Return the warning about hidden sheets; none if there are none."""
        return [f"Hidden in the workbook, but read: {listed(self._hidden, MOST_NAMED)}."] if self._hidden else []

    def _pieces(self, rows: Iterable[Row], loose: Iterable[str]) -> list[_Piece]:
        pieces: list[_Piece] = []
        size = 0
        for paragraph in sheet_paragraphs(rows):
            self._count(paragraph.text)
            size += len(paragraph.text)
            if not pieces or size > UNTITLED:
                pieces.append(_Piece([], paragraph.first))
                size = len(paragraph.text)
            pieces[-1].texts.append(paragraph.text)
            pieces[-1].last = paragraph.last
        for text in filter(None, map(tidy, loose)):
            self._count(text)
            pieces = pieces or [_Piece([])]
            pieces[-1].texts.append(text)
        return pieces

    def _count(self, text: str) -> None:
        self._characters += len(text)
        self._limits.check(self._name, "characters", self._characters, self._limits.characters)


def uncalculated_warning(formulas: str) -> str:
    """Return the warning about formulas without a result. formulas: their number, with the noun."""
    return (
        f"{formulas} without a result, as a program wrote them that does not calculate: open the workbook in Excel or "
        "LibreOffice, save it and add it again."
    )
