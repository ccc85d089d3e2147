"""Small pieces of HTML that the views share."""

import html
import time
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from app.language import ENGLISH, joined, t, told, told_parts


def esc(text: object) -> str:
    """Return text for use as HTML text or in a quoted attribute; nothing in it is markup."""
    return html.escape(str(text), quote=True)


def page_link(document: str, number: int, words: str, place: str = "", hint: str = "") -> str:
    """Return a link to a page of a document. The page shows it beside the answer; without script it opens a tab.

    Args:
        document: id of the document.
        number: number of the page.
        words: text of the link, as HTML.
        place: end of the address, as HTML.
        hint: tooltip, as HTML.
    """
    said = f' title="{hint}"' if hint else ""
    return f'<a href="documents/{esc(document)}/pages/{number}{place}" target="_blank" rel="noopener"{said}>{words}</a>'


def place_after(start: int, end: int) -> str:
    """Return the end of a page's address, as HTML, that marks characters of the document's text there."""
    return f"?start={start}&amp;end={end}#passage"


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


def thin(values: Sequence[float], most: int = 80) -> list[float]:
    """Return at most `most` values, each the mean of its neighbours."""
    if len(values) <= most:
        return list(values)
    edges = [round(index * len(values) / most) for index in range(most + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def day(seconds: float) -> str:
    """Return a date for a list, with the time of day if it is of this year."""
    then = datetime.fromtimestamp(seconds)
    return then.strftime(t("%d %b, %H:%M") if then.year == datetime.now().year else t("%d %b %Y"))


def told_html(sentence: str) -> str:
    """Return `told` as HTML, with sentences that have no translation marked as English."""
    return joined(
        esc(said) if known else f'<span lang="{ENGLISH}">{esc(said)}</span>' for said, known in told_parts(sentence)
    )


def notice_of(sentence: str) -> str:
    """Return a notice that fades by itself. Each one is a new element, so that screen readers announce it."""
    return f'<p role="alert" data-at="{time.time()}">{told_html(sentence)}</p>'


def read_out(sentence: str) -> str:
    """Return a message for screen readers."""
    return f'<i data-at="{time.time()}" data-told="{esc(told(sentence))}"></i>'
