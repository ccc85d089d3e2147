"""FictionBook 2, from its own XML: sections as chapters, notes at the end. Also zipped (.fb2.zip)."""

import zipfile
from dataclasses import replace
from pathlib import Path

from lxml import etree

from ingest.charset import decode
from ingest.clean import joined, one_line, pictured, raised
from ingest.document import Reading
from ingest.errors import BrokenFile, EmptyDocument, TooLarge
from ingest.limits import Limits, check_archive, read_member
from ingest.markup.xml import parse_xml
from ingest.sections import Block, first_heading, paginate, rows_of
from ingest.table import TALLEST, Cell, span, table_lines

DEEPEST = 100  # nested elements; text below is kept but flattened
_PARAGRAPHS = frozenset({"p", "v", "text-author", "date"})


def read(path: Path, limits: Limits) -> Reading:
    """Read an FB2 book, plain or alone in a ZIP archive.

    Raises:
        BrokenFile, TooLarge, EmptyDocument.
    """
    markup, warnings = decode(_bytes(path, limits))
    root = parse_xml(markup, path.name, warnings)
    _set_down(root)
    blocks: list[Block] = []
    for about in root.iterfind("{*}description/{*}title-info/{*}annotation"):
        _visit(about, 0, blocks)
    for body in root.iterfind("{*}body"):
        name = body.get("name")  # "notes", "comments": one section each, whatever is in it
        start = len(blocks)
        _visit(body, 0, blocks)
        if name:
            titled = body.find("{*}title") is not None
            for index in range(start + titled, len(blocks)):
                if blocks[index].level:
                    blocks[index] = replace(blocks[index], level=6)
            if not titled:
                blocks.insert(start, Block(name.capitalize(), 1))
    limits.check(path.name, "characters", sum(len(block.text) for block in blocks), limits.characters)
    pages, toc = paginate(blocks)
    if not pages:
        raise EmptyDocument(f"{path.name} has no text in it.")
    title = root.findtext("{*}description/{*}title-info/{*}book-title")
    return Reading(pages, toc, [title, first_heading(blocks)], warnings)


def _bytes(path: Path, limits: Limits) -> bytes:
    if not zipfile.is_zipfile(path):
        limits.check(path.name, "bytes", path.stat().st_size, limits.text_member_bytes)
        return path.read_bytes()
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path.name, limits)
            member = next(name for name in archive.namelist() if name.casefold().endswith(".fb2"))
            return read_member(archive, member, limits)
    except TooLarge:
        raise
    except Exception as error:  # whatever a damaged archive makes zipfile raise
        raise BrokenFile(f"{path.name} cannot be unpacked ({one_line(str(error))[:120]}). Fetch it again.") from error


def _set_down(root: etree._Element) -> None:
    """Put the marks of notes, whatever is raised, and what pictures show on the line."""
    for image in root.iter("{*}image"):
        image.text = pictured(image.get("alt") or image.get("title"))
    for element in list(root.iter("{*}a", "{*}sup")):
        text = "".join(map(str, element.itertext()))
        noted = any(link.get("type") == "note" for link in element.iter("{*}a"))
        if noted or etree.QName(element).localname == "sup":
            del element[:]
            element.text = raised(text, noted)


def _visit(element: etree._Element, depth: int, blocks: list[Block]) -> None:
    _loose(element.text, blocks)
    for child in element:
        if isinstance(child.tag, str):
            _visit_child(child, child.tag.rpartition("}")[2], depth, blocks)
        _loose(child.tail, blocks)


def _loose(text: str | None, blocks: list[Block]) -> None:
    """What stands between the elements, where no text should be."""
    if words := one_line(text or ""):
        blocks.append(Block(words))


def _visit_child(child: etree._Element, tag: str, depth: int, blocks: list[Block]) -> None:
    if depth > DEEPEST:
        blocks.append(Block(one_line(" ".join(map(str, child.itertext())))))
    elif tag == "section":
        _visit(child, depth + 1, blocks)
    elif tag in ("title", "subtitle"):
        lines = [_words(line) for line in child.iterfind("{*}p")]
        text = ": ".join(line for line in lines if line) or _words(child)
        level = min(6, max(1, depth)) if tag == "title" else 6
        blocks.append(Block(text, level))
    elif tag == "table":
        rows = [[_cell(cell) for cell in row.iterfind("{*}*")] for row in child.iter("{*}tr")]
        blocks.extend(rows_of(table_lines(rows)))
    elif tag == "stanza":
        verses = [_words(verse) for verse in child.iterfind("{*}*")]  # or a title
        blocks.append(Block("\n".join(verses)))
    elif tag in _PARAGRAPHS:
        blocks.append(Block(_words(child)))
    else:  # epigraph, cite, poem, annotation and what is unknown
        _visit(child, depth + 1, blocks)


def _cell(element: etree._Element) -> Cell:
    return Cell(_words(element), span(element.get("colspan")), span(element.get("rowspan"), TALLEST))


def _words(element: etree._Element) -> str:
    """What an element and those within say, on one line."""
    return one_line(joined(map(str, element.itertext())))
