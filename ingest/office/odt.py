"""OpenDocument texts (ODT, and FODT in one XML file)."""

from collections.abc import Iterator
from pathlib import Path

from ingest.conversion import Content, ConvertOptions
from ingest.office.common import linked_parts_warning, paginated_content, within_limit
from ingest.office.odf import OdfFile, read_odf
from ingest.office.odf_walk import OdfWalk
from ingest.sections import SPLIT_DEPTH, Block, row_blocks


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert an OpenDocument text.

    Raises:
        BrokenFile: it is damaged.
        TooLarge: too many bytes or characters.
        EmptyDocument: no text.
    """
    return read_odf(path, options.limits, "text", _read)


def _read(file: OdfFile) -> Content:
    walk = OdfWalk(file)
    blocks = within_limit(_blocks(walk), file.name, file.limits)
    warnings = [*walk.embedded_warning(), *linked_parts_warning(walk.linked)]
    return paginated_content(file.name, blocks, file.title, [*dict.fromkeys(file.xml_warnings), *warnings])


def _blocks(walk: OdfWalk) -> Iterator[Block]:
    headed = False
    for block in walk.blocks(walk.body):
        headed = headed or 0 < block.level <= SPLIT_DEPTH
        yield block
    noted = walk.take_notes()
    if headed and noted:
        yield Block("Notes", 1)
    yield from row_blocks(noted)
