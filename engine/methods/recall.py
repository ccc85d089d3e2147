"""`recall`: a condensed memory for the gist of a text, and beside it whatever of the rest a question needs.

None of the papers has this; it puts two of them together. While a text is read, Locret or InfiniPot condenses it to a
fixed number of entries (the gist), and every key (before RoPE) and value goes to the host tier as well. Each block of
queries of a question, and each token of an answer, then selects from the host tier, by InfiniteHiP's pruning or by
exact search, and attends to the gist and to what was selected in one softmax. What is selected and already in the gist
is hidden, head by head, so that nothing counts twice.

The budget is shared: what selection may bring is taken off the gist's. The host tier holds the text and nothing of a
conversation, whose turns are condensed as the gist's own method does it. Where it keeps codes, what does not fill a
page of them cannot be looked up, and stays in the gist.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from engine.errors import WeightsError
from engine.footprint import Footprint, Task
from engine.host.pruning import LayerRule, PrunedMemory, Pruning, compared, parse_stages
from engine.host.retrieving import EMPTY, pickable, picked, picked_in_pass
from engine.host.settings import (
    DTYPES,
    LOOKS,
    TIERS,
    looking_share,
    searching_everything,
    with_host_tier,
)
from engine.memories.attention import BlockTable, Segment, Shown
from engine.memories.coded import check_codes
from engine.memories.memory import NOT_IN_SOURCE, Memory
from engine.memories.slots import SlotMemory
from engine.method import Method, TurnTokens, require
from engine.methods.infinipot import InfiniPot, Pot
from engine.methods.infinitehip import InfiniteHiP
from engine.methods.locret import Locret, RetainedMemory
from engine.methods.static_pruned import StaticRecalling
from engine.models.spec import ModelSpec
from engine.positions import PRUNING_RULES, TRUE, FarPlaces, QueryBlocks, require_between
from engine.records import HOST, LoadedParts, Parts
from kernels.rows import Slabs

GISTS = ("locret", "infinipot")
SELECTIONS = ("infinitehip", "exact")
PLACES = ("streaming", "infllm")
LEAST_GIST = 128


@dataclass(frozen=True, kw_only=True)
class Recall(Method):
    """budget: gist and selection together, what one query sees at most.

    gist: what condenses, locret or infinipot, with its own defaults; select: infinitehip or exact; stages: of
    InfiniteHiP, the last of which says how many entries are selected; top_k: entries selected by exact search, for each
    query of each head; pruning: position rule while pruning; attention: rule for selected keys, streaming (numbered
    before the gist) or infllm (one distance); while_reading: whether the text's own tokens select too; looks: see
    `LOOKS`; store: of the host tier, a key of `DTYPES`; tier: host, or disk for full slabs.
    """

    name: ClassVar[str] = "recall"
    family: ClassVar[str] = "retrieving"
    summary: ClassVar[str] = "A condensed memory for the gist; exact detail is fetched from host memory beside it."
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "pocket": {},
        "wide": {"budget": 6144, "stages": InfiniteHiP.presets["3k-flash"]["stages"], "top_k": 2048, "looks": 1},
    }
    long_window: ClassVar[str | None] = "wide"
    choices: ClassVar[Mapping[str, Collection[Any]]] = {
        "gist": GISTS,
        "select": SELECTIONS,
        "pruning": PRUNING_RULES,
        "attention": PLACES,
        "looks": LOOKS,
        "store": DTYPES,
        "tier": TIERS,
    }

    budget: int | None = 1024
    gist: str = "locret"
    select: str = "infinitehip"
    stages: str = "32:16:1024:8 32:4:256:4"
    top_k: int = 128
    pruning: str = "relative"
    attention: str = "streaming"
    while_reading: bool = False
    looks: int = 2
    store: str = "bfloat16"
    tier: str = HOST

    def __post_init__(self) -> None:
        """Stages must nest, and a gist be left."""
        super().__post_init__()
        require(self.top_k >= 1, f"top_k is at least 1, not {self.top_k}.")
        parse_stages(self.stages)
        least = self.selected + LEAST_GIST
        require(
            self.budget is None or self.budget >= least,
            f"A budget of {self.budget} leaves no gist beside {self.selected} selected entries: give at least {least}, "
            f"or select less.",
        )
        self.condensing()

    @property
    def selected(self) -> int:
        """Entries that a query sees of the host tier at most."""
        return self.top_k if self.select == "exact" else parse_stages(self.stages)[-1].keep

    def condensing(self) -> Locret | InfiniPot:
        """The method that makes the gist."""
        size = None if self.budget is None else self.budget - self.selected
        return Locret(budget=size) if self.gist == "locret" else InfiniPot(budget=size)

    def needs_novelty(self) -> bool:
        """As the gist."""
        return self.condensing().needs_novelty()

    def catalyst(self) -> str | None:
        """As the gist."""
        return self.condensing().catalyst()

    def weights_digest(self, spec: ModelSpec) -> str:
        """As the gist."""
        try:
            return self.condensing().weights_digest(spec)
        except WeightsError as error:
            raise WeightsError(
                "recall condenses with locret, which has no heads for this model that can be used ('stockpot plan "
                "--method locret' says why): --set gist=infinipot needs none."
            ) from error

    def passing(self, spec: ModelSpec) -> int:
        """As the gist."""
        return self.condensing().passing(spec)

    def pass_multiple(self) -> int:
        """Blocks of queries prune together."""
        return 1 if self.budget is None or self.select == "exact" else parse_stages(self.stages)[0].query_block

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Nothing read yet; without a budget nothing is condensed, and so nothing selected.

        Raises:
            WeightsError: no retaining heads for this model.
            SettingsError: codes that this model or its device cannot have; the catalyst prompt leaves no room to read,
                or the gist none for the rule `dynamic`.
        """
        if self.budget is None:
            return SlotMemory(spec)
        require_between([self.pruning], "a gist", self.budget - self.selected, self.selected, spec.window)
        gist = self.condensing()
        memory = (
            gist.new_memory(spec, turn_tokens, RecallingRetained)
            if isinstance(gist, Locret)
            else gist.new_memory(spec, turn_tokens, RecallingPot)
        )
        assert isinstance(memory, RecallingMemory)
        memory.recall(self)
        return memory

    def plan(self, spec: ModelSpec, task: Task) -> Footprint:
        """The gist's, with the text in the host tier, which questions select from."""
        plain = self.condensing().plan(spec, task)
        if self.budget is None:
            return plain
        exactly = self.select == "exact"
        searched = math.ceil((1.0 if exactly else compared(parse_stages(self.stages))) * task.tokens)
        tiered = with_host_tier(
            plain, spec, task, task.prefix, self.store, self.tier, self.looks, self.selected, searched
        )
        if exactly:
            tiered = searching_everything(tiered, spec, task, self.store, self.top_k)
        far, pruned = tiered.brought_answering, not exactly and self.tier == HOST
        picking = picked_in_pass(spec, far, task.chunk) if exactly or self.looks > 1 else 0
        reading = looking_share(spec) * (far + searched / 2) if self.while_reading else 0.0
        return dataclasses.replace(
            tiered,
            attended=plain.attended + reading,
            widest=plain.widest + (far if self.while_reading else 0),
            in_place=tiered.in_place or pruned,
            search_every=1 if exactly else parse_stages(self.stages)[0].refresh,
            recorded=self.looks == 1 and pruned and self.pruning != TRUE,
            explicit=plain.explicit or (self.while_reading and spec.device.type != "cuda"),
            tail_bytes=tiered.tail_bytes + picking,
        )


class RecallingMemory(PrunedMemory, SlotMemory):
    """Laid over a condensing memory: keeps the text in the host tier too, and shows queries what they select of it."""

    settings_of_recall: Recall

    def recall(self, settings: Recall) -> None:
        """Set up, once, before anything is read."""
        self.settings_of_recall = settings
        check_codes(self.spec, DTYPES[settings.store])
        self.keep_on_host(DTYPES[settings.store], settings.looks, settings.tier)
        rules = [LayerRule(settings.pruning, settings.selected)] * len(self.spec.layers)
        self.pruning = Pruning(self.spec, parse_stages(settings.stages), rules)
        self._far = 0
        self._in_focus: Tensor | None = None  # what `looked_at` says, for the gist
        self._made: dict[int, QueryBlocks] = {}  # blocks of the pass by their size

    @property
    def far(self) -> int:
        """Entries of the host tier that may be selected: what has come since, or waits there, is all in the gist."""
        return self._far

    def begin(self, source: Tensor) -> None:
        """What is looked at is the same for the gist."""
        super().begin(source)
        self.reach(self.far)
        looked_at, device = self.looked_at, self.spec.device
        self._in_focus = None if looked_at is None else looked_at.to(device, torch.int32, non_blocking=True)
        self._made = {}

    def pass_limit(self) -> int:
        """Where queries search, no more than what they pick has room for."""
        limit, recall = super().pass_limit(), self.settings_of_recall
        searching = recall.select == "exact" and (self.answering or recall.while_reading)
        if self.focused is None and not searching:
            return limit
        return min(limit, pickable(self.spec, recall.selected))

    def observes_behind(self) -> bool:
        """A catalyst sees the gist alone, and what fills it may see more."""
        return False

    def _in_sight(self, number: int) -> Tensor | None:
        """In the second look, of the gist what stood out, and what is no part of the text.

        All of it for a catalyst, and where a layer keeps what is in its sliding window.
        """
        if self._in_focus is None or self.observed is not None or self.windows[number] is not None:
            return None
        source = self._column(number, "source")
        return (source < 0) | (source >= self.far) | torch.isin(source, self._in_focus)

    def _beside(self, number: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """Selected entries; none for a catalyst, which is asked about the gist, nor while nothing has been left out.

        The gist shares its budget evenly, so that each layer lies in slots of its number.
        """
        selects = (self.answering or self.settings_of_recall.while_reading) and self.observed is None
        if not selects or self.spec.layers[number].sliding_window is not None or self.far == 0:
            return [], []
        return self._pruned(number, q) if self.prunes(number) else self._searched(number, q)

    def prunes(self, layer: int) -> bool:
        """Whether a layer prunes what is far: where it looks there at all, and does not search it."""
        searches = self.settings_of_recall.select == "exact" or self.looked_at is not None
        return not searches and self.spec.layers[layer].sliding_window is None

    @property
    def _distance(self) -> int:
        """How far the gist reaches back: its budget."""
        recall = self.settings_of_recall
        assert recall.budget is not None
        return recall.budget - recall.selected

    def _blocks(self, count: int, size: int, device: torch.device) -> QueryBlocks:
        """Queries where they stand behind the gist; made once per pass."""
        if size not in self._made:
            self._made[size] = self.blocks_from(self.far + self.entries, count, size).to(device)
        return self._made[size]

    def blocks_from(self, first: int, count: int, size: int) -> QueryBlocks:
        """Queries with numbers from `first` on, in blocks; all that is far lies before the gist. On the host."""
        blocks = -(-count // size)
        assert self.capacity is not None, "where there is a gist there is a budget"
        return QueryBlocks(
            number=first + torch.arange(count),
            size=size,
            evicted=torch.full((blocks,), self.far),
            ahead=self.capacity - 1,
            fits=torch.zeros(blocks, dtype=torch.bool),
            sinks=0,
            window=self._distance,
            trained=self.spec.window,
        )

    def _pruned(self, layer: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """What InfiniteHiP's stages leave of the host tier, in order, for each block of queries."""
        count, keys, values = q.shape[1], self.host.keys(layer), self.host.values(layer)
        index = self.pruning.choose(layer, q, lambda size: self._blocks(count, size, q.device), keys)
        blocks = self._blocks(count, self.pruning.stages[-1].query_block, q.device)
        segment, source = self.listed(layer, q, blocks, index, self.held_by_heads(layer), keys, values)
        return [segment], [source]

    def listed(
        self, layer: int, q: Tensor, blocks: QueryBlocks, index: Tensor, held: Tensor, keys: Slabs, values: Slabs
    ) -> tuple[Shown, Tensor]:
        """A segment of the chosen entries, index int64 [NB, N], and their source positions.

        Those that a head has itself (held, from `held_by_heads`) are masked for that head. Entry i of the host tier
        stands for position i of the source.
        """
        rope = self.spec.layers[layer].rope
        valid = index < self.far
        index = torch.where(valid, index, 0)
        places = FarPlaces.of(self.settings_of_recall.attention, blocks, index, valid.sum(dim=1))
        unknown = ~_among(held, index.expand(len(held), -1, -1))
        cos, sin = rope.table(places.limit)
        shown = Shown(
            q=rope.rotate(q, places.queries, places.limit),
            keys=keys,
            values=values,
            span=blocks.span(self.far),
            lists=BlockTable(
                torch.where(valid, index, EMPTY), places.keys, min(blocks.size, q.shape[1]), cos, sin, unknown
            ),
        )
        return shown, index

    def _searched(self, layer: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """The best entries of the host tier, or of those to look at, for each query, all at one distance."""
        limits, top = torch.full((q.shape[1],), self.far), self.settings_of_recall.selected
        best, index = picked(self.host, layer, q, self._distance, limits, top, self.looked_at)
        heads = self.spec.layers[layer].kv_heads
        by_head = index.view(heads, len(q) // heads * q.shape[1], index.shape[2])  # of none, if none is to be looked at
        known = _among(self.held_by_heads(layer), by_head).view(index.shape)
        return [dataclasses.replace(best, seen=best.seen & ~known)], [index]

    def held_by_heads(self, layer: int) -> Tensor:
        """Source positions that each head of the gist holds, ascending, int64 [H, N], with what is no source first.

        Heads hold the text in its order, but for what was read again behind it.
        """
        return self.positions(layer).sort(dim=1).values.long()

    def static_kind(self) -> int | None:
        """The stage with which choosing begins anew, but for the first; None at a second look, or with true places."""
        if self.looked_at is not None or self.settings_of_recall.pruning == TRUE or not self.read_in_place():
            return None
        if super().static_kind() is None:
            return None
        return self.pruning.restart()

    def static_addresses(self) -> tuple[int, ...]:
        """Of slabs too."""
        return (*super().static_addresses(), *self.host.addresses())

    def static_pass(self, kind: int) -> StaticRecalling:
        """Over slots and slabs as they are now."""
        return StaticRecalling(self, kind)

    def condense(self) -> None:
        """Whatever has been read so far may be missing from now on, but for what does not fill a page."""
        super().condense()
        self._far = self._paged

    @property
    def _paged(self) -> int:
        """Entries of the host tier that lie in pages, once the last pass is there."""
        return self.host.length // self.host.page * self.host.page

    def keep_best(self, scores: Mapping[int, Tensor], size: int, spared: int) -> None:
        """What waits to fill a page stays before all others."""
        if self._paged < self.host.length:
            scores = {
                number: score.clamp_max(torch.finfo(score.dtype).max).masked_fill(
                    self._column(number, "source") >= self._paged, float("inf")
                )
                for number, score in scores.items()
            }
        super().keep_best(scores, size, spared)

    def commit(self, novelty: Tensor | None = None) -> None:
        """Send the text's tokens to the host tier as well; what the template puts before them stays out."""
        if not self.answering:
            begin, count = int((self._incoming_here == NOT_IN_SOURCE).sum()), len(self._incoming_here)
            ends = [self.length + slots.surplus + count for slots in self.own]
            self.host.append(
                [slots.keys[:, end - count + begin : end] for slots, end in zip(self.own, ends, strict=True)],
                [slots.values[:, end - count + begin : end] for slots, end in zip(self.own, ends, strict=True)],
                self._incoming_here[begin:],
            )
        super().commit(novelty)

    def remembered(self, tokens: int) -> Tensor:
        """What the host tier holds, and of what was read again in a conversation before it was read, the gist."""
        return torch.maximum(super().remembered(tokens), SlotMemory.remembered(self, tokens))

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """How much may be missing from the gist, beside gist and slabs."""
        parts, meta = super().state()
        return parts, meta | {"far": self.far}

    def restore(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Gist and slabs, and how much may be missing from the gist."""
        super().restore(parts, meta)
        self._far = int(meta["far"])


def _among(held: Tensor, index: Tensor) -> Tensor:
    """Which numbers int64 [H, ...] are among a head's own, ascending [H, N]; bool of that shape."""
    flat = index.reshape(index.shape[0], -1).contiguous()
    place = torch.searchsorted(held, flat).clamp_max(held.shape[1] - 1)
    return (held.gather(1, place) == flat).view(index.shape)


class RecallingRetained(RecallingMemory, RetainedMemory):
    """With Locret's gist."""


class RecallingPot(RecallingMemory, Pot):
    """With InfiniPot's gist."""
