"""RTF, through striprtf: paragraphs and rows of tables. Pictures and objects within it are named in a warning."""

import re
from pathlib import Path

from striprtf.striprtf import rtf_to_text

from ingest.clean import one_line
from ingest.document import Reading, count
from ingest.errors import EmptyDocument
from ingest.limits import Limits
from ingest.sections import Block, paginate

_TITLE = re.compile(r"\{\\title\s([^{}]{1,1000})\}")
_OBJECT = re.compile(r"\\(?:pict|objdata)(?![a-z])")


def read(path: Path, limits: Limits) -> Reading:
    """Read an RTF document.

    Raises:
        TooLarge, EmptyDocument.
    """
    limits.check(path.name, "bytes", path.stat().st_size, limits.text_member_bytes)
    source = path.read_bytes().decode("cp1252", errors="replace")
    text = rtf_to_text(source, errors="replace").replace("\x00", "")
    limits.check(path.name, "characters", len(text), limits.characters)
    pages, toc = paginate(_block(line) for line in text.split("\n") if line.strip())
    objects = len(_OBJECT.findall(source))
    within = f"Not read: {count(objects, 'picture or object')} within the document. Save it as PDF and add that."
    if not pages:
        raise EmptyDocument(f"{path.name} has no text in it. {within if objects else 'Fetch it again.'}")
    said = _TITLE.search(source)
    title = one_line(rtf_to_text(f"{{\\rtf1\\ansi {said[1]}}}", errors="replace")) if said else None
    return Reading(pages, toc, [title], [within] if objects else [])


def _block(line: str) -> Block:
    """A paragraph, or a row of a table, whose cells each end in a bar."""
    if line.endswith("|"):
        return Block(" | ".join(cell.strip() for cell in line.split("|")[:-1]), tight=True)
    return Block(line)
