"""Words in a drawing (SVG)."""

from collections.abc import Iterator

from lxml import etree

from ingest.clean import one_line


def svg_lines(drawing: etree._Element) -> list[str]:
    """Return the lines of text in a drawing, in its order. Of a `switch`, the first case with words is read."""
    return [line for element in _texts(drawing) for line in _lines(element)]


def _name(element: etree._Element) -> str:
    """Return the name of an element of HTML or XML without prefix and namespace; "" for a comment."""
    return element.tag.rpartition("}")[2].rpartition(":")[2].casefold() if isinstance(element.tag, str) else ""


def _texts(element: etree._Element) -> Iterator[etree._Element]:
    """Yield the elements that hold text, none within another."""
    steps = etree.iterwalk(element, events=("start",))
    for _, node in steps:
        name = _name(node)
        if name in ("text", "foreignobject"):
            yield node
        if name in ("text", "foreignobject", "title", "desc", "metadata", "defs", "symbol", "style", "script"):
            steps.skip_subtree()
        elif name == "switch":
            cases = ([*_texts(child)] for child in node)
            yield from next(
                (case for case in cases if any("".join(map(str, each.itertext())).strip() for each in case)), []
            )
            steps.skip_subtree()


def _lines(element: etree._Element) -> list[str]:
    """Return the lines of a text: a part that is placed on its own begins another."""
    parts = [""]
    for event, node in etree.iterwalk(element, events=("start", "end")):
        if event == "start":
            below = node.get("dy") or ""
            if node is not element and (node.get("y") or (below and below.strip("0.empx%") and node.get("x"))):
                parts.append("")
            parts[-1] += node.text or ""
        elif node is not element:
            parts[-1] += node.tail or ""
    return [line for line in map(one_line, parts) if line]
