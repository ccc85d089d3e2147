"""Parsing of HTML and XHTML, with repairs for markup that libxml2 would cut short or take for ever to read."""

import re

import lxml.html
from lxml import etree

from ingest.clean import one_line
from ingest.errors import BrokenFile
from ingest.markup.html_damage import mended
from ingest.markup.xml import plain_markup

_LONG_TAG = re.compile(r"<([A-Za-z][\w:-]*)\s[^<>]{8000,}>")
_ATTRIBUTE, _MOST_ATTRIBUTES = re.compile(r"\s[^\s=\"'<>/]+"), 4000
_XHTML = re.compile(r"<html\b[^<>]*\bxmlns\s*=|<!DOCTYPE[^<>\[]*\[", re.IGNORECASE)
_XHTML_WITHIN = 1 << 14  # characters
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f]")
_ENDS = re.compile(r"</(?:body|html)\b[^<>]*>", re.IGNORECASE)
# libxml2 gives up at 2048 nested elements. Most were never closed, and without them the text is all there.
_NESTING = re.compile(
    r"</?(?:(?:a|b|big|code|em|font|i|ins|label|q|s|small|span|strike|strong|tt|u)"
    r"|(?P<block>article|blockquote|center|dd|details|dir|div|dl|dt|fieldset|form|li|menu|ol|section|ul))\b[^<>]*>",
    re.IGNORECASE,
)


def parse_html(markup: str, name: str) -> etree._Element:
    """Parse a page and return its root. name: the file, for the message.

    Raises:
        BrokenFile: it is no HTML, or nested too deeply.
    """
    markup = _LONG_TAG.sub(_fewer_attributes, _CONTROLS.sub("", markup))
    if _XHTML.search(markup, 0, _XHTML_WITHIN):
        markup = plain_markup(markup)
    markup = mended(markup)
    # libxml2 stops at the first </html>; browsers read on: pages saved together, the output of a script.
    markup = _ENDS.sub("", markup)
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
    """Drop the attributes of a tag that has more than any person wrote: libxml2 compares each with all others."""
    return f"<{tag[1]}>" if len(_ATTRIBUTE.findall(tag[0])) > _MOST_ATTRIBUTES else tag[0]


def _document(markup: str) -> etree._Element | None:
    """Parse a page; return None if it is nested too deeply to be read to its end."""
    parser = lxml.html.HTMLParser(
        encoding="utf-8", no_network=True, remove_comments=True, remove_pis=True, huge_tree=True
    )
    root = lxml.html.document_fromstring(markup.encode("utf-8", errors="replace"), parser=parser)
    stopped = parser.error_log.last_error
    return None if stopped is not None and stopped.type_name == "ERR_RESOURCE_LIMIT" else root
