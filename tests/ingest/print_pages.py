"""Helpers of the tests of printed pages: texts, columns of print, and what is read of them."""

from collections.abc import Sequence
from pathlib import Path

import pymupdf

from benchmarks import printed
from benchmarks.printed import Piece
from ingest import ingest

STAGE = (
    "The landing stage was left to rot. In the great storm of that winter most of it was carried away, and the lamp "
    "was found a mile up the coast, still whole, by two children who thought that it was a buoy."
)


def column(x: float, y: float, text: str, width: float = 160, step: float = 13) -> list[Piece]:
    return printed.column(x, y, text, width, step)


def text_of(path: Path, pieces: Sequence[Piece], mode: int = 0) -> str:
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=842)
        for x, y, text, size in pieces:
            page.insert_text((x, y), text, fontsize=size, fontname="tiro", render_mode=mode)
        document.save(str(path))
    return ingest(path).text
