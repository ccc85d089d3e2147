"""What the readers of Word and OpenDocument texts share."""

from collections.abc import Iterable

from ingest.document import Reading, count
from ingest.errors import EmptyDocument
from ingest.limits import Limits
from ingest.sections import Block, first_heading, paginate


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


def reading(name: str, blocks: list[Block], title: str | None, warnings: list[str]) -> Reading:
    """What is handed back of a document. title: what the file says that it is called.

    Raises:
        EmptyDocument: it has no text, and what may be the reason.
    """
    pages, toc = paginate(blocks)
    if not pages:
        scanned = "if it holds scanned pictures, save it as PDF and use OCR."
        raise EmptyDocument(" ".join([f"{name} has no text in it: {scanned}", *warnings]))
    return Reading(pages, toc, [title, first_heading(blocks)], warnings)
