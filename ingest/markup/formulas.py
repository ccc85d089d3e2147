"""Formulas on one line: a sign stands for each position that Word's markup or MathML expresses by structure alone."""

import re
from collections.abc import Iterator
from itertools import pairwise

from lxml import etree

from ingest.clean import in_parentheses, one_line

M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
DEEPEST = 100  # nested elements of MathML; deeper ones give their letters in a row

_WORD = re.compile(r"[^\W\d_]{2}")
_SPACE = re.compile(r"[ \t\r\n]+")
_INVISIBLE = str.maketrans({"\u2061": " ", "\u2062": "", "\u2063": "", "\u2064": ""})  # function application: "sin x"


def omml_text(element: etree._Element) -> str:
    """Return a formula of a Word document, an `m:oMath` element, on one line."""
    if _name(element) == "t":
        return element.text or ""
    parts: list[str] = []
    before = None
    for child in element:
        if before is not None and before.tag == child.tag == f"{M}r":  # Word splits a number into runs as it was typed
            parts[-1] += omml_text(child)
        elif child.tag != f"{M}ctrlPr":
            parts.append(omml_text(child))
        before = child
    text = _joined(parts)
    match element.tag.removeprefix(M) if isinstance(element.tag, str) else "":
        case "num":
            return in_parentheses(text)
        case "den":
            return f"/{in_parentheses(text)}"
        case "sup":
            return f"^{in_parentheses(text)}" if text else ""
        case "sub":
            return f"_{in_parentheses(text)}" if text else ""
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


def mathml_text(element: etree._Element) -> str:
    """Return a formula of a web page, a `math` element, on one line; its own TeX if it brings any."""
    notes = [node for node in element.iter() if _name(node) in ("annotation", "annotation-xml")]
    tex = next((node.text for node in notes if "tex" in (node.get("encoding") or "").casefold()), None)
    return one_line(element.get("alttext") or tex or _in_signs(element))


def _in_signs(element: etree._Element, depth: int = 0) -> str:
    """Return presentation MathML on one line. An element that lacks parts gives those that it has."""
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
            return f"{in_parentheses(above)}/{in_parentheses(below)}"
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
    """Join neighbours without changing their meaning: "2 1/4" is no 21/4, in "x^2 y" the y is no power."""
    text = "".join(parts[:1])
    for before, part in pairwise(parts):
        digits = before[-1:].isdigit() and part[:1].isdigit()
        raised = re.search(r"[\^_]\w+$", before) and re.match(r"\w", part)
        word = (before[-1:].isalpha() and _WORD.match(part)) or (part[:1].isalpha() and _WORD.match(before[-2:]))
        text += f" {part}" if digits or raised or word else part
    return text


def _beside(sign: str, part: str) -> str:
    """Return a part above or below with its sign: "^2". A prime or an accent needs none."""
    return part if re.fullmatch(r"[^\w\s]?", part) else f"{sign}{in_parentheses(part)}"


def _separators(element: etree._Element) -> Iterator[str]:
    """Yield the separator before each part of an `mfenced`: none, then its own, the last of them for ever."""
    signs = "".join(element.get("separators", ",").split())
    yield ""
    yield from signs
    while True:
        yield signs[-1:]


def _name(element: etree._Element) -> str:
    """Return an element's name without a namespace or prefix; "" for a comment."""
    tag = element.tag
    return tag.rpartition("}")[2].rpartition(":")[2].casefold() if isinstance(tag, str) else ""
