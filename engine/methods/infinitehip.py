"""`infinitehip`: everything is kept; each block of queries prunes it, stage by stage, to a few chunks.

InfiniteHiP (https://arxiv.org/abs/2502.08910), Algorithms 1 to 4. Sinks and the most recent tokens (stream) are always
seen. What lies between is pruned (`stages.py`), and what the last stage leaves is attended to beside sinks and stream
in one softmax.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.errors import require
from engine.memory import Memory
from engine.methods.archived import BankSettings, DistanceSettings, PruningSettings
from engine.methods.base import Method, TurnTokens
from engine.methods.presets import INFINITEHIP
from engine.models.spec import ModelSpec
from engine.parts.archive.options import DTYPES, check_cache, least_window
from engine.parts.footprint import Footprint, ReadingTask
from engine.parts.positions import ATTENTION_RULES, PRUNING_RULES, TRUE, require_between
from engine.parts.selectors.key_stream import streamed_bytes
from engine.parts.selectors.pass_units import chosen_bytes
from engine.parts.selectors.pruned import FirstLayers, PruningSelector
from engine.parts.selectors.retrieval_plan import Selection, selector_footprint
from engine.parts.selectors.stages import LayerRule
from engine.parts.slots import SlotStore
from engine.parts.window import WindowStore
from engine.parts.window_plan import window_footprint
from engine.records import HOST


@dataclass(frozen=True, kw_only=True)
class InfiniteHiP(PruningSettings, BankSettings, DistanceSettings, Method):
    """Prune what lies between sinks and stream.

    Attributes:
        budget: entries that one query sees at most: sinks, stream, what pruning leaves, and the rest of its block. What
            is left of it is the stream.
        sinks: first tokens, always seen.
        first_layers: layers with other rules.
        first_keep: what their last stage leaves; None for half of the budget, 512 at most.
        first_recent: newest far entries that they see instead of pruning, 0 to prune.
        first_pruning: their position rule while pruning.
        attention: position rule for far keys (streaming, infllm, dynamic).
        Others: see `PruningSettings`, `BankSettings` and `DistanceSettings`.
    """

    name: ClassVar[str] = "infinitehip"
    family: ClassVar[str] = "retrieving"
    summary: ClassVar[str] = "Keeps everything; each block of tokens prunes it, stage by stage, to a few chunks."
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = INFINITEHIP
    long_window: ClassVar[str | None] = "3k-flash"
    gpu_pass: ClassVar[int] = 4096  # all keys come to a GPU once for each pass
    choices: ClassVar[Mapping[str, Collection[Any]]] = {
        **BankSettings.archive_choices,
        **PruningSettings.pruning_choices,
        "first_pruning": PRUNING_RULES,
        "attention": ATTENTION_RULES,
    }

    budget: int | None = 1024
    sinks: int = 4
    first_layers: int = 1
    first_keep: int | None = None
    first_recent: int = 0
    first_pruning: str = "chunk"
    attention: str = "streaming"

    def __post_init__(self) -> None:
        """Refuse stages that do not nest, and a budget without a stream that holds a block of queries."""
        super().__post_init__()
        stages = self.parsed_stages
        for name in ("sinks", "first_layers", "first_recent"):
            require(getattr(self, name) >= 0, f"{name} cannot be negative ({getattr(self, name)}).")
        last = stages[-1]
        before = stages[-2].keep if len(stages) > 1 else sys.maxsize
        first = self.first_keep
        if first is None:
            first = max(min(512, before, (self.budget or sys.maxsize) // 2) // last.chunk, 1) * last.chunk
            object.__setattr__(self, "first_keep", first)
        require(
            first >= 1 and first % last.chunk == 0,
            f"first_keep is a multiple of the last stage's chunk of {last.chunk}, not {first}.",
        )
        require(first <= before, f"first_keep is at most the {before} of the stage before, not {first}.")
        check_cache(self.cache, self.cached_at_once())
        block = stages[0].query_block
        least = self._beside_stream() + least_window(self.store, block)
        require(
            self.budget is None or self.budget >= least,
            f"A budget of {self.budget} leaves no stream beside {self.sinks} sinks and the {self._most()} entries "
            f"that pruning leaves: give at least {least}, or let the last stage keep less.",
        )

    @property
    def kept_first(self) -> int:
        """Entries that pruning leaves in the first layers."""
        assert self.first_keep is not None, "it was made with one"
        return self.first_keep

    @property
    def _first(self) -> FirstLayers:
        return FirstLayers(self.first_layers, LayerRule(self.first_pruning, self.kept_first), self.first_recent)

    def _most(self) -> int:
        """Return the most far entries that a query of any layer sees."""
        return max(self.parsed_stages[-1].keep, self._first.seen if self.first_layers else 0)

    def cached_at_once(self) -> int:
        """Return the chunks of the last stage that a block of queries keeps; `first_recent` does not use the bank."""
        last = self.parsed_stages[-1]
        first = self.kept_first if self.first_layers and not self.first_recent else 0
        return max(last.keep, first) // last.chunk

    def _beside_stream(self) -> int:
        return self.sinks + self._most() + self.pass_multiple() - 1

    def pass_multiple(self) -> int:
        """Return the queries that prune together."""
        return 1 if self.budget is None else self.query_block

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Return an empty memory; without a budget, slots for everything, where nothing is ever pruned.

        Raises:
            SettingsError: the stream leaves the model's window no room for the rule `dynamic`.
        """
        if self.budget is None:
            return Memory(spec, SlotStore(spec))
        stages, stream = self.parsed_stages, self.budget - self._beside_stream()
        rules = self.pruning, self.first_pruning, self.attention
        require_between(rules, "the stream", stream, self._beside_stream(), spec.window)
        store = WindowStore(spec, self.sinks, stream, stages[0].query_block, keeps_wider=True)
        archive = self.new_archive(spec, probes=self.probes)
        rule = LayerRule(self.pruning, stages[-1].keep)
        selector = PruningSelector(
            spec, store, archive, stages, rule, self._first, self.attention, self.extend_always, self.grouped
        )
        selector.use_bank(self.bank_units(spec, self.cached_at_once()), stages[-1].chunk)
        return Memory(spec, store, selector=selector)

    def footprints(self, spec: ModelSpec, task: ReadingTask) -> Iterable[Footprint]:
        """Yield the footprints of window, archive, bank and selector."""
        if self.budget is None:
            yield from super().footprints(spec, task)
            return
        first, last = self.parsed_stages[0], self.parsed_stages[-1]
        on_gpu = spec.device.type == "cuda" and self.place == HOST
        streamed = streamed_bytes(spec.looking_far, DTYPES[self.store], task.total) if on_gpu else 0
        banked = self.bank_units(spec, self.cached_at_once())
        gathered = 0
        if streamed and not banked:
            blocks, units = -(-task.chunk // last.query_block), (last.keep // last.chunk, self.cached_at_once())
            gathered = chosen_bytes(spec.looking_far, DTYPES[self.store], blocks, units, task.total, last.chunk)
        selection = Selection(
            chosen=self._most(),
            compared=self.compared,
            looks=self.looks,
            fetching=last.query_block,
            in_place=self.read_in_place,
            search_every=first.refresh,
            recorded=self.recordable and TRUE not in (self.pruning, self.first_pruning),  # as `_far_kinds`
            stages=self.parsed_stages,
            usual=self._first.mean_seen(len(spec.layers), last.keep),
            bank=banked,
            probes=self.probes_held,
            grouped=self.grouped,
            streamed=streamed,
            gathered=gathered,
            positions=self.true_positions(spec, task),
        )
        yield window_footprint(spec, task, self.sinks, self.budget - self._beside_stream(), keeps_wider=True)
        yield self.archive_footprint(spec, task, self.sinks)
        yield self.bank_footprint(spec, task, self.cached_at_once(), last.chunk)
        yield self.probe_footprint(spec, max(0, task.total - self.sinks))
        yield selector_footprint(spec, task, self.sinks, selection)
