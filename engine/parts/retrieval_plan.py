"""Bytes and attended entries of methods with an archive, computed before anything is allocated."""

from __future__ import annotations

import dataclasses
import math

import torch

from engine.models.spec import ModelSpec
from engine.parts.archive.options import DTYPES
from engine.parts.archive.search import searching_bytes
from engine.parts.archive.sketch import CANDIDATES, entry_sketch_bytes, sketch_bytes, sketched, sketching_bytes
from engine.parts.archive.tier_plan import (
    FIRST_OF_CONVERSATION,
    SLAB,
    host_usage,
    mapped_entries,
    pending_bytes,
    slab_bytes,
)
from engine.parts.footprint import Footprint, Task
from engine.parts.selectors.base import selected_in_pass, selecting_queries
from engine.parts.window_plan import plan_window
from engine.records import DEVICE, DISK, Usage

OPERATIONS = 430  # of PyTorch that a layer takes for a token of an answer, if it looks entries up


def on_their_way(spec: ModelSpec, chunk: int) -> int:
    """Bytes on the device of a pass that goes to the host tier while the next one has begun."""
    return chunk * spec.entry_bytes if spec.device.type == "cuda" else 0


def looking_share(spec: ModelSpec) -> float:
    """Of all queries, those in layers that look up what has left their window."""
    return spec.looking_far.query_width / spec.query_width


def plan_retrieving(
    spec: ModelSpec,
    task: Task,
    sinks: int,
    window: int,
    store: str,
    chosen: int,
    compared: float,
    reading: bool,
    tier: str,
    looks: int,
    cached: int = 0,
    together: int = 1,
    block: int = 1,
    in_place: bool = False,
    search_every: int = 1,
    recorded: bool = False,
) -> Footprint:
    """Sinks and window on the device, everything behind the sinks in the host tier.

    chosen: entries of the host tier that a query sees beside its window; compared: keys that a query is compared with
    to choose them, per entry of the host tier; reading: whether the text's own queries choose as well; tier: where
    full slabs go; looks: how often a question is asked at most; cached: bytes of the device's cache; together: queries
    of the text that are compared as one; block: queries of the text that choose together; in_place, search_every,
    recorded: see `Footprint`.
    """
    far = max(0, task.total - sinks)
    seen = plan_window(spec, task, sinks, window, whole=True)
    usage = Usage(seen.usage.entries, {DEVICE: seen.usage.bytes[DEVICE] + cached})
    plain = dataclasses.replace(seen, usage=usage)
    searched = math.ceil(compared * far)
    tiered = with_host_tier(plain, spec, task, sinks, store, tier, looks, chosen, searched)
    more, share = tiered.brought_answering, looking_share(spec)
    while_reading = share * (more + searched / together / 2) if reading else 0.0  # half of the text is there on average
    # Where a GPU prunes, the keys that it compares come over the link too: half of the text's, of each pair one is new.
    brought = more + (spec.key_share * searched / 4 if in_place else 0.0)
    picking = selected_in_pass(spec, more, task.chunk) if looks > 1 or not reading else 0
    sources = 4 * far if spec.device.type == "cuda" else 0
    return dataclasses.replace(
        tiered,
        tail_bytes=plain.tail_bytes + cached + picking + 2 * sources,
        attended=plain.attended + while_reading,
        widest=plain.widest + (more if reading else 0),
        in_place=in_place,
        search_every=search_every,
        brought=brought / block if reading else 0.0,
        # Kernels read what is chosen in place.
        explicit=reading and share > 0 and (spec.device.type != "cuda" or cached > 0),
        host_tail_bytes=2 * slab_bytes(spec.looking_far, DTYPES[store], FIRST_OF_CONVERSATION),
        recorded=recorded,
    )


def with_host_tier(
    plain: Footprint,
    spec: ModelSpec,
    task: Task,
    first: int,
    store: str,
    tier: str,
    looks: int,
    chosen: int,
    searched: int,
) -> Footprint:
    """What a memory on the device takes, with everything behind the `first` tokens in the host tier as well.

    store, tier, looks, chosen: as of `plan_retrieving`; searched: see `Footprint`.
    """
    dtype, looking, share = DTYPES[store], spec.looking_far, looking_share(spec)
    far = max(0, task.total - first)
    mapped = mapped_entries(looking, dtype, max(0, task.prefix + task.read - first)) if task.read else 0
    stored = host_usage(looking, dtype, far, task.total, mapped, leaving=tier == DISK)
    more = min(chosen, far)
    return dataclasses.replace(
        plain,
        usage=Usage({**plain.usage.entries, **stored.entries}, {**plain.usage.bytes, **stored.bytes}),
        spare_bytes=plain.spare_bytes + on_their_way(looking, task.chunk),
        saved_bytes=plain.saved_bytes + pending_bytes(looking, dtype),
        answering=round(plain.answering + share * more),
        searched=searched,
        brought_answering=more,
        looks=min(looks, 2),  # the third time is for what the first one has not found, and searches little
        host_spare_bytes=slab_bytes(looking, dtype, min(SLAB, far - mapped)),  # on its way to disk, or copied
        operations=round(share * OPERATIONS + (1 - share) * plain.operations),
    )


def searching_everything(
    plain: Footprint, spec: ModelSpec, task: Task, store: str, top: int, sketch: torch.dtype | None = None
) -> Footprint:
    """A footprint as it is if each query is compared with all that is far, of which it sees the best `top` entries.

    sketch: kind of the sketches by which they are found, None for none.
    """
    looking, far, together = spec.looking_far, plain.searched, selecting_queries(spec, top)
    if not far or not looking.query_heads:
        return plain
    searching = searching_bytes(looking, DTYPES[store], min(task.chunk, together), far, top, sketch)
    if sketch is not None:
        plain = _with_sketches(plain, looking, task, top, sketch)
    return dataclasses.replace(
        plain,
        in_place=True,
        asked_together=together,
        picking=looking.query_heads / sum(layer.kv_heads for layer in looking.layers),
        tail_bytes=plain.tail_bytes + searching,
    )


def _with_sketches(plain: Footprint, spec: ModelSpec, task: Task, top: int, sketch: torch.dtype) -> Footprint:
    """With sketches of all that is far, for which there is room for all that is expected, and of conversations."""
    kept = sketch_bytes(spec, sketch, task.total) if sketched(plain.searched) else 0
    usage = Usage(plain.usage.entries, {**plain.usage.bytes, DEVICE: plain.usage.bytes[DEVICE] + kept})
    return dataclasses.replace(
        plain,
        usage=usage,
        spare_bytes=plain.spare_bytes + sketching_bytes(spec, plain.searched),
        tail_bytes=plain.tail_bytes + 2 * FIRST_OF_CONVERSATION * entry_sketch_bytes(spec, sketch),
        sketched=entry_sketch_bytes(spec, sketch),
        candidates=min(CANDIDATES[sketch] * top, plain.searched),
    )
