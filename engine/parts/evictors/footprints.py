"""Predict what evictors leave in slots: the entries at the end of a text, and what its tokens attend to."""

from __future__ import annotations

from dataclasses import dataclass

from engine.models.spec import ModelSpec
from engine.parts.evictors.catalyst import spare
from engine.parts.footprint import Footprint, Work
from engine.parts.sharing import widest
from engine.parts.slot_plan import mean_seen, seen
from engine.records import DEVICE, Usage


def scored_footprint(
    spec: ModelSpec, total: int, capacity: int, budget: int, local: int, share: str = "even"
) -> Footprint:
    """Return what a `ScoredEvictor` leaves of `total` tokens.

    Args:
        spec: the model.
        total: tokens of the text, prefix included.
        capacity: most entries that slots hold.
        budget: entries that outlast a chunk.
        local: last tokens of the text, which come on top.
        share: how the budget is shared among layers and heads.
    """
    text, most = max(0, total - local), min(total, capacity)
    held = min(text, budget) + total - text
    work = Work(
        passed=total,
        attended=mean_seen(spec, total, most),
        widest=most + widest(share, budget) - budget,
        attended_per_answer_token=round(seen(spec, held)),
    )
    return Footprint(Usage({DEVICE: held}, {}), work=work)


@dataclass(frozen=True)
class Distilling:
    """How a `CatalystEvictor` distils."""

    capacity: int  # entries that slots hold
    keep: int  # entries that a distillation leaves
    prompt_tokens: int  # of the catalyst
    share: str  # how what is left is shared among layers and heads


def distilled_footprint(spec: ModelSpec, total: int, distilling: Distilling) -> Footprint:
    """Return what a `CatalystEvictor` leaves of `total` tokens; each distillation costs a pass of the catalyst."""
    keep, room = distilling.keep, distilling.capacity - distilling.prompt_tokens
    if total <= room:
        times, held = 0, total
    else:
        each = max(1, room - keep)
        times = -(-(total - room) // each)
        held = keep + total - room - (times - 1) * each
    if times and room - held < spare(distilling.capacity):
        times, held = times + 1, min(keep, held)
    most = min(total, distilling.capacity)
    work = Work(
        passed=total + times * distilling.prompt_tokens,
        attended=seen(spec, (keep + room) / 2 if times else total / 2),
        widest=most + widest(distilling.share, keep) - keep,
        attended_per_answer_token=round(seen(spec, most)),
    )
    return Footprint(Usage({DEVICE: held}, {}), work=work)
