"""The static pass over what InfiniteHiP's pruning leaves: beside the window, chunks of the host tier where they lie.

While answering, most tokens see what the stages chose for a token before them, and only every so often does a stage
choose anew. Where the first stage does, all of the host tier is looked at, which grows; such a token is passed as ever.
From any other stage on, shapes stay as they are, so there is a static pass for each stage with which choosing may begin
anew, and one for tokens with which none does: the restart points of the stage cache.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.attention import Segment
from engine.positions import QueryBlocks
from engine.static_window import StaticWindow
from kernels.rows import Fixed, Slabs

if TYPE_CHECKING:
    from engine.methods.infinitehip import InfiniteHiPMemory


class StaticPruned(StaticWindow["InfiniteHiPMemory"]):
    """`InfiniteHiPMemory.attend` for one token whose block sees far entries, none of them at a true position."""

    def __init__(self, memory: InfiniteHiPMemory, begin: int) -> None:
        """begin: the stage with which choosing begins anew, from 1 on; the number of stages where none does."""
        super().__init__(memory)
        self.begin = begin
        self.evicted = torch.zeros_like(self.number)
        layers = range(len(memory.layers))
        self.far = [(_growing(memory.host.keys(layer)), _growing(memory.host.values(layer))) for layer in layers]
        self.behind_sinks = [
            tuple(Fixed([(sinks, memory.sinks), *bank]) for sinks, bank in zip(held, far, strict=True))
            for held, far in zip(((each.sink_keys, each.sink_values) for each in memory.layers), self.far, strict=True)
        ]
        # By layer that prunes: chunk starts that the stage before `begin` chose, and those of the stages from it on
        chosen = {layer: memory.pruning.chosen[layer] for layer in layers if memory.prunes(layer)}
        self.before = {layer: each[begin - 1].clone() for layer, each in chosen.items()}
        self.copied = {layer: each[begin - 1] for layer, each in chosen.items()}
        self.after = {layer: [starts.clone() for starts in each[begin:]] for layer, each in chosen.items()}
        made = memory.query_blocks(1, memory.stages[0].query_block, memory.settings.extend_always, memory.spec.device)
        self.blocks = cache(lambda size: self._blocks(made.known, size))

    def _blocks(self, known: QueryBlocks, size: int) -> QueryBlocks:
        """A block of the token, whose numbers change; what may be asked on the host of `known` stays as it is."""
        fits = torch.zeros(1, dtype=torch.bool, device=self.number.device)
        here = dataclasses.replace(known, size=size, here=None)
        return dataclasses.replace(here, number=self.number, evicted=self.evicted, fits=fits, here=here)

    def move_to(self, memory: InfiniteHiPMemory) -> None:
        """The next token sees what is chosen now, of the host tier as it is now."""
        super().move_to(memory)
        self.evicted.fill_(memory.far)
        self.memory.host = memory.host
        for layer, copied in self.copied.items():
            if copied is not (chosen := memory.pruning.chosen[layer][self.begin - 1]):
                self.before[layer].copy_(chosen)
                self.copied[layer] = chosen

    def over(self, memory: InfiniteHiPMemory) -> None:
        """What was chosen anew counts for the tokens behind this one."""
        for layer, starts in self.after.items():
            memory.pruning.keep(layer, self.begin, [each.clone() for each in starts])

    def _segments(self, layer: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        memory = self.memory
        if memory.layers[layer].layer.sliding_window is not None:
            return self.near(layer, q)
        segments, sources = self.near(layer, q, with_sinks=False)  # which are listed with what is chosen
        blocks = self.blocks(memory.stages[-1].query_block)
        index = self._chosen(layer, q) if memory.prunes(layer) else memory.recent(blocks)
        keys, values = self.behind_sinks[layer]
        far, source = memory.listed(layer, q, blocks, index, memory.settings.attention, keys, values)
        return [*segments, far], [*sources, source]

    def _chosen(self, layer: int, q: Tensor) -> Tensor:
        pruning = self.memory.pruning
        starts = pruning.run(layer, self.begin, self.before[layer], q, self.blocks, self.far[layer][0])
        for kept, new in zip(self.after[layer], starts, strict=True):
            kept.copy_(new)
        return pruning.entries([self.before[layer], *starts][-1])


def _growing(slabs: Slabs) -> Fixed:
    """The last slab counts whole, as what comes next goes there. Fixed, so that what a kernel has been told of them is
    held by who repeats it.
    """
    *others, (last, _) = slabs
    return Fixed([*others, (last, last.shape[1])])
