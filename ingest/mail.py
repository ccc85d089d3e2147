"""E-mail (.eml) and web pages saved in one file (.mhtml), which are kept as e-mail is.

Read are all parts of its text, of alternatives the one of HTML. Attachments, mails that are forwarded whole, and all
other files are named in a warning.
"""

import email
from collections.abc import Iterator
from dataclasses import dataclass
from email import policy
from email.message import MIMEPart
from pathlib import Path

from ingest import html
from ingest.charset import decode
from ingest.clean import one_line
from ingest.document import Reading, listed
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
    texts = _texts(message, path.name)
    blocks = [block for text in texts for block in text.blocks]
    warnings = list(dict.fromkeys(warning for text in texts for warning in text.warnings))
    limits.check(path.name, "characters", sum(len(block.text) for block in blocks), limits.characters)
    if "@" in one_line(str(message["From"] or "")):  # browsers say "Saved by" there
        said = [f"{name}: {one_line(str(message[name]))}" for name in _HEADERS if message[name]]
        blocks.insert(0, Block("\n".join(said)))
    read_parts = {id(text.part) for text in texts}
    if unread := [name for part in _leaves(message) if id(part) not in read_parts and (name := _file_name(part))]:
        warnings.append(f"Attached and not read: {listed(unread, 12)}. Save what you need and add it.")
    pages, toc = paginate(blocks)
    if not pages:
        raise EmptyDocument(f"{path.name} has no text in it. Open it in a browser or mail program and save it as PDF.")
    return Reading(pages, toc, [str(message["Subject"] or ""), first_heading(blocks)], warnings)


@dataclass(frozen=True)
class _Text:
    part: MIMEPart
    blocks: list[Block]
    warnings: list[str]


def _texts(part: MIMEPart, name: str) -> list[_Text]:
    """What is read of a part, in reading order: of parts that belong together the first, and where it has no text, as a
    page of frames has none, the others; of alternatives the richest that has any; of other parts all.
    """
    kind = part.get_content_type()
    if part.is_attachment():
        return []
    if kind in ("text/plain", "text/html"):
        blocks, warnings = _blocks(part, name)
        return [_Text(part, blocks, warnings)] if blocks else []
    parts = list(_parts(part))
    if kind == "multipart/alternative":
        parts.reverse()  # the last is the best (RFC 2046)
        parts.sort(key=lambda each: all(leaf.get_content_type() != "text/html" for leaf in each.walk()))
        return next((texts for each in parts if (texts := _texts(each, name))), [])
    if kind == "multipart/related" and parts:
        others = list(part.iter_attachments())  # all but the part that it begins with, or says to start with
        root = next(each for each in parts if each not in others)
        parts = others
        if texts := _texts(root, name):
            return texts
    return [text for each in parts for text in _texts(each, name)]


def _parts(part: MIMEPart) -> Iterator[MIMEPart]:
    """What a part consists of, which for an attachment, and for a mail within a mail, is nothing."""
    if part.get_content_maintype() == "multipart" and not part.is_attachment():
        yield from part.iter_parts()


def _leaves(part: MIMEPart) -> Iterator[MIMEPart]:
    parts = list(_parts(part))
    for each in parts:
        yield from _leaves(each)
    if not parts:
        yield part


def _file_name(part: MIMEPart) -> str:
    """What a part is called that is a file, or a mail within this one; nothing for other parts."""
    name = part.get_filename()
    if not name and part.get_content_type() == "message/rfc822":
        name = next((str(mail["Subject"] or "") for mail in part.iter_parts()), "") or "a mail"
    return one_line(name or (part.get_content_type() if part.is_attachment() else ""))


def _blocks(part: MIMEPart, name: str) -> tuple[list[Block], list[str]]:
    payload = part.get_payload(decode=True)
    text, warnings = decode(payload if isinstance(payload, bytes) else b"", part.get_content_charset())
    if part.get_content_type() == "text/plain":
        return plain_blocks(text), warnings
    return html.extract(text, name)[0], warnings
