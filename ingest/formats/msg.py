"""Mails that Outlook saved (MSG): an OLE file with a stream for each property (MS-OXMSG).

The HTML text is read, else the plain one, else RTF. A warning names attachments and mails within the mail.
"""

import re
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import olefile

from ingest.charset import decode, known_encoding, lost_blocks
from ingest.clean import one_line
from ingest.conversion import Content, ConvertOptions
from ingest.errors import BrokenFile, EmptyDocument
from ingest.formats.compressed_rtf import decompressed
from ingest.formats.mail import unread_warning
from ingest.formats.paragraphs import plain_blocks
from ingest.formats.rtf_reader import read_rtf
from ingest.limits import Limits
from ingest.markup.html import extract
from ingest.markup.html_damage import damage_warnings
from ingest.sections import Block, first_heading, paginate

# Numbers of properties in hexadecimal (MS-OXPROPS), and of their types.
_CLASS, _SUBJECT, _HEADERS, _BODY, _HTML, _RTF = "001A", "0037", "007D", "1000", "1013", "1009"
_TO, _CC, _SENDER, _SENDER_ADDRESSES = "0E04", "0E03", "0C1A", ("5D01", "0C1F")
_FILE_NAMES, _CONTENT_ID = ("3707", "3704", "3001"), "3712"
_SENT, _DELIVERED, _CODE_PAGE, _HTML_CODE_PAGE = 0x0039, 0x0E06, 0x3FFD, 0x3FDE
_TEXT, _EIGHT_BITS, _BYTES = "001F", "001E", "0102"
_TIME, _NUMBER = 0x0040, 0x0003
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_UTF_8 = 65001
_WRITTEN = re.compile(r"^(From|To|Cc|Date):[ \t]*([^\n]*(?:\n[ \t][^\n]*)*)", re.MULTILINE | re.IGNORECASE)


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert a mail.

    Raises:
        TooLarge: too many characters, or bytes in one part.
        EmptyDocument: no text.
        BrokenFile: it is damaged.
    """
    try:
        with olefile.OleFileIO(path) as file:
            mail = _Item(file, path.name, options.limits)
            head, (blocks, markup), subject = mail.head(), mail.blocks(), one_line(mail.text(_SUBJECT))
            kind, damage = mail.text(_CLASS), [issue for _, issue in file.parsing_issues]
            unread = [each.file_name() for each in mail.attachments() if not each.is_shown_in(markup)]
    except (OSError, ValueError, LookupError, TypeError, struct.error, RecursionError) as error:
        raise BrokenFile(
            f"{path.name} cannot be opened as a mail of Outlook. The file is damaged: fetch it again, or save it from "
            "Outlook as EML or PDF."
        ) from error
    options.limits.check(path.name, "characters", sum(len(each.text) for each in blocks), options.limits.characters)
    if not blocks:
        raise EmptyDocument(f"{path.name} has no text in it. Save it from Outlook as PDF, and add that.")
    pages, toc = paginate([Block(head), *blocks] if head else blocks)
    warnings = unread_warning(unread)
    if kind and not kind.upper().startswith(("IPM.NOTE", "IPM.POST", "REPORT.")):
        warnings.append(f"It is a {kind} of Outlook: of it only subject and text are read, no dates or addresses.")
    warnings += [*damage_warnings(markup), *mail.lost]
    if damage:
        warnings.append(f"The file is damaged ({one_line(damage[0])[:100]}): text may be missing. Fetch it again.")
    return Content(pages, toc, [subject, first_heading(blocks)], warnings)


class _Item:
    """A mail, or a folder in it such as an attachment, with its properties by their numbers."""

    def __init__(self, file: olefile.OleFileIO, name: str, limits: Limits, folder: str = "") -> None:
        self._file, self._name, self._limits, self._folder = file, name, limits, folder
        self._fixed = dict(self._numbers())
        self.lost: list[str] = []  # warnings about blocks of text that were never written
        self._charset = known_encoding(f"cp{self._fixed.get((_CODE_PAGE, _NUMBER), 1252)}") or "cp1252"

    def _numbers(self) -> Iterator[tuple[tuple[int, int], int]]:
        """Yield the properties of a fixed size by number and type, from a table behind a header."""
        data = self._stream("__properties_version1.0")
        for start in range(8 if self._folder else 32, len(data) - 15, 16):
            kind, number, value = struct.unpack_from("<HH4xQ", data, start)
            yield (number, kind), value & 0xFFFFFFFF if kind == _NUMBER else value

    def _stream(self, name: str) -> bytes:
        path = [*filter(None, [self._folder]), name]
        if not self._file.exists(path):
            return b""
        size, most = self._file.get_size(path), self._limits.text_member_bytes
        self._limits.check(self._name, "bytes in one part", size, most)
        data: bytes = self._file.openstream(path).read()
        if len(data) != size:
            raise ValueError(f"{name} has {len(data):,} of {size:,} bytes")
        return data

    def text(self, number: str) -> str:
        """Return a property of text; "" if it is missing."""
        if data := self._stream(f"__substg1.0_{number}{_TEXT}"):
            text = data.decode("utf-16-le", errors="replace").rstrip("\0")
            self.lost += lost_blocks(text)
            return text
        data = self._stream(f"__substg1.0_{number}{_EIGHT_BITS}")
        return data.decode(self._charset, errors="replace").rstrip("\0")

    def blocks(self) -> tuple[list[Block], str]:
        """Return the text as blocks, and its HTML if it has one."""
        markup = self.text(_HTML)
        if data := self._stream(f"__substg1.0_{_HTML}{_BYTES}"):
            page = self._fixed.get((_HTML_CODE_PAGE, _NUMBER), 0)
            markup = decode(data, "utf-8" if page == _UTF_8 else f"cp{page}" if page else None)[0]
        if markup and (blocks := extract(markup, self._name)[0]):
            return blocks, markup
        text = self.text(_BODY)
        if not text.strip() and (packed := self._stream(f"__substg1.0_{_RTF}{_BYTES}")):
            return read_rtf(decompressed(packed))[0], markup
        return plain_blocks(text.replace("\r\n", "\n").replace("\r", "\n"), by_lines=False), markup

    def head(self) -> str:
        """Return sender, receivers, date and subject, a line each; "" without a sender."""
        written = {found[1].capitalize(): one_line(found[2]) for found in _WRITTEN.finditer(self.text(_HEADERS))}
        address = next(filter(None, map(self.text, _SENDER_ADDRESSES)), "")
        sender = f"{self.text(_SENDER)} <{address}>" if "@" in address else self.text(_SENDER)
        known = {"From": sender, "To": self.text(_TO), "Cc": self.text(_CC), "Date": self._time()}
        said = {name: one_line(written.get(name) or value) for name, value in known.items()}
        said["Subject"] = one_line(self.text(_SUBJECT))
        return "\n".join(f"{name}: {value}" for name, value in said.items() if value) if said["From"] else ""

    def _time(self) -> str:
        ticks = self._fixed.get((_SENT, _TIME)) or self._fixed.get((_DELIVERED, _TIME)) or 0
        try:
            return f"{_EPOCH + timedelta(microseconds=ticks // 10):%a, %d %b %Y %H:%M:%S +0000}" if ticks else ""
        except OverflowError:
            return ""

    def attachments(self) -> Iterator["_Item"]:
        """Yield the attachments."""
        for name, *rest in self._file.listdir(streams=False, storages=True):
            if name.startswith("__attach_version1.0_") and not rest:
                yield _Item(self._file, self._name, self._limits, name)

    def is_shown_in(self, markup: str) -> bool:
        """Return whether an attachment is a picture within the text."""
        identity = self.text(_CONTENT_ID).strip("<>")
        return bool(identity) and f"cid:{identity}" in markup

    def file_name(self) -> str:
        """Return the name of an attachment; the subject of a mail that is attached."""
        return one_line(next(filter(None, map(self.text, _FILE_NAMES)), "")) or "a file without a name"
