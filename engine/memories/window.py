"""Sinks and a sliding window: StreamingLLM's memory (https://arxiv.org/abs/2309.17453), in chunks.

The first S tokens stay for ever (sinks), of the others the last W. The paper steps token by token and rotates the
whole cache at each; here a chunk passes at once and comes out the same: every query sees exactly its own last W
tokens through a mask, and the sinks through a query of its own, rotated to the place it would have in the paper's
cache. Window keys are rotated once when they arrive and once more whenever the buffer is packed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from engine.footprint import Footprint, Task, mean_attended
from engine.memories.attention import Segment, Shown, VisibleRange, attend
from engine.memories.memory import NOT_IN_SOURCE, Memory
from engine.memories.static_pass import StaticPass
from engine.memories.static_window import StaticWindow
from engine.models.spec import LayerSpec, ModelSpec, Scoring
from engine.positions import sink_query_positions
from engine.records import DEVICE, LoadedParts, Part, Parts, Usage
from kernels import choice

LEAST_SLACK, MOST_SLACK = 512, 2048
MOVING = 64  # tokens after which what is shown of a window begins elsewhere, where a kernel is told


class LayerWindow:
    """Sinks [H, S, D] and the recent entries [H, capacity, D] of one layer; of values there are `value_heads`."""

    def __init__(self, layer: LayerSpec, spec: ModelSpec, sinks: int, capacity: int) -> None:
        """Nothing remembered yet."""
        self.layer = layer
        like = torch.empty(layer.kv_heads, 0, layer.head_size, dtype=spec.dtype, device=spec.device)
        self.sink_keys = like.new_empty(layer.kv_heads, sinks, layer.head_size)
        self.sink_rotated = torch.empty_like(self.sink_keys)
        self.sink_values = like.new_empty(layer.value_heads, sinks, layer.head_size)
        self.keys = like.new_empty(layer.kv_heads, capacity, layer.head_size)
        self.rotated = torch.empty_like(self.keys)
        self.values = like.new_empty(layer.value_heads, capacity, layer.head_size)

    def shown(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Keys after RoPE and values, of the recent entries and of sinks."""
        if self.layer.latent:
            return (self.rotated, self.rotated), (self.sink_rotated, self.sink_rotated)
        return (self.rotated, self.values), (self.sink_rotated, self.sink_values)

    @property
    def sinks_as_kept(self) -> tuple[Tensor, Tensor]:
        """Keys before RoPE and values of sinks."""
        return self.sink_keys, self.sink_keys if self.layer.latent else self.sink_values

    def nbytes(self) -> int:
        """Bytes of all its tensors."""
        tensors = (self.sink_keys, self.sink_rotated, self.sink_values, self.keys, self.rotated, self.values)
        return sum(tensor.nbytes for tensor in tensors)

    def packed(self, start: int, end: int, capacity: int, sinks: int) -> LayerWindow:
        """A new buffer that begins with entries start .. end of this one, rotated anew; the sinks are shared."""
        new = copy.copy(self)
        shape = (self.layer.kv_heads, capacity, self.layer.head_size)
        new.keys, new.rotated = self.keys.new_empty(shape), self.keys.new_empty(shape)
        new.values = self.values.new_empty(self.layer.value_heads, *shape[1:])
        new.keys[:, : end - start] = self.keys[:, start:end]
        new.values[:, : end - start] = self.values[:, start:end]
        new.rotated[:, : end - start] = self.layer.rope.rotate(self.keys[:, start:end], sinks)
        return new


def window_slack(window: int) -> int:
    """Tokens that may pass before the buffer of a window is packed: as many as are in it, within bounds."""
    return min(max(window, LEAST_SLACK), MOST_SLACK)


def window_room(window: int, held: int, arriving: int, expected: int = 0) -> int:
    """Return the entries to allocate for a window that holds `held` and gets `arriving` more in a pass.

    As long as all that is to come fits the window, there is room for no more than that. expected: entries that a text
    will have brought in all, 0 if that is not known.
    """
    room = max(expected, held + max(arriving, LEAST_SLACK))
    return room if room <= window else max(window + window_slack(window), held + arriving)


def window_bytes(spec: ModelSpec, sinks: int, window: int, chunk: int, total: int) -> int:
    """Bytes of sinks and buffers of all layers while `total` tokens go through in passes of up to `chunk`."""
    coming = max(0, total - sinks)
    held = 0 if max(coming, LEAST_SLACK) <= window else window
    room = window_room(window, held, chunk, coming) if coming else 0
    return (sinks + room) * (spec.entry_bytes + spec.key_bytes + 4)


def parted(spec: ModelSpec, window: int) -> tuple[ModelSpec, ModelSpec, int]:
    """The model without heads in layers whose own sliding window is longer than a memory's, with heads in these alone,
    and the longest of them; 0 if there are none.
    """
    longest = max(layer.sliding_window or 0 for layer in spec.layers)

    def is_wide(layer: LayerSpec) -> bool:
        return (layer.sliding_window or 0) > window

    return (
        spec.with_heads(lambda layer: not is_wide(layer)),
        spec.with_heads(is_wide),
        longest if longest > window else 0,
    )


def plan_window(spec: ModelSpec, task: Task, sinks: int, window: int, whole: bool = False) -> Footprint:
    """What a reading through sinks and a window keeps and attends to.

    whole: layers whose own sliding window is longer keep all of that, beside it; else they see no more than `window`.
    """
    others, with_wide, longest = parted(spec, window) if whole else (spec, spec, 0)
    talk = task.total + LEAST_SLACK  # with what a conversation begins with
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
        return sinks + window if own is None else own if whole else min(own, window)

    return Footprint(
        usage=Usage({DEVICE: held}, {DEVICE: size}),
        spare_bytes=size,
        tail_bytes=3 * forked,
        saved_bytes=saved,
        passed=task.total,
        attended=spec.averaged(lambda layer: mean_attended(task.total, most(layer))),
        widest=min(task.total, held + task.chunk),
        answering=round(spec.averaged(lambda layer: min(task.total, most(layer)))),
        recorded=True,
    ).with_states(spec.state_bytes)


@dataclass(frozen=True)
class _View:
    """Spans and positions of one pass: of T queries toward the sinks and toward buffer entries from `start` on.

    limit: what the places of both lie below. sink_source, source: int32 [S] and [N], the source positions of both.
    """

    sink_places: Tensor
    sink_span: VisibleRange
    sink_source: Tensor
    start: int
    places: Tensor
    span: VisibleRange
    source: Tensor
    limit: int

    def sinks_for(self, count: int) -> VisibleRange:
        """Of the sinks, where only the first `count` queries see them; made once per pass."""
        if count not in self._sinks_for:
            every = self.sink_span.host_values
            hidden = torch.arange(len(every.end)) >= count
            self._sinks_for[count] = VisibleRange(every.start, every.end.masked_fill(hidden, 0)).to(self.places.device)
        return self._sinks_for[count]

    @cached_property
    def _sinks_for(self) -> dict[int, VisibleRange]:
        return {}


class WindowMemory(Memory):
    """Sinks plus the last `window` tokens."""

    def __init__(self, spec: ModelSpec, sinks: int, window: int, query_block: int = 1) -> None:
        """Sinks S >= 0 and window W >= 1, in tokens; query_block: queries of a pass whose windows begin together."""
        super().__init__(spec)
        self.sinks = sinks
        self.window = window
        self.query_block = query_block
        self.expected = 0  # entries that will have come into the buffer once the text is read, if that is known
        self.length = 0  # entries in the buffer, those that have left the window included
        self._allocate(spec.layers, 0)
        self.watching = False  # whether `_attended` is to be told
        self._to_sinks = 0  # tokens of the incoming pass that become sinks
        self._views: dict[int | None, _View] = {}

    def _allocate(self, layers: Iterable[LayerSpec], capacity: int) -> None:
        """Begin with empty sinks, and empty buffers for `capacity` entries of these layers."""
        self.layers = [LayerWindow(layer, self.spec, self.sinks, capacity) for layer in layers]
        self.source = torch.full((self.sinks + capacity,), NOT_IN_SOURCE, dtype=torch.int32, device=self.spec.device)

    def reserve(self, tokens: int) -> None:
        """Let the buffer be allocated for the whole text at once, where that fits the window."""
        super().reserve(tokens)
        self.expected = max(0, tokens - self.sinks)

    def places(self, tokens: int) -> Tensor:
        """At the end of the cache, once it is full."""
        return torch.arange(self.seen, self.seen + tokens).clamp_max(self.sinks + self.window)

    def begin(self, source: Tensor) -> None:
        """Make sure that the buffer holds the pass."""
        super().begin(source)
        self._to_sinks = min(max(0, self.sinks - self.seen), len(source))
        arriving = len(source) - self._to_sinks
        if self.length + arriving > self.layers[0].keys.shape[1]:
            self._pack(arriving)
        self._views = {}

    def _pack(self, arriving: int) -> None:
        """Drop what has left the window, and make room. Snapshots keep the old buffers."""
        start = max(0, self.length - self.window)
        capacity = window_room(self.window, self.length - start, arriving, self.expected)
        layers = [layer.packed(start, self.length, capacity, self.sinks) for layer in self.layers]
        source = self.source.new_full((self.sinks + capacity,), NOT_IN_SOURCE)
        source[: self.sinks] = self.source[: self.sinks]
        source[self.sinks : self.sinks + self.length - start] = self.source[
            self.sinks + start : self.sinks + self.length
        ]
        self.layers, self.source, self.length = layers, source, self.length - start  # all or none

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Attention over the sinks, each query's own window, and what else a subclass shows."""
        self.arrive(layer, q, k, v)
        segments, sources = self._segments(layer, q)
        watched = self.mass is not None or self.watching
        output, given = attend(segments, scoring, watched)
        if self.watching:
            self._attended(layer, given)
        if self.mass is not None:
            for source, piece in zip(sources, given, strict=True):
                self.mass.add(source, piece)
        return output

    def _attended(self, layer: int, given: list[Tensor]) -> None:
        """What the queries of a pass gave to what they saw, [HQ, NB, N] of each segment."""

    def arrive(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Put keys and values of the pass where they will stand; they count from `commit` on."""
        held, fresh = self.layers[layer], self._to_sinks
        rope, v = held.layer.rope, v[: held.layer.value_heads]
        if fresh:
            places = slice(self.seen, self.seen + fresh)
            held.sink_keys[:, places], held.sink_values[:, places] = k[:, :fresh], v[:, :fresh]
            held.sink_rotated[:, places] = rope.rotate(k[:, :fresh], self.seen)
        end = self.length + k.shape[1] - fresh
        held.keys[:, self.length : end], held.values[:, self.length : end] = k[:, fresh:], v[:, fresh:]
        held.rotated[:, self.length : end] = rope.rotate(k[:, fresh:], self.sinks + self.length)

    def _segments(self, layer: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """What these queries see, and the source positions of it, broadcastable to what is given to it."""
        return self._near(layer, q)

    def _near(self, layer: int, q: Tensor, with_sinks: int | None = None) -> tuple[list[Segment], list[Tensor]]:
        """Sinks and window. with_sinks: of the queries, the first so many see the sinks; None for all."""
        held = self.layers[layer]
        rope = held.layer.rope
        count = q.shape[1]
        end = self.length + count - self._to_sinks
        view = self._view(held.layer.sliding_window, count, end, q.device)
        segments: list[Segment] = []
        sources = []
        sinks, sink_span = len(view.sink_source), view.sink_span
        if sinks and with_sinks is not None:
            sink_span = view.sinks_for(with_sinks)
        if sinks and sink_span.extent[1] > 0:
            turned, (keys, values) = rope.rotate(q, view.sink_places, view.limit), held.shown()[1]
            segments.append(Shown(turned, [(keys, sinks)], [(values, sinks)], sink_span))
            sources.append(view.sink_source)
        if end > view.start:
            keys, values = (bank[:, view.start : end] for bank in held.shown()[0])
            known = end - view.start
            turned = rope.rotate(q, view.places, view.limit)
            segments.append(Shown(turned, [(keys, known)], [(values, known)], view.span))
            sources.append(view.source)
        return segments, sources

    def _view(self, sliding: int | None, count: int, end: int, device: torch.device) -> _View:
        """What the queries of this pass see in a layer with that sliding window; worked out once per pass."""
        if sliding in self._views:
            return self._views[sliding]
        reach = min(self.window, sliding or self.window)
        number = torch.arange(self.seen, self.seen + count)  # from the very beginning; on the host, then sent at once
        sinks = min(self.sinks, self.seen + count)
        start = max(0, self.length - reach + 1)
        if choice.uses_triton(device):  # which is sent where they lie, and need not be for each token
            start -= start % MOVING
        own = number - max(self.seen, self.sinks) + self.length
        left = own - self.window - (number - self.seen) % self.query_block  # the newest that has left the window
        if sliding is not None:
            left = torch.maximum(left, own - sliding)
        sink_first = torch.zeros_like(number) if sliding is None else number - sliding + 1
        known = self.source[self.sinks + start : self.sinks + self.length]
        sink_places = sink_query_positions(self.seen, count, self.sinks, self.window, self.query_block)
        places = torch.stack([sink_places, own + self.sinks])
        sent = places.to(device, non_blocking=True)
        self._views[sliding] = _View(
            sink_places=sent[0],
            sink_span=VisibleRange(sink_first, number + 1).to(device),
            sink_source=self.source[:sinks],
            start=start,
            places=sent[1],
            span=VisibleRange(left + 1 - start, own + 1 - start).to(device),
            source=torch.cat([known, self._incoming[self._to_sinks :]]),
            limit=int(places.max()) + 1,
        )
        return self._views[sliding]

    def static_kind(self) -> int | None:
        """There is one behind the sinks, where nobody but the mass is to be told what was attended to."""
        return None if self.watching or self.seen < self.sinks else 0

    def static_addresses(self) -> tuple[int, ...]:
        """Of sinks and buffers, which are replaced together."""
        first = self.layers[0]
        return first.sink_keys.data_ptr(), first.keys.data_ptr(), first.keys.shape[1], self.source.data_ptr()

    def static_pass(self, kind: int) -> StaticPass[Any]:
        """Over sinks and buffers as they are now."""
        return StaticWindow(self)

    def commit(self, novelty: Tensor | None = None) -> None:
        """Keep the tokens of the pass."""
        fresh, count = self._to_sinks, len(self._incoming)
        self.source[self.seen : self.seen + fresh] = self._incoming[:fresh]
        begin = self.sinks + self.length
        self.source[begin : begin + count - fresh] = self._incoming[fresh:]
        self.length += count - fresh
        self.seen += count
        super().commit(novelty)

    def fork(self) -> Self:
        """Copies the window, which is small; the sinks are shared once they are all there."""
        child = self.snapshot()
        child.base_states, child.expected = self.states, 0
        if self.seen < self.sinks:
            for held in child.layers:
                for name in ("sink_keys", "sink_rotated", "sink_values"):
                    setattr(held, name, getattr(held, name).clone())
        child._pack(0)
        return child

    def snapshot(self) -> Self:
        """Layers are replaced, not changed, when they are packed."""
        child = copy.copy(self)
        child.layers = [copy.copy(held) for held in self.layers]
        return child

    @property
    def entries(self) -> int:
        """Entries that the next token can see, per KV head and layer."""
        return min(self.sinks, self.seen) + min(self.window, self.length)

    def positions(self, layer: int) -> Tensor:
        """int32 [H, entries]: sinks, then the window."""
        recent = self.source[self.sinks : self.sinks + self.length][-self.window :]
        row = torch.cat([self.source[: min(self.sinks, self.seen)], recent])
        return row.expand(self.spec.layers[layer].kv_heads, -1)

    def usage(self) -> Usage:
        """All on the device; bytes are those of the buffers, slack included."""
        size = sum(held.nbytes() for held in self.layers) + self.source.nbytes + self.state_bytes()
        return Usage({DEVICE: self.entries}, {DEVICE: size})

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Sinks and the window in one part."""
        parts, _ = super().state()
        start, known = max(0, self.length - self.window), min(self.sinks, self.seen)
        tensors = {"source": torch.cat([self.source[: self.sinks], self.source[self.sinks :][start : self.length]])}
        for layer, held in enumerate(self.layers):
            tensors[f"{layer}.sink_keys"] = held.sink_keys[:, :known]
            tensors[f"{layer}.sink_values"] = held.sink_values[:, :known]
            tensors[f"{layer}.keys"] = held.keys[:, start : self.length]
            tensors[f"{layer}.values"] = held.values[:, start : self.length]
        facts = {"length": self.length - start, "seen": self.seen, "start": start, "room": self.layers[0].keys.shape[1]}
        return {**parts, "window": Part(tensors)}, facts

    def restore(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Rotates what was saved before RoPE, at the same places in buffers of the same size.

        A key that is rotated to another place, and a query with it, give a score that differs in its last bits. States
        of earlier versions do not say where the window began: theirs begins at the beginning.

        Raises:
            RuntimeError: places that no reading of so many tokens has.
        """
        super().restore(parts, meta)
        tensors, length = parts["window"], int(meta["length"])
        start, self.seen = int(meta.get("start", 0)), int(meta["seen"])
        usual = window_room(self.window, length, 0, self.expected)
        room, most = int(meta.get("room", usual)), self.window + max(self.seen, window_slack(self.window))
        if len(tensors["source"]) != self.sinks + length:
            raise RuntimeError(
                f"{len(tensors['source'])} places of {self.sinks} sinks and a window of {length} entries"
            )
        if not 0 <= start <= start + length <= room <= most:
            raise RuntimeError(f"a window of {length} entries from {start} on, in room for {room}")
        self.length = start + length
        self._allocate([held.layer for held in self.layers], room)  # some have no heads here
        source = tensors["source"].to(self.source.device)
        self.source[: self.sinks] = source[: self.sinks]
        self.source[self.sinks + start : self.sinks + self.length] = source[self.sinks :]
        known, here = min(self.sinks, self.seen), slice(start, self.length)
        for layer, held in enumerate(self.layers):
            held.sink_keys[:, :known] = tensors[f"{layer}.sink_keys"][:, :known].to(held.keys)
            held.sink_values[:, :known] = tensors[f"{layer}.sink_values"][:, :known].to(held.keys)
            held.sink_rotated[:, :known] = held.layer.rope.rotate(held.sink_keys[:, :known], 0)
            held.rotated[:, :start], held.values[:, :start] = 0.0, 0.0  # have left the window: masked, but numbers
            held.keys[:, here] = tensors[f"{layer}.keys"].to(held.keys)
            held.values[:, here] = tensors[f"{layer}.values"].to(held.keys)
            held.rotated[:, here] = held.layer.rope.rotate(held.keys[:, here], self.sinks + start)
