"""Small files made by hand, for cases that no sample file shows, and checks that hold for every document."""

import struct
import zipfile
from collections.abc import Container
from pathlib import Path

import pymupdf

from ingest import Document, ingest

PROSE = (
    "The keeper of the lamp went up the long stair once more, and on every step he counted the ships that he had seen. "
)


def pdf(path: Path, pages: list[list[tuple[float, float, str]]], scans: Container[int] = (), **save: object) -> Path:
    """Write a PDF whose pages hold lines of 11-point print at (x, y), in this order. scans: pages that are pictures."""
    document = pymupdf.open()
    for number, lines in enumerate(pages, 1):
        page = document.new_page(width=400, height=600)
        if number in scans:
            page.insert_image(page.rect, pixmap=pymupdf.Pixmap(pymupdf.csGRAY, (0, 0, 40, 60)))
        for x, y, text in lines:
            page.insert_text((x, y), text, fontsize=11)
    document.save(str(path), **save)
    document.close()
    return path


def mobi(
    path: Path,
    markup: str,
    title: str = "A Small Book",
    encryption: int = 0,
    packed: bool = False,
    style: str = "",
    picture: bytes = b"",
) -> Path:
    """Write a MOBI 6 book: a Palm database of a header record, text records of 4096 bytes, and one of a picture.

    With a `style` it is an AZW3 (MOBI 8): a style sheet follows the text, and the next record separates the two.
    """
    text, name = (markup + style).encode(), title.encode()
    pieces = [text[start : start + 4096] for start in range(0, len(text), 4096)]
    palmdoc = struct.pack(">HHLHHHH", 2 if packed else 1, 0, len(text), len(pieces), 4096, encryption, 0)
    header = bytearray(232)
    header[0:4] = b"MOBI"
    struct.pack_into(">LLLLL", header, 4, 232, 2, 65001, 1, 6)  # length, type, UTF-8, id, version
    for offset in range(24, 64, 4):
        struct.pack_into(">L", header, offset, 0xFFFFFFFF)  # indexes: none
    struct.pack_into(">L", header, 64, len(pieces) + 1)  # first record that is not text
    struct.pack_into(">LL", header, 68, 16 + 232, len(name))
    struct.pack_into(">L", header, 92, len(pieces) + 1)  # first picture
    flows = b""
    if style:
        struct.pack_into(">L", header, 20, 8)  # version
        struct.pack_into(">LL", header, 176, len(pieces) + 1, 2)  # record that parts the text, and into how many
        size = len(markup.encode())
        flows = struct.pack(">4sLLLLLL", b"FDST", 12, 2, 0, size, size, len(text))
    records = [
        palmdoc + bytes(header) + name + b"\0" * 4,
        *(palmdoc_pack(piece) if packed else piece for piece in pieces),
        *([flows] if style else []),
        *([picture] if picture else []),
    ]
    start = 78 + 8 * len(records) + 2
    database = struct.pack(
        ">32sHHLLLLLL4s4sLLH", b"small", 0, 0, 0, 0, 0, 0, 0, 0, b"BOOK", b"MOBI", 1, 0, len(records)
    )
    index = b""
    for number, record in enumerate(records):
        index += struct.pack(">LL", start, number)
        start += len(record)
    path.write_bytes(database + index + b"\0\0" + b"".join(records))
    return path


def palmdoc_pack(data: bytes) -> bytes:
    """Compress with all four codes of PalmDOC, greedily."""
    out, index = bytearray(), 0
    while index < len(data):
        length = next(
            (
                n
                for n in range(min(10, len(data) - index), 2, -1)
                if data.rfind(data[index : index + n], max(0, index - 2047), index) >= 0
            ),
            0,
        )
        if length:
            distance = index - data.rfind(data[index : index + length], max(0, index - 2047), index)
            out += struct.pack(">H", 0x8000 | distance << 3 | length - 3)
            index += length
        elif data[index] == 0x20 and index + 1 < len(data) and 0x40 <= data[index + 1] < 0x80:
            out.append(data[index + 1] ^ 0x80)
            index += 2
        elif data[index] == 0 or 9 <= data[index] < 0x80:
            out.append(data[index])
            index += 1
        else:
            out += bytes((1, data[index]))
            index += 1
    return bytes(out)


def archive(path: Path, members: dict[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def with_member(path: Path, member: str, data: bytes) -> Path:
    """Replace the bytes of one member of an archive."""
    with zipfile.ZipFile(path) as file:
        members: dict[str, str | bytes] = {name: file.read(name) for name in file.namelist()}
    return archive(path, members | {member: data})


def epub(path: Path, chapters: dict[str, str], nav: str = "", **more: str | bytes) -> Path:
    """Write an EPUB 3 of some chapters (file name -> body markup)."""
    items = "".join(f'<item id="{n}" href="{n}" media-type="application/xhtml+xml"/>' for n in chapters)
    spine = "".join(f'<itemref idref="{n}"/>' for n in chapters)
    if nav:
        items += '<item id="nav" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>'
    members: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="book/package.opf"/></rootfiles></container>',
        "book/package.opf": '<package xmlns="http://www.idpf.org/2007/opf"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Made by Hand</dc:title></metadata>'
        f"<manifest>{items}</manifest><spine>{spine}</spine></package>",
        **{f"book/{name}": f"<html><body>{body}</body></html>" for name, body in chapters.items()},
        **{name.replace("__", "/"): data for name, data in more.items()},
    }
    if nav:
        members["book/nav.xhtml"] = (
            '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"><body>'
            f'<nav epub:type="toc"><ol>{nav}</ol></nav></body></html>'
        )
    return archive(path, members)


def unfolding_pdf(path: Path, depth: int = 12) -> Path:
    """Write three kilobytes of PDF with 10**depth characters on its page: each form draws the next one ten times."""
    form = "<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources {} /Length {} >> stream\n{}\nendstream"
    bodies = ["/X Do " * 10] * depth + ["BT /F 9 Tf (x) Tj ET"]
    fonts = "/Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >>"
    names = [f"<< {fonts} /XObject << /X {number} 0 R >> >>" for number in range(5, 6 + depth)]
    forms = [form.format(name, len(body), body) for name, body in zip(names, bodies, strict=True)]
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources {names[0]} >>",
        *forms,
    ]
    body = "".join(f"{number} 0 obj {each} endobj\n" for number, each in enumerate(objects, 1))
    path.write_text(f"%PDF-1.7\n{body}trailer << /Root 1 0 R >>\n")
    return path


def read(path: Path, content: str | bytes) -> Document:
    """Write a file and ingest it."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return ingest(path)


def with_part(path: Path, owner: str, kind: str, name: str, data: str, identity: str = "rAdded") -> Path:
    """Add a part to an Open XML file, with a relation from another part. kind: the type of the relation."""
    folder, _, base = owner.rpartition("/")
    relations = f"{folder}/_rels/{base}.rels"
    kind = kind if "//" in kind else f"http://schemas.openxmlformats.org/officeDocument/2006/relationships/{kind}"
    added = f'<Relationship Id="{identity}" Type="{kind}" Target="/{name}"/></Relationships>'
    with zipfile.ZipFile(path) as file:
        known = file.read(relations) if relations in file.namelist() else _NO_RELATIONS
    return with_member(
        with_member(path, relations, known.replace(b"</Relationships>", added.encode())), name, data.encode()
    )


_NO_RELATIONS = b'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"></Relationships>'


def check_invariants(document: Document) -> None:
    """Assert the invariants of every document: exact places, honest quality, clean characters."""
    assert document.text.strip()
    for index, (page, start) in enumerate(zip(document.pages, document.page_starts, strict=True)):
        assert page.number == index + 1
        assert document.text[start:].startswith(page.text)
        assert page.text == page.text.strip()
        assert page.quality.characters == len(page.text)
        assert (page.quality.source == "none") == (not page.text)
        if page.text:
            assert document.locate(start).page == page.number
            assert document.locate(start + len(page.text) - 1).page == page.number
    assert len({page.label for page in document.pages}) == len(document.pages)
    assert all(1 <= entry.page <= len(document.pages) and entry.title for entry in document.toc)
    assert not set(document.text) & set("\x00\u00ad\u200b\ufeff\ufb01\r\t")
    assert Document.from_json(document.to_json()) == document
