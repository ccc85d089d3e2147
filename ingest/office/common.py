"""Errors, warnings and names that the converters of office files share."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lxml import etree

from ingest.conversion import Content
from ingest.errors import BrokenFile, EmptyDocument, out_of_memory
from ingest.limits import Limits
from ingest.sections import Block, first_heading, paginate
from ingest.wording import count, listed

MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
RELATED = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"

# Names that the libraries do not know -> those of plain files: Strict Open XML, macro files, templates, slide shows.
OPEN = "application/vnd.openxmlformats-officedocument"
_OTHER_NAMES = (
    (r"http://purl\.oclc\.org/ooxml/(\w+)/", r"http://schemas.openxmlformats.org/\1/2006/"),
    (
        r"application/vnd\.(?:ms-word\.(?:document\.macroEnabled|template\.macroEnabledTemplate)"
        r"|openxmlformats-officedocument\.wordprocessingml\.template)\.main\+xml",
        f"{OPEN}.wordprocessingml.document.main+xml",
    ),
    (
        r"application/vnd\.(?:ms-powerpoint\.(?:template|slideshow)\.macroEnabled"
        r"|openxmlformats-officedocument\.presentationml\.(?:template|slideshow))\.main\+xml",
        f"{OPEN}.presentationml.presentation.main+xml",
    ),
)
_USUAL = tuple((re.compile(other.encode()), usual.encode()) for other, usual in _OTHER_NAMES)


def with_transitional_names(data: bytes) -> bytes:
    """Replace the names of Strict Open XML, and of templates and macro files, by those of plain files."""
    for other, usual in _USUAL:
        data = other.sub(usual, data)
    return data


def is_true(element: etree._Element, attribute: str) -> bool:
    """Return whether a boolean attribute is true."""
    return element.get(attribute) in ("1", "true")


def part_loader(relations: Mapping[str, Any]) -> Callable[[str], bytes | None]:
    """Return a function from a relation's id to the bytes of its part; None if it leads nowhere or out of the file.

    relations: those of python-docx or python-pptx.
    """

    def part(identity: str) -> bytes | None:
        relation = relations.get(identity)
        return None if relation is None or relation.is_external else bytes(relation.target_part.blob)

    return part


def damaged_file(name: str, kind: str, error: Exception, programs: str) -> BrokenFile:
    """Return the error for a file that its parser gave up.

    Args:
        name: the file.
        kind: the kind of file it should be.
        error: the parser's.
        programs: the programs that may repair it.
    """
    if isinstance(error, MemoryError):
        return out_of_memory(name)
    return BrokenFile(
        f"{name} cannot be opened as {kind}. The file is damaged: fetch it again, or open and re-save it in {programs}."
    )


def within_limit(blocks: Iterable[Block], name: str, limits: Limits) -> list[Block]:
    """Collect blocks while their characters are within the limit.

    Raises:
        TooLarge: they have too many characters.
    """
    kept, characters = [], 0
    for block in blocks:
        kept.append(block)
        characters += len(block.text)
        limits.check(name, "characters", characters, limits.characters)
    return kept


def linked_parts_warning(parts: int) -> list[str]:
    """Return the warning about parts of a document in other files; none if there are none."""
    return [f"Not read: {count(parts, 'part')} of the document kept in files beside it. Add them too."] if parts else []


def missing_parts_warning(parts: list[str]) -> list[str]:
    """Return the warning about parts that a file names but lacks; none if there are none."""
    if not parts:
        return []
    return [f"Not read: {listed(parts, 5)}, which the file names but lacks. Fetch it again."]


def damaged_drawings_warning(drawings: int) -> list[str]:
    """Return the warning about damaged drawings; none if there are none."""
    return [f"Not read: {count(drawings, 'drawing')} that cannot be understood."] if drawings else []


def empty_document(name: str, warnings: list[str]) -> EmptyDocument:
    """Return the error for a file without text. warnings: possible reasons."""
    scanned = "if it holds scanned pictures, save it as PDF and use OCR."
    return EmptyDocument(" ".join([f"{name} has no text in it: {scanned}", *warnings]))


def paginated_content(name: str, blocks: list[Block], title: str | None, warnings: list[str]) -> Content:
    """Return the content of a document without pages. title: the file's own.

    Raises:
        EmptyDocument: it has no text.
    """
    pages, toc = paginate(blocks)
    if not pages:
        raise empty_document(name, warnings)
    return Content(pages, toc, [title, first_heading(blocks)], warnings)
