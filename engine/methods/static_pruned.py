"""Static passes over what InfiniteHiP's pruning leaves: beside a window or a gist, chunks of the host tier.

While answering, most tokens see what the stages chose for a token before them, and only every so often does a stage
choose anew. Where the first stage does, all of the host tier is looked at, which grows; such a token is passed as ever.
From any other stage on, shapes stay as they are, so there is a static pass for each stage with which choosing may begin
anew, and one for tokens with which none does: the restart points of the stage cache. See `graphs.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.host.pruning import Pruning
from engine.host.static_retrieving import StaticRetrieving
from engine.memories.attention import Segment
from engine.memories.static_slots import StaticSlots
from engine.positions import QueryBlocks
from kernels.rows import Slabs, StableSlabs

if TYPE_CHECKING:
    from engine.methods.infinitehip import InfiniteHiPMemory
    from engine.methods.recall import RecallingMemory


class StaticStages:
    """What the stages of a pruning have chosen and choose, at addresses that do not change."""

    def __init__(self, pruning: Pruning, begin: int) -> None:
        """begin: the stage with which choosing begins anew, from 1 on; the number of stages where none does."""
        self.begin = begin
        chosen = {layer: each for layer, each in enumerate(pruning.chosen) if each}
        # By layer that prunes: chunk starts that the stage before `begin` chose, and those of the stages from it on
        self.before = {layer: each[begin - 1].clone() for layer, each in chosen.items()}
        self.copied = {layer: each[begin - 1] for layer, each in chosen.items()}
        self.after = {layer: [starts.clone() for starts in each[begin:]] for layer, each in chosen.items()}

    def move_to(self, pruning: Pruning) -> None:
        """Begin with what is chosen now."""
        for layer, copied in self.copied.items():
            if copied is not (chosen := pruning.chosen[layer][self.begin - 1]):
                self.before[layer].copy_(chosen)
                self.copied[layer] = chosen

    def choose(self, pruning: Pruning, layer: int, q: Tensor, blocks: Mapping[int, QueryBlocks], keys: Slabs) -> Tensor:
        """`Pruning.choose` for one token."""
        starts = pruning.run(layer, self.begin, self.before[layer], q, blocks.__getitem__, keys)
        for kept, new in zip(self.after[layer], starts, strict=True):
            kept.copy_(new)
        return pruning.entries([self.before[layer], *starts][-1])

    def over(self, pruning: Pruning) -> None:
        """What was chosen anew counts for the tokens behind this one."""
        for layer, starts in self.after.items():
            pruning.keep(layer, self.begin, [each.clone() for each in starts])


def changing(block: QueryBlocks, number: Tensor, evicted: Tensor) -> QueryBlocks:
    """A block of one token with numbers that change: its own [1], and what the block has evicted [1].

    block: as it is now, and not fitting the model's window; what is asked of it on the host must hold for all tokens to
    come.
    """
    fits = torch.zeros(1, dtype=torch.bool, device=number.device)
    return dataclasses.replace(block.known, number=number, evicted=evicted, fits=fits, here=block.known)


class StaticPruned(StaticRetrieving["InfiniteHiPMemory"]):
    """`InfiniteHiPMemory.attend` for one token whose block sees far entries, none of them at a true position."""

    def __init__(self, memory: InfiniteHiPMemory, begin: int) -> None:
        """begin: see `StaticStages`."""
        super().__init__(memory)
        self.stages = StaticStages(memory.pruning, begin)
        self.behind_sinks = [  # by layer: keys and values
            tuple(StableSlabs([(bank, memory.sinks), *far]) for bank, far in zip(held.sinks_as_kept, pair, strict=True))
            for held, pair in zip(memory.layers, self.far, strict=True)
        ]
        always, device = memory.settings.extend_always, memory.spec.device
        self.blocks = {
            size: changing(memory.query_blocks(1, size, always, device), self.number, self.evicted)
            for size in memory.pruning.sizes
        }

    def move_to(self, memory: InfiniteHiPMemory) -> None:
        """The next token sees what is chosen now."""
        super().move_to(memory)
        self.stages.move_to(memory.pruning)

    def over(self, memory: InfiniteHiPMemory) -> None:
        """What was chosen anew."""
        self.stages.over(memory.pruning)

    def _segments(self, layer: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        memory = self.memory
        if memory.layers[layer].layer.sliding_window is not None:
            return self.near(layer, q)
        segments, sources = self.near(layer, q, with_sinks=False)  # which are listed with what is chosen
        blocks = self.blocks[memory.stages[-1].query_block]
        if layer in self.stages.before:
            index = self.stages.choose(memory.pruning, layer, q, self.blocks, self.far[layer][0])
        else:
            index = memory.recent(blocks, static=True)
        keys, values = self.behind_sinks[layer]
        far, source = memory.listed(layer, q, blocks, index, memory.settings.attention, keys, values)
        return [*segments, far], [*sources, source]


class StaticRecalling(StaticSlots["RecallingMemory"]):
    """`RecallingMemory.attend` for one token: the gist, and beside it what pruning leaves of the host tier."""

    def __init__(self, memory: RecallingMemory, begin: int) -> None:
        """begin: see `StaticStages`."""
        super().__init__(memory)
        self.number = torch.zeros_like(self.length)
        self.stages = StaticStages(memory.pruning, begin)
        layers = self.stages.before.keys()
        self.far = {
            layer: (StableSlabs(memory.host.keys(layer)), StableSlabs(memory.host.values(layer))) for layer in layers
        }
        self.held = {layer: memory.held_by_heads(layer) for layer in layers}  # what comes now is no part of the text
        room = min(slots.capacity - slots.surplus for slots in memory.own)
        last = memory.far + memory.base_length + room  # that a token may have
        evicted = torch.full_like(self.number, memory.far)
        self.blocks = {
            size: changing(memory.blocks_from(last, 1, size), self.number, evicted) for size in memory.pruning.sizes
        }

    def move_to(self, memory: RecallingMemory) -> None:
        """The next token stands behind the gist, and sees what is chosen now."""
        super().move_to(memory)
        self.number.fill_(memory.far + memory.entries)
        self.stages.move_to(memory.pruning)

    def over(self, memory: RecallingMemory) -> None:
        """What was chosen anew."""
        self.stages.over(memory.pruning)

    def _beside(self, number: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """Each layer lies in slots of its number."""
        memory = self.memory
        if number not in self.far:
            return [], []
        keys, values = self.far[number]
        index = self.stages.choose(memory.pruning, number, q, self.blocks, keys)
        blocks = self.blocks[memory.pruning.stages[-1].query_block]
        segment, source = memory.listed(number, q, blocks, index, self.held[number], keys, values)
        return [segment], [source]
