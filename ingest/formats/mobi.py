"""MOBI (MOBI 6, and the MOBI 6 half of files that hold both kinds) and AZW3 (MOBI 8), from its own records.

A MOBI book is one long HTML page, cut into records and compressed. MuPDF opens it too, but lays it out and runs
paragraphs together; here its markup is read like any HTML. Only text records are loaded: the pictures after them may be
many times as large. Not read: DRM, HUFF/CDIC compression. A PalmDOC (PDB) is plain text in such records.
Format: https://wiki.mobileread.com/wiki/MOBI
"""

import re
import struct
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from ingest.charset import decode, decode_undeclared, known_encoding
from ingest.conversion import Content, ConvertOptions
from ingest.errors import BrokenFile, EmptyDocument, UnsupportedFormat
from ingest.formats.paragraphs import plain_blocks
from ingest.formats.text import GUESSED
from ingest.limits import Limits
from ingest.markup import html
from ingest.markup.html_damage import damage_warnings
from ingest.sections import Block, first_heading, paginate
from ingest.wording import count

_STORED, _PALMDOC = 1, 2
_SLACK = 16  # bytes: some writers count their own end, too
_PAGE_BREAK = re.compile(r"<\s*mbp:pagebreak[^<>]*>", re.IGNORECASE)


@dataclass(frozen=True)
class _Header:
    compression: int
    length: int  # bytes of the text when unpacked
    text_records: int
    piece: int  # bytes of each text record but the last when unpacked
    encryption: int
    codec: str  # "" for a PalmDOC, which is plain text without a declared encoding
    title: str | None
    trailing: int  # bit field: the entries after the text of each record
    flows: int | None = None  # MOBI 8: index of the record that separates the text from style sheets and drawings


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert a MOBI book.

    Raises:
        BrokenFile: it is cut off before its text.
        TooLarge: too many bytes or characters.
        EmptyDocument: no text.
        UnsupportedFormat: DRM, HUFF/CDIC compression, or an AZW3 whose text has no known end.
    """
    limits = options.limits
    with path.open("rb") as file:
        try:
            spans = _spans(file, path.stat().st_size)
            header = _header(_taken(file, spans[:1], path.name, limits)[0])
        except (struct.error, IndexError) as error:
            raise BrokenFile(f"{path.name} is cut off before its text begins. Fetch it again.") from error
        _check_readable(header, path.name)
        packed = _taken(file, spans[1 : header.text_records + 1], path.name, limits)
        flows = b""
        if header.flows is not None:
            flows = b"".join(_taken(file, spans[header.flows : header.flows + 1], path.name, limits))
    warnings = []
    if len(packed) < header.text_records:
        warnings.append(f"The file is cut off: {len(packed)} of {header.text_records} pieces of its text are there.")
    bodies = [_without_trailing(record, header.trailing) for record in packed]
    unpacked, size, impossible = [], 0, 0
    for body in bodies:
        whole, lost = _unpack(body) if header.compression == _PALMDOC else (body, 0)
        unpacked.append(whole)
        impossible += lost
        size += len(unpacked[-1])
        limits.check(path.name, "bytes when unpacked", size, limits.text_member_bytes)
    markup = b"".join(unpacked)
    if impossible:
        warnings.append(
            f"The text is damaged: words are missing in {count(impossible, 'place')}. Compare it with the original."
        )
    if len(packed) == header.text_records and abs(size - header.length) > _SLACK:
        warnings.append(
            f"The text has {size:,} bytes where the file says {header.length:,}: it is damaged, and some may be "
            "missing. Compare it with the original."
        )
    elif _uneven([len(each) for each in unpacked[:-1]], header.piece):
        warnings.append(
            "The pieces of the text are not as long as the file says: it is damaged, and words may be missing. Compare "
            "it with the original."
        )
    if header.flows is not None:
        markup = markup[: _first_flow(flows, path.name)]
    if header.codec:
        text, guessed = decode(markup, header.codec)  # some headers name another encoding than the text has
        blocks = _blocks(text, path.name)
        warnings += [*guessed, *damage_warnings(text)]
    else:
        text, encoding = decode_undeclared(markup)
        warnings += [GUESSED.format(encoding)] if encoding else []
        blocks = plain_blocks(re.sub(r"\r\n?", "\n", text), by_lines=False)
    limits.check(path.name, "characters", sum(len(block.text) for block in blocks), limits.characters)
    pages, toc = paginate(blocks)
    if not pages:
        raise EmptyDocument(f"{path.name} has no text in it.")
    return Content(pages, toc, [header.title, first_heading(blocks)], warnings)


def _check_readable(header: _Header, name: str) -> None:
    """Raise UnsupportedFormat for DRM and HUFF/CDIC compression."""
    if header.encryption:
        raise UnsupportedFormat(f"{name} is locked by DRM: only the shop's own reader can open it. Use a free copy.")
    if header.compression not in (_STORED, _PALMDOC):
        raise UnsupportedFormat(
            f"{name} is packed with MOBI compression {header.compression} (HUFF/CDIC), which is not read here: "
            "convert it to EPUB, for example with Calibre."
        )


def _spans(file: BinaryIO, size: int) -> list[tuple[int, int]]:
    """Return the start and end of each record. size: of the file, in bytes."""
    (count,) = struct.unpack_from(">H", file.read(78), 76)
    if not count:
        raise IndexError("no records")
    index = file.read(8 * count)
    starts = [struct.unpack_from(">L", index, 8 * number)[0] for number in range(count)]
    if any(after < before for before, after in pairwise(starts)):
        raise IndexError("records lie over one another")
    ends = [*starts[1:], size]
    return [(start, min(end, size)) for start, end in zip(starts, ends, strict=True) if start < size]


def _taken(file: BinaryIO, spans: list[tuple[int, int]], name: str, limits: Limits) -> list[bytes]:
    """Return the records at some spans.

    Raises:
        TooLarge: together they are larger than a text may be.
    """
    limits.check(name, "bytes of text", sum(end - start for start, end in spans), limits.text_member_bytes)
    records = []
    for start, end in spans:
        file.seek(start)
        records.append(file.read(end - start))
    return records


def _header(record: bytes) -> _Header:
    compression, _, length, text_records, piece, encryption = struct.unpack_from(">HHLHHH", record, 0)
    if record[16:20] != b"MOBI":
        return _Header(compression, length, text_records, piece, encryption, "", None, 0)
    header_length, _, encoding, _, version = struct.unpack_from(">LLLLL", record, 20)
    codec = "utf-8" if encoding == 65001 else known_encoding(f"cp{encoding}") or "cp1252"
    offset, size = struct.unpack_from(">LL", record, 84)
    title = decode(record[offset : offset + size], codec)[0] if size < 500 else None
    trailing = struct.unpack_from(">H", record, 242)[0] if header_length >= 228 and version >= 5 else 0
    flows = None
    if version >= 8:
        number, parts = struct.unpack_from(">LL", record, 192)
        flows = number if parts > 1 else None
    return _Header(compression, length, text_records, piece, encryption, codec, title, trailing, flows)


def _uneven(lengths: list[int], piece: int) -> bool:
    """Return whether pieces that should have a length do not, as after bytes put in or taken out before them.

    A writer that fills its pieces otherwise fills none of them, and never beyond that length.
    """
    wrong = [length for length in lengths if length != piece]
    return bool(wrong) and (len(wrong) < len(lengths) or max(wrong) > piece)


def _first_flow(record: bytes, name: str) -> int:
    """Return the length of a MOBI 8 book's text, from its FDST record: "FDST", 12, count, (start, end) of each."""
    if record[:4] != b"FDST" or len(record) < 20:
        raise UnsupportedFormat(
            f"{name} is an AZW3 book that does not say where its text ends: "
            "convert it to EPUB, for example with Calibre."
        )
    return int(struct.unpack_from(">L", record, 16)[0])


def _without_trailing(record: bytes, flags: int) -> bytes:
    """Drop the entries after a record's text. Each ends in its size, as seven-bit digits read backwards."""
    for bit in range(15, 0, -1):
        if flags >> bit & 1 and record:
            size, shift = 0, 0
            for byte in reversed(record[-4:]):
                size |= (byte & 0x7F) << shift
                shift += 7
                if byte & 0x80:
                    break
            record = record[: max(0, len(record) - size)]
    if flags & 1 and record:
        record = record[: max(0, len(record) - (record[-1] & 3) - 1)]
    return record


def _unpack(data: bytes) -> tuple[bytes, int]:
    """Decompress PalmDOC: literals, runs of literals, a space with a letter, and copies of up to ten bytes.

    Also return how many copies name bytes that are not there, as in a damaged file.
    """
    out = bytearray()
    index = impossible = 0
    while index < len(data):
        byte = data[index]
        index += 1
        if 1 <= byte <= 8:
            out += data[index : index + byte]
            index += byte
        elif byte < 0x80:
            out.append(byte)
        elif byte >= 0xC0:
            out += bytes((0x20, byte ^ 0x80))
        elif index < len(data):
            pair = (byte << 8 | data[index]) & 0x3FFF
            index += 1
            distance, length = pair >> 3, (pair & 7) + 3
            there = 0 < distance <= len(out)
            impossible += not there
            for _ in range(length if there else 0):
                out.append(out[-distance])
    return bytes(out), impossible


def _blocks(markup: str, name: str) -> list[Block]:
    """Return the blocks of the book. Without headings, short first lines after page breaks become headings."""
    chunks = []
    for piece in _PAGE_BREAK.split(markup):
        text = piece.replace("\0", "")
        if text.strip():
            found, _, _ = html.extract(f"<html><body>{text}</body></html>", name)
            chunks.append(found)
    if sum(block.level > 0 for chunk in chunks for block in chunk) < 2:
        for chunk in chunks:
            if len(chunk) > 1 and len(chunk[0].text) <= 80:
                chunk[0] = replace(chunk[0], level=1)
    return [block for chunk in chunks for block in chunk]
