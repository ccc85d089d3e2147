"""`recall`: a condensed memory for the gist of a text, and beside it those passages that a question needs.

None of the papers has this; it puts two of them together. While a text is read, Locret or InfiniPot condenses it to a
fixed number of entries (the gist), and every key (before RoPE) and value goes to the host tier as well. Each block of
queries of a question, and each token of an answer, then selects from the host tier, by InfiniteHiP's pruning or by
exact search, and attends to the gist and to what was selected in one softmax. What is selected and already in the gist
is hidden, head by head, so that nothing counts twice.

The budget is shared: what selection may bring is taken off the gist's. The host tier holds the text and nothing of a
conversation, whose turns are condensed as the gist's own method does it. Where it keeps codes, what does not fill a
group of them cannot be looked up, and stays in the gist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.errors import WeightsError, require
from engine.memory import Memory
from engine.methods.archived import PruningSettings
from engine.methods.base import Method, TurnTokens
from engine.methods.infinipot import InfiniPot
from engine.methods.locret import Locret
from engine.methods.presets import RECALL
from engine.models.spec import ModelSpec
from engine.parts.archive.options import DTYPES
from engine.parts.footprint import Footprint, ReadingTask
from engine.parts.positions import TRUE, require_between
from engine.parts.selectors.gist import GistSelector
from engine.parts.selectors.retrieval_plan import Selection, search_footprint, selector_footprint
from engine.parts.selectors.stages import LayerRule, Pruning, parse_stages
from engine.parts.slots import SlotStore

GISTS = ("locret", "infinipot")
SELECTIONS = ("infinitehip", "exact")
PLACES = ("streaming", "infllm")
LEAST_GIST = 128


@dataclass(frozen=True, kw_only=True)
class Recall(PruningSettings, Method):
    """A gist, and a selection beside it.

    Attributes:
        budget: gist and selection together: entries that one query sees at most.
        gist: what condenses, locret or infinipot, with its own defaults.
        select: infinitehip or exact.
        top_k: entries selected by exact search, for each query of each head.
        attention: rule for selected keys, streaming (numbered before the gist) or infllm (one distance).
        Others: see `ArchiveSettings`, and `PruningSettings`, whose last stage says how many entries are selected.
    """

    name: ClassVar[str] = "recall"
    family: ClassVar[str] = "retrieving"
    summary: ClassVar[str] = "A condensed memory for the gist; exact detail is looked up in the whole text beside it."
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = RECALL
    long_window: ClassVar[str | None] = "wide"
    choices: ClassVar[Mapping[str, Collection[Any]]] = {
        **PruningSettings.pruning_choices,
        "gist": GISTS,
        "select": SELECTIONS,
        "attention": PLACES,
    }

    budget: int | None = 1024
    gist: str = "locret"
    select: str = "infinitehip"
    top_k: int = 128
    attention: str = "streaming"

    def __post_init__(self) -> None:
        """Refuse stages that do not nest, and a budget without a gist."""
        super().__post_init__()
        require(self.top_k >= 1, f"top_k is at least 1, not {self.top_k}.")
        parse_stages(self.stages)  # even if they are not used
        least = self.selected + LEAST_GIST
        require(
            self.budget is None or self.budget >= least,
            f"A budget of {self.budget} leaves no gist beside {self.selected} selected entries: give at least {least}, "
            f"or select less.",
        )
        self.condensing()

    @property
    def selected(self) -> int:
        """Most entries of the archive that a query attends to."""
        return self.top_k if self.select == "exact" else self.parsed_stages[-1].keep

    def condensing(self) -> Locret | InfiniPot:
        """Return the method that makes the gist."""
        size = None if self.budget is None else self.budget - self.selected
        return Locret(budget=size) if self.gist == "locret" else InfiniPot(budget=size)

    def needs_novelty(self) -> bool:
        """Tell whether the gist needs novelty."""
        return self.condensing().needs_novelty()

    def catalyst(self) -> str | None:
        """Return the catalyst prompt of the gist, or None."""
        return self.condensing().catalyst()

    def weights_digest(self, spec: ModelSpec) -> str:
        """Return a digest of the trained weights of the gist."""
        try:
            return self.condensing().weights_digest(spec)
        except WeightsError as error:
            raise WeightsError(
                "recall condenses with locret, which has no heads for this model that can be used ('stockpot plan "
                "--method locret' says why): --set gist=infinipot needs none."
            ) from error

    def passing(self, spec: ModelSpec) -> int:
        """Return the entries that the gist holds beyond its budget."""
        return self.condensing().passing(spec)

    def pass_multiple(self) -> int:
        """Return the queries that prune together."""
        return 1 if self.budget is None or self.select == "exact" else self.query_block

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Return an empty memory; without a budget, slots for everything, where nothing is ever selected.

        Raises:
            WeightsError: no retaining heads for this model.
            SettingsError: codes that this model or its device cannot have; the catalyst prompt leaves no room to read,
                or the gist none for the rule `dynamic`.
        """
        if self.budget is None:
            return Memory(spec, SlotStore(spec))
        distance = self.budget - self.selected
        require_between([self.pruning], "a gist", distance, self.selected, spec.window)
        gist = self.condensing().new_memory(spec, turn_tokens)
        assert isinstance(gist.store, SlotStore)
        gist.evictor.shares_pass = False  # what fills the gist may select, a catalyst may not
        archive = self.new_archive(spec, probes=0 if self.select == "exact" else self.probes)
        rules = [LayerRule(self.pruning, self.selected)] * len(spec.layers)
        pruning = None if self.select == "exact" else Pruning(spec, self.parsed_stages, rules, self.grouped)
        selector = GistSelector(spec, gist.store, archive, pruning, self.selected, distance, self.attention)
        return Memory(spec, gist.store, selector=selector, evictor=gist.evictor)

    def footprints(self, spec: ModelSpec, task: ReadingTask) -> Iterable[Footprint]:
        """Yield the footprints of the gist's parts, and of the archive and the selector beside them."""
        yield from self.condensing().footprints(spec, task)
        if self.budget is None:
            return
        exactly = self.select == "exact"
        pruned = not exactly and self.read_in_place
        selection = Selection(
            chosen=self.selected,
            compared=1.0 if exactly else self.compared,
            looks=self.looks,
            while_reading=False,
            each_query=exactly,
            in_place=pruned,
            search_every=1 if exactly else self.parsed_stages[0].refresh,
            recorded=self.recordable and (exactly or self.pruning != TRUE),
            stages=self.parsed_stages if pruned else (),
            probes=self.probes_held,
            grouped=self.grouped,
        )
        yield self.archive_footprint(spec, task, task.prefix, grows=False)
        yield selector_footprint(spec, task, task.prefix, selection)
        if exactly:
            yield search_footprint(spec, task, task.prefix, DTYPES[self.store], self.top_k)
        else:
            yield self.probe_footprint(spec, task.tokens)
