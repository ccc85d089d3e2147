"""HTML to blocks of text, for web pages, EPUB chapters and rendered Markdown.

Markup is data: scripts, styles, buttons and everything hidden are left out, nothing is fetched, and the HTML parser
knows no entities of the document's own, so they cannot grow.
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby, takewhile
from pathlib import Path

import lxml.html
from lxml import etree

from ingest.charset import decode
from ingest.clean import joined, one_line, pictured, raised, tidy, tidy_code
from ingest.document import Reading
from ingest.errors import BrokenFile, EmptyDocument
from ingest.limits import Limits
from ingest.markup.formulas import of_mathml
from ingest.markup.xml import plain_markup
from ingest.office.numbering import written
from ingest.sections import Block, first_heading, paginate
from ingest.table import TALLEST, Cell, lays_out, span, table_lines

_SKIPPED = frozenset(
    {
        *("script", "style", "template", "noscript", "head", "title", "meta", "link", "iframe", "object"),
        *("embed", "applet", "canvas", "audio", "video", "map"),
        *("nav", "rp", "rt", "dialog", "annotation", "annotation-xml", "del"),
    }
)
_BLOCKS = frozenset(
    {
        *("html", "body", "address", "article", "aside", "blockquote", "center", "dd", "details", "dir", "div", "dl"),
        *("dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "hr", "legend", "li", "main"),
        *("menu", "ol", "p", "pre", "section", "summary", "ul", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("table", "tbody", "thead", "tfoot", "tr", "td", "th", "caption", "dialog", "template"),
    }
)
_TABLE_PARTS = frozenset({"thead", "tbody", "tfoot", "tr"})
_FORM = frozenset({"button", "input", "select", "textarea", "label"})
_TYPED_IN = ("text", "search", "tel", "url", "email", "number", "date", "time", "datetime-local", "month", "week", "")
_CELLS = frozenset({"td", "th", "caption", "col", "colgroup"})
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6", "summary", "dt"})  # a button in them folds what follows
_ANCHOR = re.compile(r"\b(?:headerlink|hash-link|header-anchor|anchorjs-link)\b")  # beside, or around, a heading
_NOTE = re.compile(r"\b(?:foot|end|rear)notes?\b")
_SET_AS_BLOCK = re.compile(r"display\s*:\s*(?:block|flex|grid|list-item|table)\b", re.IGNORECASE)
_FOLDING = re.compile(r"accordion|collapsible|faq|question", re.IGNORECASE)
_FOLDED_TAGS = frozenset({"div", "section", "p", "dd"})
_FOLDED = re.compile(r"\bpanel\b|accordion|collaps|answer", re.IGNORECASE)
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_EPUB_TYPE = "{http://www.idpf.org/2007/ops}type"
_PRINTED_PAGE = re.compile(r"(?:\W*(?:p|pg|page)?\W*(?:\d+|[ivxlcdm]+)\W*)?", re.IGNORECASE)
_PAGE_MARK = re.compile(r"pagebreak|\bpage-?nu?m(?:ber)?\b|\bpageno\b", re.IGNORECASE)
_COUNTED_AS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
DEEPEST = 100  # nested elements; text below keeps its paragraphs and headings, nothing else
_LONG_TAG = re.compile(r"<([A-Za-z][\w:-]*)\s[^<>]{8000,}>")
_ATTRIBUTE, _MOST_ATTRIBUTES = re.compile(r"\s[^\s=\"'<>/]+"), 4000
_XHTML = re.compile(r"<html\b[^<>]*\bxmlns\s*=|<!DOCTYPE[^<>\[]*\[", re.IGNORECASE)
_XHTML_WITHIN = 1 << 14  # characters
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f]")
_ENDS = re.compile(r"</(?:body|html)\b[^<>]*>", re.IGNORECASE)
# Where libxml2 gives up, at 2048 nested elements, most were never closed: without them the text is all there.
_NESTING = re.compile(
    r"</?(?:(?:a|b|big|code|em|font|i|ins|label|q|s|small|span|strike|strong|tt|u)"
    r"|(?P<block>article|blockquote|center|dd|details|dir|div|dl|dt|fieldset|form|li|menu|ol|section|ul))\b[^<>]*>",
    re.IGNORECASE,
)


@dataclass
class _List:
    number: int  # of the item to come
    step: int
    kind: str  # as `written` takes it


@dataclass
class _Walk:
    blocks: list[Block] = field(default_factory=list)
    anchors: dict[str, int] = field(default_factory=dict)  # id -> index of the block that begins there
    inline: list[str] = field(default_factory=list)
    prefix: str = ""  # bullet or number of a list item whose first block is still to come
    tight: bool = False
    first: bool = False  # the next block begins a list
    depth: int = 0
    lists: list["_List | None"] = field(default_factory=list)  # open lists, None without numbers

    def flush(self, level: int = 0, code: bool = False) -> None:
        raw = joined(self.inline)
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


def read(path: Path, limits: Limits) -> Reading:
    """Read a web page.

    Raises:
        BrokenFile: no markup in it. EmptyDocument: no text in it. TooLarge.
    """
    limits.check(path.name, "bytes", path.stat().st_size, limits.text_member_bytes)
    markup, warnings = decode(path.read_bytes())
    blocks, _, title = extract(markup, path.name)
    if blocks and re.search(r"<frameset\b", markup, re.IGNORECASE):
        warnings.append(
            "The page shows others in frames, which are files of their own and were not read: add them too."
        )
    if re.search(r"<iframe\s[^<>]*\bsrcdoc\s*=", markup, re.IGNORECASE):
        warnings.append("The page holds others in frames, which were not read: save what you need of them and add it.")
    limits.check(path.name, "characters", sum(len(block.text) for block in blocks), limits.characters)
    pages, toc = paginate(blocks)
    if not pages:
        raise EmptyDocument(
            f"{path.name} has no text. If a script fills the page in, open it in a browser and save it from there; "
            "of a page in frames, save each frame."
        )
    return Reading(pages, toc, [title, first_heading(blocks)], warnings)


def extract(markup: str, name: str) -> tuple[list[Block], dict[str, int], str | None]:
    """Blocks of a page in reading order, the blocks at which its ids begin, and its `<title>`.

    Raises:
        BrokenFile: the parser found nothing.
    """
    root = _parse(markup, name)
    walk = _Walk()
    titles = (each for each in root.iter("title") if not any(_tag(above) == "svg" for above in each.iterancestors()))
    named = next(titles, None)
    title = None if named is None else "".join(map(str, named.itertext()))
    body = root.find(".//body")
    _visit(root if body is None else body, walk)
    walk.flush()
    # An id at the very end points at the last block.
    last = max(0, len(walk.blocks) - 1)
    return walk.blocks, {name: min(index, last) for name, index in walk.anchors.items()}, title


def _parse(markup: str, name: str) -> etree._Element:
    markup = _LONG_TAG.sub(_fewer_attributes, _CONTROLS.sub("", markup))
    if _XHTML.search(markup, 0, _XHTML_WITHIN):
        markup = plain_markup(markup)
    markup = _ENDS.sub("", markup)  # libxml2 ends there, browsers do not: pages saved together, a script's output
    try:
        root = _document(markup)
        if root is None:
            root = _document(_NESTING.sub(lambda tag: "<p>" if tag["block"] else "", markup))
    except (etree.ParserError, etree.XMLSyntaxError, ValueError, AssertionError) as error:
        if isinstance(error, etree.ParserError) and "empty" in str(error).casefold():
            return lxml.html.document_fromstring("<html><body></body></html>")
        raise BrokenFile(f"{name} is not HTML that can be read ({one_line(str(error))[:120]}).") from error
    if root is None:
        raise BrokenFile(f"{name} has elements within elements 2,048 deep: save it as plain text.")
    return root


def _fewer_attributes(tag: re.Match[str]) -> str:
    """A tag without its attributes where they are so many that no person wrote them: to compare them takes for ever."""
    return f"<{tag[1]}>" if len(_ATTRIBUTE.findall(tag[0])) > _MOST_ATTRIBUTES else tag[0]


def _document(markup: str) -> etree._Element | None:
    """The parsed page; None where it is nested too deeply to be read to its end."""
    parser = lxml.html.HTMLParser(
        encoding="utf-8", no_network=True, remove_comments=True, remove_pis=True, huge_tree=True
    )
    root = lxml.html.document_fromstring(markup.encode("utf-8", errors="replace"), parser=parser)
    stopped = parser.error_log.last_error
    return None if stopped is not None and stopped.type_name == "ERR_RESOURCE_LIMIT" else root


def _visit(element: etree._Element, walk: _Walk) -> None:
    tag = _tag(element)
    if _skipped(element, tag) or _is_drawn_formula(element, tag):
        return
    if tag in ("span", "a", "div", "p") and _is_page_mark(element, tag):
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
        if tag in _FORM:
            _visit_form(element, tag, walk)
        elif tag in _BLOCKS or _is_set_as_block(element):
            _visit_block(element, tag, walk)
        else:
            _visit_inline(element, tag, walk)
    finally:
        walk.depth -= 1


def _visit_block(element: etree._Element, tag: str, walk: _Walk) -> None:
    walk.flush()
    before = len(walk.blocks)
    if tag == "table" and not _lays_out(element):
        for row in _rows(element, walk):
            first = not walk.tight and len(walk.blocks) == before
            walk.blocks.append(Block(row, tight=True, first=first))
        return
    if tag == "li":
        _list_item(element, walk)
        return
    if tag in ("ol", "ul", "menu"):
        _list(element, tag, walk)
        return
    if tag == "pre":
        walk.inline.append(_preformatted(element))
        walk.flush(code=True)
        return
    level = int(tag[1]) if tag[0] == "h" and tag[1:].isdecimal() else 0
    _children(element, walk)
    walk.flush(level)
    if level and len(walk.blocks) > before and not walk.blocks[-1].level:  # blocks within the heading
        walk.blocks[before:] = [replace(block, level=level) for block in walk.blocks[before:]]


def _visit_form(element: etree._Element, tag: str, walk: _Walk) -> None:
    """What a form says: its labels, and what was filled in, chosen or ticked; not what its buttons do."""
    if tag == "label":
        walk.inline.append(" ")
        _children(element, walk)
        walk.inline.append(" ")
    elif tag == "button":
        walk.flush()
        _children(element, walk)
        walk.flush()
    elif said := _filled_in(element, tag):
        walk.inline.append(f" {said} ")


def _filled_in(element: etree._Element, tag: str) -> str:
    kind = (element.get("type") or "").casefold()
    if tag == "textarea":
        return one_line("".join(map(str, element.itertext())))
    if tag == "select":
        chosen = [each for each in element.iter("option") if "selected" in each.attrib]
        return ", ".join(filter(None, (one_line("".join(map(str, each.itertext()))) for each in chosen)))
    if kind in ("checkbox", "radio"):
        return "☒" if "checked" in element.attrib else "☐"
    return one_line(element.get("value") or "") if kind in _TYPED_IN else ""


def _list(element: etree._Element, tag: str, walk: _Walk) -> None:
    numbered = tag == "ol" and "none" not in (element.get("style") or "")
    down = "reversed" in element.attrib
    first = _number(element.get("start"))
    if first is None:
        first = sum(_tag(child) == "li" for child in element) if down else 1
    kind = _COUNTED_AS.get(element.get("type") or "", "decimal")
    walk.first = walk.first or not walk.tight
    walk.lists.append(_List(first, -1 if down else 1, kind) if numbered else None)
    _children(element, walk)
    walk.flush()
    walk.lists.pop()
    walk.first = False


def _list_item(element: etree._Element, walk: _Walk) -> None:
    nested = "-" * max(0, len(walk.lists) - 1)
    mark = f"{nested}- "
    if walk.lists and (counted := walk.lists[-1]) is not None:
        own = _number(element.get("value"))
        number = counted.number if own is None else own
        counted.number = number + counted.step
        mark = f"{nested}{' ' if nested else ''}{written(number, counted.kind)}. "  # "-1." would be a negative number
    outer = walk.tight
    walk.prefix, walk.tight = mark, True
    _children(element, walk)
    walk.flush()
    walk.prefix, walk.tight = "", outer


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\s*-?\d{1,6}\s*", text) else None


def _visit_inline(element: etree._Element, tag: str, walk: _Walk) -> None:
    if tag == "br":
        walk.inline.append("\v")
        return
    noted = _is_note_mark(element, tag)
    if noted or tag == "sup":
        walk.inline.append(raised("".join(text for _, text in _flat(element)), noted))
        return
    if tag == "q":  # browsers set the marks
        walk.inline.append("“")
        _children(element, walk)
        walk.inline.append("”")
        return
    if tag == "math":
        border = "\v" if element.get("display") == "block" else ""
        walk.inline.append(f"{border}{of_mathml(element)}{border}")
        return
    if tag == "img":
        alt = element.get("alt")
        formula = re.search("math|latex", element.get("class") or "")  # as Wikipedia's and WordPress' pictures of TeX
        walk.inline.append(one_line(alt or "") if formula else pictured(alt))
        return
    if tag == "svg":
        drawn = (each for each in element.iter() if _tag(each) in ("text", "foreignobject"))
        lettering = (one_line("".join(text.itertext())) for text in drawn)
        walk.inline.append(pictured("; ".join(filter(None, lettering))))
        return
    if tag == "ins" and (before := element.getprevious()) is not None and not before.tail:
        walk.inline.append(" " if _tag(before) in ("s", "strike") else "")  # what it takes the place of
    _children(element, walk)


def _children(element: etree._Element, walk: _Walk) -> None:
    if element.text:
        walk.inline.append(element.text.replace("\v", " "))
    for child in element:
        if isinstance(child.tag, str):
            _visit(child, walk)
        if child.tail:
            walk.inline.append(child.tail.replace("\v", " "))


def _flat(element: etree._Element) -> Iterator[tuple[str, str]]:
    """What is visible below an element, without recursion: ("", text), and ("p", ""), ("/p", "") at every border."""
    steps = etree.iterwalk(element, events=("start", "end"))
    for event, node in steps:
        tag = _tag(node)
        left_out = _skipped(node, tag)
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
    """The text of a `<pre>` with its line ends; blocks in it, as some highlighters set every line in one, end lines."""
    pieces = []
    for border, text in _flat(element):
        if border == "br":
            pieces.append("\n")
        elif border.removeprefix("/") in _BLOCKS:
            pieces.append("\v")
        else:
            pieces.append(text.replace("\v", " "))
    return re.sub(r"\n?(?:\v\n?)+", "\n", "".join(pieces))


def _flatten(element: etree._Element, walk: _Walk) -> None:
    for border, text in _flat(element):
        if border == "br":
            walk.inline.append("\v")
        elif border.removeprefix("/") in _BLOCKS:
            walk.flush(int(border[2]) if re.fullmatch(r"/h[1-6]", border) else 0)
        else:
            walk.inline.append(text.replace("\v", " "))


def _rows(table: etree._Element, walk: _Walk) -> Iterator[str]:
    """A table's rows as lines of cells; its caption first. The walk's blocks grow in step."""
    for caption in table.iter("caption"):
        if text := _inline_text(caption):
            yield text
    yield from filter(None, map(one_line, _loose(table)))
    # Cells outside a row, as a head without one has them, are a row as long as they stand side by side.
    rows = [list(cells) for _, cells in groupby(table.iter("td", "th"), key=lambda cell: cell.getparent())]
    shown = [[] if _left_out(row[0], table) else [_cell(cell) for cell in row if not _hidden(cell)] for row in rows]
    for row, line in zip(rows, table_lines(shown), strict=True):
        for anchor in (row[0].getparent(), *(element for cell in row for element in cell.iter())):
            if isinstance(anchor.tag, str) and anchor.get("id"):
                walk.anchors.setdefault(anchor.get("id", ""), len(walk.blocks))
        if line:
            yield line


def _loose(element: etree._Element) -> Iterator[str]:
    """What stands in a table outside its cells; browsers show it before the table."""
    yield element.text or ""
    for child in element:
        tag = _tag(child)
        if tag and not (tag in _CELLS or _skipped(child, tag)):
            yield from _loose(child) if tag in _TABLE_PARTS else [_inline_text(child)]
        yield child.tail or ""


def _left_out(cell: etree._Element, table: etree._Element) -> bool:
    """Whether the row of a cell, or what that lies in, is hidden."""
    between = takewhile(lambda ancestor: ancestor is not table, cell.iterancestors())
    return any(_hidden(ancestor) for ancestor in between)


def _cell(element: etree._Element) -> Cell:
    return Cell(_inline_text(element), span(element.get("colspan")), span(element.get("rowspan"), TALLEST))


def _inline_text(element: etree._Element) -> str:
    walk = _Walk()
    _children(element, walk)
    walk.flush()
    return " ".join(one_line(block.text) for block in walk.blocks)


def _lays_out(table: etree._Element) -> bool:
    """Whether a table arranges a page, as old web pages do: nested tables, or cells with an essay in them."""
    if table.find(".//table") is not None or table.find(".//h1") is not None:
        return True
    rows = [[" ".join("".join(cell.itertext()).split()) for cell in row.iter("td", "th")] for row in table.iter("tr")]
    return lays_out(rows, headed=table.find(".//th") is not None)


def _is_drawn_formula(element: etree._Element, tag: str) -> bool:
    """A formula set for the eye beside its MathML, as KaTeX and MathJax do."""
    if element.get("aria-hidden") != "true" or tag in _BLOCKS:
        return False
    beside = (element.getprevious(), element.getnext())
    return any(
        not _hidden(node) and (_tag(node) == "math" or node.find(".//math") is not None)
        for node in beside
        if node is not None
    )


def _is_note_mark(element: etree._Element, tag: str) -> bool:
    if tag not in ("sup", "a"):
        return False
    if "noteref" in _kind(element):
        return True
    text = "".join(element.itertext()).strip()
    if "noteref" in (element.get("class") or "").casefold() and re.fullmatch(r"\d{1,4}|[*†‡§a-z]", text.strip("[]()")):
        return True
    if tag == "sup":
        return any(_leads_on(link) for link in element.iter("a"))
    above = element.find(".//sup")
    return above is not None and "".join(above.itertext()).strip() == text and _leads_on(element)


def _leads_on(link: etree._Element) -> bool:
    return "href" in link.attrib or "filepos" in link.attrib  # the latter in MOBI


def _is_page_mark(element: etree._Element, tag: str) -> bool:
    """The number of a printed page, left in an e-book's text; not a paragraph that is to begin a new page."""
    if not _PAGE_MARK.search(f"{_kind(element)} {element.get('class') or ''}"):
        return False
    text = "".join(map(str, element.itertext())).strip()
    return len(text) <= 12 and (tag not in ("div", "p") or bool(_PRINTED_PAGE.fullmatch(text)))


def _kind(element: etree._Element) -> str:
    return " ".join(element.get(name) or "" for name in ("epub:type", _EPUB_TYPE, "role"))


def _is_set_as_block(element: etree._Element) -> bool:
    """Whether the style of an element says that it stands on lines of its own."""
    return bool(_SET_AS_BLOCK.search(element.get("style") or ""))


def _skipped(element: etree._Element, tag: str) -> bool:
    if tag == "button":
        return _hidden(element) or not _folds(element)
    if (tag == "dialog" and "open" in element.attrib) or (tag == "template" and "shadowrootmode" in element.attrib):
        return _hidden(element)
    kind = element.get("class") or ""
    offered = "mw-editsection" in kind or (_ANCHOR.search(kind) and not re.search(r"\w", "".join(element.itertext())))
    return tag in _SKIPPED or (_hidden(element) and not _unfolds(element)) or bool(offered)


def _folds(button: etree._Element) -> bool:
    """Whether a button is the heading of what it shows and hides, such as a question above its answer."""
    if any(_tag(ancestor) in _HEADINGS for ancestor in button.iterancestors()):
        return True
    following = button.getnext()
    if following is None or _tag(following) not in _FOLDED_TAGS:
        return False
    return (
        "aria-expanded" in button.attrib
        or bool(_FOLDING.search(button.get("class") or ""))
        or bool(_FOLDED.search(following.get("class") or ""))
    )


def _unfolds(element: etree._Element) -> bool:
    """Whether an element is shown when somebody clicks on the button before it."""
    before = element.getprevious()
    return before is not None and _tag(before) == "button" and not _hidden(before) and _folds(before)


def _hidden(element: etree._Element) -> bool:
    """Whether it is not to be seen. What is shown when it is asked for is: a note, or what a search may find."""
    hidden = element.get("hidden", "until-found") != "until-found" or _HIDDEN.search(element.get("style") or "")
    return bool(hidden) and not _NOTE.search(_kind(element))


def _tag(element: etree._Element) -> str:
    tag = element.tag
    return tag.rpartition(":")[2].casefold() if isinstance(tag, str) else ""
