"""What the readers of Office and OpenDocument files share."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lxml import etree

from ingest.clean import one_line
from ingest.document import Reading, count, listed
from ingest.errors import BrokenFile, EmptyDocument, out_of_memory
from ingest.limits import Limits
from ingest.sections import Block, first_heading, paginate

MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
RELATED = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"

# What the libraries do not know, and the plain file that it is: Strict Open XML; files with macros, templates, shows.
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


def with_usual_names(data: bytes) -> bytes:
    """XML of a package under the names that are usual."""
    for other, usual in _USUAL:
        data = other.sub(usual, data)
    return data


def says_yes(element: etree._Element, attribute: str) -> bool:
    """Whether an attribute that is true or false is true."""
    return element.get(attribute) in ("1", "true")


def related(relations: Mapping[str, Any]) -> Callable[[str], bytes | None]:
    """What gives the part that a relation leads to, by its id; None where it leads nowhere, or out of the file.

    relations: as python-docx and python-pptx have them.
    """

    def part(identity: str) -> bytes | None:
        relation = relations.get(identity)
        return None if relation is None or relation.is_external else bytes(relation.target_part.blob)

    return part


def damaged(name: str, kind: str, error: Exception, programs: str) -> BrokenFile:
    """What to raise for a file that its parser gave up. kind: what it should be; programs: what may mend it."""
    if isinstance(error, MemoryError):
        return out_of_memory(name)
    return BrokenFile(
        f"{name} cannot be opened as {kind} ({one_line(str(error))[:120]}). "
        f"The file is damaged: fetch it again, or open and re-save it in {programs}."
    )


def bounded(blocks: Iterable[Block], name: str, limits: Limits) -> list[Block]:
    """Blocks as they come, as long as their characters are within the limit.

    Raises:
        TooLarge: they are not.
    """
    kept, characters = [], 0
    for block in blocks:
        kept.append(block)
        characters += len(block.text)
        limits.check(name, "characters", characters, limits.characters)
    return kept


def beside(parts: int) -> list[str]:
    """The warning that so many parts of a document are in other files; none where all is in one."""
    return [f"Not read: {count(parts, 'part')} of the document kept in files beside it. Add them too."] if parts else []


def missing(parts: list[str]) -> list[str]:
    """The warning that parts are not in the file that it says are; none where all are there."""
    if not parts:
        return []
    return [f"Not read: {listed(parts, 5)}, which the file names but lacks. Fetch it again."]


def misunderstood(drawings: int) -> list[str]:
    """The warning that so many drawings are damaged; none where all were read."""
    return [f"Not read: {count(drawings, 'drawing')} that cannot be understood."] if drawings else []


def without_text(name: str, warnings: list[str]) -> EmptyDocument:
    """What to raise for a file that has no text, and what may be the reason."""
    scanned = "if it holds scanned pictures, save it as PDF and use OCR."
    return EmptyDocument(" ".join([f"{name} has no text in it: {scanned}", *warnings]))


def reading(name: str, blocks: list[Block], title: str | None, warnings: list[str]) -> Reading:
    """What is handed back of a document. title: what the file says that it is called.

    Raises:
        EmptyDocument: it has no text.
    """
    pages, toc = paginate(blocks)
    if not pages:
        raise without_text(name, warnings)
    return Reading(pages, toc, [title, first_heading(blocks)], warnings)
