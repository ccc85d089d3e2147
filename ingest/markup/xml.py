"""Safe parsing of untrusted XML: no growing entities, no network, no document types."""

import re
from html.entities import html5

from lxml import etree

from ingest.charset import decode
from ingest.clean import one_line
from ingest.errors import BrokenFile

_NAMED = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)([A-Za-z][\w.-]{0,60});")
_DOCTYPE = re.compile(
    r"(\s*(?:<\?[^>]*>\s*|<!--(?:[^-]|-(?!->))*-->\s*)*)"  # declaration and comments before it
    r"<!DOCTYPE[^<>\[]*(?:\[([^\]]*)\]\s*)?>"
)
_ENTITY = re.compile(r"<!ENTITY\s+([A-Za-z][\w.-]*)\s+(?:\"([^\"<%]{0,200})\"|'([^'<%]{0,200})')\s*>")
_MOST_ENTITIES = 200
_MOST_GROWN = 1 << 22  # characters that a file's entities may add
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_STRAY = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,8}|#[xX][0-9A-Fa-f]{1,6});)|<(?![A-Za-z_/!?])")


def parse_xml(data: bytes | str, name: str, warnings: list[str] | None = None) -> etree._Element:
    """Parse XML without entities, network or document type, repairing it where possible.

    Args:
        data: bytes, or text from `decode`.
        name: the file, for messages.
        warnings: takes a warning if the XML is cut off or ill-formed, so that some of it may be lost.

    Raises:
        BrokenFile: nothing in it can be read.
    """
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        recover=True,
        remove_comments=True,
        huge_tree=True,
    )
    said, guessed = (data, []) if isinstance(data, str) else decode(data)
    text = plain_markup(said)
    text = _STRAY.sub(lambda found: "&amp;" if found[0] == "&" else "&lt;", _CONTROLS.sub("", text))
    try:
        root = etree.fromstring(text.encode("utf-8", errors="replace"), parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise BrokenFile(
            f"{name} is not XML that can be read ({one_line(str(error))[:120]}). Fetch it again."
        ) from error
    if root is None:
        raise BrokenFile(f"{name} is not XML that can be read. Fetch it again.")
    if warnings is not None:
        warnings += [f"{name}: {each}" for each in guessed]
        warnings += _parse_warnings(parser, text, etree.QName(root).localname, name)
    return root


def plain_markup(text: str) -> str:
    """Replace a document type, CDATA sections and named entities, which HTML parsers do not know, by plain markup.

    A document's own entities that name others, and so might grow, stay as they are written.
    """
    own: dict[str, str] = {}
    if typed := _DOCTYPE.match(text):
        for entity in list(_ENTITY.finditer(typed[2] or ""))[:_MOST_ENTITIES]:
            value = entity[2] if entity[2] is not None else entity[3]
            if not re.search(r"&(?!#)", value):
                own[entity[1]] = value
        text = typed[1] + text[typed.end() :]
    text = _CDATA.sub(lambda found: _escaped(found[1]), text)
    left = _MOST_GROWN

    def named(found: re.Match[str]) -> str:
        nonlocal left
        value = own.get(found[1])
        if value is None:
            sign = html5.get(f"{found[1]};")
            return found[0] if sign is None else _escaped(sign)
        left -= len(value)
        return value if left > 0 else found[0]

    return _NAMED.sub(named, text)  # XML defines only five


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _parse_warnings(parser: etree.XMLParser, text: str, root: str, name: str) -> list[str]:
    """Return a warning about the XML parsed last, with its place, or none. root: the element it should end with."""
    faults = [each for each in parser.error_log if each.level_name == "FATAL"]
    if not faults:
        return []
    text = text.rstrip()
    if not re.search(rf"</(?:[\w.-]+:)?{re.escape(root)}\s*>\Z", text[-200:]):
        return [f"{name} is cut off at line {text.count(chr(10)) + 1:,}: what followed is missing. Fetch it again."]
    first = faults[0]
    more = f" and at {len(faults) - 1:,} more places" if len(faults) > 1 else ""
    return [
        f"{name} is damaged at line {first.line:,} ({one_line(first.message)[:80]}){more}: text may be missing there. "
        "Compare it with the original."
    ]
