"""`infinitehip`: everything is kept in host memory; each block of queries prunes it, stage by stage, to a few chunks.

InfiniteHiP (https://arxiv.org/abs/2502.08910), Algorithms 1 to 4. Sinks and the most recent tokens (stream) are always
seen. What lies between is pruned (`stages.py`), and what the last stage leaves is attended to beside sinks and stream
in one softmax.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.errors import require
from engine.memory import Memory
from engine.methods.archived import BankSettings
from engine.methods.base import Method, TurnTokens
from engine.models.spec import ModelSpec
from engine.parts.archive.options import check_cache, least_window
from engine.parts.footprint import Footprint, Task
from engine.parts.positions import ATTENTION_RULES, PRUNING_RULES, TRUE, require_between
from engine.parts.retrieval_plan import plan_retrieving
from engine.parts.selectors.pruned import FirstLayers, PruningSelector
from engine.parts.selectors.stages import LayerRule, compared, parse_stages
from engine.parts.slots import SlotStore
from engine.parts.window import WindowStore
from engine.records import HOST


def _published(stages: str, most: int, **others: int) -> Mapping[str, Any]:
    """Appendix F: 256 sinks, a stream of 1024, query blocks of 64; most: far entries that any layer sees."""
    return {"budget": 256 + 1024 + most + 63, "sinks": 256, "stages": stages, "first_layers": 3, "looks": 1, **others}


_3K = "64:256:32768:{} 64:32:8192:{} 64:8:2048:{}"


@dataclass(frozen=True, kw_only=True)
class InfiniteHiP(BankSettings, Method):
    """Prune what lies between sinks and stream.

    Attributes:
        budget: entries that one query sees at most: sinks, stream, what pruning leaves, and the rest of its block. What
            is left of it is the stream.
        sinks: first tokens, always seen.
        stages: "query_block:chunk:keep:refresh" for each.
        first_layers: layers with other rules.
        first_keep: what their last stage leaves; None for half of the budget, 512 at most.
        first_recent: newest far entries that they see instead of pruning, 0 to prune.
        pruning, first_pruning: position rule while pruning (relative, chunk, infllm, dynamic, true).
        attention: position rule for far keys (streaming, infllm, dynamic).
        extend_always: whether these rules hold also where true positions fit the model's window.
        Others: see `BankSettings`.
    """

    name: ClassVar[str] = "infinitehip"
    family: ClassVar[str] = "retrieving"
    summary: ClassVar[str] = "Keeps everything in host memory; each block of tokens prunes it to what matters to it."
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "pocket": {},
        "pocket-far": {"stages": "64:256:16384:16 32:32:4096:8 32:4:256:4"},
        "3k": _published(_3K.format(16, 8, 4), 4096, first_keep=4096),
        "3k-fast": _published(_3K.format(32, 16, 8), 4096, first_keep=4096),
        "3k-flash": _published(_3K.format(96, 24, 8), 4096, first_keep=4096),
        "5k": _published("64:64:32768:16 64:32:16384:8 64:16:4096:4", 4096, first_keep=4096),
        # Appendix E.2: a window of 128K in the first layers, less sinks, stream and a block, which stand in it as well.
        "16k-shallow": _published("64:32:16384:16", 129729, first_keep=16384, first_recent=129729),
    }
    long_window: ClassVar[str | None] = "3k-flash"
    choices: ClassVar[Mapping[str, Collection[Any]]] = {
        **BankSettings.bank_choices,
        "pruning": PRUNING_RULES,
        "first_pruning": PRUNING_RULES,
        "attention": ATTENTION_RULES,
    }

    budget: int | None = 1024
    sinks: int = 4
    stages: str = "32:16:1024:8 32:4:256:4"
    first_layers: int = 1
    first_keep: int | None = None
    first_recent: int = 0
    pruning: str = "relative"
    first_pruning: str = "chunk"
    attention: str = "streaming"
    extend_always: bool = False

    def __post_init__(self) -> None:
        """Refuse stages that do not nest, and a budget without a stream that holds a block of queries."""
        super().__post_init__()
        stages = parse_stages(self.stages)
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
        """What is left in the first layers."""
        assert self.first_keep is not None, "it was made with one"
        return self.first_keep

    def _most(self) -> int:
        """Far entries that a query of any layer sees at most."""
        first = self.first_recent or self.kept_first
        return max(parse_stages(self.stages)[-1].keep, first if self.first_layers else 0)

    def cached_at_once(self) -> int:
        """Chunks of the last stage that a block of queries is left with; first_recent goes past the cache."""
        last = parse_stages(self.stages)[-1]
        first = self.kept_first if self.first_layers and not self.first_recent else 0
        return max(last.keep, first) // last.chunk

    def _beside_stream(self) -> int:
        return self.sinks + self._most() + self.pass_multiple() - 1

    def pass_multiple(self) -> int:
        """Blocks of queries prune together."""
        return 1 if self.budget is None else parse_stages(self.stages)[0].query_block

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Return an empty memory; without a budget, slots for everything, where nothing is ever pruned.

        Raises:
            SettingsError: the stream leaves the model's window no room for the rule `dynamic`.
        """
        if self.budget is None:
            return Memory(spec, SlotStore(spec))
        stages, stream = parse_stages(self.stages), self.budget - self._beside_stream()
        rules = self.pruning, self.first_pruning, self.attention
        require_between(rules, "the stream", stream, self._beside_stream(), spec.window)
        store = WindowStore(spec, self.sinks, stream, stages[0].query_block, keeps_wider=True)
        archive = self.new_archive(spec)
        rule = LayerRule(self.pruning, stages[-1].keep)
        first = FirstLayers(self.first_layers, LayerRule(self.first_pruning, self.kept_first), self.first_recent)
        selector = PruningSelector(spec, store, archive, stages, rule, first, self.attention, self.extend_always)
        selector.use_bank(self.bank_units(spec, self.cached_at_once()), stages[-1].chunk, self.policy)
        return Memory(spec, store, archive=archive, selector=selector)

    def plan(self, spec: ModelSpec, task: Task) -> Footprint:
        """Sinks and stream on the device, everything behind the sinks in the host tier, which is pruned."""
        if self.budget is None:
            return super().plan(spec, task)
        stages = parse_stages(self.stages)
        units = self.bank_units(spec, self.cached_at_once())
        cached = self.bank_bytes(spec, self.cached_at_once(), stages[-1].chunk)
        plain = plan_retrieving(
            spec,
            task,
            self.sinks,
            self.budget - self._beside_stream(),
            self.store,
            self._most(),
            compared(stages),
            reading=True,
            tier=self.tier,
            cached=cached,
            looks=self.looks,
            block=stages[-1].query_block,
            in_place=self.tier == HOST,
            search_every=stages[0].refresh,
            recorded=self._recorded(spec, task) and units == 0,
        )
        original = 0 if self.extend_always else min(task.total, spec.window)  # where the text fits the model's window
        return dataclasses.replace(plain, positions=original)

    def _recorded(self, spec: ModelSpec, task: Task) -> bool:
        """Tell whether a token of an answer is recorded (`PruningSelector.graph_kind`), without a bank."""
        in_place = self.looks == 1 and self.tier == HOST and TRUE not in (self.pruning, self.first_pruning)
        return in_place and (self.extend_always or task.total > spec.window)
