"""Formulas on one line: what Word and MathML set above, below or around by markup alone gets a sign."""

import re
from collections.abc import Iterator
from itertools import pairwise

from lxml import etree

from ingest.clean import grouped, one_line

M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
DEEPEST = 100  # nested elements of MathML; what lies below is its letters in a row

_WORD = re.compile(r"[^\W\d_]{2}")
_SPACE = re.compile(r"[ \t\r\n]+")
_INVISIBLE = str.maketrans({"\u2061": " ", "\u2062": "", "\u2063": "", "\u2064": ""})  # "sin" applied to "x" is "sin x"


def of_word(element: etree._Element) -> str:
    """A formula of a Word document: an `m:oMath` element."""
    if _name(element) == "t":
        return element.text or ""
    parts: list[str] = []
    before = None
    for child in element:
        if before is not None and before.tag == child.tag == f"{M}r":  # Word parts a number as it was typed
            parts[-1] += of_word(child)
        elif child.tag != f"{M}ctrlPr":
            parts.append(of_word(child))
        before = child
    text = _joined(parts)
    match element.tag.removeprefix(M) if isinstance(element.tag, str) else "":
        case "num":
            return grouped(text)
        case "den":
            return f"/{grouped(text)}"
        case "sup":
            return f"^{grouped(text)}" if text else ""
        case "sub":
            return f"_{grouped(text)}" if text else ""
        case "deg":
            return f"[{text}]" if text else ""
        case "rad":
            return f"√{''.join(parts[:-1])}({''.join(parts[-1:])})"
        case "mr":
            return ", ".join(parts)
        case "m":
            return "; ".join(part for part in parts if part)
        case "nary":
            return _sign(element, "naryPr/chr", "∫") + text
        case "d":
            inner = _sign(element, "dPr/sepChr", "|").join(part for part in parts if part)
            return _sign(element, "dPr/begChr", "(") + inner + _sign(element, "dPr/endChr", ")")
    return text


def _sign(element: etree._Element, path: str, usual: str) -> str:
    found = element.find("/".join(f"{M}{step}" for step in path.split("/")))
    return usual if found is None else found.get(f"{M}val") or ""


def of_mathml(element: etree._Element) -> str:
    """A formula of a web page: a `math` element, as the TeX that came with it if any did."""
    notes = [node for node in element.iter() if _name(node) in ("annotation", "annotation-xml")]
    tex = next((node.text for node in notes if "tex" in (node.get("encoding") or "").casefold()), None)
    return one_line(element.get("alttext") or tex or _in_signs(element))


def _in_signs(element: etree._Element, depth: int = 0) -> str:
    """Presentation MathML. Of an element that must have parts and has not, those that are there."""
    name = _name(element)
    if name in ("annotation", "annotation-xml", "mphantom", ""):
        return ""
    if name == "mspace":
        return " "
    if name in ("mi", "mn", "mo", "mtext", "ms") or depth > DEEPEST:
        return _SPACE.sub(" ", "".join(map(str, element.itertext()))).strip(" ").translate(_INVISIBLE)
    parts = [_in_signs(child, depth + 1) for child in element if isinstance(child.tag, str)]
    match name, parts:
        case "msub" | "munder", [base, below]:
            return base + _beside("_", below)
        case "msup" | "mover", [base, above]:
            return base + _beside("^", above)
        case "msubsup" | "munderover", [base, below, above]:
            return base + _beside("_", below) + _beside("^", above)
        case "mfrac", [above, below]:
            return f"{grouped(above)}/{grouped(below)}"
        case "mroot", [base, degree]:
            return f"√[{degree}]({base})"
        case "msqrt", _:
            return f"√({_joined(parts)})"
        case "mfenced", _:
            inner = "".join(f"{sign}{part}" for sign, part in zip(_separators(element), parts, strict=False))
            return f"{element.get('open', '(')}{inner}{element.get('close', ')')}"
        case "mtr" | "mlabeledtr", _:
            return ", ".join(parts)
        case "mtable", _:
            return "; ".join(parts)
    return _joined(parts)


def _joined(parts: list[str]) -> str:
    """Parts beside each other: "2 1/4" is no 21/4, in "x^2 y" the y is no power, and "sin x" is no name."""
    text = "".join(parts[:1])
    for before, part in pairwise(parts):
        digits = before[-1:].isdigit() and part[:1].isdigit()
        raised = re.search(r"[\^_]\w+$", before) and re.match(r"\w", part)
        word = (before[-1:].isalpha() and _WORD.match(part)) or (part[:1].isalpha() and _WORD.match(before[-2:]))
        text += f" {part}" if digits or raised or word else part
    return text


def _beside(sign: str, part: str) -> str:
    """A part above or below: "^2"; a prime or an accent stands for itself."""
    return part if re.fullmatch(r"[^\w\s]?", part) else f"{sign}{grouped(part)}"


def _separators(element: etree._Element) -> Iterator[str]:
    """What stands before each part of an `mfenced`: nothing, then its separators, the last of them for ever."""
    signs = "".join(element.get("separators", ",").split())
    yield ""
    yield from signs
    while True:
        yield signs[-1:]


def _name(element: etree._Element) -> str:
    """The name without its namespace, or the prefix that stands for one in HTML; of a comment there is none."""
    tag = element.tag
    return tag.rpartition("}")[2].rpartition(":")[2].casefold() if isinstance(tag, str) else ""
