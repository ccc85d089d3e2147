"""The memory map: how much of each stretch of a text a context still remembers, where it does not keep everything."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from sessions import Store

if TYPE_CHECKING:
    import torch

    from app.reading.document_cache import Library
    from app.reading.token_stream import Stream

KIND = "memory map"  # of the measurement in which it is kept
STRETCHES = 120
"""Of a text, about; a document has one of its own at least, and a short one as many as it has tokens."""


@dataclass(frozen=True)
class Remembered:
    """Characters `start` to `end` (exclusive) of a document: so many tokens, and what is remembered of them.

    place: where it begins, in words; share: of the KV heads of all layers, those that hold an entry of a token, on
    average over its tokens, 0 to 1.
    """

    document: str
    start: int
    end: int
    place: str
    tokens: int
    share: float


def memory_map(remembered: "torch.Tensor", stream: "Stream", library: "Library") -> list[Remembered]:
    """The stretches of a text, from its beginning to its end; none if everything is remembered.

    Args:
        remembered: float32 [T], of each token of the stream (`engine.Context.remembered`).
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
            [span] = stream.spans(first, end)
            place = library.document(span.document_id).locate(span.start).label
            share = round(float(remembered[first:end].mean()), 5)
            found.append(Remembered(span.document_id, span.start, span.end, place, end - first, share))
    return found


def keep_map(store: Store, context_id: str, stretches: Sequence[Remembered]) -> None:
    """Beside the context, until that is deleted."""
    if stretches:
        store.measurements.add(KIND, context_id, {"stretches": [asdict(each) for each in stretches]})


def kept_map(store: Store, context_id: str) -> list[Remembered]:
    """That of a context; empty if it remembers everything, or was read before there were maps."""
    rows = store.measurements.newest(KIND, context_id, limit=1)
    return [Remembered(**each) for row in rows for each in row.values["stretches"]]


def tenths(stretches: Sequence[Remembered]) -> list[float]:
    """The mean share in each tenth of the text; a text of few tokens may have fewer."""
    total = sum(each.tokens for each in stretches)
    sums, counts = [0.0] * 10, [0] * 10
    before = 0
    for each in stretches:
        number = (2 * before + each.tokens) * 5 // total  # the tenth in which its middle lies
        sums[number] += each.share * each.tokens
        counts[number] += each.tokens
        before += each.tokens
    return [share / count for share, count in zip(sums, counts, strict=True) if count]
