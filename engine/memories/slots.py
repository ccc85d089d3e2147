"""Entries in slots: a memory whose entry in slot s has position s, for every KV head by itself.

`full`, `truncate` and the condensing methods keep their entries so. Reading appends; condensing keeps some slots per
head, closes the gaps and rotates what is left to 0, 1, 2, ... (InfiniPot's CR-RoPE). A fork sees the context's slots
first and its own behind them; condensing a fork gathers from both into slots of its own.

Heads that hold equally many entries lie in one `Slots`: all heads of a layer, or each by itself where a budget is
shared unevenly within layers (`sharing.py`). Nothing is padded: a head that keeps less takes less memory. Slots hold
entries in the model's own type (`entries.py`), or in codes of 8 or 4 bits (`coded.py`).

Layers with a sliding window keep what is in it and some slack, if a budget holds as many: of Gemma 3 five in six. They
are not condensed; their slots are packed when they are full, which changes nothing but the numbers of the slots.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.errors import ContextMismatch
from engine.measure import require_memory
from engine.memories.attention import Segment, Shown, VisibleRange, attend, causal_span
from engine.memories.coded import Coding, check_codes
from engine.memories.entries import Slots
from engine.memories.memory import NOT_IN_SOURCE, UNLIMITED, Memory
from engine.memories.sharing import APART, shared
from engine.memories.slot_plan import FIRST_CAPACITY, farthest, near_room, near_window, planned_bytes
from engine.memories.static_pass import StaticPass
from engine.memories.static_slots import StaticSlots
from engine.models.spec import LayerSpec, ModelSpec, Scoring
from engine.records import DEVICE, LoadedParts, Part, Parts, Usage


def _each_head(layer: LayerSpec) -> list[LayerSpec]:
    """The KV heads of a layer, each with its query heads, as layers of one head."""
    queries = layer.query_heads // layer.kv_heads
    return [dataclasses.replace(layer, query_heads=queries, kv_heads=1)] * layer.kv_heads


class SlotMemory(Memory):
    """Entries in slots, without any limit of its own; condensing methods build upon it.

    Numbers of entries are averages over the heads of layers without a `near_window`; `Slots.surplus` says what some
    hold above that.
    """

    def __init__(
        self,
        spec: ModelSpec,
        capacity: int | None = None,
        share: str = "even",
        coding: Coding | None = None,
        lets_go: bool = True,
    ) -> None:
        """capacity: entries to allocate at once, where the budget is known; share: see `sharing.py`; coding: how they
        are coded, None where they stay in the model's own type; lets_go: whether layers keep a `near_window` only,
        where they have one.

        Raises:
            SettingsError: codes that this model or its device cannot have.
        """
        super().__init__(spec)
        if coding is not None:
            check_codes(spec, coding.kind)
        self.capacity = capacity
        self.share = share
        split = [_each_head(layer) if share in APART else [layer] for layer in spec.layers]
        self.heads = [heads for layer in split for heads in layer]  # what lies in each of the slots
        self.windows = [near_window(spec, heads, capacity) if lets_go else None for heads in self.heads]
        self.judged = [number for number, window in enumerate(self.windows) if window is None]  # what is condensed
        self.coding = coding if self.judged else None
        ends = list(itertools.accumulate(map(len, split)))
        self.groups = [range(end - len(layer), end) for end, layer in zip(ends, split, strict=True)]  # per layer
        self.length = 0  # own entries, not counting the base
        self.base: list[Slots] = []
        self.base_length = 0
        self.own = self._new_slots(capacity or FIRST_CAPACITY)
        self._spans: dict[tuple[int, int, int | None], VisibleRange] = {}
        self.observed: dict[int, Tensor] | None = None  # of judged slots [HQ, N]: what a catalyst's tokens looked at
        self.observers = 0  # of the tokens of a pass, those of a catalyst, which come last

    def _new_slots(self, capacity: int) -> list[Slots]:
        """Empty slots behind the base."""
        firsts = [self.base_length + slots.surplus for slots in self.base] or [0] * len(self.heads)
        rooms = [capacity if window is None else min(capacity, near_room(window)) for window in self.windows]
        return [self._slots(*each, 0) for each in zip(itertools.count(), firsts, rooms)]

    def _slots(self, number: int, first_slot: int, capacity: int, surplus: int) -> Slots:
        heads = self.heads[number]
        if self.coding is None or self.windows[number] is not None:
            return Slots(heads, self.spec, first_slot, capacity, surplus)
        return self.coding.slots(heads, self.spec, first_slot, capacity, surplus)

    def _base(self, number: int) -> Slots | None:
        return self.base[number] if self.base else None

    @property
    def entries(self) -> int:
        """Entries per KV head now, base included."""
        return self.base_length + self.length

    def held(self, number: int) -> int:
        """Entries per KV head in slots `number`, base included."""
        return self.entries + self.own[number].surplus + (self.base[number].surplus if self.base else 0)

    def reserve(self, tokens: int) -> None:
        """Allocate for the whole reading where there is no budget."""
        if self.capacity is None and self.entries == 0:
            needed = sum(planned_bytes(self.spec, tokens, None, coding=self.coding)[1:])
            require_memory(needed, self.spec.device, f"Keeping {tokens:,} tokens on the device")
            self.own = self._new_slots(max(tokens, FIRST_CAPACITY))

    def places(self, tokens: int) -> Tensor:
        """Behind all entries."""
        return torch.arange(self.entries, self.entries + tokens)

    def begin(self, source: Tensor) -> None:
        """What the queries of the last pass saw is over. Slots that are full are packed, where something has left a
        `near_window`.
        """
        super().begin(source)
        self._spans = {}
        own, base = list(self.own), list(self.base)
        for number, slots in enumerate(self.own):
            window, filled = self.windows[number], self.length + slots.surplus
            if window is None or self.held(number) <= window or filled + len(source) <= slots.capacity:
                continue
            capacity = max(slots.capacity, near_room(window, len(source)))
            own[number] = self._taken(number, self._in_window(number, window), capacity, window - self.length)
            if base:
                base[number] = self._nothing_before(number)
        self.own, self.base = own, base  # all or none

    def _nothing_before(self, number: int) -> Slots:
        """Instead of a base, for slots that have taken over what is still seen of it."""
        return self._slots(number, 0, 0, -self.base_length)

    def _in_window(self, number: int, window: int) -> Tensor:
        """The last entries in slots `number`, as many as a window has, int64 [H, M]."""
        held = self.held(number)
        latest = torch.arange(max(0, held - window), held, device=self.spec.device)
        return latest.expand(self.heads[number].kv_heads, -1)

    def pass_limit(self) -> int:
        """What waits to be coded is coded between two passes, so that no query sees it both ways."""
        if self.coding is None:
            return super().pass_limit()
        return self.coding.waiting - self._waiting(self.length)

    def _waiting(self, length: int) -> int:
        """Of so many entries, those that wait to be coded: as many in all slots that are coded."""
        return max(slots.waiting(length + slots.surplus) for slots in self.own)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Causal attention over all slots."""
        self.arrive(layer, q, k, v)
        return self.by_slots(layer, self._attend, scoring, q)

    def arrive(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Put the new entries where they will stand, with what they are worth; they count from `commit` on."""
        group = self.groups[layer]
        for number, *new in zip(group, k.chunk(len(group)), v.chunk(len(group)), strict=True):
            self._write(number, *new)
        for slots, score in self.scored(layer, q, k, v):
            begin = self.length + slots.surplus
            slots.score[:, begin : begin + q.shape[1]] = score

    def _write(self, number: int, k: Tensor, v: Tensor) -> None:
        slots, window = self.own[number], self.windows[number]
        if window is not None:
            most = near_room(window, k.shape[1])
        else:
            most = UNLIMITED if self.capacity is None else self.capacity + slots.surplus
        slots.write(self.length + slots.surplus, k, v, most)

    def scored(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Iterator[tuple[Slots, Tensor]]:
        """What the new entries of a layer are `worth` [H, T], slots by slots; nothing where they get no scores."""
        worth, group = self.worth(layer, q, k, v), self.groups[layer]
        if worth is not None:
            yield from zip((self.own[number] for number in group), worth.chunk(len(group)), strict=True)

    def by_slots(self, layer: int, attend: Callable[..., Tensor], scoring: Scoring, *given: Tensor) -> Tensor:
        """What `attend` gives for each slots' number and the share of its heads of all that is given, put together."""
        group = self.groups[layer]
        if len(group) == 1:
            return attend(group[0], scoring, *given)
        shares = zip(group, scoring.parted(len(group)), *(x.chunk(len(group)) for x in given), strict=True)
        return torch.cat([attend(*each) for each in shares])

    def worth(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor | None:
        """Scores float32 [H, T] that the entries of a pass get at once; None where they get none, or only later."""
        return None

    def static_kind(self) -> int | None:
        """There is one, where the pass is no more than `_attend` and `worth`, and there is room for its entry."""
        possible = (
            self.coding is None
            and self.observed is None
            and all(slots.capacity > self.length + slots.surplus for slots in self.own)
        )
        return 0 if possible else None

    def static_addresses(self) -> tuple[int, ...]:
        """Of all slots."""
        every = [*self.base, *self.own]
        return self.base_length, *(fact for slots in every for fact in (slots.rotated.data_ptr(), slots.capacity))

    def static_pass(self, kind: int) -> StaticPass[Any]:
        """Over all slots as they are now; they must not be replaced."""
        return StaticSlots(self)

    def _attend(self, number: int, scoring: Scoring, q: Tensor) -> Tensor:
        """Of the heads in slots `number`, behind whose entries those of the queries stand."""
        held, text = self.held(number), q.shape[1] - self.observers
        if not self.observers:
            return self._attend_behind(number, held, q, scoring, self.mass is not None)
        judged = self.windows[number] is None
        observers = self._attend_behind(number, held + text, q[:, text:], scoring, judged)
        if not text:
            return observers
        return torch.cat([self._attend_behind(number, held, q[:, :text], scoring, False), observers], dim=1)

    def _attend_behind(self, number: int, held: int, q: Tensor, scoring: Scoring, watched: bool) -> Tensor:
        """Of queries that stand behind `held` entries. watched: whether what they give to these is asked for."""
        slots = self.own[number]
        before, new = held - slots.first_slot, q.shape[1]
        rotated = slots.layer.rope.rotate(q, held)
        keys, values, lists = slots.shown(self._base(number), before + new, new, self._in_sight(number))
        own = Shown(rotated, keys, values, self._span(new, held, slots.layer.sliding_window), lists)
        beside, sources = self._beside(number, q)
        output, given = attend([own, *beside], scoring, watched)
        if watched:
            found = given[0][:, 0]
            if lists is not None:
                found = found.new_zeros(len(q), held + new).index_copy(1, lists.rows[0], found)
            self._watch(number, found[:, :held])
        if self.mass is not None:
            for source, piece in zip(sources, given[1:], strict=True):
                self.mass.add(source, piece)
        return output

    def _in_sight(self, number: int) -> Tensor | None:
        """Which of the entries in slots `number` the heads see in this pass, bool [H, held]; None for all."""
        return None

    def _beside(self, number: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """What these queries see beside slots `number`, and where it comes from, broadcastable to what it is given."""
        return [], []

    @contextmanager
    def observing(self, tokens: int) -> Iterator[None]:
        """Sum up what the last tokens of a pass give to each entry, in `observed`, until left."""
        self.observed, self.observers = {}, tokens
        try:
            yield
        finally:
            self.observed, self.observers = None, 0

    def _span(self, new: int, held: int, sliding_window: int | None) -> VisibleRange:
        """What so many queries see behind so many entries; the same for slots that are as long."""
        key = new, held, sliding_window
        if key not in self._spans:
            self._spans[key] = causal_span(new, held + new, sliding_window, self.spec.device)
        return self._spans[key]

    def _watch(self, number: int, given: Tensor) -> None:
        """given: [HQ, N], what the queries of this pass gave to the entries remembered in slots `number`."""
        if self.observed is not None:
            self.observed[number] = given
        elif self.mass is not None:  # a catalyst's attention is nobody's question
            per_head = given.view(self.heads[number].kv_heads, -1, given.shape[-1])
            self.mass.add(self._column(number, "source"), per_head.sum(dim=1))

    def commit(self, novelty: Tensor | None = None) -> None:
        """Keep the tokens of the pass, but for a catalyst's."""
        text = len(self._incoming) - self.observers
        end = self.length + text
        for slots in self.own:
            begin, stop = self.length + slots.surplus, end + slots.surplus
            slots.source[:, begin:stop] = self._incoming[:text]
            if novelty is not None:
                slots.score[:, begin:stop] = novelty
        if self.coding is not None and self._waiting(end) == self.coding.waiting:
            self.own = [slots.settled(end + slots.surplus) for slots in self.own]  # or not at all, if memory runs out
        self.length = end
        self.seen += text
        super().commit(novelty)

    def keep_best(self, scores: Mapping[int, Tensor], size: int, spared: int) -> None:
        """Keep `size` entries per head on average; the `spared` highest of each head stay, whatever the share.

        scores: of judged slots [H, N].
        """
        layers = [[scores[number] for number in group if number in scores] for group in self.groups]
        counts = itertools.chain.from_iterable(shared(self.share, list(filter(None, layers)), size, spared))
        each = zip(self.judged, counts, strict=True)
        self.keep({number: highest(scores[number], count) for number, count in each})

    def keep(self, kept: Mapping[int, Tensor]) -> None:
        """Keep only the given entries of judged slots, int64 [H, M], ascending, and close the gaps.

        Other slots keep what is in their window.
        """
        average = -(-sum(index.numel() for index in kept.values()) // sum(len(index) for index in kept.values()))
        capacity = max(self.capacity or FIRST_CAPACITY, average)
        fresh: list[Slots] = []
        for number, window in enumerate(self.windows):
            index = kept[number] if window is None else self._in_window(number, window)
            surplus = index.shape[1] - average
            room = capacity + surplus if window is None else near_room(window)
            fresh.append(self._taken(number, index, room, surplus))
        self.own, self.base, self.base_length = fresh, [], 0
        self.length = average

    def _taken(self, number: int, index: Tensor, capacity: int, surplus: int) -> Slots:
        """New slots that begin with entries index [H, M] of slots `number`, ascending, rotated to 0, 1, 2, ..."""
        old, size = self.own[number], index.shape[1]
        new = self._slots(number, 0, capacity, surplus)
        new.take_over(old, self._base(number), self.length + old.surplus, index)
        new.source[:, :size] = self._column(number, "source").gather(1, index)
        new.score[:, :size] = self._column(number, "score").gather(1, index)
        return new

    def _column(self, number: int, name: str) -> Tensor:
        """All entries of slots `number`, base first: [H, held, ...]."""
        slots = self.own[number]
        own: Tensor = getattr(slots, name)[:, : self.length + slots.surplus]
        if not self.base:
            return own
        base: Tensor = getattr(self.base[number], name)[:, : slots.first_slot]
        return torch.cat([base, own], dim=1)

    def fork(self) -> Self:
        """Shares the slots so far; only a memory that is not itself a fork can be forked."""
        assert not self.base, "a conversation is a fork of a context, not of another conversation"
        child = copy.copy(self)
        child.base, child.base_length, child.base_states = list(self.own), self.length, self.states
        child.own, child.length = child._new_slots(FIRST_CAPACITY), 0
        for own, base in zip(child.own, child.base, strict=True):
            own.follow(base)
        return child

    def snapshot(self) -> Self:
        """Appending leaves the old entries alone and condensing makes new slots, so lists and lengths suffice."""
        return copy.copy(self)

    def positions(self, layer: int) -> Tensor:
        """int32 [H, the most entries that a head holds], -1 behind those of heads that hold fewer."""
        heads = [self._column(number, "source") for number in self.groups[layer]]
        longest = max(head.shape[1] for head in heads)
        return torch.cat([F.pad(head, (0, longest - head.shape[1]), value=NOT_IN_SOURCE) for head in heads])

    def usage(self) -> Usage:
        """All slots are on the device; of a fork, the shared ones are counted too. Entries: the average, or where all
        layers have a sliding window and there is no budget, those in it.
        """
        every = (tensor for slots in [*self.base, *self.own] for tensor in slots.tensors())
        held = {tensor.data_ptr(): tensor.nbytes for tensor in every}  # what a fork shares with its context once
        entries = self.entries if self.capacity is not None else min(self.entries, farthest(self.spec))
        return Usage({DEVICE: entries}, {DEVICE: sum(held.values()) + self.state_bytes()})

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Own entries of all slots in one part."""
        parts, _ = super().state()
        tensors: dict[str, Tensor] = {}
        for number, slots in enumerate(self.own):
            saved = slots.saved(self.length + slots.surplus)
            tensors |= {f"{number}.{name}": tensor for name, tensor in saved.items()}
        if self.last_hidden is not None:
            tensors["last_hidden"] = self.last_hidden
        meta = {
            "length": self.length,
            "surplus": [slots.surplus for slots in self.own],
            "base_length": self.base_length,
            "seen": self.seen,
        }
        return {**parts, "slots": Part(tensors)}, meta

    def restore(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """On a fresh fork, base_length says whether the saved tail stood on the context or had replaced it.

        Where a tail on the context has a surplus, its slots were packed and stood on nothing. Packed ones without a
        surplus hold just the conversation's own tokens, and may as well stand on the context.
        """
        super().restore(parts, meta)
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
                self.base[number] = self._nothing_before(number)
            if extra or (not on_base and (not fresh or slots.capacity < room)):
                self.own[number] = self._slots(number, 0, room, extra)
        for number, slots in enumerate(self.own):
            mine = {name.removeprefix(f"{number}."): x for name, x in tensors.items() if name.startswith(f"{number}.")}
            slots.load(mine, length + slots.surplus)
        self.length, self.seen = length, int(meta["seen"])
        hidden = tensors.get("last_hidden")
        self.last_hidden = None if hidden is None else hidden.to(self.spec.device)


def pooled(score: Tensor, kernel: int) -> Tensor:
    """The largest of the scores [H, N] within kernel // 2 slots of each entry; kernel: odd, 1 for none.

    An answer of several tokens is kept or lost as a whole only if neighbours are judged together.
    """
    return F.max_pool1d(score[None], kernel, stride=1, padding=kernel // 2)[0]


def highest(score: Tensor, count: int) -> Tensor:
    """The slots of the `count` highest scores of [H, N], int64 [H, count], ascending; of equals the earlier slots.

    The rule for equals matters because pooling makes many.
    """
    order = score.sort(dim=1, descending=True, stable=True).indices
    return order[:, :count].sort(dim=1).values
