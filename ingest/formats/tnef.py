"""Mails in the format of Outlook (TNEF, MS-OXTNEF), as they are attached to a mail by the name of winmail.dat."""

import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from ingest.charset import decode, known_encoding
from ingest.clean import one_line
from ingest.errors import BrokenFile
from ingest.formats.compressed_rtf import decompressed
from ingest.formats.paragraphs import plain_blocks
from ingest.formats.rtf_reader import read_rtf
from ingest.markup.html import extract
from ingest.sections import Block

# Attributes, with their types.
_BODY, _CODE_PAGE, _PROPERTIES = 0x0002800C, 0x00069007, 0x00069003
_ATTACHMENT, _FILE_NAME, _FILE_PROPERTIES = 0x00069002, 0x00018010, 0x00069005
# Numbers of properties (MS-OXPROPS), and their types.
_TEXT, _HTML, _RTF, _HTML_CODE_PAGE, _LONG_NAME = 0x1000, 0x1013, 0x1009, 0x3FDE, 0x3707
_EIGHT_BITS, _UNICODE, _MANY, _OWN = 0x1E, 0x1F, 0x1000, 0x8000
_SIZED = (_EIGHT_BITS, _UNICODE, 0x0D, 0x102)
_BYTES = {0x05: 8, 0x06: 8, 0x07: 8, 0x14: 8, 0x40: 8, 0x48: 16}  # of types of a fixed size; others take 4


@dataclass
class Tnef:
    """The words of a mail and the names of the files in it."""

    blocks: list[Block] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def read_tnef(data: bytes, name: str) -> Tnef:
    """Read a mail up to its end, or to the place where it is damaged. name: its file, for messages."""
    charset, plain = "cp1252", ""
    properties: dict[int, bytes | str] = {}
    files: list[str] = []
    for kind, value in _attributes(data):
        if kind == _CODE_PAGE and len(value) >= 4:
            charset = known_encoding(f"cp{struct.unpack_from('<L', value)[0]}") or charset
        elif kind == _BODY:
            plain = value.decode(charset, errors="replace").rstrip("\0")
        elif kind == _PROPERTIES:
            properties = dict(_properties(value, charset))
        elif kind == _ATTACHMENT:
            files.append("")
        elif kind == _FILE_NAME and files:
            files[-1] = files[-1] or one_line(value.decode(charset, errors="replace").rstrip("\0"))
        elif kind == _FILE_PROPERTIES and files:
            long_name = dict(_properties(value, charset)).get(_LONG_NAME, "")
            files[-1] = one_line(long_name) if isinstance(long_name, str) and long_name else files[-1]
    named = [each or "a file without a name" for each in files]
    return Tnef(_blocks(properties, plain, name), named)


def _blocks(properties: dict[int, bytes | str], plain: str, name: str) -> list[Block]:
    """Return the words in the richest form that has any."""
    markup = properties.get(_HTML, "")
    if isinstance(markup, bytes):
        page = properties.get(_HTML_CODE_PAGE, b"")
        number = struct.unpack("<L", page)[0] if isinstance(page, bytes) and len(page) == 4 else 0
        markup = decode(markup, "utf-8" if number == 65001 else f"cp{number}" if number else None)[0]
    if markup:
        with suppress(BrokenFile):
            if blocks := extract(markup, name)[0]:
                return blocks
    said = properties.get(_TEXT, "")
    text = said if isinstance(said, str) and said.strip() else plain
    if blocks := plain_blocks(re.sub(r"\r\n?", "\n", text), by_lines=False):
        return blocks
    packed = properties.get(_RTF, b"")
    with suppress(ValueError):
        return read_rtf(decompressed(packed))[0] if isinstance(packed, bytes) else []
    return []


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the attributes of a mail: level, kind, length, value, checksum."""
    at = 6  # behind the signature and a key
    while at + 9 <= len(data):
        kind, length = struct.unpack_from("<LL", data, at + 1)
        if at + 9 + length > len(data):
            return
        yield kind, data[at + 9 : at + 9 + length]
        at += 9 + length + 2


def _properties(data: bytes, charset: str) -> Iterator[tuple[int, bytes | str]]:
    """Yield the properties in an attribute, each number with its text or bytes; of several values, the first."""
    with suppress(struct.error):  # it is cut off
        at = 4
        for _ in range(struct.unpack_from("<L", data)[0]):
            kind, number = struct.unpack_from("<HH", data, at)
            at += 4
            if number >= _OWN:
                by_name, length = struct.unpack_from("<LL", data, at + 16)
                at += 24 + (_padded(length) if by_name else 0)
            several, kind = kind & _MANY, kind & ~_MANY
            count = 1
            if several or kind in _SIZED:
                (count,) = struct.unpack_from("<L", data, at)
                at += 4
            for index in range(count):
                size = _BYTES.get(kind, 4)
                if kind in _SIZED:
                    (size,) = struct.unpack_from("<L", data, at)
                    at += 4
                value = data[at : at + size]
                at += _padded(size)
                if at > len(data) + 3:
                    return
                if index == 0:
                    encoding = {_UNICODE: "utf-16-le", _EIGHT_BITS: charset}.get(kind)
                    yield number, value.decode(encoding, errors="replace").rstrip("\0") if encoding else value


def _padded(size: int) -> int:
    return size + -size % 4
