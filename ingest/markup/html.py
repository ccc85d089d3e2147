"""HTML to blocks of text, for web pages, EPUB chapters, e-mail and rendered Markdown.

Markup is data: scripts, styles, buttons and hidden elements are left out, nothing is fetched, and the HTML parser knows
no entities of the document's own, so they cannot grow.
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from lxml import etree

from ingest.clean import join_inline, one_line, picture_text, superscript, tidy, tidy_code
from ingest.list_numbers import list_number
from ingest.markup.formulas import mathml_text
from ingest.markup.html_arrange import Frames, arrange
from ingest.markup.html_elements import (
    BLOCKS,
    FORM_FIELDS,
    is_displayed_as_block,
    is_drawn_formula,
    is_note_mark,
    is_page_mark,
    is_skipped,
    tag_of,
)
from ingest.markup.html_parser import parse_html
from ingest.markup.html_tables import is_layout_table, table_rows
from ingest.markup.svg import svg_lines
from ingest.sections import Block

DEEPEST = 100  # nested elements; deeper text keeps its paragraphs and headings, nothing else
_TYPED_IN = ("text", "search", "tel", "url", "email", "number", "date", "time", "datetime-local", "month", "week", "")
_COUNTED_AS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}


@dataclass
class _List:
    """The numbering of an open list."""

    number: int  # of the next item
    step: int
    kind: str  # as `list_number` takes it


@dataclass
class _Walk:
    """The blocks found so far, and the state between them."""

    blocks: list[Block] = field(default_factory=list)
    anchors: dict[str, int] = field(default_factory=dict)  # id -> index of the block that begins there
    inline: list[str] = field(default_factory=list)  # the text of the block to come, with \v for line ends
    prefix: str = ""  # bullet or number of a list item whose first block is still to come
    tight: bool = False
    first: bool = False  # the next block begins a list
    depth: int = 0
    lists: list["_List | None"] = field(default_factory=list)  # open lists, None without numbers

    def flush(self, level: int = 0, code: bool = False) -> None:
        """End the block that the inline text forms."""
        raw = join_inline(self.inline)
        self.inline.clear()
        text = (
            textwrap.dedent(tidy_code(raw))
            if code
            else tidy("\n".join(" ".join(line.split()) for line in raw.split("\v")))
        )
        if not text:
            return
        self.blocks.append(Block(self.prefix + text, level, tight=self.tight, first=self.first, code=code))
        self.prefix, self.first = "", False


def extract(
    markup: str, name: str, frames: Frames | None = None, address: str = ""
) -> tuple[list[Block], dict[str, int], str | None]:
    """Extract the text of a page.

    Args:
        markup: HTML or XHTML.
        name: the file, for messages.
        frames: the pages saved with it, by address; those that it shows are taken out.
        address: its own, to which those of its frames may be relative.

    Returns:
        The blocks in reading order, the index of the block at which each id begins, and the `<title>`.

    Raises:
        BrokenFile: the parser found nothing.
    """
    root = parse_html(markup, name)
    arrange(root, name, frames, address)
    walk = _Walk()
    titles = (each for each in root.iter("title") if not any(tag_of(above) == "svg" for above in each.iterancestors()))
    named = next(titles, None)
    title = None if named is None else "".join(map(str, named.itertext()))
    body = root.find(".//body")
    _visit(root if body is None else body, walk)
    walk.flush()
    # An id at the very end points at the last block.
    last = max(0, len(walk.blocks) - 1)
    return walk.blocks, {name: min(index, last) for name, index in walk.anchors.items()}, title


def _visit(element: etree._Element, walk: _Walk) -> None:
    """Read an element and all below it."""
    tag = tag_of(element)
    if is_skipped(element, tag) or is_drawn_formula(element, tag):
        return
    if tag in ("span", "a", "div", "p") and is_page_mark(element, tag):
        if element.get("id"):
            walk.anchors.setdefault(element.get("id", ""), len(walk.blocks))
        return
    for attribute in ("id", "name"):
        anchor = element.get(attribute)
        if anchor and (attribute == "id" or tag == "a"):
            walk.anchors.setdefault(anchor, len(walk.blocks))
    if walk.depth > DEEPEST:
        _flatten(element, walk)
        return
    walk.depth += 1
    try:
        if tag in FORM_FIELDS:
            _visit_form_field(element, tag, walk)
        elif tag in BLOCKS or is_displayed_as_block(element):
            _visit_block(element, tag, walk)
        else:
            _visit_inline(element, tag, walk)
    finally:
        walk.depth -= 1


def _visit_block(element: etree._Element, tag: str, walk: _Walk) -> None:
    """Read a block element."""
    walk.flush()
    before = len(walk.blocks)
    if tag == "table" and not is_layout_table(element):
        _visit_table(element, walk)
        return
    if tag == "li":
        _visit_list_item(element, walk)
        return
    if tag in ("ol", "ul", "menu"):
        _visit_list(element, tag, walk)
        return
    if tag == "pre":
        walk.inline.append(_preformatted(element))
        walk.flush(code=True)
        return
    level = int(tag[1]) if tag[0] == "h" and tag[1:].isdecimal() else 0
    _visit_children(element, walk)
    walk.flush(level)
    if level and len(walk.blocks) > before and not walk.blocks[-1].level:  # blocks within the heading
        walk.blocks[before:] = [replace(block, level=level) for block in walk.blocks[before:]]


def _visit_table(table: etree._Element, walk: _Walk) -> None:
    """Read a table, a block for each row."""
    before = len(walk.blocks)
    for line, ids in table_rows(table, _inline_text):
        for anchor in ids:
            walk.anchors.setdefault(anchor, len(walk.blocks))
        if line:
            first = not walk.tight and len(walk.blocks) == before
            walk.blocks.append(Block(line, tight=True, first=first))


def _visit_form_field(element: etree._Element, tag: str, walk: _Walk) -> None:
    """Read a part of a form: a label, a heading that unfolds text, or the value of a field."""
    if tag == "label":
        walk.inline.append(" ")
        _visit_children(element, walk)
        walk.inline.append(" ")
    elif tag == "button":
        walk.flush()
        _visit_children(element, walk)
        walk.flush()
    elif value := _field_value(element, tag):
        walk.inline.append(f" {value} ")


def _field_value(element: etree._Element, tag: str) -> str:
    """Return the text typed into a field, the options chosen in it, or a box that is ticked or not."""
    kind = (element.get("type") or "").casefold()
    if tag == "textarea":
        return one_line("".join(map(str, element.itertext())))
    if tag == "select":
        chosen = [each for each in element.iter("option") if "selected" in each.attrib]
        return ", ".join(filter(None, (one_line("".join(map(str, each.itertext()))) for each in chosen)))
    if kind in ("checkbox", "radio"):
        return "☒" if "checked" in element.attrib else "☐"
    return one_line(element.get("value") or "") if kind in _TYPED_IN else ""


def _visit_list(element: etree._Element, tag: str, walk: _Walk) -> None:
    """Read a list and number its items."""
    numbered = tag == "ol" and "none" not in (element.get("style") or "")
    down = "reversed" in element.attrib
    first = _number(element.get("start"))
    if first is None:
        first = sum(tag_of(child) == "li" for child in element) if down else 1
    kind = _COUNTED_AS.get(element.get("type") or "", "decimal")
    walk.first = walk.first or not walk.tight
    walk.lists.append(_List(first, -1 if down else 1, kind) if numbered else None)
    _visit_children(element, walk)
    walk.flush()
    walk.lists.pop()
    walk.first = False


def _visit_list_item(element: etree._Element, walk: _Walk) -> None:
    """Read an item of a list, with its bullet or number."""
    nested = "-" * max(0, len(walk.lists) - 1)
    mark = f"{nested}- "
    if walk.lists and (counted := walk.lists[-1]) is not None:
        own = _number(element.get("value"))
        number = counted.number if own is None else own
        counted.number = number + counted.step
        text = list_number(number, counted.kind)
        mark = f"{nested}{' ' if nested else ''}{text}. "  # "-1." would be a negative number
    outer = walk.tight
    walk.prefix, walk.tight = mark, True
    _visit_children(element, walk)
    walk.flush()
    walk.prefix, walk.tight = "", outer


def _number(text: str | None) -> int | None:
    """Return the whole number in an attribute, or None."""
    return int(text) if text and re.fullmatch(r"\s*-?\d{1,6}\s*", text) else None


def _visit_inline(element: etree._Element, tag: str, walk: _Walk) -> None:
    """Read an element within a line."""
    if tag == "br":
        walk.inline.append("\v")
        return
    noted = is_note_mark(element, tag)
    if noted or tag == "sup":
        walk.inline.append(superscript("".join(text for _, text in _flat(element)), noted))
        return
    if tag == "q":  # browsers set the quotation marks
        walk.inline.append("“")
        _visit_children(element, walk)
        walk.inline.append("”")
        return
    if tag == "math":
        border = "\v" if element.get("display") == "block" else ""
        walk.inline.append(f"{border}{mathml_text(element)}{border}")
        return
    if tag == "img":
        alt = element.get("alt")
        formula = re.search("math|latex", element.get("class") or "")  # pictures of TeX, as in Wikipedia and WordPress
        walk.inline.append(one_line(alt or "") if formula else picture_text(alt))
        return
    if tag == "svg":
        walk.inline.append(picture_text("; ".join(svg_lines(element))))
        return
    if tag == "ins" and (before := element.getprevious()) is not None and not before.tail:
        walk.inline.append(" " if tag_of(before) in ("s", "strike") else "")  # apart from the words it replaces
    _visit_children(element, walk)


def _visit_children(element: etree._Element, walk: _Walk) -> None:
    """Read the text of an element, its children and the text between them."""
    if element.text:
        walk.inline.append(element.text.replace("\v", " "))
    for child in element:
        if isinstance(child.tag, str):
            _visit(child, walk)
        if child.tail:
            walk.inline.append(child.tail.replace("\v", " "))


def _inline_text(element: etree._Element) -> str:
    """Return the text of an element on one line."""
    walk = _Walk()
    _visit_children(element, walk)
    walk.flush()
    return " ".join(one_line(block.text) for block in walk.blocks)


def _flat(element: etree._Element) -> Iterator[tuple[str, str]]:
    """Yield the visible text below an element without recursion: ("", text), and ("p", ""), ("/p", "") at borders."""
    steps = etree.iterwalk(element, events=("start", "end"))
    for event, node in steps:
        tag = tag_of(node)
        left_out = is_skipped(node, tag)
        if event == "start" and left_out:
            steps.skip_subtree()
        elif event == "start":
            yield tag, ""
            yield "", node.text or ""
        elif not left_out:
            yield f"/{tag}", ""
        if event == "end" and node is not element:
            yield "", node.tail or ""


def _preformatted(element: etree._Element) -> str:
    """Return the text of a `<pre>` with its line ends. Blocks end lines, too: some highlighters use one per line."""
    pieces = []
    for border, text in _flat(element):
        if border == "br":
            pieces.append("\n")
        elif border.removeprefix("/") in BLOCKS:
            pieces.append("\v")
        else:
            pieces.append(text.replace("\v", " "))
    return re.sub(r"\n?(?:\v\n?)+", "\n", "".join(pieces))


def _flatten(element: etree._Element, walk: _Walk) -> None:
    """Read an element that lies too deep for recursion: its paragraphs and headings."""
    for border, text in _flat(element):
        if border == "br":
            walk.inline.append("\v")
        elif border.removeprefix("/") in BLOCKS:
            walk.flush(int(border[2]) if re.fullmatch(r"/h[1-6]", border) else 0)
        else:
            walk.inline.append(text.replace("\v", " "))
