"""A store of sinks and a sliding window (StreamingLLM, https://arxiv.org/abs/2309.17453), in chunks.

The first S tokens stay for ever (sinks), of the others the last W. The paper steps token by token and rotates the whole
cache at each step. Here a chunk passes at once with the same result: every query sees exactly its own last W tokens
through a mask, and the sinks through a query of its own, rotated to the position it would have in the paper's cache.
Window keys are rotated once when they arrive and once more whenever the buffer is packed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from engine.models.spec import LayerSpec, ModelSpec
from engine.parts.attention import Segment, SharedKeys, VisibleRange
from engine.parts.mass import NOT_IN_SOURCE, mass_rows
from engine.parts.positions import sink_query_positions
from engine.parts.slot_plan import window_slack
from engine.parts.store import Positions, Store
from engine.parts.window_plan import split_by_window, window_room
from engine.records import DEVICE, LoadedParts, Part, Parts, Usage
from kernels import choice
from kernels.rows import Slabs

MOVING = 64  # tokens after which the window that a kernel is shown begins elsewhere
WIDE = "wide-window"  # name on disk of the windows of layers that see farther than W


class LayerWindow:
    """Sinks [H, S, D] and the recent entries [H, capacity, D] of one layer; values have `value_heads` heads."""

    def __init__(self, layer: LayerSpec, spec: ModelSpec, sinks: int, capacity: int) -> None:
        """Allocate buffers without entries."""
        self.layer = layer
        like = torch.empty(layer.kv_heads, 0, layer.head_size, dtype=spec.dtype, device=spec.device)
        self.sink_keys = like.new_empty(layer.kv_heads, sinks, layer.head_size)
        self.sink_rotated = torch.empty_like(self.sink_keys)
        self.sink_values = like.new_empty(layer.value_heads, sinks, layer.head_size)
        self.keys = like.new_empty(layer.kv_heads, capacity, layer.head_size)
        self.rotated = torch.empty_like(self.keys)
        self.values = like.new_empty(layer.value_heads, capacity, layer.head_size)
        self.blank = False  # whether rows without an entry hold numbers, so that they may be masked
        self._tail: tuple[int, tuple[Tensor, ...]] = 0, self.recent  # keys and values of the window from a row on

    @property
    def capacity(self) -> int:
        """Recent entries per head that fit."""
        return self.keys.shape[1]

    @property
    def recent(self) -> tuple[Tensor, Tensor]:
        """Keys after RoPE and values of the recent entries."""
        return self.rotated, self.rotated if self.layer.latent else self.values

    @property
    def first(self) -> tuple[Tensor, Tensor]:
        """Keys after RoPE and values of the sinks."""
        return self.sink_rotated, self.sink_rotated if self.layer.latent else self.sink_values

    @property
    def unrotated_sinks(self) -> tuple[Tensor, Tensor]:
        """Keys before RoPE and values of the sinks."""
        return self.sink_keys, self.sink_keys if self.layer.latent else self.sink_values

    def nbytes(self) -> int:
        """Return the bytes of all tensors."""
        tensors = (self.sink_keys, self.sink_rotated, self.sink_values, self.keys, self.rotated, self.values)
        return sum(tensor.nbytes for tensor in tensors)

    def packed(self, start: int, end: int, capacity: int, sinks: int) -> LayerWindow:
        """Return a buffer that begins with entries start .. end of this one, rotated anew; the sinks are shared."""
        new = copy.copy(self)
        shape = (self.layer.kv_heads, capacity, self.layer.head_size)
        new.keys, new.rotated = self.keys.new_empty(shape), self.keys.new_empty(shape)
        new.values = self.values.new_empty(self.layer.value_heads, *shape[1:])
        new.keys[:, : end - start] = self.keys[:, start:end]
        new.values[:, : end - start] = self.values[:, start:end]
        new.rotated[:, : end - start] = self.layer.rope.rotate(self.keys[:, start:end], sinks)
        new.blank, new._tail = False, (0, new.recent)
        return new

    def recent_from(self, start: int) -> tuple[Tensor, ...]:
        """Return keys after RoPE and values from row `start` on, as the same objects until another row is asked for."""
        if self._tail[0] != start:
            self._tail = start, tuple(bank[:, start:] for bank in self.recent)
        return self._tail[1]

    def blank_from(self, length: int) -> None:
        """Fill the rows behind the first `length` with zeros, once, so that they can be masked."""
        if not self.blank:
            self.rotated[:, length:], self.values[:, length:] = 0.0, 0.0
            self.blank = True


@dataclass(frozen=True)
class View:
    """Positions and visible ranges of the queries of a pass, for layers with one sliding window.

    Attributes:
        at: row of the buffer that the first token is written to, or int64 [1] in a fixed pass.
        from_sinks, in_window: where queries stand as seen from the sinks and from the window.
        sink_visible, visible: which sinks, and which rows of the buffer from `start` on, each query sees.
        start, end: rows of the buffer that are shown.
        sinks: how many sinks there are.
        sink_rows, rows: int32 [S] and [N], rows of `AttentionMass` of both; None where nobody counts.
    """

    at: int | Tensor
    from_sinks: Positions
    sink_visible: VisibleRange
    in_window: Positions
    visible: VisibleRange
    start: int
    end: int
    sinks: int
    sink_rows: Tensor | None
    rows: Tensor | None
    fixed: bool = False

    def sinks_for(self, count: int) -> VisibleRange:
        """Return which sinks are seen where only the first `count` queries see any; computed once."""
        if count not in self._sinks_for:
            every, device = self.sink_visible.host_values, self.visible.end.device
            hidden = torch.arange(len(every.end)) >= count
            self._sinks_for[count] = VisibleRange(every.start, every.end.masked_fill(hidden, 0)).to(device)
        return self._sinks_for[count]

    @cached_property
    def _sinks_for(self) -> dict[int, VisibleRange]:
        return {}


class WindowStore(Store):
    """Sinks plus the last `window` tokens."""

    def __init__(
        self, spec: ModelSpec, sinks: int, window: int, query_block: int = 1, keeps_wider: bool = False
    ) -> None:
        """Start without any entries.

        Args:
            spec: of the model.
            sinks: S >= 0, tokens.
            window: W >= 1, tokens.
            query_block: queries of a pass whose windows begin together.
            keeps_wider: whether layers whose own sliding window is longer than W keep and see that instead.
        """
        others, wide, longest = split_by_window(spec, window) if keeps_wider else (spec, spec, 0)
        super().__init__(others)
        self.sinks = sinks
        self.window = window
        self.query_block = query_block
        self.wide = WindowStore(wide, 0, longest) if longest else None
        self.expected = 0  # recent entries that a text will bring in all, where that is known
        self.length = 0  # entries in the buffer, with those that have left the window
        self._allocate(others.layers, 0)
        self.new_sinks = 0  # tokens of the pass that become sinks
        self._fixed: dict[int | None, Tensor] = {}

    def _allocate(self, layers: Iterable[LayerSpec], capacity: int) -> None:
        """Allocate empty sinks, and empty buffers for `capacity` entries of these layers."""
        self.layers = [LayerWindow(layer, self.spec, self.sinks, capacity) for layer in layers]
        self.source = torch.full((self.sinks + capacity,), NOT_IN_SOURCE, dtype=torch.int32, device=self.spec.device)

    def _of(self, layer: int) -> WindowStore | None:
        """Return the store of a layer with a longer window, or None where it is this one."""
        return self.wide if self.wide is not None and self.wide.spec.layers[layer].kv_heads else None

    def reserve(self, tokens: int) -> None:
        """Let the buffer be allocated for the whole text at once, where that fits the window."""
        self.expected = max(0, tokens - self.sinks)
        if self.wide:
            self.wide.reserve(tokens)

    def position_ids(self, tokens: int) -> Tensor:
        """Return the positions at the end of the cache, int64 [T] on the host."""
        return torch.arange(self.seen, self.seen + tokens).clamp_max(self.sinks + self.window)

    def begin_pass(self, source: Tensor, counted: bool) -> None:
        """Make room in the buffer for the pass."""
        super().begin_pass(source, counted)
        if self.wide:
            self.wide.begin_pass(source, counted)
            self.wide.pass_cache = self.pass_cache  # no two layers with the same sliding window are of different stores
        self.new_sinks = min(max(0, self.sinks - self.seen), len(source))
        arriving = len(source) - self.new_sinks
        if self.length + arriving > self.layers[0].capacity:
            self._pack(arriving)

    def make_room(self, tokens: int) -> None:
        """Pack the buffer now if it would have to be while so many tokens come."""
        if self.length + tokens > self.layers[0].capacity:
            self._pack(tokens)
        if self.wide:
            self.wide.make_room(tokens)

    def _pack(self, arriving: int) -> None:
        """Drop entries that have left the window, and make room. Snapshots keep the old buffers."""
        start = max(0, self.length - self.window)
        capacity = window_room(self.window, self.length - start, arriving, self.expected)
        layers = [layer.packed(start, self.length, capacity, self.sinks) for layer in self.layers]
        source = self.source.new_full((self.sinks + capacity,), NOT_IN_SOURCE)
        source[: self.sinks] = self.source[: self.sinks]
        source[self.sinks : self.sinks + self.length - start] = self.source[
            self.sinks + start : self.sinks + self.length
        ]
        self.layers, self.source, self.length = layers, source, self.length - start  # all or none

    def append(self, layer: int, q: Tensor, k: Tensor, v: Tensor, importance: Tensor | None = None) -> None:
        """Write keys and values of the pass where they will stand; they count from `end_pass` on."""
        if wide := self._of(layer):
            return wide.append(layer, q, k, v)
        held, fresh = self.layers[layer], self.new_sinks
        rope, v = held.layer.rope, v[: len(held.values)]
        if fresh:
            places = slice(self.seen, self.seen + fresh)
            held.sink_keys[:, places], held.sink_values[:, places] = k[:, :fresh], v[:, :fresh]
            held.sink_rotated[:, places] = rope.rotate(k[:, :fresh], self.seen)
        view, buffers = self.view(held.layer.sliding_window), (held.keys, held.rotated, held.values)
        positions = Positions(self.sinks, None, "behind the sinks") if fresh else view.in_window
        self.write(held.layer, q[:0] if fresh else q, k[:, fresh:], v[:, fresh:], view.at, buffers, positions)

    def segments(self, number: int, q: Tensor, offset: int = 0, sinks_for: int | None = None) -> list[Segment]:
        """Return sinks and window. sinks_for: how many of the first queries see the sinks; None for all."""
        if wide := self._of(number):
            return wide.segments(number, q)
        held = self.layers[number]
        view = self.view(held.layer.sliding_window)
        segments: list[Segment] = []
        visible, shown = view.sink_visible, view.sinks > 0
        if view.fixed:
            shown = shown and sinks_for != 0
        elif shown:
            visible = visible if sinks_for is None else view.sinks_for(sinks_for)
            shown = visible.extent[1] > 0
        if shown:
            keys, values = self._slabs(held, view, sinks=True)
            segments.append(SharedKeys(self.far_queries(number, q), keys, values, visible, mass_rows=view.sink_rows))
        if view.end > view.start:
            keys, values = self._slabs(held, view, sinks=False)
            turned = self.rotated(held.layer, q, view.in_window)
            segments.append(SharedKeys(turned, keys, values, view.visible, mass_rows=view.rows))
        return segments

    def far_queries(self, number: int, q: Tensor) -> Tensor:
        """Return queries [HQ, T, D] where they stand as seen from the sinks, and from all that has left the window."""
        layer = self.layers[number].layer
        return self.rotated(layer, q, self.view(layer.sliding_window).from_sinks)

    def _slabs(self, held: LayerWindow, view: View, sinks: bool) -> tuple[Slabs, Slabs]:
        """Return keys and values of the sinks or of the window."""
        banks, length = (held.first, view.sinks) if sinks else (held.recent_from(view.start), view.end - view.start)
        keys, values = ([(bank, length)] for bank in banks)
        return keys, values

    def view(self, sliding: int | None) -> View:
        """Return the view of this pass's queries in layers with that sliding window; computed once a pass."""
        key = "view", sliding
        if key not in self.pass_cache:
            self.pass_cache[key] = self._fixed_view(sliding) if self.fixed else self._new_view(sliding)
        found: View = self.pass_cache[key]
        return found

    def _new_view(self, sliding: int | None) -> View:
        count, device = self.tokens, self.spec.device
        end = self.length + count - self.new_sinks
        reach = min(self.window, sliding or self.window)
        number = torch.arange(self.seen, self.seen + count)  # from the very beginning; on the host, then sent at once
        start = max(0, self.length - reach + 1)
        if choice.uses_triton(device):  # addresses are sent to the kernel, and need not be for each token
            start -= start % MOVING
        own = number - max(self.seen, self.sinks) + self.length
        left = own - self.window - (number - self.seen) % self.query_block  # the newest that has left the window
        if sliding is not None:
            left = torch.maximum(left, own - sliding)
        sink_first = torch.zeros_like(number) if sliding is None else number - sliding + 1
        places = sink_query_positions(self.seen, count, self.sinks, self.window, self.query_block)
        from_sinks = places.to(device, non_blocking=True), int(places.max()) + 1
        known = self.source[self.sinks + start : self.sinks + self.length]
        sinks = min(self.sinks, self.seen + count)
        return View(
            at=self.length,
            from_sinks=Positions(*from_sinks, ("sinks", sliding)),
            sink_visible=VisibleRange(sink_first, number + 1).to(device),
            in_window=Positions(int(own[0]) + self.sinks, None, ("window", sliding)),
            visible=VisibleRange(left + 1 - start, own + 1 - start).to(device),
            start=start,
            end=end,
            sinks=sinks,
            sink_rows=mass_rows(self.source[:sinks]) if self.counted else None,
            rows=mass_rows(torch.cat([known, self.incoming[self.new_sinks :]])) if self.counted else None,
        )

    def _fixed_view(self, sliding: int | None) -> View:
        at, place, sink_place, sink_first, sink_end, first, end = self._fixed[sliding]
        capacity = self.layers[0].capacity
        limit = self.sinks + max(capacity, self.window)
        return View(
            at=at,
            from_sinks=Positions(sink_place, limit, ("sinks", sliding)),
            sink_visible=VisibleRange(sink_first, sink_end, changing=True),
            in_window=Positions(place, limit, ("window", sliding)),
            visible=VisibleRange(first, end, changing=True),
            start=0,
            end=capacity,
            sinks=self.sinks,
            sink_rows=mass_rows(self.source[: self.sinks]) if self.counted else None,
            rows=mass_rows(self.source[self.sinks :]) if self.counted else None,
            fixed=True,
        )

    def recordable(self) -> bool:
        """Tell whether one token passes, and all sinks are there."""
        return self.tokens == 1 and self.seen >= self.sinks

    def addresses(self) -> tuple[int, ...]:
        """Return addresses of sinks and buffers, which are replaced together."""
        held = self.layers[0]
        own = held.sink_keys.data_ptr(), held.keys.data_ptr(), held.capacity, self.source.data_ptr()
        return (*own, *self.wide.addresses()) if self.wide else own

    def fix(self) -> None:
        """Write the token's places into tensors that stay where they are; rows without an entry become masked ones."""
        super().fix()
        if self.wide:
            self.wide.fix()
        for held in self.layers:
            held.blank_from(self.length)
        for sliding in {held.layer.sliding_window for held in self.layers}:
            reach = min(self.window, sliding or self.window)
            sink_first = 0 if sliding is None else max(0, self.seen - sliding + 1)
            facts = [
                *(self.length, self.length + self.sinks, min(self.seen, self.sinks + self.window - 1)),
                *(sink_first, self.sinks, max(0, self.length - reach + 1), self.length + 1),
            ]
            if sliding not in self._fixed:
                self._fixed[sliding] = torch.empty(len(facts), 1, dtype=torch.int64, device=self.spec.device)
            self._fixed[sliding].copy_(torch.tensor(facts)[:, None], non_blocking=True)

    def pass_rows(self, skip: int) -> tuple[list[Tensor], list[Tensor]]:
        """Return keys (before RoPE) and values of the pass behind the sinks, without its first `skip` tokens."""
        keys, values = zip(*(self.rows_of(held, skip - self.new_sinks) for held in self.layers), strict=True)
        return [*keys], [*values]

    def rows_of(self, held: LayerWindow, skip: int = 0) -> tuple[Tensor, Tensor]:
        """Return keys (before RoPE) and values of the pass in one layer's buffer, without its first `skip`."""
        there = slice(self.length + skip, self.length + self.tokens - self.new_sinks)
        return held.keys[:, there], held.values[:, there]

    def end_pass(self, novelty: Tensor | None, tokens: int) -> None:
        """Keep the tokens of the pass."""
        fresh = self.new_sinks
        if fresh:
            self.source[self.seen : self.seen + fresh] = self.incoming[:fresh]
        begin = self.sinks + self.length
        self.source[begin : begin + tokens - fresh] = self.incoming[fresh:]
        self.length += tokens - fresh
        self.seen += tokens
        if self.wide:
            self.wide.end_pass(novelty, tokens)

    def fork(self) -> Self:
        """Return a copy of the window, which is small; the sinks are shared once they are all there."""
        child = self.snapshot()
        child.expected, child._fixed = 0, {}
        child.wide = self.wide and self.wide.fork()
        if self.seen < self.sinks:
            for held in child.layers:
                for name in ("sink_keys", "sink_rotated", "sink_values"):
                    setattr(held, name, getattr(held, name).clone())
        child._pack(0)
        return child

    def snapshot(self) -> Self:
        """Return the store as it is now: layers are replaced, not changed, when they are packed."""
        child = copy.copy(self)
        child.layers = [copy.copy(held) for held in self.layers]
        child.wide = self.wide and self.wide.snapshot()
        return child

    @property
    def entries(self) -> int:
        """Entries that the next token can see, per KV head and layer."""
        return min(self.sinks, self.seen) + min(self.window, self.length)

    def known_sinks(self) -> Tensor:
        """Return the source positions of the sinks that are there, int32 [N]."""
        return self.source[: min(self.sinks, self.seen)]

    def positions(self, layer: int) -> Tensor:
        """Return int32 [H, entries]: sinks, then the window."""
        recent = self.source[self.sinks : self.sinks + self.length][-self.window :]
        row = torch.cat([self.known_sinks(), recent])
        return row.expand(self.spec.layers[layer].kv_heads, -1)

    def usage(self) -> Usage:
        """Return entries and bytes on the device, slack included."""
        size = sum(held.nbytes() for held in self.layers) + self.source.nbytes
        if self.wide:
            size += self.wide.usage().bytes[DEVICE]
        return Usage({DEVICE: self.entries}, {DEVICE: size})

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Return sinks and window in one part, and longer windows in another."""
        start, known = max(0, self.length - self.window), min(self.sinks, self.seen)
        tensors = {"source": torch.cat([self.source[: self.sinks], self.source[self.sinks :][start : self.length]])}
        for layer, held in enumerate(self.layers):
            tensors[f"{layer}.sink_keys"] = held.sink_keys[:, :known]
            tensors[f"{layer}.sink_values"] = held.sink_values[:, :known]
            tensors[f"{layer}.keys"] = held.keys[:, start : self.length]
            tensors[f"{layer}.values"] = held.values[:, start : self.length]
        facts: dict[str, Any] = {"length": self.length - start, "seen": self.seen, "start": start}
        facts["room"] = self.layers[0].capacity
        parts = {"window": Part(tensors)}
        if self.wide:
            wide, facts[WIDE] = self.wide.state()
            parts[WIDE] = wide["window"]
        return parts, facts

    def load(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Restore the values saved by `state`, at the same places in buffers of the same size.

        A key that is rotated to another position, and a query with it, give a score that differs in its last bits.
        States of earlier versions do not say where the window began: theirs begins at the beginning. Nor did they keep
        longer windows: as much of those as there is serves.

        Raises:
            RuntimeError: places that no reading of so many tokens has.
        """
        if self.wide:
            if WIDE not in parts:
                wide = {"window": _behind(parts["window"], self.sinks)}
                parts = {**parts, WIDE: wide["window"], "window": _of_heads(parts["window"], self.layers)}
                meta = {**meta, WIDE: {"length": meta["length"], "seen": meta["seen"]}}
            self.wide.load({"window": _of_heads(parts[WIDE], self.wide.layers)}, meta[WIDE])
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


def _of_heads(window: Mapping[str, Tensor], layers: list[LayerWindow]) -> dict[str, Tensor]:
    """Return the saved tensors of a window without layers that have no heads there."""
    heads = {str(number): held.layer.kv_heads for number, held in enumerate(layers)}
    return {name: x[: heads.get(name.split(".")[0], len(x))] for name, x in window.items()}


def _behind(window: Mapping[str, Tensor], sinks: int) -> dict[str, Tensor]:
    """Return the saved tensors of sinks and a window without the sinks."""
    return {**window, "source": window["source"][sinks:]}
