"""Count the entries that kernels ask of host memory, where they read it in place or fetch from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.models.spec import ModelSpec
from engine.parts.selectors.stages import Stage

TILE = 128  # queries of a KV head that a kernel attends with at once
# Share of chosen units that a bank holds, by the stage where choosing restarts, from the last stage backwards; without
# stages, that of the last. InfiniteHiP, Table 4, at a million tokens.
HELD = (0.89, 0.68, 0.51)


@dataclass(frozen=True)
class Asked:
    """Entries, in keys and values of all KV heads and layers, that a token asks of host memory.

    Each query head and block reads its own copy of the keys that a stage compares. Attention reads chosen entries once
    for each `TILE` queries of a KV head, and the sums of an answer's attention read their keys once more; a bank gets
    the entries instead that it does not hold, once for all of them. Keys that are on the device as well are not
    asked for.

    Attributes:
        spec: of the model.
        far: entries of the archive.
        chosen: most entries that a query attends to.
        usual: the same on average over layers; None for `chosen`.
        block: queries of the text that choose together.
        stages: of pruning, coarse to fine.
        bank: units of the last stage's size that a bank holds; 0 if there is none.
        probes: n if every n-th key is on the device for a token of an answer; 0 for none.
        grouped: whether the query heads of a KV head compare the same keys.
        together: tokens of a pass of the text if all keys may come once for it, else 0.
        gathered: whether chosen entries come once for all blocks of such a pass.
    """

    spec: ModelSpec
    far: int
    chosen: int
    usual: float | None = None
    block: int = 1
    stages: tuple[Stage, ...] = ()
    bank: int = 0
    probes: int = 0
    grouped: bool = False
    together: int = 0
    gathered: bool = False

    @property
    def attended(self) -> float:
        """Entries of the archive that a query attends to, on average over layers."""
        return min(self.chosen if self.usual is None else self.usual, self.far)

    @property
    def _group(self) -> float:
        looking = self.spec.looking_far
        return looking.query_heads / max(1, sum(layer.kv_heads for layer in looking.layers))

    def compared(self, number: int, first: float, probes: int = 0) -> float:
        """Return the entries that a block of queries of all heads asks for in one stage.

        first: chunks that the first stage compares. probes: n if every n-th key is not asked for; 0 for none.
        """
        stage, chunks = self.stages[number], first
        if number:
            chunks = min(self.stages[number - 1].keep, self.far) / stage.chunk
        keys = 1 + math.log2(stage.chunk)
        if probes:  # those of the last halvings, and first keys of chunks that begin in between
            keys = math.log2(min(probes, stage.chunk)) + 1 - min(1.0, stage.chunk / probes)
        return chunks * keys * (1 if self.grouped else self._group) * self.spec.key_share

    def streams(self) -> bool:
        """Tell whether stages ask for more keys in a pass than there are, so that all keys come once instead."""
        first = self.far / self.stages[0].chunk if self.stages and self.far > self.stages[0].keep else 0.0
        asked = sum(self.compared(number, first) for number in range(len(self.stages)) if self._runs(number))
        return asked * (self.together // self.block) > self.far * self.spec.key_share

    def _runs(self, number: int) -> bool:
        return self.far > self.stages[number].keep

    def of_text(self) -> float:
        """Return the entries that a token of the text asks for, on average over the text."""
        stages, found, asked = self.stages, self.attended, 0.0
        if not self.bank:
            found *= math.ceil(self.block * self._group / TILE)
        if stages and self.far > stages[0].keep:  # before that nothing need be left out
            first = (self.far**2 - stages[0].keep ** 2) / (2 * self.far) / stages[0].chunk
            asked = sum(self.compared(number, first) for number in range(len(stages)))
        elif stages:
            asked = sum(self.compared(number, 0.0) for number in range(1, len(stages)))
        if self.streams():  # chosen keys are there then
            share = self.spec.key_share
            asked = min(asked, self.far / 2 * share / self.together * self.block)
            if self.gathered:
                found = self._gathered()
            found *= 1.0 if self.bank else 1 - share
        return (found + asked) / self.block

    def _gathered(self) -> float:
        """Return the chosen entries that come for a block, on average over the text.

        Blocks of a pass are taken to choose different ones; in a short text there are fewer than all would choose.
        """
        blocks = self.together / self.block
        few = min(self.far, self.attended * blocks)
        return (few**2 / 2 / blocks + (self.far - few) * self.attended) / self.far

    def of_answer(self) -> float:
        """Return the entries that a token of an answer asks for, on average over the renewals of the stages."""
        stages, last = self.stages, len(self.stages) - 1
        first = self.far / stages[0].chunk if stages and self.far > stages[0].keep else 0.0
        often = [1 / stage.refresh for stage in stages] or [1.0]
        renewed = [self.compared(number, first, self.probes) * often[number] for number in range(len(stages))]
        if not self.bank:
            return self.attended * (1 + self.spec.key_share) + sum(renewed)
        restarts = [each - before for before, each in zip([0.0, *often], often, strict=False)]
        brought = self.attended
        candidates = min(stages[last - 1].keep, self.far) if last > 0 else 0
        if self.probes > 1 and candidates and candidates / stages[last].chunk <= self.bank:
            # All that the last stage compares comes to the bank, and is there until a stage before it chooses anew
            renewed[last], restarts[last], brought = 0.0, 0.0, candidates
        missed = sum(share * (1 - HELD[min(behind, len(HELD) - 1)]) for behind, share in enumerate(reversed(restarts)))
        return brought * missed + sum(renewed)
