"""The elements of a page as a browser arranges them, before its text is read.

ARIA roles give elements their meaning, shadow roots take the page's words into their slots, frames show their pages,
`epub:switch` and SVG's `switch` show one of their cases, and formulas in scripts stand in place of their pictures.
"""

import base64
import binascii
import re
from collections.abc import MutableMapping
from contextlib import suppress
from urllib.parse import unquote_to_bytes, urljoin

import lxml.html
from lxml import etree

from ingest.charset import decode
from ingest.errors import BrokenFile
from ingest.markup.html_elements import is_hidden, tag_of
from ingest.markup.html_parser import parse_html

_MOST_FRAMES = 4  # pages within one another
_MOST_PAGES = 1000  # of frames that a page shows
_ROLES = {
    **{"list": "ul", "listitem": "li", "table": "table", "grid": "table", "treegrid": "table", "rowgroup": "tbody"},
    **{"row": "tr", "cell": "td", "gridcell": "td", "columnheader": "th", "rowheader": "th", "caption": "caption"},
    **{"paragraph": "p", "blockquote": "blockquote", "term": "dt", "definition": "dd", "article": "article"},
    **{"region": "section", "note": "div", "figure": "figure", "doc-subtitle": "p"},
}
_KEPT = frozenset({"a", "button", "input", "select", "textarea", "img", "math", "svg", "iframe", "html", "body", "pre"})
_SUPPORTED = re.compile(r"MathML|xhtml", re.IGNORECASE)  # namespaces of a case that is read
_TEX = re.compile(r"math/(?:tex|latex|asciimath)\b|text/(?:x-)?(?:latex|asciimath)\b", re.IGNORECASE)
_MATHML = re.compile(r"math/mml\b", re.IGNORECASE)
_DISPLAY = re.compile(r"mode\s*=\s*display", re.IGNORECASE)
_CDATA = re.compile(r"%?\s*<!\[CDATA\[\s*(.*?)\s*%?\s*\]\]>", re.DOTALL)
_DRAWN = re.compile(r"\b(?:MathJax|MJX|mjx|katex)", re.IGNORECASE)
_DATA_PAGE = re.compile(r"data:(?:text/html|application/xhtml\+xml)((?:;[^,;]*)*),(.*)", re.IGNORECASE | re.DOTALL)

Frames = MutableMapping[str, str]
"""The markup of the pages that frames show, by address. Each is taken out when it is read, so none is read twice."""


def arrange(root: etree._Element, name: str, frames: Frames | None = None, address: str = "") -> None:
    """Arrange a page, in place, as a browser does.

    Args:
        root: the page.
        name: its file, for messages.
        frames: the pages saved with it.
        address: the page's own, to which those of its frames may be relative.
    """
    _fill_frames(root, name, {} if frames is None else frames, address, [_MOST_PAGES], 0)
    for element in [*root.iter("template")]:
        if element.get("shadowrootmode", element.get("shadowroot")) and element.getparent() is not None:
            _fill_slots(element.getparent(), element)
    for element in [*root.iter("script")]:
        if _TEX.match(kind := element.get("type") or "") or _MATHML.match(kind):
            _show_formula(element, kind)
    for element in [*root.iter(etree.Element)]:
        tag = tag_of(element)
        if tag == "switch":
            _choose_case(element)
        elif (role := (element.get("role") or "").split()) and tag not in _KEPT:
            _apply_role(element, tag, role[0].casefold())


def _fill_frames(root: etree._Element, name: str, frames: Frames, address: str, left: list[int], depth: int) -> None:
    """Put the pages of frames where the frames stand. left: how many more pages may be read."""
    for frame in [*root.iter("iframe", "frame")]:
        found = None if is_hidden(frame) or _is_speck(frame) else _page_of(frame, frames, address)
        if found is None or depth >= _MOST_FRAMES or not left[0]:
            continue
        left[0] -= 1
        markup, place = found
        with suppress(BrokenFile):
            page = parse_html(markup, name)
            _fill_frames(page, name, frames, place, left, depth + 1)
            body = page.find(".//body")
            shown = page if body is None else body
            del frame[:]
            frame.tag, frame.text = "div", shown.text
            frame.extend(list(shown))


def _is_speck(frame: etree._Element) -> bool:
    """Return whether a frame is too small to show anything, as those that only count readers."""
    return any((frame.get(side) or "").removesuffix("px") in ("0", "1") for side in ("width", "height"))


def _page_of(frame: etree._Element, frames: Frames, address: str) -> tuple[str, str] | None:
    """Return the markup and the address of the page that a frame shows; None if it is not there."""
    if (markup := frame.get("srcdoc")) is not None:
        return markup, address
    source = (frame.get("src") or "").strip()
    if data := _DATA_PAGE.fullmatch(source):
        with suppress(binascii.Error, ValueError):
            page = unquote_to_bytes(data[2])
            page = base64.b64decode(page) if ";base64" in data[1].casefold() else page
            declared = re.search(r"charset=([\w.:-]+)", data[1], re.IGNORECASE)
            return decode(page, declared[1] if declared else None)[0], ""
    with suppress(ValueError):
        for place in (source, urljoin(address, source)):
            if place in frames:
                return frames.pop(place), place
    return None


def _fill_slots(host: etree._Element, template: etree._Element) -> None:
    """Replace an element's content by its shadow root, with the content in the slots. What has no slot is not shown."""
    given: dict[str, list[str | etree._Element]] = {}
    if host.text and host.text.strip():
        given.setdefault("", []).append(host.text)
    for child in [*host]:
        tail, child.tail = child.tail, None
        if child is not template and tag_of(child) != "template":
            given.setdefault((child.get("slot") or "").strip(), []).append(child)
        if tail and tail.strip():
            given.setdefault("", []).append(tail)
    del host[:]
    host.text = None
    template.tag = "div"
    for slot in [*template.iter("slot")]:
        parts = given.pop((slot.get("name") or "").strip(), [])
        slot.tag = "span"
        if not parts:
            continue
        del slot[:]
        slot.text = None
        for part in parts:
            if not isinstance(part, str):
                slot.append(part)
            elif len(slot):
                slot[-1].tail = (slot[-1].tail or "") + part
            else:
                slot.text = (slot.text or "") + part
    host.append(template)


def _choose_case(element: etree._Element) -> None:
    """Keep the case of a switch that a reader shows: one in MathML, else the default, else the first with words."""
    cases = [child for child in element if isinstance(child.tag, str) and "".join(map(str, child.itertext())).strip()]
    chosen = next((case for case in cases if _SUPPORTED.search(case.get("required-namespace") or "")), None)
    if chosen is None:
        chosen = next((case for case in cases if tag_of(case) == "default"), cases[0] if cases else None)
    for child in [*element]:
        if child is not chosen:
            child.drop_tree() if isinstance(child, lxml.html.HtmlElement) else element.remove(child)
    for each in (element, *([chosen] if chosen is not None and tag_of(chosen) in ("case", "default") else [])):
        each.tag = "span"


def _show_formula(script: etree._Element, kind: str) -> None:
    """Turn a script that holds a formula into its text, and drop the picture of it that a program put before it."""
    source = script.text or ""
    written = _CDATA.fullmatch(source.strip())
    source = written[1] if written else source.strip()
    before = script.getprevious()
    while before is not None and not (before.tail or "").strip() and _DRAWN.search(_names(before)):
        if before.find(".//math") is not None:  # its MathML is read
            return
        dropped, before = before, before.getprevious()
        dropped.getparent().remove(dropped)
    script.text = None
    if _MATHML.match(kind):
        with suppress(BrokenFile):
            script.extend(list(parse_html(source, "a formula").iter("math"))[:1])
    else:
        script.text = source
    script.tag = "div" if _DISPLAY.search(kind) else "span"


def _names(element: etree._Element) -> str:
    return f"{element.get('class') or ''} {element.get('id') or ''} {element.tag}"


def _apply_role(element: etree._Element, tag: str, role: str) -> None:
    """Give an element the name of the one that its role means."""
    if role == "heading":
        level = element.get("aria-level") or (tag[1:] if re.fullmatch("h[1-6]", tag) else "2")
        element.tag = f"h{min(max(int(level), 1), 6)}" if re.fullmatch(r"\d{1,3}", level) else "h2"
    elif role in ("none", "presentation") and re.fullmatch("h[1-6]|[ou]l|li", tag):
        element.tag = "div"
    elif role in _ROLES and not (role == "list" and tag == "ol"):
        element.tag = _ROLES[role]
        for given, own in (("aria-colspan", "colspan"), ("aria-rowspan", "rowspan")):
            if value := element.get(given):
                element.set(own, value)
