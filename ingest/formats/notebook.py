"""Jupyter notebooks: their cells and outputs, without pictures. Also the escapes of JSON."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ingest.errors import BrokenFile
from ingest.markup import html
from ingest.sections import Block
from ingest.terminal import terminal_text

_ESCAPED = re.compile(r"(?<!\\)((?:\\\\)*)((?:\\u[0-9A-Fa-f]{4})+)")
_KEPT = frozenset('"\\')  # characters that must stay escaped
_HEADING = re.compile(r"(#{1,6})\s+(\S.*?)\s*#*$")
_OBJECT = re.compile(r"<[^<>\n]*>|[\w.]+\([^\n]*\bat 0x[0-9a-f]+[^\n]*")  # how Python names an object that has no text
_FENCE = re.compile(r"\s*(?:```|~~~)")


def decode_escapes(text: str) -> str:
    """Replace the escapes of JSON, such as that of "é", by their letters."""

    def letters(found: re.Match[str]) -> str:
        said = re.findall("....", found[2].replace("\\u", ""))
        signs = bytes.fromhex("".join(said)).decode("utf-16-be", errors="replace")
        return found[1] + "".join(_written(sign) for sign in signs)

    return _ESCAPED.sub(letters, text) if "\\u" in text else text


def _written(sign: str) -> str:
    return f"\\u{ord(sign):04x}" if sign in _KEPT or ord(sign) < 32 or sign == "\ufffd" else sign


def notebook_blocks(text: str) -> tuple[list[Block], list[str]] | None:
    """Return the paragraphs of a notebook, and warnings about omitted pictures; None if the text is no notebook."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(whole, dict):
        return None
    cells = whole.get("cells")
    if cells is None and isinstance(whole.get("worksheets"), list):  # notebooks of before 2015
        cells = [cell for sheet in whole["worksheets"] if isinstance(sheet, dict) for cell in sheet.get("cells") or []]
    if not isinstance(cells, list):
        return None
    blocks: list[Block] = []
    pictures = 0
    for cell in (cell for cell in cells if isinstance(cell, dict)):
        source = _joined(cell.get("source", cell.get("input")))
        if cell.get("cell_type") == "code":
            blocks.append(Block(source, code=True))
            for output in (each for each in cell.get("outputs") or [] if isinstance(each, dict)):
                said = _printed(output)
                blocks += said
                data = output.get("data") or {}
                pictures += not said and any(str(kind).startswith("image/") for kind in data)
        else:
            blocks.extend(_prose(source))
    warnings = [f"Not read: pictures that {pictures} outputs of the notebook show."] if pictures > 1 else []
    warnings += ["Not read: a picture that an output of the notebook shows."] if pictures == 1 else []
    return [block for block in blocks if block.text.strip()], warnings


def _prose(source: str) -> Iterator[Block]:
    """Yield the paragraphs of Markdown as they are written, with its headings."""
    lines: list[str] = []
    fenced = False
    for line in [*source.split("\n"), ""]:
        heading = None if fenced else _HEADING.match(line)
        if heading or (not line.strip() and not fenced):
            yield Block("\n".join(lines), code=len(lines) > 1)
            lines = []
        if heading:
            yield Block(heading[2], len(heading[1]))
        elif line.strip() or fenced:
            fenced ^= bool(_FENCE.match(line))
            lines.append(line)
    yield Block("\n".join(lines), code=len(lines) > 1)


def _printed(output: dict[str, Any]) -> list[Block]:
    """Return an output in its plainest form. HTML is read if nothing else says more than the name of an object."""
    if output.get("output_type") in ("error", "pyerr"):
        said = f"{output.get('ename', 'error')}: {output.get('evalue', '')}"
        return [Block(terminal_text(said, is_output=True), code=True)]
    data = output.get("data")
    told = data if isinstance(data, dict) else output
    kinds = ("text/markdown", "text/plain", "text/latex", "text")
    said = next((text for kind in kinds if (text := _joined(told.get(kind)))), "")
    if not said.strip() or _OBJECT.fullmatch(said.strip()):
        with suppress(BrokenFile):
            if blocks := html.extract(_joined(told.get("text/html", told.get("html"))), "an output")[0]:
                return blocks
        if any(str(kind).startswith("image/") for kind in told):  # "<Figure size 640x480>"
            return []
    return [Block(terminal_text(said, is_output=True), code=True)] if said.strip() else []


def _joined(lines: Any) -> str:
    if isinstance(lines, list):
        return "".join(line for line in lines if isinstance(line, str))
    return lines if isinstance(lines, str) else ""
