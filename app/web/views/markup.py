"""Small pieces of HTML that the views share."""

import html
import time
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise


def esc(text: object) -> str:
    """Return text for use as HTML text or in a quoted attribute; nothing in it is markup."""
    return html.escape(str(text), quote=True)


def page_link(document: str, number: int, words: str, place: str = "", hint: str = "") -> str:
    """Return a link to a page of a document, in a tab of its own.

    Args:
        document: id of the document.
        number: number of the page.
        words: text of the link, as HTML.
        place: end of the address, as HTML.
        hint: tooltip, as HTML.
    """
    said = f' title="{hint}"' if hint else ""
    return f'<a href="documents/{esc(document)}/pages/{number}{place}" target="_blank" rel="noopener"{said}>{words}</a>'


def bar(share: float, label: str, kind: str) -> str:
    """Return a horizontal bar. share: 0 to 1; label: text for screen readers; kind: its style."""
    percent = max(0.0, min(1.0, share)) * 100
    return (
        f'<div class="bar {esc(kind)}" role="img" aria-label="{esc(label)}">'
        f'<span style="width:{percent:.1f}%"></span></div>'
    )


def sparkline(values: Sequence[float], label: str, kind: str = "") -> str:
    """Return a small line of two or more values, oldest first, from zero upwards."""
    width, height, top = 240.0, 44.0, max(values) or 1.0
    step = width / (len(values) - 1)
    points = [(index * step, height - 2 - value / top * (height - 6)) for index, value in enumerate(values)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<svg class="spark {esc(kind)}" viewBox="0 0 {width:.0f} {height:.0f}" preserveAspectRatio="none" '
        f'role="img" aria-label="{esc(label)}"><polygon points="0,{height:.0f} {line} {width:.0f},{height:.0f}"/>'
        f'<polyline points="{line}"/></svg>'
    )


def strip(pieces: Sequence[tuple[str, float, float]], label: str) -> str:
    """Return a strip of pieces side by side, each with tooltip, width, and a share from 0 to 1 for its darkness.

    The darkness follows the root of the share, so that small shares can be distinguished.
    """
    whole, at, shown = sum(width for _, width, _ in pieces), 0.0, []
    for text, width, share in pieces:
        shown.append(
            f'<rect x="{240 * at / whole:.2f}" width="{240 * width / whole:.2f}" height="14" '
            f'fill-opacity="{share**0.5:.3f}"><title>{esc(text)}</title></rect>'
        )
        at += width
    return (
        f'<svg class="strip" viewBox="0 0 240 14" preserveAspectRatio="none" role="img" aria-label="{esc(label)}">'
        f"{''.join(shown)}</svg>"
    )


def thin(values: Sequence[float], most: int = 80) -> list[float]:
    """Return at most `most` values, each the mean of its neighbours."""
    if len(values) <= most:
        return list(values)
    edges = [round(index * len(values) / most) for index in range(most + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def day(seconds: float) -> str:
    """Return a date for a list, or the time if it is today."""
    then = datetime.fromtimestamp(seconds)
    return then.strftime("%H:%M" if then.date() == datetime.now().date() else "%d %b %Y")


def notice_of(sentence: str) -> str:
    """Return a notice that fades by itself. Each one is a new element, so that screen readers announce it."""
    return f'<p role="alert" data-at="{time.time()}">{esc(sentence)}</p>'


def read_out(sentence: str) -> str:
    """Return a message for screen readers."""
    return f'<i data-at="{time.time()}" data-told="{esc(sentence)}"></i>'
