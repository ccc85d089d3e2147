"""E-mail (.eml) and web pages saved in one file (.mhtml), which are kept as e-mail is.

Read are all parts of its text, of alternatives the one of HTML. Attachments, mails that are forwarded whole, and
whatever else is not read are named in a warning; not so the pictures and style sheets of a page.
"""

import email
import re
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.message import EmailMessage, MIMEPart
from email.policy import EmailPolicy
from pathlib import Path
from typing import Any, cast

from ingest.charset import decode, known_as
from ingest.clean import one_line, without_terminal_codes
from ingest.document import Reading, listed
from ingest.errors import BrokenFile, EmptyDocument
from ingest.formats import html
from ingest.formats.mail_encoding import payload, without_uuencoded
from ingest.formats.text import plain_blocks
from ingest.limits import Limits
from ingest.sections import Block, first_heading, paginate

_HEADERS = ("From", "To", "Cc", "Date", "Subject")  # said above the text
_HTML = ("text/html", "application/xhtml+xml")
_LOOKS = re.compile(
    r"(?:image|audio|video|font)/.*|text/(?:css|(?:x-)?(?:java|ecma)script)"
)  # of a page, and not words
_FILLED = re.compile(r"text/(?:plain|markdown|enriched)|multipart/.*")  # their lines may be those of paragraphs
_COUNTED = re.compile(rb"(\d{1,9}) *\r?\n")  # Apple Mail's: the bytes of the mail, behind which is what it knows of it
_CHARSET = re.compile(rb"^content-type:[^\n]*(?:\n[ \t][^\n]*)*?charset=[\"']?([\w.:-]+)", re.IGNORECASE | re.MULTILINE)
_HEAD_BYTES = 1 << 16
_ENCODED_WORD = re.compile(r"=\?([\w.:-]+)((?:\*[\w-]*)?\?[bBqQ]\?)")
_MAILS = ("message/rfc822", "message/global")


def read(path: Path, limits: Limits) -> Reading:
    """Read an e-mail or a web archive.

    Raises:
        TooLarge, EmptyDocument; BrokenFile where the HTML parser found nothing.
    """
    limits.check(path.name, "bytes", path.stat().st_size, limits.text_member_bytes)
    mail = parse(path.read_bytes(), path.name)
    limits.check(path.name, "characters", sum(len(block.text) for block in mail.blocks), limits.characters)
    head = mail.head
    if re.search(r"^From: \W*saved by\b", head, re.IGNORECASE):  # as browsers say there
        head = ""
    blocks = [Block(head), *mail.blocks] if head else mail.blocks
    pages, toc = paginate(blocks)
    if not pages:
        raise EmptyDocument(f"{path.name} has no text in it. Open it in a browser or mail program and save it as PDF.")
    return Reading(pages, toc, [mail.subject, first_heading(blocks)], [*mail.warnings, *not_read(mail.unread)])


@dataclass(frozen=True)
class Mail:
    """What is read of a mail.

    head: who wrote it to whom, when, and about what, a line each; "" where nobody did.
    unread: what it brings with it that is not read, by name, each once.
    """

    message: EmailMessage
    head: str
    blocks: list[Block]
    warnings: list[str]
    unread: list[str]

    @property
    def subject(self) -> str:
        """What it says that it is about."""
        return header(self.message, "Subject")


def parse(data: bytes, name: str) -> Mail:
    """A mail from its bytes; name: of its file.

    Raises:
        BrokenFile: the HTML parser found nothing.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")  # behind which no line would be taken for a header
    if counted := _COUNTED.match(data):
        data = data[counted.end() : counted.end() + int(counted[1])]
    message = cast(EmailMessage, email.message_from_bytes(data, policy=_Policy(_charset(data[:_HEAD_BYTES]))))
    texts = _texts(message, name)
    blocks = [block for text in texts for block in text.blocks]
    warnings = list(dict.fromkeys(warning for text in texts for warning in text.warnings))
    head = [f"{each}: {said}" for each in _HEADERS if (said := header(message, each))]
    files = [file for text in texts for file in text.files]
    unread = list(dict.fromkeys([*files, *_unread(message, {id(text.part) for text in texts})]))
    return Mail(message, "\n".join(head) if header(message, "From") else "", blocks, warnings, unread)


class _Policy(EmailPolicy):
    """Reads headers in the larger sisters of the encodings that they name; without one, in that of the text."""

    charset: str

    def __init__(self, charset: str = "") -> None:
        super().__init__(message_factory=EmailMessage)
        object.__setattr__(self, "charset", charset)  # policies are else made anew for every change

    def header_fetch_parse(self, name: str, value: Any) -> Any:
        if isinstance(value, str) and not hasattr(value, "name"):
            value = _ENCODED_WORD.sub(lambda word: f"=?{known_as(word[1]) or word[1]}{word[2]}", value)
            if not value.isascii():
                value = decode(value.encode("utf-8", "surrogateescape"), self.charset or None)[0]
        return super().header_fetch_parse(name, value)


def _charset(data: bytes) -> str:
    """The encoding that a mail's text declares first; "" where none does."""
    found = _CHARSET.search(data)
    return found[1].decode() if found and known_as(found[1].decode()) else ""


def header(message: MIMEPart, name: str) -> str:
    """What a header says, on one line; "" where it is not there."""
    try:
        return one_line(str(message[name] or ""))
    except Exception:  # whatever Python's parser stumbles over: then as it was written
        return next((one_line(str(said)) for key, said in message.raw_items() if key.lower() == name.lower()), "")


def not_read(names: Sequence[str]) -> list[str]:
    """The warning that so many things in mails are not read; none where there are none."""
    return [f"Attached and not read: {listed(names, 12)}. Save what you need and add it."] if names else []


@dataclass(frozen=True)
class _Text:
    part: MIMEPart
    blocks: list[Block]
    warnings: list[str]
    files: list[str]  # within its lines


def _texts(part: MIMEPart, name: str) -> list[_Text]:
    """What is read of a part, in reading order: of parts that belong together the first, and where it has no text, as a
    page of frames has none, the others; of alternatives the richest that has any; of other parts all.
    """
    kind = part.get_content_type()
    if part.is_attachment():
        return []
    if _is_text(part):
        text = _blocks(part, name)
        return [text] if text.blocks else []
    parts = list(_parts(part))
    if kind == "multipart/alternative":
        parts.reverse()  # the last is the best (RFC 2046)
        parts.sort(key=lambda each: min(_rank(leaf) for leaf in each.walk()))
        return next((texts for each in parts if (texts := _texts(each, name))), [])
    if kind == "multipart/related" and parts:
        others = list(part.iter_attachments())  # all but the part that it begins with, or says to start with
        root = next(each for each in parts if each not in others)
        if texts := _texts(root, name):
            return texts
        parts = [each for each in others if not _LOOKS.fullmatch(each.get_content_type())]
    return [text for each in parts for text in _texts(each, name)]


def _is_text(part: MIMEPart) -> bool:
    """Whether it is read as text; so is what should have parts, and has none as their border is not to be found."""
    if part.get_content_maintype() == "multipart":
        return not part.is_multipart()
    kind = part.get_content_type()
    return kind in _HTML or (kind.startswith("text/") and kind != "text/rtf")


def _rank(leaf: MIMEPart) -> int:
    """Of alternatives, the lowest is read: an invitation says in its text what its calendar says in code."""
    kind = leaf.get_content_type()
    return 0 if kind in _HTML else 1 if kind == "text/plain" else 2


def _parts(part: MIMEPart) -> Iterator[MIMEPart]:
    """What a part consists of, which for an attachment, and for a mail within a mail, is nothing."""
    if part.get_content_maintype() == "multipart" and not part.is_attachment():
        yield from part.iter_parts()


def _unread(part: MIMEPart, read: Container[int], page: bool = False, passed_over: bool = False) -> Iterator[str]:
    """What there is in a part that is not read: files by their name, the rest by its type.

    Args:
        read: the ids of the parts that are.
        page: it belongs to a page, whose looks are not missed.
        passed_over: it is an alternative to what is read, and so is missed only if it is a file.
    """
    parts, kind = list(_parts(part)), part.get_content_type()
    chosen = []
    if kind == "multipart/alternative":
        chosen = [each for each in parts if any(id(leaf) in read for leaf in each.walk())]
    for each in parts:
        instead = bool(chosen) and each not in chosen
        yield from _unread(each, read, page or kind == "multipart/related", passed_over or instead)
    if parts or id(part) in read:
        return
    if name := _file_name(part):
        yield name
    elif not (passed_over or (page and _LOOKS.fullmatch(kind))) and _says_something(part):
        yield kind


def _says_something(part: MIMEPart) -> bool:
    """Whether a part has a body, which a mail server's report has not; one of text, words in it."""
    if _is_text(part):
        with suppress(BrokenFile):
            return bool(_blocks(part, "").blocks)
    return bool(payload(part).strip())


def _file_name(part: MIMEPart) -> str:
    """What a part is called that is a file, or a mail within this one; nothing for other parts."""
    name = part.get_filename()
    if not name and part.get_content_type() in _MAILS:
        name = next((header(mail, "Subject") for mail in part.iter_parts()), "") or "a mail"
    return one_line(name or (part.get_content_type() if part.is_attachment() else ""))


def _blocks(part: MIMEPart, name: str) -> _Text:
    text, warnings = decode(payload(part), part.get_content_charset())
    kind = part.get_content_type()
    if kind in _HTML:
        return _Text(part, html.extract(text, name)[0], warnings, [])
    text, files = without_uuencoded(without_terminal_codes(re.sub(r"\r\n?", "\n", text)))
    if part.get_param("format") == "flowed":
        text = _unflowed(text, glue="" if str(part.get_param("delsp")).casefold() == "yes" else " ")
    return _Text(part, plain_blocks(text, by_lines=not _FILLED.fullmatch(kind)), warnings, files)


def _unflowed(text: str, glue: str) -> str:
    """Lines that end in a blank with those they go on in, where these are quoted as often (RFC 3676)."""
    lines: list[str] = []
    before = None  # how often the last line is quoted, if it goes on
    for line in text.split("\n"):
        signs = re.match(r">*", line)
        quoted = signs[0] if signs else ""
        bare = line[len(quoted) :].removeprefix(" ")
        if before == quoted and bare != "-- ":
            lines[-1] = lines[-1].removesuffix(" ") + glue + bare
        else:
            lines.append(f"{quoted} {bare}" if quoted else bare)
        before = quoted if bare.endswith(" ") and bare != "-- " else None
    return "\n".join(lines)
