"""The few pieces of HTML that the views share."""

import html
import time
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise


def esc(text: object) -> str:
    """Text as HTML text or as a quoted attribute; nothing in it is markup."""
    return html.escape(str(text), quote=True)


def page_link(document: str, number: int, words: str, place: str = "", hint: str = "") -> str:
    """A link to a page of a document, in a tab of its own.

    Args:
        words, place, hint: as HTML: what is clicked, what follows in the address, what is said where it is pointed at.
    """
    said = f' title="{hint}"' if hint else ""
    return f'<a href="documents/{esc(document)}/pages/{number}{place}" target="_blank" rel="noopener"{said}>{words}</a>'


def bar(share: float, label: str, kind: str) -> str:
    """A horizontal bar. share: 0 to 1; label: what it says to those who cannot see it; kind: a style."""
    percent = max(0.0, min(1.0, share)) * 100
    return (
        f'<div class="bar {esc(kind)}" role="img" aria-label="{esc(label)}">'
        f'<span style="width:{percent:.1f}%"></span></div>'
    )


def sparkline(values: Sequence[float], label: str, kind: str = "") -> str:
    """A small line of two or more values, oldest first, from zero upwards."""
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
    """A strip of pieces side by side, each with what it says when pointed at, its width, and a share from 0 to 1 that
    says how dark it is: by its root, so that small ones can be told apart.
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
    """At most `most` values, each the mean of its neighbours."""
    if len(values) <= most:
        return list(values)
    edges = [round(index * len(values) / most) for index in range(most + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def day(seconds: float) -> str:
    """A date for a list: the time if it is today."""
    then = datetime.fromtimestamp(seconds)
    return then.strftime("%H:%M" if then.date() == datetime.now().date() else "%d %b %Y")


def notice_of(sentence: str) -> str:
    """Why something could not be done; it fades by itself. Every notice is a new element, so that it is announced."""
    return f'<p role="alert" data-at="{time.time()}">{esc(sentence)}</p>'


def read_out(sentence: str) -> str:
    """What has been done, for those who cannot see it."""
    return f'<i data-at="{time.time()}" data-told="{esc(sentence)}"></i>'
