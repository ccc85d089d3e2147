"""E-mail (.eml) and web pages saved in one file (.mhtml), which are kept as e-mail is.

Read is the part of HTML, or else of plain text; attachments are named in a warning.
"""

import email
from email import policy
from email.message import EmailMessage
from pathlib import Path

from ingest import html
from ingest.charset import decode
from ingest.clean import one_line
from ingest.document import Reading
from ingest.errors import EmptyDocument
from ingest.limits import Limits
from ingest.sections import Block, first_heading, paginate
from ingest.text import plain_blocks

_HEADERS = ("From", "To", "Cc", "Date", "Subject")


def read(path: Path, limits: Limits) -> Reading:
    """Read an e-mail or a web archive.

    Raises:
        TooLarge, EmptyDocument; BrokenFile where the HTML parser found nothing.
    """
    limits.check(path.name, "bytes", path.stat().st_size, limits.text_member_bytes)
    message = email.message_from_bytes(path.read_bytes(), policy=policy.default)
    attached = [part for part in message.walk() if part.is_attachment()]
    parts = [
        part
        for kind in ("text/html", "text/plain")
        for part in message.walk()
        if part.get_content_type() == kind and not part.is_attachment()
    ]
    bodies = (_blocks(part, path.name) for part in parts)
    blocks, warnings = next((body for body in bodies if body[0]), ([], []))  # a page of frames has none itself
    limits.check(path.name, "characters", sum(len(block.text) for block in blocks), limits.characters)
    if "@" in one_line(str(message["From"] or "")):  # browsers say "Saved by" there
        said = [f"{name}: {one_line(str(message[name]))}" for name in _HEADERS if message[name]]
        blocks.insert(0, Block("\n".join(said)))
    if attached:
        names = ", ".join(one_line(part.get_filename() or part.get_content_type()) for part in attached)
        warnings.append(f"Attached and not read: {names}. Save what you need and add it.")
    pages, toc = paginate(blocks)
    if not pages:
        raise EmptyDocument(f"{path.name} has no text in it. Open it in a browser or mail program and save it as PDF.")
    return Reading(pages, toc, [str(message["Subject"] or ""), first_heading(blocks)], warnings)


def _blocks(part: EmailMessage, name: str) -> tuple[list[Block], list[str]]:
    payload = part.get_payload(decode=True)
    text, warnings = decode(payload if isinstance(payload, bytes) else b"", part.get_content_charset())
    if part.get_content_type() == "text/plain":
        return plain_blocks(text), warnings
    return html.extract(text, name)[0], warnings
