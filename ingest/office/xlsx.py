"""XLSX: a sheet is a section, a long sheet several, with their rows in the labels.

Rows are lines of cells under their column headings. Text boxes, charts and diagrams follow. Hidden sheets are read;
their labels and a warning mark them. Left out: headers and footers of printed pages. Warnings name embedded files and
count formulas without results.
"""

import zipfile
from pathlib import Path

from ingest.archive import check_archive
from ingest.conversion import Content, ConvertOptions
from ingest.errors import TooLarge
from ingest.limits import Limits
from ingest.office.common import damaged_drawings_warning, damaged_file, empty_document, missing_parts_warning
from ingest.office.drawings import Drawings
from ingest.office.package import Package
from ingest.office.sheets import MOST_NAMED, SheetPages, uncalculated_warning
from ingest.office.workbook import Sheet, Workbook
from ingest.office.worksheet import Worksheet
from ingest.sections import with_distinct_labels
from ingest.wording import count, listed


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert a workbook to sections of rows.

    Raises:
        BrokenFile: it is damaged.
        TooLarge: too many bytes or characters.
        EmptyDocument: no text in any sheet.
    """
    limits = options.limits
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
    except Exception as error:  # BrokenFile, KeyError, BadZipFile, XMLSyntaxError, ... for a damaged package
        raise damaged_file(path.name, "an Excel workbook", error, "Excel or LibreOffice") from error
    sheets = walk.sheets
    if not sheets.pages:
        raise empty_document(path.name, walk.warnings())
    title = None if core is None else core.findtext("{*}title")
    labelled = with_distinct_labels(sheets.pages, [""] * len(sheets.pages))
    return Content(labelled, sheets.toc, [title], walk.warnings())


class _Walk:
    def __init__(self, book: Workbook, name: str, limits: Limits) -> None:
        self.book = book
        self.sheets = SheetPages(name, limits)
        self._uncalculated = 0
        self._embedding: list[str] = []  # sheets with files in them
        self._lost: list[str] = []  # cells
        self._drawings = Drawings()

    def warnings(self) -> list[str]:
        """Return the warnings about the sheets read so far."""
        said = list(dict.fromkeys(self.book.package.xml_warnings))
        said += damaged_drawings_warning(self._drawings.broken) + missing_parts_warning(self.book.lost)
        said += self.sheets.hidden_warning()
        if self._embedding:
            said.append(
                f"Not read: files within {listed(self._embedding, MOST_NAMED)}. Save them from there and add them."
            )
        if self._lost:
            said.append(f"Not read: the text of {listed(self._lost, MOST_NAMED)}, which the workbook lacks.")
        if self._uncalculated:
            said.append(uncalculated_warning(count(self._uncalculated, "formula")))
        return said

    def read(self, sheet: Sheet) -> None:
        """Read the next sheet."""
        worksheet = Worksheet(self.book, sheet)
        self.sheets.add(sheet.name, sheet.hidden, worksheet.rows(), worksheet.loose_texts(self._drawings))
        self._uncalculated += worksheet.uncalculated
        self._lost += [f"{cell} of {sheet.name}" for cell in worksheet.lost]
        if worksheet.has_embedded_files:
            self._embedding.append(sheet.name)
