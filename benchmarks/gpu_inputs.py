"""Inputs for checks of kernels: noise in the shapes of real layers, in slabs laid out as in the engine.

Sizes: HQ query heads, H KV heads, T queries, N rows, D head size. Not here: the checks (`gpu_kernels.py`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.attention import BlockTable, VisibleRange
from kernels.quantise import stored, unpack, width
from kernels.rows import GROUP_SIZE, Bank, ChannelScale, QuantizedSlab, Slabs

SLAB = 32768  # rows of a slab, as in the engine's host tier
SINKS = 128  # sinks before a host tier
WAITING = 384  # kept entries not quantised yet, as with `locret`'s budget for long windows
CHOSEN = 3072  # rows of a list, InfiniteHiP's 3K
SEEN = 0.6  # share of a list that a head sees, if heads have rows of their own


class Heads(NamedTuple):
    """Heads of a layer: HQ, H, D, and the soft cap of its logits."""

    query: int
    kv: int
    size: int
    softcap: float | None = None

    def __str__(self) -> str:
        bent = "" if self.softcap is None else f", softcap {self.softcap:.0f}"
        return f"{self.query}/{self.kv} of {self.size}{bent}"

    def few_on(self, device: torch.device) -> Heads:
        """Return the heads, reduced to one KV head in the interpreter, where each takes seconds."""
        return self if device.type == "cuda" else self._replace(query=self.query // self.kv, kv=1)


LLAMA = Heads(32, 8, 128)  # Llama-3.1-8B
OTHERS = (Heads(28, 4, 128), Heads(32, 32, 96), Heads(16, 8, 256, 50.0))  # Qwen2.5-7B, Phi-3-mini, Gemma-2-9B


class Store(NamedTuple):
    """Layout of slabs.

    Attributes:
        kind: quantised type, None for none.
        host: True for a host tier in pinned memory, quantised in groups. False for kept entries on the device, with
            a scale for each row; the last ones are not quantised yet.
    """

    kind: torch.dtype | None = None
    host: bool = False


KINDS = {"int8": torch.int8, "int4": torch.quint4x2, "fp8": torch.float8_e4m3fn}
ON_DEVICE = "device"
STORES = {
    ON_DEVICE: Store(),
    **{f"device {name}": Store(kind) for name, kind in KINDS.items()},
    "host": Store(host=True),
    **{f"host {name}": Store(kind, host=True) for name, kind in KINDS.items()},
}


@dataclass(frozen=True)
class Inputs:
    """Inputs of attention and column sums: q [HQ, T, D] and its visible rows; lists None for all rows."""

    q: Tensor
    keys: Slabs
    values: Slabs
    span: VisibleRange
    lists: BlockTable | None

    def part(self, count: int) -> Inputs:
        """Return the inputs of the first `count` queries: whole blocks, or all."""
        lists = None if self.lists is None else self.lists.part(0, -(-count // self.lists.block_size))
        return dataclasses.replace(self, q=self.q[:, :count], span=self.span.part(0, count), lists=lists)


class Source:
    """Noise for keys and values of one length in one store, and inputs over it."""

    def __init__(self, device: torch.device, length: int, dtype: torch.dtype, store: str, heads: Heads) -> None:
        """Create the noise; `length` is the number of rows, `store` a name of STORES."""
        self.device, self.length, self.dtype, self.heads = device, length, dtype, heads
        self.store = STORES[store]
        self.generator = torch.Generator(device).manual_seed(length)
        levels = ChannelScale.of(self.noise(heads.kv, GROUP_SIZE, heads.size))
        self.levels = ChannelScale(levels.mean.cpu(), levels.range.cpu()) if self.store.host else levels  # of codes
        self.keys, self.values = self._bank(), self._bank()
        angles = torch.rand(length + SINKS, heads.size // 2, generator=self.generator, device=device) * 6
        self.cos, self.sin = angles.cos(), angles.sin()

    def noise(self, *shape: int) -> Tensor:
        """Return normal noise on the device."""
        return torch.randn(*shape, generator=self.generator, device=self.device, dtype=self.dtype)

    def uniform(self, *shape: int) -> Tensor:
        """Return uniform noise between 0 and 1."""
        return torch.rand(*shape, generator=self.generator, device=self.device)

    def _bank(self) -> Slabs:
        waiting = 0 if self.store.kind is None or self.store.host else min(WAITING, self.length // 2)
        lengths = [min(SLAB, self.length - waiting - at) for at in range(0, self.length - waiting, SLAB)]
        slabs = [(self._slab(self.noise(self.heads.kv, length, self.heads.size)), length) for length in lengths]
        return [*slabs, (self.noise(self.heads.kv, waiting, self.heads.size), waiting)] if waiting else slabs

    def _slab(self, x: Tensor) -> Bank:
        kind, host = self.store
        pinned = pinned_for(host, self.device)
        if kind is None:
            return x.cpu().pin_memory() if pinned else x
        page, place = (GROUP_SIZE, torch.device("cpu")) if host else (1, self.device)
        capacity = -(-x.shape[1] // page) * page
        shape = x.shape[0], capacity, width(kind, x.shape[2])
        codes = torch.empty(shape, dtype=stored(kind), device=place, pin_memory=pinned)
        scale = torch.empty(x.shape[0], capacity // page, device=place, pin_memory=pinned)
        pages = QuantizedSlab(codes, scale, self.levels, kind, x.dtype)
        padded = F.pad(x, (0, 0, 0, capacity - x.shape[1]))
        if pinned:  # a GPU makes the codes, which a processor takes a minute for
            here = ChannelScale(*self.levels.on(self.device))
            made = QuantizedSlab(codes.to(self.device), scale.to(self.device), here, kind, x.dtype)
            made.write(0, padded)
            codes.copy_(made.quantized)
            scale.copy_(made.scale)
        else:
            pages.write(0, padded)
        return pages

    @cached_property
    def exact_keys(self) -> Slabs:
        """Keys in float64 on the device, dequantised if needed."""
        return [(numbers(slab, self.device), length) for slab, length in self.keys]

    @cached_property
    def exact_values(self) -> Slabs:
        """Values in float64 on the device, dequantised if needed."""
        return [(numbers(slab, self.device), length) for slab, length in self.values]

    def exact(self, given: Inputs) -> Inputs:
        """Return the same inputs in float64."""
        lists = given.lists
        if lists is not None:
            lists = dataclasses.replace(lists, cos=lists.cos.double(), sin=lists.sin.double())
        before = [(numbers(slab, self.device), length) for slab, length in given.keys[: -len(self.keys)]]
        keys, values = [*before, *self.exact_keys], [*before, *self.exact_values]
        return Inputs(given.q.double(), keys, values, given.span, lists)

    def chosen(self, count: int, size: int, by_head: bool = False) -> Inputs:
        """Return queries with random rows for each block.

        A host tier has sinks before it, unless each head has rows of its own, as in `recall`.
        """
        keys, values = self.keys, self.values
        if self.store.host and not by_head:
            sinks = min(SINKS, self.length)
            first = (self.noise(self.heads.kv, sinks, self.heads.size), sinks)
            keys, values = [first, *keys], [first, *values]
        rows, blocks = sum(length for _, length in keys), -(-count // size)
        listed = min(CHOSEN, rows)
        index = self.uniform(blocks, rows).topk(listed, dim=1).indices.sort(dim=1).values
        places = torch.arange(listed, device=self.device).expand(blocks, -1).contiguous()
        seen = self.uniform(self.heads.kv, blocks, listed) < SEEN if by_head else None
        end = torch.full((count,), rows, device=self.device)
        lists = BlockTable(index, places, size, self.cos, self.sin, seen)
        return Inputs(self._queries(count), keys, values, VisibleRange(torch.zeros_like(end), end), lists)

    def last(self, count: int, window: int | None = None, listed: bool = False) -> Inputs:
        """Return queries that see all rows up to their own, or the last `window` of them.

        listed: they see the rows through a list of all.
        """
        end = torch.arange(self.length - count, self.length, device=self.device) + 1
        first = torch.zeros_like(end) if window is None else (end - window).clamp_min(0)
        every = torch.arange(self.length, device=self.device)[None]
        lists = BlockTable(every, every, count, self.cos, self.sin) if listed else None
        return Inputs(self._queries(count), self.keys, self.values, VisibleRange(first, end), lists)

    def _queries(self, count: int) -> Tensor:
        return self.noise(self.heads.query, count, self.heads.size)


def pinned_for(host: bool, device: torch.device) -> bool:
    """Return whether slabs of a store lie in pinned memory."""
    return host and device.type == "cuda"


def numbers(slab: Bank, device: torch.device) -> Tensor:
    """Return a slab in float64 [H, capacity, D] on a device, dequantised if needed."""
    if isinstance(slab, Tensor):
        return slab.to(device).double()
    centre, spread = slab.channel_scale.on(device)
    scale = slab.scale.to(device).repeat_interleave(slab.group_size, dim=1)[..., None]
    return unpack(slab.quantized.to(device), slab.kind, torch.float64) * scale * spread[:, None] + centre[:, None]
