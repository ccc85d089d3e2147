"""The memory map: how much of each stretch of a text an evicting method still remembers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from sessions import Store

if TYPE_CHECKING:
    import torch

    from app.reading.document_cache import DocumentCache
    from app.reading.token_stream import Stream

KIND = "memory map"  # kind of the measurement that holds the map
STRETCHES = 120
"""Approximate number of stretches of a text; each document has at least one, a short one as many as it has tokens."""


@dataclass(frozen=True)
class Remembered:
    """A stretch of a document: characters `start` to `end` (exclusive).

    document: id of the document.
    place: place where the stretch begins, in words; "" in what `memory_map` returns.
    tokens: number of tokens.
    share: share of KV heads (all layers) that hold an entry of a token, averaged over the tokens, 0 to 1.
    """

    document: str
    start: int
    end: int
    place: str
    tokens: int
    share: float


def memory_map(remembered: "torch.Tensor", stream: "Stream") -> list[Remembered]:
    """Return the stretches of a text from beginning to end; an empty list if everything is remembered.

    Args:
        remembered: share per token of the stream, float32 [T] (`engine.Context.remembered`).
        stream: the text as tokens.
    """
    if bool(remembered.eq(1).all()):
        return []
    found = []
    for whole in stream.stretches:
        tokens = whole.end - whole.first
        if not tokens:
            continue
        pieces = min(tokens, -(-tokens * STRETCHES // len(remembered)))
        edges = [whole.first + tokens * number // pieces for number in range(pieces + 1)]
        for first, end in pairwise(edges):
            spans = stream.spans(first, end)
            span = replace(spans[0], end=spans[-1].end)
            share = round(float(remembered[first:end].mean()), 5)
            found.append(Remembered(span.document_id, span.start, span.end, "", end - first, share))
    return found


def with_places(stretches: Sequence[Remembered], document_cache: "DocumentCache") -> list[Remembered]:
    """Return the stretches with their places in words."""
    places = (document_cache.document(each.document).locate(each.start).label for each in stretches)
    return [replace(each, place=place) for each, place in zip(stretches, places, strict=True)]


def save_map(store: Store, context_id: str, stretches: Sequence[Remembered]) -> None:
    """Keep the map of a context until the context is deleted."""
    if stretches:
        store.measurements.add(KIND, context_id, {"stretches": [asdict(each) for each in stretches]})


def load_map(store: Store, context_id: str) -> list[Remembered]:
    """Return the map of a context; empty if it remembers everything, or has no map."""
    rows = store.measurements.newest(KIND, context_id, limit=1)
    return [Remembered(**each) for row in rows for each in row.values["stretches"]]


def tenths(stretches: Sequence[Remembered]) -> list[float]:
    """Return the mean share in each tenth of the text; fewer values for a text of few tokens."""
    total = sum(each.tokens for each in stretches)
    sums, counts = [0.0] * 10, [0] * 10
    before = 0
    for each in stretches:
        number = (2 * before + each.tokens) * 5 // total  # the tenth that holds its middle
        sums[number] += each.share * each.tokens
        counts[number] += each.tokens
        before += each.tokens
    return [share / count for share, count in zip(sums, counts, strict=True) if count]
