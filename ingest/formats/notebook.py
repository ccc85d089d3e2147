"""JSON as people read it, and Jupyter notebooks: their cells and what these printed, without pictures."""

import json
import re
from collections.abc import Iterator
from typing import Any

from ingest.sections import Block

_ESCAPED = re.compile(r"(?<!\\)((?:\\\\)*)((?:\\u[0-9A-Fa-f]{4})+)")
_KEPT = frozenset('"\\')  # what must stay escaped
_HEADING = re.compile(r"(#{1,6})\s+(\S.*?)\s*#*$")
_FENCE = re.compile(r"\s*(?:```|~~~)")


def unescaped(text: str) -> str:
    """JSON with its letters as such, where it has them by their numbers."""

    def letters(found: re.Match[str]) -> str:
        said = re.findall("....", found[2].replace("\\u", ""))
        signs = bytes.fromhex("".join(said)).decode("utf-16-be", errors="replace")
        return found[1] + "".join(_written(sign) for sign in signs)

    return _ESCAPED.sub(letters, text) if "\\u" in text else text


def _written(sign: str) -> str:
    return f"\\u{ord(sign):04x}" if sign in _KEPT or ord(sign) < 32 or sign == "\ufffd" else sign


def notebook_blocks(text: str) -> tuple[list[Block], list[str]] | None:
    """The paragraphs of a notebook and warnings of what is left out; None where it is no notebook."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(whole, dict):
        return None
    cells = whole.get("cells")
    if cells is None and isinstance(whole.get("worksheets"), list):  # of before 2015
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
                blocks.append(Block(said, code=True))
                data = output.get("data") or {}
                pictures += not said and any(str(kind).startswith("image/") for kind in data)
        else:
            blocks.extend(_prose(source))
    warnings = [f"Not read: pictures that {pictures} outputs of the notebook show."] if pictures > 1 else []
    warnings += ["Not read: a picture that an output of the notebook shows."] if pictures == 1 else []
    return [block for block in blocks if block.text.strip()], warnings


def _prose(source: str) -> Iterator[Block]:
    """The paragraphs of Markdown as they are written, with its headings."""
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


def _printed(output: dict[str, Any]) -> str:
    """What an output says in words: the plain form of its kinds."""
    if output.get("output_type") in ("error", "pyerr"):
        return f"{output.get('ename', 'error')}: {output.get('evalue', '')}"
    data = output.get("data")
    told = data if isinstance(data, dict) else output
    kinds = ("text/markdown", "text/plain", "text/latex", "text")
    said = next((text for kind in kinds if (text := _joined(told.get(kind)))), "")
    drawn = isinstance(data, dict) and any(str(kind).startswith("image/") for kind in data)
    return "" if drawn and re.fullmatch(r"<[^<>\n]*>", said.strip()) else said  # "<Figure size 640x480>"


def _joined(lines: Any) -> str:
    if isinstance(lines, list):
        return "".join(line for line in lines if isinstance(line, str))
    return lines if isinstance(lines, str) else ""
