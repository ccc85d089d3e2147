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

from engine.errors import WeightsError, require
from engine.memory import Memory
from engine.methods.archived import ArchiveSettings
from engine.methods.base import Method, TurnTokens
from engine.methods.infinipot import InfiniPot
from engine.methods.infinitehip import InfiniteHiP
from engine.methods.locret import Locret
from engine.models.spec import ModelSpec
from engine.parts.footprint import Footprint, Task
from engine.parts.positions import PRUNING_RULES, TRUE, require_between
from engine.parts.retrieval_plan import looking_share, searching_everything, with_host_tier
from engine.parts.selectors.base import selected_in_pass
from engine.parts.selectors.gist import GistSelector
from engine.parts.selectors.stages import LayerRule, Pruning, compared, parse_stages
from engine.parts.slots import SlotStore
from engine.records import HOST

GISTS = ("locret", "infinipot")
SELECTIONS = ("infinitehip", "exact")
PLACES = ("streaming", "infllm")
LEAST_GIST = 128


@dataclass(frozen=True, kw_only=True)
class Recall(ArchiveSettings, Method):
    """A gist, and a selection beside it.

    Attributes:
        budget: gist and selection together: entries that one query sees at most.
        gist: what condenses, locret or infinipot, with its own defaults.
        select: infinitehip or exact.
        stages: of InfiniteHiP; the last says how many entries are selected.
        top_k: entries selected by exact search, for each query of each head.
        pruning: position rule while pruning.
        attention: rule for selected keys, streaming (numbered before the gist) or infllm (one distance).
        while_reading: whether the text's own tokens select too.
        Others: see `ArchiveSettings`.
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
        **ArchiveSettings.archive_choices,
        "gist": GISTS,
        "select": SELECTIONS,
        "pruning": PRUNING_RULES,
        "attention": PLACES,
    }

    budget: int | None = 1024
    gist: str = "locret"
    select: str = "infinitehip"
    stages: str = "32:16:1024:8 32:4:256:4"
    top_k: int = 128
    pruning: str = "relative"
    attention: str = "streaming"
    while_reading: bool = False

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
            return Memory(spec, SlotStore(spec))
        distance = self.budget - self.selected
        require_between([self.pruning], "a gist", distance, self.selected, spec.window)
        gist = self.condensing().new_memory(spec, turn_tokens)
        assert isinstance(gist.store, SlotStore)
        gist.evictor.shares_pass = False  # what fills the gist may select, a catalyst may not
        archive = self.new_archive(spec)
        rules = [LayerRule(self.pruning, self.selected)] * len(spec.layers)
        pruning = None if self.select == "exact" else Pruning(spec, parse_stages(self.stages), rules)
        selector = GistSelector(
            spec, gist.store, archive, pruning, self.selected, distance, self.attention, self.while_reading
        )
        return Memory(spec, gist.store, archive=archive, selector=selector, evictor=gist.evictor)

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
        picking = selected_in_pass(spec, far, task.chunk) if exactly or self.looks > 1 else 0
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
