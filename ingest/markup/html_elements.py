"""The elements of a page: which are left out, which are blocks, and which are marks of a note or a printed page."""

import re

from lxml import etree

BLOCKS = frozenset(
    {
        *("html", "body", "address", "article", "aside", "blockquote", "center", "dd", "details", "dir", "div", "dl"),
        *("dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "hr", "legend", "li", "main"),
        *("menu", "ol", "p", "pre", "section", "summary", "ul", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("table", "tbody", "thead", "tfoot", "tr", "td", "th", "caption", "dialog", "template"),
    }
)
FORM_FIELDS = frozenset({"button", "input", "select", "textarea", "label"})
_SKIPPED = frozenset(
    {
        *("script", "style", "template", "noscript", "head", "title", "meta", "link", "iframe", "object"),
        *("embed", "applet", "canvas", "audio", "video"),
        *("nav", "rp", "rt", "dialog", "annotation", "annotation-xml", "del"),
    }
)
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6", "summary", "dt"})  # a button in them folds the rest
_ANCHOR = re.compile(r"\b(?:headerlink|hash-link|header-anchor|anchorjs-link)\b")  # beside, or around, a heading
_FOOTNOTE = re.compile(r"\b(?:foot|end|rear)notes?\b")
_DISPLAYED_AS_BLOCK = re.compile(r"display\s*:\s*(?:block|flex|grid|list-item|table)\b", re.IGNORECASE)
_FOLDING = re.compile(r"accordion|collapsible|faq|question", re.IGNORECASE)
_FOLDED_TAGS = frozenset({"div", "section", "p", "dd"})
_FOLDED = re.compile(r"\bpanel\b|accordion|collaps|answer", re.IGNORECASE)
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_EPUB_TYPE = "{http://www.idpf.org/2007/ops}type"
_PRINTED_PAGE = re.compile(r"(?:\W*(?:p|pg|page)?\W*(?:\d+|[ivxlcdm]+)\W*)?", re.IGNORECASE)
_PAGE_MARK = re.compile(r"pagebreak|\bpage-?nu?m(?:ber)?\b|\bpageno\b", re.IGNORECASE)


def tag_of(element: etree._Element) -> str:
    """Return an element's name in lower case without its prefix; "" for a comment."""
    tag = element.tag
    return tag.rpartition(":")[2].casefold() if isinstance(tag, str) else ""


def is_skipped(element: etree._Element, tag: str) -> bool:
    """Return whether an element is left out: a script, an unused button, a link beside a heading, or hidden."""
    if tag == "button":
        return is_hidden(element) or not _folds(element)
    if tag == "dialog" and "open" in element.attrib:
        return is_hidden(element)
    kind = element.get("class") or ""
    offered = "mw-editsection" in kind or (_ANCHOR.search(kind) and not re.search(r"\w", "".join(element.itertext())))
    return tag in _SKIPPED or (is_hidden(element) and not _unfolds(element)) or bool(offered)


def is_hidden(element: etree._Element) -> bool:
    """Return whether an element is invisible. Footnotes and text found by the browser's search count as visible."""
    hidden = element.get("hidden", "until-found") != "until-found" or _HIDDEN.search(element.get("style") or "")
    return bool(hidden) and not _FOOTNOTE.search(_role(element))


def is_displayed_as_block(element: etree._Element) -> bool:
    """Return whether an element's style puts it on lines of its own."""
    return bool(_DISPLAYED_AS_BLOCK.search(element.get("style") or ""))


def is_drawn_formula(element: etree._Element, tag: str) -> bool:
    """Return whether an element is the visual copy of a formula beside its MathML, as KaTeX and MathJax write it."""
    if element.get("aria-hidden") != "true" or tag in BLOCKS:
        return False
    beside = (element.getprevious(), element.getnext())
    return any(
        not is_hidden(node) and (tag_of(node) == "math" or node.find(".//math") is not None)
        for node in beside
        if node is not None
    )


def is_note_mark(element: etree._Element, tag: str) -> bool:
    """Return whether an element is the mark of a footnote."""
    if tag not in ("sup", "a"):
        return False
    if "noteref" in _role(element):
        return True
    text = "".join(element.itertext()).strip()
    if "noteref" in (element.get("class") or "").casefold() and re.fullmatch(r"\d{1,4}|[*†‡§a-z]", text.strip("[]()")):
        return True
    if tag == "sup":
        return any(_is_link(link) for link in element.iter("a"))
    above = element.find(".//sup")
    return above is not None and "".join(above.itertext()).strip() == text and _is_link(element)


def is_page_mark(element: etree._Element, tag: str) -> bool:
    """Return whether an element is a printed page number in the text, and no paragraph that begins a new page."""
    if not _PAGE_MARK.search(f"{_role(element)} {element.get('class') or ''}"):
        return False
    text = "".join(map(str, element.itertext())).strip()
    return len(text) <= 12 and (tag not in ("div", "p") or bool(_PRINTED_PAGE.fullmatch(text)))


def _is_link(element: etree._Element) -> bool:
    """Return whether an `<a>` leads anywhere."""
    return "href" in element.attrib or "filepos" in element.attrib  # the latter in MOBI


def _role(element: etree._Element) -> str:
    """Return the role that EPUB or ARIA give an element."""
    return " ".join(element.get(name) or "" for name in ("epub:type", _EPUB_TYPE, "role"))


def _folds(button: etree._Element) -> bool:
    """Return whether a button is the heading of the text that it unfolds, such as a question above its answer."""
    if any(tag_of(ancestor) in _HEADINGS for ancestor in button.iterancestors()):
        return True
    following = button.getnext()
    if following is None or tag_of(following) not in _FOLDED_TAGS:
        return False
    return (
        "aria-expanded" in button.attrib
        or bool(_FOLDING.search(button.get("class") or ""))
        or bool(_FOLDED.search(following.get("class") or ""))
    )


def _unfolds(element: etree._Element) -> bool:
    """Return whether a click on the button before an element shows it."""
    before = element.getprevious()
    return before is not None and tag_of(before) == "button" and not is_hidden(before) and _folds(before)
