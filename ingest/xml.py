"""XML from files of anybody's making: no entities of their own, no network, no document types."""

import re
from html.entities import html5

from lxml import etree

from ingest.charset import decode
from ingest.clean import one_line
from ingest.errors import BrokenFile

_NAMED = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)([A-Za-z][A-Za-z0-9]{1,30};)")
_DOCTYPE = re.compile(
    r"(\s*(?:<\?[^>]*>\s*|<!--(?:[^-]|-(?!->))*-->\s*)*)"  # what may stand before it
    r"<!DOCTYPE[^<>\[]*(?:\[[^\]]*\]\s*)?>"
)


def parse_xml(data: bytes | str, name: str) -> etree._Element:
    """Parse XML without entities, network or document type; mends what it can.

    Args:
        data: bytes, or what `decode` made of them.

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
    text = data if isinstance(data, str) else decode(data)[0]
    if typed := _DOCTYPE.match(text):  # an entity of its own that grows would end the parsing where it stands
        text = typed[1] + text[typed.end() :]
    text = _NAMED.sub(lambda found: html5.get(found[1], found[0]), text)  # XML by itself knows only five
    try:
        root = etree.fromstring(text.encode("utf-8", errors="replace"), parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise BrokenFile(
            f"{name} is not XML that can be read ({one_line(str(error))[:120]}). Fetch it again."
        ) from error
    if root is None:
        raise BrokenFile(f"{name} is not XML that can be read. Fetch it again.")
    return root
