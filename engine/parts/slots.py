"""A store of slots: the entry in slot s has position s, for every KV head by itself.

Reading appends; an evictor keeps some slots per head, closes the gaps and rotates the rest to 0, 1, 2, ...
(InfiniPot's CR-RoPE). A fork sees the context's slots first and its own behind them; evicting from a fork gathers from
both into slots of its own.

Heads that hold equally many entries share one `Slots`: all heads of a layer, or each by itself where a budget is shared
unevenly within layers (`sharing.py`). Nothing is padded: a head that keeps less takes less memory. Entries are in the
model's dtype (`slot_rows.py`) or quantised to 8 or 4 bits (`quantized_slots.py`).

A layer with a sliding window keeps that window and some slack, if the budget holds as many. It is never evicted from:
its slots are packed when they are full, which changes nothing but the numbers of the slots.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.errors import ContextMismatch
from engine.memory_usage import require_memory
from engine.models.spec import LayerSpec, ModelSpec
from engine.parts.attention import BlockTable, Segment, SharedKeys, VisibleRange, causal_range
from engine.parts.mass import NOT_IN_SOURCE, mass_rows
from engine.parts.quantized_slots import Quantization, check_quantization
from engine.parts.sharing import APART, shared
from engine.parts.slot_plan import FIRST_CAPACITY, farthest, layer_window, planned_bytes, window_capacity
from engine.parts.slot_rows import Slots
from engine.parts.store import Positions, Store
from engine.records import DEVICE, LoadedParts, Part, Parts, Usage
from kernels.rows import put_rows


def _each_head(layer: LayerSpec) -> list[LayerSpec]:
    """Return the KV heads of a layer, each with its query heads, as layers of one head."""
    queries = layer.query_heads // layer.kv_heads
    return [dataclasses.replace(layer, query_heads=queries, kv_heads=1)] * layer.kv_heads


class Placement(NamedTuple):
    """The place of a pass in slots: where its tokens stand, and the entries that they see.

    Attributes:
        at: the own row of the first token, or int64 [1] in a fixed pass.
        positions: of the tokens.
        rows: own rows that are shown.
        visible: the range that each query sees.
    """

    at: int | Tensor
    positions: Positions
    rows: int
    visible: VisibleRange

    def part(self, offset: int, count: int) -> Placement:
        """Return the same of `count` tokens behind the first `offset`."""
        start, behind = self.positions.start + offset, len(self.visible.end) - offset - count
        visible = self.visible.part(offset, offset + count)
        return Placement(self.at + offset, Positions(start, None, start), self.rows - behind, visible)


class SlotStore(Store):
    """Entries in slots.

    Numbers of entries are averages over the heads of layers without a window of their own; `Slots.extra_entries` says
    how many some hold above that.
    """

    def __init__(
        self,
        spec: ModelSpec,
        capacity: int | None = None,
        share: str = "even",
        quantization: Quantization | None = None,
        keeps_windows: bool = True,
    ) -> None:
        """Allocate empty slots for all layers.

        Args:
            spec: of the model.
            capacity: entries to allocate at once, where there is a budget.
            share: how a budget is shared among layers and heads (`sharing.py`).
            quantization: how entries are quantised, or None.
            keeps_windows: whether a layer with a sliding window keeps no more than that.

        Raises:
            SettingsError: a quantisation that this model or its device cannot have.
        """
        super().__init__(spec)
        if quantization is not None:
            check_quantization(spec, quantization.kind)
        self.capacity = capacity
        self.keeps_all = capacity is None
        self.share = share
        split = [_each_head(layer) if share in APART else [layer] for layer in spec.layers]
        self.heads = [heads for layer in split for heads in layer]  # of each slots
        self.windows = [layer_window(spec, heads, capacity) if keeps_windows else None for heads in self.heads]
        self.evictable = [number for number, window in enumerate(self.windows) if window is None]
        self.quantization = quantization if self.evictable else None
        ends = list(itertools.accumulate(map(len, split)))
        self.groups = [range(end - len(layer), end) for end, layer in zip(ends, split, strict=True)]
        self.length = 0  # own entries, without the base
        self.base: list[Slots] = []
        self.base_length = 0
        self.own = self.new_slots(capacity or FIRST_CAPACITY)
        self.unarchived_from: int | None = None  # entries at or after this source position stay, whatever their score
        self._fixed: dict[tuple[int | None, ...], Tensor] = {}
        self._known_rows: dict[int, tuple[Tensor, Slots | None, Tensor]] = {}  # see `_mass_rows`
        self._reads_text = False  # whether the pass has tokens of the source

    def new_slots(self, capacity: int) -> list[Slots]:
        """Return empty slots behind the base, with room for `capacity` entries per head."""
        firsts = [self.base_length + slots.extra_entries for slots in self.base] or [0] * len(self.heads)
        rooms = [capacity if window is None else min(capacity, window_capacity(window)) for window in self.windows]
        return [self._slots(*each, 0) for each in zip(itertools.count(), firsts, rooms)]

    def _slots(self, number: int, first_slot: int, capacity: int, extra: int) -> Slots:
        heads = self.heads[number]
        if self.quantization is None or self.windows[number] is not None:
            return Slots(heads, self.spec, first_slot, capacity, extra)
        return self.quantization.slots(heads, self.spec, first_slot, capacity, extra)

    def _base(self, number: int) -> Slots | None:
        return self.base[number] if self.base else None

    @property
    def entries(self) -> int:
        """Entries per KV head now, base included."""
        return self.base_length + self.length

    def held(self, number: int) -> int:
        """Return the entries per KV head in slots `number`, base included."""
        return self.entries + self.own[number].extra_entries + (self.base[number].extra_entries if self.base else 0)

    def reserve(self, tokens: int) -> None:
        """Allocate for the whole text where there is no budget.

        Raises:
            OutOfMemory: the device cannot hold it.
        """
        if self.capacity is None and self.entries == 0:
            needed = sum(planned_bytes(self.spec, tokens, None, quantization=self.quantization)[1:])
            require_memory(needed, self.spec.device, f"Keeping {tokens:,} tokens on the device")
            self.own = self.new_slots(max(tokens, FIRST_CAPACITY))

    def position_ids(self, tokens: int) -> Tensor:
        """Return the positions behind all entries, int64 [T] on the host."""
        return torch.arange(self.entries, self.entries + tokens)

    def begin_pass(self, source: Tensor, counted: bool) -> None:
        """Make room, and write the source positions of the pass, the same for all heads."""
        super().begin_pass(source, counted)
        self._reads_text = bool((source >= 0).any())
        self._make_room(len(source))
        for slots in self.own:
            if self._reads_text or not slots.blank:  # else they say of all rows that nothing is in the source
                begin = self.length + slots.extra_entries
                slots.source[:, begin : begin + len(source)] = self.incoming
                slots.blank = slots.blank and not self._reads_text

    def make_room(self, tokens: int) -> None:
        """Grow now, up to the budget, if slots would have to while so many tokens come."""
        if self.quantization is None:
            self._make_room(tokens if self.capacity is None else min(tokens, max(0, self.capacity - self.entries)))

    def _make_room(self, arriving: int) -> None:
        """Grow slots that would be full; those of layers with a window of their own are packed."""
        self._pack_windows(arriving)
        for slots, window in zip(self.own, self.windows, strict=True):
            most = sys.maxsize if self.capacity is None else self.capacity + slots.extra_entries - self.base_length
            if window is not None:
                most = window_capacity(window, arriving)
            begin = self.length + slots.extra_entries
            slots.make_room(begin, begin + arriving, most)

    def _pack_windows(self, arriving: int) -> None:
        """Pack slots of layers with a window of their own that would be full."""
        own, base = list(self.own), list(self.base)
        for number, slots in enumerate(self.own):
            window, filled = self.windows[number], self.length + slots.extra_entries
            if window is None or self.held(number) <= window or filled + arriving <= slots.capacity:
                continue
            capacity = max(slots.capacity, window_capacity(window, arriving))
            own[number] = self._gathered(number, self._in_window(number, window), capacity, window - self.length)
            if base:
                base[number] = self._empty_base(number)
        self.own, self.base = own, base  # all or none

    def _empty_base(self, number: int) -> Slots:
        """Return a base without entries, for slots that have taken over its visible entries."""
        return self._slots(number, 0, 0, -self.base_length)

    def _in_window(self, number: int, window: int) -> Tensor:
        """Return the last `window` entries in slots `number`, int64 [H, M]."""
        held = self.held(number)
        latest = torch.arange(max(0, held - window), held, device=self.spec.device)
        return latest.expand(self.heads[number].kv_heads, -1)

    def pass_limit(self) -> int | None:
        """Return how many tokens fit before pending entries are quantised, which happens between passes only."""
        return None if self.quantization is None else self.quantization.most_pending - self._pending(self.length)

    def _pending(self, length: int) -> int:
        """Return how many of the first `length` entries are not quantised: the same number in all slots that are."""
        return max(slots.pending(length + slots.extra_entries) for slots in self.own)

    def recordable(self) -> bool:
        """Tell whether one token passes. Quantised slots are not recorded."""
        return self.tokens == 1 and self.quantization is None

    def addresses(self) -> tuple[int, ...]:
        """Return addresses and capacities of all slots."""
        every = [*self.base, *self.own]
        return self.base_length, *(fact for slots in every for fact in (slots.rotated.data_ptr(), slots.capacity))

    def fix(self) -> None:
        """Write the token's places into tensors that stay where they are; rows without an entry become masked ones."""
        super().fix()
        for slots in self.own:
            slots.blank_from(self.length + slots.extra_entries)
        keys = {self._place_key(number) for number in range(len(self.own))}
        for key in keys - self._fixed.keys():
            self._fixed[key] = torch.empty(4, 1, dtype=torch.int64, device=self.spec.device)
        for key in keys:
            extra, first_slot, window = key[0] or 0, key[1] or 0, key[2]
            place = self.length + extra
            end = first_slot + place + 1
            facts = [place, end - 1, 0 if window is None else max(0, end - window), end]
            self._fixed[key].copy_(torch.tensor(facts)[:, None], non_blocking=True)

    def _place_key(self, number: int) -> tuple[int | None, ...]:
        slots = self.own[number]
        return slots.extra_entries, slots.first_slot, slots.layer.sliding_window

    def append(self, layer: int, q: Tensor, k: Tensor, v: Tensor, importance: Tensor | None = None) -> None:
        """Write the entries of a pass where they will stand; they count from `end_pass` on."""
        group = self.groups[layer]
        every: Iterable[tuple[int, Tensor, Tensor, Tensor | None]] = [(group[0], k, v, importance)]
        if len(group) > 1:
            scores = [None] * len(group) if importance is None else importance.chunk(len(group))
            every = zip(group, k.chunk(len(group)), v.chunk(len(group)), scores, strict=True)
        for number, keys, values, score in every:
            slots, place = self.own[number], self._placement(number)
            if score is not None:
                put_rows(place.at, (slots.score, score))
            if slots.rotates:
                alone, buffers = q[:0] if len(group) > 1 else q, (slots.keys, slots.rotated, slots.values)
                kept = values[: len(slots.values)]
                self.write(slots.layer, alone, keys, kept, place.at, buffers, place.positions)
            else:
                slots.write(place.at, keys, keys, values)

    def segments(
        self, number: int, q: Tensor, offset: int = 0, sinks_for: int | None = None, mask: Tensor | None = None
    ) -> list[Segment]:
        """Return all entries before each query. mask: which of them each head sees, bool [H, held]; None for all."""
        slots, base, count = self.own[number], self._base(number), q.shape[1]
        place = self._placement(number)
        if count < self.tokens:
            place = place.part(offset, count)
        keys, values, table = slots.slabs(base, place.rows, count, mask)
        rows = self._mass_rows(number, place.rows, table) if self.counted else None
        turned = self.rotated(slots.layer, q, place.positions)
        return [SharedKeys(turned, keys, values, place.visible, table, rows)]

    def _mass_rows(self, number: int, length: int, table: BlockTable | None) -> Tensor:
        """Return the rows of `AttentionMass` of the base and of `length` own entries, int32 [H, 1, 1, N].

        They are kept until other tokens of the text come: all other tokens count as no source.
        """
        slots, base = self.own[number], self._base(number)
        known = self._known_rows.get(number)
        if self._reads_text:
            rows = mass_rows(slots.sources(base, length))[:, None, None]
        else:
            if known is None or known[0] is not slots.source or known[1] is not base:
                filled = self.length + slots.extra_entries
                later = slots.capacity - filled
                found = F.pad(slots.sources(base, filled), (0, later), value=NOT_IN_SOURCE)
                known = self._known_rows[number] = slots.source, base, mass_rows(found)[:, None, None]
            rows = known[2][..., : known[2].shape[-1] - slots.capacity + length]
        return rows if table is None else rows[..., table.rows[0]]

    def _placement(self, number: int) -> Placement:
        """Return where the tokens of the pass stand; once for all slots that agree in it."""
        slots, place = self.own[number], self._place_key(number)
        key = "placement", place, self.fixed and slots.capacity
        found: Placement | None = self.pass_cache.get(key)
        if found is None:
            at, begin = self.length + slots.extra_entries, slots.first_slot
            if self.fixed:
                row, position, start, end = self._fixed[place]
                positions = Positions(position, begin + slots.capacity, place)
                found = Placement(row, positions, slots.capacity, VisibleRange(start, end, changing=True))
            else:
                end, sliding = at + self.tokens, slots.layer.sliding_window
                visible = causal_range(self.tokens, begin + end, sliding, self.spec.device)
                found = Placement(at, Positions(begin + at, None, begin + at), end, visible)
            self.pass_cache[key] = found
        return found

    def pass_rows(self, skip: int) -> tuple[list[Tensor], list[Tensor]]:
        """Return keys (before RoPE) and values of the pass, without its first `skip` tokens, layer by layer.

        All heads of a layer must share their slots.
        """
        begins = [self.length + slots.extra_entries for slots in self.own]
        there = [slice(begin + skip, begin + self.tokens) for begin in begins]
        each = list(zip(self.own, there, strict=True))
        return [slots.keys[:, rows] for slots, rows in each], [slots.values[:, rows] for slots, rows in each]

    def end_pass(self, novelty: Tensor | None, tokens: int) -> None:
        """Keep the first `tokens` tokens of the pass; quantise pending entries once there are enough."""
        end = self.length + tokens
        if novelty is not None:
            for slots in self.own:
                slots.score[:, self.length + slots.extra_entries : end + slots.extra_entries] = novelty
        if self.quantization is not None and self._pending(end) == self.quantization.most_pending:
            self.own = [slots.quantize_pending(end + slots.extra_entries) for slots in self.own]  # all or none
        if self._reads_text:
            self._known_rows = {}
        self.length = end
        self.seen += tokens

    def column(self, number: int, name: str) -> Tensor:
        """Return `source` or `score` of all entries in slots `number`, base first, [H, held]."""
        slots = self.own[number]
        own: Tensor = getattr(slots, name)[:, : self.length + slots.extra_entries]
        if not self.base:
            return own
        base: Tensor = getattr(self.base[number], name)[:, : slots.first_slot]
        return torch.cat([base, own], dim=1)

    def keep_best(self, scores: Mapping[int, Tensor], size: int, spared: int) -> None:
        """Keep `size` entries per head on average, those with the highest scores.

        Args:
            scores: of each evictable slots, float32 [H, held].
            size: entries per head on average.
            spared: the highest of each head that stay, however the budget is shared.
        """
        if (start := self.unarchived_from) is not None:
            scores = {number: self._spared(number, score, start) for number, score in scores.items()}
        layers = [[scores[number] for number in group if number in scores] for group in self.groups]
        counts = itertools.chain.from_iterable(shared(self.share, list(filter(None, layers)), size, spared))
        each = zip(self.evictable, counts, strict=True)
        self.keep({number: highest(scores[number], count) for number, count in each})

    def _spared(self, number: int, score: Tensor, start: int) -> Tensor:
        """Return scores that are highest for entries from source position `start` on."""
        late = self.column(number, "source") >= start
        return score.clamp_max(torch.finfo(score.dtype).max).masked_fill(late, float("inf"))

    def keep(self, kept: Mapping[int, Tensor]) -> None:
        """Keep only the given entries of evictable slots, int64 [H, M], ascending, and close the gaps."""
        average = -(-sum(index.numel() for index in kept.values()) // sum(len(index) for index in kept.values()))
        capacity = max(self.capacity or FIRST_CAPACITY, average)
        fresh: list[Slots] = []
        for number, window in enumerate(self.windows):
            index = kept[number] if window is None else self._in_window(number, window)
            extra = index.shape[1] - average
            room = capacity + extra if window is None else window_capacity(window)
            fresh.append(self._gathered(number, index, room, extra))
        self.own, self.base, self.base_length = fresh, [], 0
        self.length = average

    def evicts_from(self, number: int) -> bool:
        """Tell whether slots are evicted from: those of a layer with a window of its own are not."""
        return self.windows[number] is None

    def keep_same(self, index: Tensor) -> None:
        """Keep the entries int64 [M], ascending, in all evictable slots."""
        index = index.to(self.spec.device)
        self.keep({number: index.expand(self.heads[number].kv_heads, -1) for number in self.evictable})

    def _gathered(self, number: int, index: Tensor, capacity: int, extra: int) -> Slots:
        """Return new slots with entries index [H, M] of slots `number`, ascending, rotated to 0, 1, 2, ..."""
        old, size = self.own[number], index.shape[1]
        new = self._slots(number, 0, capacity, extra)
        new.gather_from(old, self._base(number), self.length + old.extra_entries, index)
        new.source[:, :size] = self.column(number, "source").gather(1, index)
        new.score[:, :size] = self.column(number, "score").gather(1, index)
        return new

    def fork(self) -> Self:
        """Return a store that shares the slots so far; only a store that is not itself a fork can be forked."""
        assert not self.base, "a conversation is a fork of a context, not of another conversation"
        child = copy.copy(self)
        child.base, child.base_length = list(self.own), self.length
        child.own, child.length = child.new_slots(FIRST_CAPACITY), 0
        child._fixed, child._known_rows = {}, {}
        for own, base in zip(child.own, child.base, strict=True):
            own.share_scales(base)
        return child

    def positions(self, layer: int) -> Tensor:
        """Return int32 [H, the most entries that a head holds], -1 behind those of heads that hold fewer."""
        heads = [self.column(number, "source") for number in self.groups[layer]]
        longest = max(head.shape[1] for head in heads)
        return torch.cat([F.pad(head, (0, longest - head.shape[1]), value=NOT_IN_SOURCE) for head in heads])

    def usage(self) -> Usage:
        """Return entries (the average) and bytes on the device; of a fork, shared slots are counted too."""
        every = (tensor for slots in [*self.base, *self.own] for tensor in slots.tensors())
        held = {tensor.data_ptr(): tensor.nbytes for tensor in every}  # shared tensors of a fork and its context once
        entries = self.entries if self.capacity is not None else min(self.entries, farthest(self.spec))
        return Usage({DEVICE: entries}, {DEVICE: sum(held.values())})

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Return the own entries of all slots in one part."""
        tensors: dict[str, Tensor] = {}
        for number, slots in enumerate(self.own):
            saved = slots.saved(self.length + slots.extra_entries)
            tensors |= {f"{number}.{name}": tensor for name, tensor in saved.items()}
        meta = {
            "length": self.length,
            "surplus": [slots.extra_entries for slots in self.own],
            "base_length": self.base_length,
            "seen": self.seen,
        }
        return {"slots": Part(tensors)}, meta

    def load(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Restore the values saved by `state`.

        base_length says whether a saved fork stood on its context or replaced it. A fork whose
        slots have extra entries was packed and stood on nothing. Packed slots without extra entries hold just the
        conversation's own tokens, and may as well stand on the context.

        Raises:
            ContextMismatch: it was a fork of another context.
            RuntimeError: numbers that contradict the tensors.
        """
        tensors = parts["slots"]
        if meta["base_length"] not in (0, self.base_length):
            raise ContextMismatch(
                f"The saved conversation continues a context of {meta['base_length']} entries, this one has "
                f"{self.base_length}. Start a new session."
            )
        length, fresh, on_base = int(meta["length"]), not self.base, meta["base_length"] > 0
        for number, extra in enumerate(meta["surplus"]):  # before room is made for so many
            if (there := tensors[f"{number}.source"].shape[1]) != length + extra:
                raise RuntimeError(f"{there} entries, where there are {length + extra}")
        if not on_base:
            self.base, self.base_length = [], 0
        for number, (slots, extra) in enumerate(zip(self.own, meta["surplus"], strict=True)):
            near = self.windows[number] is not None
            room = length + extra if on_base or near else max(self.capacity or FIRST_CAPACITY, length) + extra
            if on_base and extra:
                self.base[number] = self._empty_base(number)
            if extra or (not on_base and (not fresh or slots.capacity < room)):
                self.own[number] = self._slots(number, 0, room, extra)
        for number, slots in enumerate(self.own):
            mine = {name.removeprefix(f"{number}."): x for name, x in tensors.items() if name.startswith(f"{number}.")}
            slots.load(mine, length + slots.extra_entries)
        self.length, self.seen = length, int(meta["seen"])


def pooled(score: Tensor, kernel: int) -> Tensor:
    """Return the largest score [H, N] within kernel // 2 slots of each entry; kernel: odd, 1 for none.

    An answer of several tokens is kept or lost as a whole only if neighbours are judged together.
    """
    return F.max_pool1d(score[None], kernel, stride=1, padding=kernel // 2)[0]


def highest(score: Tensor, count: int) -> Tensor:
    """Return the slots of the `count` highest scores of [H, N], int64 [H, count], ascending.

    Of equal scores the earlier slot wins, which matters because pooling makes many.
    """
    order = score.sort(dim=1, descending=True, stable=True).indices
    return order[:, :count].sort(dim=1).values
