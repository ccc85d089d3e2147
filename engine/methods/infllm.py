"""`infllm`: everything is kept; each block of queries attends to its most relevant units of it.

InfLLM (https://arxiv.org/abs/2402.04617): what leaves the local window is cut into memory units. A block of queries
looks up the units whose representatives fit it best, and attends to initial tokens, those units and its window in one
softmax (`units.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.errors import require
from engine.memory import Memory
from engine.methods.archived import BankSettings
from engine.methods.base import Method, TurnTokens
from engine.methods.presets import INFLLM
from engine.models.spec import ModelSpec
from engine.parts.archive.options import check_cache, least_window
from engine.parts.footprint import Footprint, ReadingTask
from engine.parts.selectors.retrieval_plan import Selection, selector_footprint, unit_footprint
from engine.parts.selectors.units import PRODUCTS, SCORES, UnitSelector, unit_heads
from engine.parts.slots import SlotStore
from engine.parts.window import WindowStore
from engine.parts.window_plan import window_footprint


@dataclass(frozen=True, kw_only=True)
class InfLLM(BankSettings, Method):
    """Look up memory units.

    In the paper's letters: sinks l_I, block l_bs, representatives r_k, units k_m, query_block l_X.

    Attributes:
        budget: entries that one query sees at most: sinks, window, units, and tokens that fill no unit or block yet.
            What is left of it is the window, l_L.
        sinks: initial tokens.
        block: tokens per memory unit.
        representatives: tokens of a unit that stand for it.
        scores: how they are chosen: by dot products with later queries, heads together, as in the paper; or by the
            probabilities of later queries, each query head its own, as in the authors' code.
        units: units looked up for each block of `query_block` queries.
        Others: see `BankSettings`.
    """

    name: ClassVar[str] = "infllm"
    family: ClassVar[str] = "retrieving"
    summary: ClassVar[str] = "Keeps everything; each block of tokens looks up its most relevant units."
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = INFLLM
    long_window: ClassVar[str | None] = "llama-3"
    choices: ClassVar[Mapping[str, Collection[Any]]] = {**BankSettings.archive_choices, "scores": SCORES}

    budget: int | None = 1024
    sinks: int = 4
    block: int = 8
    representatives: int = 8
    scores: str = PRODUCTS
    units: int = 64
    query_block: int = 32
    looks: int = 3

    def __post_init__(self) -> None:
        """Refuse a budget without a window that holds a block of queries."""
        super().__post_init__()
        require(self.sinks >= 0, f"sinks cannot be negative ({self.sinks}).")
        require(self.block >= 1, f"A memory unit (block) has at least 1 token, not {self.block}.")
        require(self.units >= 1, f"units is at least 1, not {self.units}.")
        require(self.query_block >= 1, f"query_block is at least 1, not {self.query_block}.")
        require(
            1 <= self.representatives <= self.block,
            f"A unit of {self.block} tokens has 1 to {self.block} representatives, not {self.representatives}.",
        )
        check_cache(self.cache, self.units + 1)
        least = self._beside_window() + least_window(self.store, self.query_block)
        require(
            self.budget is None or self.budget >= least,
            f"A budget of {self.budget} leaves no window beside {self.sinks} sinks and {self.units} units of "
            f"{self.block}: give at least {least}, or fewer units.",
        )

    def _beside_window(self) -> int:
        """Return the most entries that a query sees outside l_L: a remainder below a unit counts, and its own block."""
        return self.sinks + (self.units + 1) * self.block - 1 + self.query_block - 1

    def pass_multiple(self) -> int:
        """Return the queries that look up together."""
        return 1 if self.budget is None else self.query_block

    @property
    def window(self) -> int:
        """Tokens in the window, l_L."""
        assert self.budget is not None, "without a budget there is no window"
        return self.budget - self._beside_window()

    def pass_limit(self) -> int | None:
        """Return the most tokens of a pass; None for any number.

        With `scores=probabilities` it is one block of queries, because its attention judges the units of the next one.
        """
        return None if self.budget is None or self.scores == PRODUCTS else self.query_block

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Return an empty memory; without a budget, slots for everything, where nothing is ever looked up."""
        if self.budget is None:
            return Memory(spec, SlotStore(spec))
        store = WindowStore(spec, self.sinks, self.window, self.query_block, keeps_wider=True)
        archive = self.new_archive(spec)
        chosen = self.block, self.representatives, self.units, self.scores
        selector = UnitSelector(spec, store, archive, *chosen)
        selector.use_bank(self.bank_units(spec, self.units + 1), self.block, by_attention=True)
        return Memory(spec, store, selector=selector)

    def footprints(self, spec: ModelSpec, task: ReadingTask) -> Iterable[Footprint]:
        """Yield the footprints of window, archive, bank and selector. Each unit has one key to be compared with."""
        if self.budget is None:
            yield from super().footprints(spec, task)
            return
        selection = Selection(
            chosen=(self.units + 1) * self.block,
            compared=1 / self.block,
            looks=self.looks,
            together=self.query_block,  # by their sum
            fetching=self.query_block,
            recorded=self.recordable and self.scores == PRODUCTS,
            bank=self.bank_units(spec, self.units + 1),
        )
        yield window_footprint(spec, task, self.sinks, self.window, keeps_wider=True)
        yield self.archive_footprint(spec, task, self.sinks)
        yield self.bank_footprint(spec, task, self.units + 1, self.block)
        yield selector_footprint(spec, task, self.sinks, selection)
        yield unit_footprint(spec, task.total, self.block, lambda layer: unit_heads(layer, self.scores))
