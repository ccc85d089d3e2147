"""Predict the bytes of slots and what tokens attend to in them, and tell which layers keep a window only."""

from __future__ import annotations

import dataclasses
import sys

from engine.models.spec import LayerSpec, ModelSpec
from engine.parts.footprint import OPERATIONS, Footprint, Work, mean_attended
from engine.parts.quantized_slots import Quantization, channel_scale_bytes
from engine.records import DEVICE, Usage

FIRST_CAPACITY = 256
ROOM_TO_ANSWER = 512  # tokens of an answer, at most, that room is made for before it begins, where tokens are recorded
LEAST_SLACK, MOST_SLACK = 512, 2048
UNLIMITED = sys.maxsize


def window_slack(window: int) -> int:
    """Return how many tokens pass before the buffer of a window is packed: as many as it holds, within bounds."""
    return min(max(window, LEAST_SLACK), MOST_SLACK)


def first_room(spec: ModelSpec, first: int) -> int:
    """Return the entries that a conversation has room for in its first answer, if it begins with room for `first`."""
    return first + (ROOM_TO_ANSWER if spec.device.type == "cuda" else 0)


def slot_bytes(spec: ModelSpec, capacity: int, quantization: Quantization | None = None) -> int:
    """Return the bytes of slots in all layers: keys before and after RoPE, values, source, score; or their codes."""
    rotated = 0 if quantization is not None else capacity * spec.key_bytes
    return saved_bytes(spec, capacity, quantization) + rotated


def saved_bytes(spec: ModelSpec, entries: int, quantization: Quantization | None) -> int:
    """Return the bytes of so many entries on disk, where keys are not rotated."""
    if quantization is not None:
        return quantization.slot_bytes(spec, entries)
    return entries * (spec.entry_bytes + 8 * sum(layer.kv_heads for layer in spec.layers))


def layer_window(spec: ModelSpec, layer: LayerSpec, capacity: int | None) -> int | None:
    """Return how many entries a layer keeps because it sees no more; None if it keeps all, or what a budget says.

    The budget decides where it is below window and slack, and where no layer sees farther.

    capacity: most entries that fit, None for no limit.
    """
    window = layer.sliding_window
    if window is None or capacity is None:
        return window
    return window if window_capacity(window) <= capacity and farthest(spec) == UNLIMITED else None


def window_capacity(window: int, passing: int = 1) -> int:
    """Return the entries per head to allocate for a layer that sees `window` of them. passing: tokens of a pass."""
    return window + max(window_slack(window), passing)


def farthest(spec: ModelSpec) -> int:
    """Return how many entries back any layer sees: no limit, unless all have a sliding window."""
    return max(UNLIMITED if layer.sliding_window is None else layer.sliding_window for layer in spec.layers)


def planned_bytes(
    spec: ModelSpec, tokens: int, capacity: int | None, chunk: int = 1, quantization: Quantization | None = None
) -> tuple[ModelSpec, int, int]:
    """Split the bytes of slots, for so many tokens or of the capacity, by layers.

    Args:
        spec: the model.
        tokens: how many there will be.
        capacity: most entries that fit, None for no limit.
        chunk: most tokens of a pass.
        quantization: of entries outside a `layer_window`, which are never coded in it.

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
    """Return how many of `entries` a query sees through its layer's window, on average over all layers."""
    return spec.averaged(lambda layer: min(entries, layer.sliding_window or entries))


def mean_seen(spec: ModelSpec, passed: int, held: int) -> float:
    """Return how many entries a token attends to on average while `passed` tokens are read. held: at most."""
    return spec.averaged(lambda layer: mean_attended(passed, min(held, layer.sliding_window or held)))


def slot_footprint(
    spec: ModelSpec, passed: int, chunk: int, capacity: int | None, quantization: Quantization | None = None
) -> Footprint:
    """Return the bytes of slots for so many tokens. What they hold depends on their evictor.

    chunk: most tokens of a pass.
    """
    looking, far, near = planned_bytes(spec, passed, capacity, chunk, quantization)
    coded = quantization is not None and looking.entry_width > 0
    levels = channel_scale_bytes(looking) if coded else 0
    levelled = levels if quantization is not None and passed >= quantization.most_pending else 0
    held = min(passed, farthest(spec) if capacity is None else capacity)
    room = first_room(spec, FIRST_CAPACITY)  # of a conversation
    own = room if capacity is None else max(capacity, FIRST_CAPACITY)
    windows = planned_bytes(spec, UNLIMITED, capacity, chunk)[2]  # a conversation soon fills them
    return Footprint(
        usage=Usage({}, {DEVICE: far + near + levelled}),
        condense_bytes=near if capacity is None else far + near,
        conversation_bytes=2 * (slot_bytes(looking, own, quantization) + windows) + levels,
        saved_bytes=saved_bytes(looking, held, quantization) + near + levelled,
        work=Work(operations=OPERATIONS, coded=coded, recorded=quantization is None),
    )


def unscored_footprint(spec: ModelSpec, passed: int, chunk: int, capacity: int | None) -> Footprint:
    """Return the entries of slots that keep all, or the last up to a capacity, and the work of tokens."""
    held = min(passed, farthest(spec) if capacity is None else capacity)
    work = Work(
        passed=passed,
        attended=mean_seen(spec, passed, held),
        widest=min(passed, held + chunk) if capacity is None else held,
        attended_per_answer_token=round(seen(spec, held)),
    )
    return Footprint(Usage({DEVICE: held}, {}), work=work)
