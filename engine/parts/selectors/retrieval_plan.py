"""Predict what selectors cost: the entries that queries are compared with, fetch and attend to, and bytes for that."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.models.spec import LayerSpec, ModelSpec
from engine.parts.archive.search import searching_bytes
from engine.parts.archive.sketch import CANDIDATES, entry_sketch_bytes, sketch_bytes, sketched, sketching_bytes
from engine.parts.archive.tier_plan import FIRST_OF_CONVERSATION
from engine.parts.footprint import OPERATIONS, Footprint, Lookup, ReadingTask, Work
from engine.parts.selectors.asked import Asked
from engine.parts.selectors.base import selected_in_pass, selecting_queries
from engine.parts.selectors.stages import Stage
from engine.parts.slot_plan import first_room
from engine.records import DEVICE, Usage

SELECTING_OPERATIONS = 430  # of PyTorch that a layer runs for a token of an answer, if it selects entries


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What a selector looks at and chooses."""

    chosen: int  # most entries of the archive that a query attends to
    compared: float  # keys that a query is compared with, per entry of the archive
    looks: int  # most times that a question is asked
    while_reading: bool = True  # whether the text's own queries select too
    each_query: bool = False  # whether each query selects for itself
    together: int = 1  # queries of the text that are compared as one
    fetching: int | None = None  # queries of the text that share what they fetch; None if that is not planned
    in_place: bool = False  # whether a GPU compares keys over the link
    search_every: int = 1  # tokens of an answer that one search serves
    recorded: bool = False  # whether a GPU replays a recorded pass for a token of an answer
    positions: int = 0  # exclusive upper bound of the true positions of queries and far keys; 0 if they have none
    stages: tuple[Stage, ...] = ()  # of pruning
    usual: float | None = None  # entries that a query attends to, on average over layers; None for `chosen`
    bank: int = 0  # units of a bank on the device, through which chosen entries go
    probes: int = 0  # n if every n-th key is on the device as well, 0 for none
    grouped: bool = False  # whether query heads of a KV head compare the same keys while pruning
    streamed: int = 0  # bytes of a layer's keys, if all may come to a GPU for a pass; two layers are there at once
    gathered: int = 0  # bytes of the entries that its blocks choose in a layer, if they come once for all blocks


def looking_share(spec: ModelSpec) -> float:
    """Return the share of queries that are in layers which select from the archive."""
    return spec.looking_far.query_width / spec.query_width


def selector_footprint(spec: ModelSpec, task: ReadingTask, first: int, selection: Selection) -> Footprint:
    """Return the footprint of a selector over an archive of everything behind the `first` tokens."""
    far, share = max(0, task.total - first), looking_share(spec)
    searched, selected = math.ceil(selection.compared * far), min(selection.chosen, far)
    attended = share * (selected + searched / selection.together / 2)  # half of the text is there on average
    together = task.chunk if selection.streamed else 0
    asked = Asked(
        spec,
        far,
        selection.chosen,
        selection.usual,
        selection.fetching or 1,
        selection.stages,
        selection.bank,
        selection.probes,
        selection.grouped,
        together,
        selection.gathered > 0,
    )
    streams = asked.streams()
    in_place = selection.fetching is not None or selection.in_place
    selecting = selection.each_query or selection.looks > 1
    return Footprint(
        # Beside the pass that leaves, which the archive counts
        arriving_bytes=task.chunk * spec.looking_far.entry_bytes + 2 * selection.streamed + selection.gathered
        if streams
        else 0,
        conversation_bytes=selected_in_pass(spec, selected, task.chunk) if selecting else 0,
        work=Work(
            attended=attended if selection.while_reading else 0.0,
            attended_per_answer_token=share * selected,
            widest=selected if selection.while_reading else 0,
            operations=round(share * (SELECTING_OPERATIONS - OPERATIONS)),
            recorded=selection.recorded,
            positions=selection.positions,
            # On a GPU, kernels read in place what is selected.
            explicit=selection.while_reading and share > 0 and spec.device.type != "cuda",
        ),
        lookup=Lookup(
            searched=searched,
            fetched=asked.of_text() if selection.fetching else 0.0,
            asked=asked.of_answer() if in_place or selection.bank > 0 else 0.0,
            fetched_per_answer_token=selected,
            looks=min(selection.looks, 2),  # the third look is for what the first one has not found: little to search
            search_every=selection.search_every,
            in_place=selection.in_place,
        ),
    )


def unit_footprint(spec: ModelSpec, tokens: int, size: int, heads: Callable[[LayerSpec], int]) -> Footprint:
    """Return the footprint of the keys of memory units of `size` tokens. heads: how many keys a unit has in a layer."""
    looking = (layer for layer in spec.layers if layer.sliding_window is None)
    held = tokens // size * sum(heads(layer) * layer.head_size * spec.dtype.itemsize for layer in looking)
    return Footprint(Usage({}, {DEVICE: held}), saved_bytes=held)


def search_footprint(
    spec: ModelSpec, task: ReadingTask, first: int, dtype: torch.dtype, top: int, sketch: torch.dtype | None = None
) -> Footprint:
    """Return what it takes to compare each query with everything behind the `first` tokens.

    dtype: of the archive; top: entries that a query selects; sketch: kind of the keys' sketches, or None.
    """
    looking, far, together = spec.looking_far, max(0, task.total - first), selecting_queries(spec, top)
    if not far or not looking.query_heads:
        return Footprint()
    searching = Footprint(
        conversation_bytes=searching_bytes(looking, dtype, min(task.chunk, together), far, top, sketch),
        lookup=Lookup(
            in_place=True,
            asked_together=together,
            picking=looking.query_heads / sum(layer.kv_heads for layer in looking.layers),
        ),
    )
    return searching if sketch is None else searching + _sketch_footprint(looking, task, far, top, sketch)


def _sketch_footprint(spec: ModelSpec, task: ReadingTask, far: int, top: int, sketch: torch.dtype) -> Footprint:
    """Return the footprint of sketches of all that is far; there is room for all that is expected."""
    each = entry_sketch_bytes(spec, sketch)
    kept = sketch_bytes(spec, sketch, task.total) if sketched(far) else 0
    return Footprint(
        usage=Usage({}, {DEVICE: kept}),
        condense_bytes=sketching_bytes(spec, far),
        conversation_bytes=2 * first_room(spec, FIRST_OF_CONVERSATION) * each,
        lookup=Lookup(sketched=each, candidates=min(CANDIDATES[sketch] * top, far)),
    )
