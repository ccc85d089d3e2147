"""Bytes and attended entries of sinks and a window, computed before anything is allocated."""

from __future__ import annotations

from engine.models.spec import LayerSpec, ModelSpec
from engine.parts import slot_plan
from engine.parts.footprint import OPERATIONS, Footprint, ReadingTask, Work, mean_attended
from engine.parts.slot_plan import window_slack
from engine.records import DEVICE, Usage


def window_room(window: int, held: int, arriving: int, expected: int = 0) -> int:
    """Return the entries to allocate for a window that holds `held` and gets `arriving` more in a pass.

    As long as all that is to come fits the window, there is room for no more than that. expected: entries that a text
    will have brought in all, 0 if that is not known.
    """
    room = max(expected, held + max(arriving, slot_plan.LEAST_SLACK))
    return room if room <= window else max(window + window_slack(window), held + arriving)


def window_bytes(spec: ModelSpec, sinks: int, window: int, chunk: int, total: int) -> int:
    """Return the bytes of sinks and buffers in all layers while `total` tokens pass, `chunk` at a time."""
    coming = max(0, total - sinks)
    held = 0 if max(coming, slot_plan.LEAST_SLACK) <= window else window
    room = window_room(window, held, chunk, coming) if coming else 0
    return (sinks + room) * (spec.entry_bytes + spec.key_bytes + 4)


def split_by_window(spec: ModelSpec, window: int) -> tuple[ModelSpec, ModelSpec, int]:
    """Split a model at the layers whose own sliding window is longer than a memory's.

    Returns:
        The model without heads in these layers, with heads in these alone, and the longest of their windows or 0.
    """
    longest = max(layer.sliding_window or 0 for layer in spec.layers)

    def is_wide(layer: LayerSpec) -> bool:
        return (layer.sliding_window or 0) > window

    return (
        spec.with_heads(lambda layer: not is_wide(layer)),
        spec.with_heads(is_wide),
        longest if longest > window else 0,
    )


def window_footprint(
    spec: ModelSpec, task: ReadingTask, sinks: int, window: int, keeps_wider: bool = False
) -> Footprint:
    """Return the bytes of sinks and a window, and the work of tokens that see these.

    keeps_wider: layers whose own sliding window is longer keep all of that; else they see no more than `window`.
    """
    others, with_wide, longest = split_by_window(spec, window) if keeps_wider else (spec, spec, 0)
    talk = task.total + slot_plan.LEAST_SLACK  # with what a conversation begins with
    size = window_bytes(others, sinks, window, min(task.chunk, task.total), task.total)
    forked = window_bytes(others, sinks, window, min(task.chunk, task.total), talk)
    held = min(task.total, sinks + window)
    saved = held * others.entry_bytes + 4 * (sinks + window)
    if longest:
        size += window_bytes(with_wide, 0, longest, min(task.chunk, task.total), task.total)
        forked += window_bytes(with_wide, 0, longest, min(task.chunk, task.total), talk)
        saved += min(task.total, longest) * with_wide.entry_bytes + 4 * longest

    def most(layer: LayerSpec) -> int:
        own = layer.sliding_window
        return sinks + window if own is None else own if keeps_wider else min(own, window)

    work = Work(
        passed=task.total,
        attended=spec.averaged(lambda layer: mean_attended(task.total, most(layer))),
        widest=min(task.total, held + task.chunk),
        attended_per_answer_token=round(spec.averaged(lambda layer: min(task.total, most(layer)))),
        operations=OPERATIONS,
    )
    return Footprint(Usage({DEVICE: held}, {DEVICE: size}), size, 3 * forked, saved, work=work)
