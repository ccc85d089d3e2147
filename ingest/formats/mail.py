"""E-mail (.eml) and web pages saved in one file (.mhtml), which have the structure of an e-mail.

All text parts are read; of alternatives, the HTML one; the words in a winmail.dat if there are no others. A warning
names attachments, forwarded mails and other parts that are not read, but not a page's pictures and style sheets.
"""

import email
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.message import EmailMessage, MIMEPart
from email.policy import EmailPolicy
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from ingest.charset import decode, known_encoding
from ingest.clean import one_line
from ingest.conversion import Content, ConvertOptions
from ingest.errors import BrokenFile, EmptyDocument
from ingest.formats.mail_encoding import decoded_payload, strip_uuencoded, words_in_utf8
from ingest.formats.paragraphs import plain_blocks
from ingest.formats.tnef import read_tnef
from ingest.markup import html
from ingest.markup.html_damage import damage_warnings, end_warning
from ingest.sections import Block, first_heading, paginate
from ingest.terminal import terminal_text
from ingest.wording import listed

_HEADERS = ("From", "To", "Cc", "Date", "Subject")  # written above the text
_HTML = ("text/html", "application/xhtml+xml")
_LOOKS = re.compile(r"(?:image|audio|video|font)/.*|text/(?:css|(?:x-)?(?:java|ecma)script)")  # resources of a page
_FILLED = re.compile(r"text/(?:plain|markdown|enriched)|multipart/.*")  # types whose lines may be wrapped paragraphs
_COUNTED = re.compile(rb"(\d{1,9}) *\r?\n")  # Apple Mail: the mail's size in bytes; metadata follow it
_CHARSET = re.compile(rb"^content-type:[^\n]*(?:\n[ \t][^\n]*)*?charset=[\"']?([\w.:-]+)", re.IGNORECASE | re.MULTILINE)
_HEAD_BYTES = 1 << 16
_MAILS = ("message/rfc822", "message/global")


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert an e-mail or a web archive.

    Raises:
        TooLarge: too many bytes or characters.
        EmptyDocument: no text.
        BrokenFile: the HTML parser found nothing.
    """
    limits = options.limits
    limits.check(path.name, "bytes", path.stat().st_size, limits.text_member_bytes)
    mail = parse_mail(path.read_bytes(), path.name)
    limits.check(path.name, "characters", sum(len(block.text) for block in mail.blocks), limits.characters)
    head = mail.head
    if re.search(r"^From: \W*saved by\b", head, re.IGNORECASE):  # browsers write this
        head = ""
    blocks = [Block(head), *mail.blocks] if head else mail.blocks
    pages, toc = paginate(blocks)
    if not pages:
        raise EmptyDocument(f"{path.name} has no text in it. Open it in a browser or mail program and save it as PDF.")
    return Content(pages, toc, [mail.subject, first_heading(blocks)], [*mail.warnings, *unread_warning(mail.unread)])


@dataclass(frozen=True)
class Mail:
    """The text of a mail.

    head: sender, receivers, date and subject, a line each; "" without a sender.
    unread: the names of its parts that are not read, each once.
    """

    message: EmailMessage
    head: str
    blocks: list[Block]
    warnings: list[str]
    unread: list[str]

    @property
    def subject(self) -> str:
        """The subject, on one line."""
        return header_text(self.message, "Subject")


def parse_mail(data: bytes, name: str) -> Mail:
    """Parse a mail. name: its file, for messages.

    Raises:
        BrokenFile: the HTML parser found nothing.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")  # Python takes no line after it for a header
    if counted := _COUNTED.match(data):
        data = data[counted.end() : counted.end() + int(counted[1])]
    message = cast(EmailMessage, email.message_from_bytes(data, policy=_Policy(_charset(data[:_HEAD_BYTES]))))
    texts = _texts(message, name)
    packed = {id(part): read_tnef(decoded_payload(part), name) for part in _leaves(message) if _is_tnef(part)}
    blocks = [block for text in texts for block in text.blocks]
    blocks = blocks or next((mail.blocks for mail in packed.values() if mail.blocks), [])
    warnings = list(dict.fromkeys(warning for text in texts for warning in text.warnings))
    head = [f"{each}: {said}" for each in _HEADERS if (said := header_text(message, each))]
    files = [file for text in texts for file in text.files] + [file for mail in packed.values() for file in mail.files]
    unread = list(dict.fromkeys([*files, *_unread(message, {*packed, *(id(text.part) for text in texts)})]))
    return Mail(message, "\n".join(head) if header_text(message, "From") else "", blocks, warnings, unread)


class _Policy(EmailPolicy):
    """Decodes headers in supersets of the encodings that they name; headers without one, in the text's encoding."""

    charset: str

    def __init__(self, charset: str = "") -> None:
        super().__init__(message_factory=EmailMessage)
        object.__setattr__(self, "charset", charset)  # policies forbid assignment

    def header_fetch_parse(self, name: str, value: Any) -> Any:
        if isinstance(value, str) and not hasattr(value, "name"):
            value = words_in_utf8(value)
            if not value.isascii():
                value = decode(value.encode("utf-8", "surrogateescape"), self.charset or None)[0]
        return super().header_fetch_parse(name, value)


def _charset(data: bytes) -> str:
    """Return the first encoding that a mail's parts declare, or ""."""
    found = _CHARSET.search(data)
    return found[1].decode() if found and known_encoding(found[1].decode()) else ""


def header_text(message: MIMEPart, name: str) -> str:
    """Return a header on one line; "" if it is missing."""
    try:
        return one_line(str(message[name] or ""))
    except Exception:  # the parser fails on some headers: take the raw text
        return next((one_line(str(said)) for key, said in message.raw_items() if key.lower() == name.lower()), "")


def unread_warning(names: Sequence[str]) -> list[str]:
    """Return the warning about parts of mails that are not read; none if there are none."""
    return [f"Attached and not read: {listed(names, 12)}. Save what you need and add it."] if names else []


@dataclass(frozen=True)
class _Text:
    part: MIMEPart
    blocks: list[Block]
    warnings: list[str]
    files: list[str]  # uuencoded within the text


def _texts(part: MIMEPart, name: str, frames: Mapping[str, MIMEPart] = MappingProxyType({})) -> list[_Text]:
    """Return the text parts to read, in reading order.

    The first of related parts is read, with those that its frames show; the others only if it has no text. The richest
    alternative with any text is read, and every other kind of part.

    Args:
        part: the part.
        name: its file, for messages.
        frames: the pages saved with it, by address.
    """
    kind = part.get_content_type()
    if part.is_attachment():
        return []
    if _is_text(part):
        return [text for text in _read(part, name, frames) if text.blocks or text.part is not part]
    parts = list(_parts(part))
    if kind == "multipart/alternative":
        parts.reverse()  # the last is the best (RFC 2046)
        parts.sort(key=lambda each: min(_rank(leaf) for leaf in each.walk()))
        return next((texts for each in parts if (texts := _texts(each, name, frames))), [])
    if kind == "multipart/related" and parts:
        others = list(part.iter_attachments())  # all but the root part
        root = next(each for each in parts if each not in others)
        pages = [each for other in others for each in other.walk() if each.get_content_type() in _HTML]
        if texts := _texts(root, name, {address: page for page in pages for address in _addresses(page)}):
            return texts
        parts = [each for each in others if not _LOOKS.fullmatch(each.get_content_type())]
    return [text for each in parts for text in _texts(each, name, frames)]


def _is_text(part: MIMEPart) -> bool:
    """Return whether a part is read as text. A multipart whose border is missing is text, too."""
    if part.get_content_maintype() == "multipart":
        return not part.is_multipart()
    kind = part.get_content_type()
    return kind in _HTML or (kind.startswith("text/") and kind != "text/rtf")


def _rank(leaf: MIMEPart) -> int:
    """Rank an alternative; the lowest is read. An invitation's text repeats its calendar, which is code."""
    kind = leaf.get_content_type()
    return 0 if kind in _HTML else 1 if kind == "text/plain" else 2


def _parts(part: MIMEPart) -> Iterator[MIMEPart]:
    """Yield the parts of a part. An attachment, or a mail within a mail, has none."""
    if part.get_content_maintype() == "multipart" and not part.is_attachment():
        yield from part.iter_parts()


def _leaves(part: MIMEPart) -> Iterator[MIMEPart]:
    """Yield the parts that hold no others, without those of mails within the mail."""
    parts = list(_parts(part))
    for each in parts:
        yield from _leaves(each)
    if not parts:
        yield part


def _is_tnef(part: MIMEPart) -> bool:
    """Return whether a part is a mail as Outlook packs it."""
    return "ms-tnef" in part.get_content_type() or (part.get_filename() or "").casefold() == "winmail.dat"


def _unread(part: MIMEPart, read: Container[int], page: bool = False, passed_over: bool = False) -> Iterator[str]:
    """Yield the names of the unread files of a part, and the types of its other unread parts.

    Args:
        part: the part, with all below it.
        read: the ids of the parts that are read.
        page: it belongs to a web page, whose style is not missed.
        passed_over: it is an alternative to a part that is read, and so is missed only if it is a file.
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
    """Return whether a part has a body; for text, words in it. A mail server's report has an empty part."""
    if _is_text(part):
        with suppress(BrokenFile):
            return bool(_read(part, "")[0].blocks)
    return bool(decoded_payload(part).strip())


def _file_name(part: MIMEPart) -> str:
    """Return the name of a part that is a file, or a mail within this one; "" for other parts."""
    name = part.get_filename()
    if not name and part.get_content_type() in _MAILS:
        name = next((header_text(mail, "Subject") for mail in part.iter_parts()), "") or "a mail"
    return one_line(name or (part.get_content_type() if part.is_attachment() else ""))


def _addresses(page: MIMEPart) -> list[str]:
    """Return the addresses that a frame may give a part."""
    identity = header_text(page, "Content-ID").strip("<>")
    return [*filter(None, [f"cid:{identity}" if identity else "", header_text(page, "Content-Location")])]


def _read(part: MIMEPart, name: str, frames: Mapping[str, MIMEPart] = MappingProxyType({})) -> list[_Text]:
    """Return the text of a part, and behind it, without blocks of their own, the parts that its frames show."""
    kind = part.get_content_type()
    if kind not in _HTML:
        text, warnings = decode(decoded_payload(part), part.get_content_charset())
        text, files = strip_uuencoded(re.sub(r"\r\n?", "\n", terminal_text(text)))
        if part.get_param("format") == "flowed":
            text = _unflowed(text, glue="" if str(part.get_param("delsp")).casefold() == "yes" else " ")
        return [_Text(part, plain_blocks(text, by_lines=not _FILLED.fullmatch(kind)), warnings, files)]
    markup, warnings = _markup(part)
    pages = {address: _markup(page) for address, page in frames.items()}
    left = {address: page for address, (page, _) in pages.items()}
    blocks = html.extract(markup, name, left, header_text(part, "Content-Location"))[0]
    shown = [_Text(frames[address], [], pages[address][1], []) for address in pages if address not in left]
    return [_Text(part, blocks, warnings, []), *shown]


def _markup(part: MIMEPart) -> tuple[str, list[str]]:
    """Return a page, and warnings about it."""
    text, warnings = decode(decoded_payload(part), part.get_content_charset())
    return text, [*warnings, *damage_warnings(text), *end_warning(text)]


def _unflowed(text: str, glue: str) -> str:
    """Join the lines that end in a blank with the next one, if both are quoted as often (RFC 3676)."""
    lines: list[str] = []
    before = None  # quotation marks of the last line, if the next one continues it
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
