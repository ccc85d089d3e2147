"""How many bytes slots take and what they hold, worked out before there are any, and which layers keep a window only.

Arithmetic on sizes, of `slots.py` and of what plans its memories.
"""

from __future__ import annotations

import dataclasses
import sys

from engine.models.spec import LayerSpec, ModelSpec
from engine.parts.attention import FEW_QUERIES
from engine.parts.footprint import Footprint, mean_attended
from engine.parts.quantized_slots import Quantization, channel_scale_bytes
from engine.records import DEVICE, Usage

FIRST_CAPACITY = 256
LEAST_SLACK, MOST_SLACK = 512, 2048
UNLIMITED = sys.maxsize


def window_slack(window: int) -> int:
    """Return how many tokens pass before the buffer of a window is packed: as many as it holds, within bounds."""
    return min(max(window, LEAST_SLACK), MOST_SLACK)


def slot_bytes(spec: ModelSpec, capacity: int, quantization: Quantization | None = None) -> int:
    """Bytes of the slots of all layers: keys before and after RoPE, values, source and score; in codes, as they say."""
    rotated = 0 if quantization is not None else capacity * spec.key_bytes
    return saved_bytes(spec, capacity, quantization) + rotated


def saved_bytes(spec: ModelSpec, entries: int, quantization: Quantization | None) -> int:
    """Bytes of so many entries on disk, where keys are not rotated."""
    if quantization is not None:
        return quantization.slot_bytes(spec, entries)
    return entries * (spec.entry_bytes + 8 * sum(layer.kv_heads for layer in spec.layers))


def layer_window(spec: ModelSpec, layer: LayerSpec, capacity: int | None) -> int | None:
    """How many entries a layer keeps because it sees no more; None where it keeps what there is, or what a budget says.

    capacity: entries that fit at most, None for no limit. Where one is below window and slack, and where no layer sees
    farther, it is the budget that says what is kept.
    """
    window = layer.sliding_window
    if window is None or capacity is None:
        return window
    return window if window_capacity(window) <= capacity and farthest(spec) == UNLIMITED else None


def window_capacity(window: int, passing: int = 1) -> int:
    """Entries per head to allocate where a layer sees `window` of them, with so many tokens in a pass."""
    return window + max(window_slack(window), passing)


def farthest(spec: ModelSpec) -> int:
    """How many entries back any layer sees: no limit, unless all have a sliding window."""
    return max(UNLIMITED if layer.sliding_window is None else layer.sliding_window for layer in spec.layers)


def planned_bytes(
    spec: ModelSpec, tokens: int, capacity: int | None, chunk: int = 1, quantization: Quantization | None = None
) -> tuple[ModelSpec, int, int]:
    """Bytes of slots for so many tokens, or of the capacity.

    Args:
        chunk: tokens per pass at most.
        coding: where there is no `layer_window`: what is in one is never coded.

    Returns:
        The model without heads in layers that have a `layer_window`, the bytes of that, and those of these layers.
    """
    near, room = 0, max(tokens, FIRST_CAPACITY) if capacity is None else capacity
    for layer in spec.layers:
        window = layer_window(spec, layer, capacity)
        if window is not None:
            most = window_capacity(window, chunk)
            alone = dataclasses.replace(spec, layers=(layer,))
            near += slot_bytes(alone, min(room, most) if capacity is None else most)
    looking = spec.with_heads(lambda layer: layer_window(spec, layer, capacity) is None)
    return looking, slot_bytes(looking, room, quantization), near


def seen(spec: ModelSpec, entries: float) -> float:
    """Of so many entries, how many a query sees through its layer's window, on average over all layers' queries."""
    return spec.averaged(lambda layer: min(entries, layer.sliding_window or entries))


def plan_slots(
    spec: ModelSpec, passed: int, chunk: int, capacity: int | None, quantization: Quantization | None
) -> Footprint:
    """What slots hold of so many tokens, `chunk` in a pass, and what those attend to."""
    looking, far, near = planned_bytes(spec, passed, capacity, chunk, quantization)
    coded = quantization is not None and looking.entry_width > 0
    levels = channel_scale_bytes(looking) if coded else 0
    levelled = levels if quantization is not None and passed >= quantization.most_pending else 0
    held = min(passed, farthest(spec) if capacity is None else capacity)
    own = FIRST_CAPACITY if capacity is None else max(capacity, FIRST_CAPACITY)  # of a conversation
    windows = planned_bytes(spec, UNLIMITED, capacity, chunk)[2]  # which it fills soon
    forks = 2 if capacity is None else 3
    return Footprint(
        usage=Usage({DEVICE: held}, {DEVICE: far + near + levelled}),
        spare_bytes=near if capacity is None else far + near,
        tail_bytes=forks * (slot_bytes(looking, own, quantization) + windows) + levels,
        saved_bytes=saved_bytes(looking, held, quantization) + near + levelled,
        passed=passed,
        attended=spec.averaged(lambda layer: mean_attended(passed, min(held, layer.sliding_window or held))),
        widest=min(passed, held + chunk) if capacity is None else held,
        answering=round(seen(spec, held)),
        coded=coded,
        codes_read_by=FEW_QUERIES,
        recorded=quantization is None,
    ).with_states(spec.state_bytes)
