"""Markup that is cut off or left open: warnings of text that a browser does not show, and repairs of the rest."""

import re
from collections.abc import Iterator

from ingest.wording import count

_OPEN = re.compile(r"<!--|</?([A-Za-z][^\s/>]*)")
_COMMENT_END = re.compile(r"--!?>")
_VALUE = r"\"[^\"]*+\"|'[^']*+'"
_TAG_END = re.compile(rf"(?:[^\"'=>]|=\s*+(?:{_VALUE}|(?![\"']))|[\"'])*+>")
_MISQUOTED = re.compile(rf"=\s*+({_VALUE})(?=[\w-])")  # by a quote that the next one ends
_UNSEPARATED = re.compile(r"<[A-Za-z][\w-]*\s[^<>\"'=]*<")  # a sign "less than" before words
_RAW = frozenset({"script", "style", "title", "textarea", "iframe", "xmp", "noscript"})
_HIDING = frozenset({"select", "object", "video", "audio", "canvas", "template", "dialog", "del"})
CDATA = "<![CDATA["
_NAMES = {"!--": "A comment", CDATA: "A CDATA section"}
_SHOWING = ("nav", "button")
_BREAKS_OUT = r"<(?:body|blockquote|center|dd|div|dl|dt|h[1-6]|hr|img|li|menu|ol|p|pre|section|article|table|ul)\b"
_ADDRESS = re.compile(r"<(?=(?:https?://|mailto:)[^\s<>\"']+>|[\w.+-]+@[\w-]+\.[\w.-]+>)")


def mended(markup: str) -> str:
    """Return markup with addresses in angle brackets as text, and with elements closed that browsers close.

    A menu or button that is never closed would hide all that follows: it is read as any other part of the page.
    """
    markup = _ADDRESS.sub("&lt;", re.sub(r"</?noframes\b[^<>]*>", "", markup, flags=re.IGNORECASE))
    for name in _SHOWING:
        begin, rest = _parted(markup, name)
        markup = begin + re.sub(rf"<{name}\b", "<div", rest, flags=re.IGNORECASE)
    for name in ("svg", "math"):
        begin, rest = _parted(markup, name)
        inside = re.search(rf"<{name}\b", rest, re.IGNORECASE)
        out = inside and re.compile(_BREAKS_OUT, re.IGNORECASE).search(rest, inside.end())
        if out:
            rest = f"{rest[: out.start()]}</{name}>{rest[out.start() :]}"
        markup = begin + rest
    return markup


def _parted(markup: str, name: str) -> tuple[str, str]:
    """Return markup up to the last end tag of an element, and the rest."""
    ends = [found.end() for found in re.finditer(rf"</{name}\s*>", markup, re.IGNORECASE)]
    return markup[: ends[-1] if ends else 0], markup[ends[-1] if ends else 0 :]


def damage_warnings(markup: str) -> list[str]:
    """Return a warning, with its line, of each place where markup without an end hides text."""
    warnings = []
    for what, start, end in _damage(markup):
        line, hidden = markup.count("\n", 0, start) + 1, markup[start:end]
        if what == "tag" and end == len(markup) and ">" not in hidden:
            warnings.append(f"The page is cut off in a tag at line {line:,}: what followed is missing. Fetch it again.")
        elif what == "tag":
            warnings.append(
                f"A tag at line {line:,} is not closed or wrongly quoted, so {count(len(hidden), 'character')} from "
                "there on may be missing, as in a browser. Compare the page with the original."
            )
        elif re.search(r"\w", re.sub(r"<[^<>]*>", "", hidden[len(what) + 1 :])):
            warnings.append(
                f"{_NAMES.get(what, f'<{what}>')} at line {line:,} has no end, so "
                f"{count(len(hidden), 'character')} from there on are not read. Compare the page with the original."
            )
    return warnings[:12]


def _damage(markup: str) -> Iterator[tuple[str, int, int]]:
    """Yield the element, "tag" or "!--" of each place without an end, and the range that it hides."""
    at, open_ones = 0, dict[str, list[int]]()
    while found := _OPEN.search(markup, at):
        start, name = found.start(), (found[1] or "").casefold()
        if not name:
            ended = _COMMENT_END.search(markup, start + 2)
            if not ended:
                yield "!--", start, len(markup)
                break
            at = ended.end()
            continue
        ended = _TAG_END.match(markup, found.end())
        if not ended:
            yield "tag", start, len(markup)
            break
        at = ended.end()
        tag = markup[start:at]
        if any(re.search(r"<\w", value[1]) for value in _MISQUOTED.finditer(tag)) or _UNSEPARATED.match(tag):
            yield "tag", start, at
        is_end = tag[1] == "/"
        if name == "plaintext":
            break
        if name in _HIDING:
            places = open_ones.setdefault(name, [])
            if not is_end:
                places.append(start)
            elif places:
                places.pop()
        elif name in _RAW and not is_end and not tag.endswith("/>"):
            closed = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(markup, at)
            if not closed:
                if name != "textarea":  # its text is read
                    yield name, start, len(markup)
                break
            at = closed.start()
    if (start := markup.rfind(CDATA)) > markup.rfind("]]>"):
        yield CDATA, start, len(markup)
    for name, places in open_ones.items():
        if places:
            yield name, places[0], len(markup)
