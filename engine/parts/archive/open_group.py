"""The open group of a quantised archive: entries that are too few to share a scale wait where the model computes.

Groups are quantised there as well, so that codes leave a GPU and not numbers. Sizes: R heads of a stack, N entries, D
head size, W bytes of a quantised row, G entries of a group.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.spec import ModelSpec
from engine.parts.archive.stacks import Stacks
from kernels import quantise, rows
from kernels.rows import BANKS, GROUP_SIZE, ChannelScale

CODING_BYTES = 64 << 20  # float32 numbers that are quantised together


@dataclass(frozen=True)
class OpenGroup:
    """Entries that wait for their group to fill. Rows are only ever written behind them.

    Attributes:
        rows: per stack [R, G, D], with the entries first.
        source: int32 [N] on the host, their source positions.
        shared: whether others append to the same rows, which are copied before they are written then.
    """

    rows: list[Tensor]
    source: Tensor
    shared: bool = False

    @classmethod
    def empty(cls, spec: ModelSpec, stacks: Stacks) -> OpenGroup:
        """Return a group without entries, on the model's device."""
        shapes = [(heads, GROUP_SIZE, size) for heads, size in zip(stacks.rows, stacks.sizes, strict=True)]
        buffers = [torch.empty(shape, dtype=spec.dtype, device=spec.device) for shape in shapes]
        return cls(buffers, torch.empty(0, dtype=torch.int32))

    @property
    def pending(self) -> list[Tensor]:
        """The entries of each stack, [R, N, D]."""
        return [buffer[:, : len(self.source)] for buffer in self.rows]

    def joined(self, new: list[Tensor], source: Tensor) -> tuple[list[Tensor], Tensor, OpenGroup]:
        """Return the whole groups of these and new entries, their source positions, and the group of the rest.

        Args:
            new: per stack [R, T, D].
            source: int32 [T] on the host.
        """
        held = len(self.source)
        sources = torch.cat([self.source, source])
        whole = len(sources) // GROUP_SIZE * GROUP_SIZE
        if whole:
            full = [torch.cat([there, x[:, : whole - held]], dim=1) for there, x in zip(self.pending, new, strict=True)]
            buffers = [torch.empty_like(each) for each in self.rows]
            rest, at = [x[:, whole - held :] for x in new], 0
        else:
            full, rest, at = [x[:, :0] for x in new], new, held
            buffers = [each.clone() for each in self.rows] if self.shared else self.rows
        for there, x in zip(buffers, rest, strict=True):
            there[:, at : at + x.shape[1]] = x
        return full, sources[:whole], OpenGroup(buffers, sources[whole:])

    def forked(self) -> OpenGroup:
        """Return the same group for two lines of history. Whichever adds to it first copies its rows."""
        return dataclasses.replace(self, shared=True)

    def nbytes(self) -> int:
        """Return the bytes of the rows."""
        return sum(buffer.nbytes for buffer in self.rows)


def coded(x: Tensor, scale: ChannelScale, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Quantise whole groups of a stack [R, N, D] on its device, in steps that take little memory.

    Returns:
        Codes [R, N, W], and the scale of each group, float32 [R, N / G].
    """
    heads, count, size = x.shape
    mean, spread = scale.on(x.device)
    step = max(1, CODING_BYTES // max(1, 4 * count * size))
    if step >= heads:
        return rows.coded(x, mean, spread, GROUP_SIZE, kind)
    codes = torch.empty(heads, count, quantise.width(kind, size), dtype=quantise.stored(kind), device=x.device)
    scales = torch.empty(heads, count // GROUP_SIZE, device=x.device)
    for at in range(0, heads, step):
        some = slice(at, at + step)
        codes[some], scales[some] = rows.coded(x[some], mean[some], spread[some], GROUP_SIZE, kind)
    return codes, scales


def saved_group(group: OpenGroup, stacks: Stacks, scales: list[tuple[ChannelScale, ChannelScale]]) -> dict[str, Tensor]:
    """Return a group by name, for disk, with the scales of keys and values per layer."""
    tensors = {"source": group.source}
    for layer, pair in enumerate(zip(*stacks.parted(group.pending), strict=True)):
        tensors |= {f"{layer}.{name}": x for name, x in zip(BANKS, pair, strict=True)}
    for layer, each in enumerate(scales):
        for name, scale in zip(BANKS, each, strict=True):
            tensors |= scale.saved(f"{layer}.{name}")
    return tensors


def loaded_group(tensors: dict[str, Tensor], spec: ModelSpec, stacks: Stacks) -> OpenGroup:
    """Return a saved group, with the heads that the spec has."""
    keys, values = ([tensors[f"{layer}.{name}"] for layer in range(len(spec.layers))] for name in BANKS)
    group = OpenGroup.empty(spec, stacks)
    _, _, group = group.joined([x.to(spec.device) for x in stacks.stacked(keys, values)], tensors["source"])
    return group


def loaded_scales(tensors: dict[str, Tensor], stacks: Stacks) -> list[ChannelScale]:
    """Return the saved scales of each stack, with the heads that the tier has."""

    def of_layers(name: str, heads: list[int]) -> list[ChannelScale]:
        place = torch.device("cpu")
        return [ChannelScale.loaded(tensors, f"{layer}.{name}", count, place) for layer, count in enumerate(heads)]

    keys, values = map(of_layers, BANKS, stacks.layer_heads)
    return [ChannelScale.joined(parts) for parts in stacks.of_stacks(keys, values)]
