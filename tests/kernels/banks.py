"""Make small banks of keys and values in three slabs, and block tables over them, for the tests of the kernels."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from kernels.attention import BlockTable, VisibleRange
from kernels.quantise import KINDS, stored, unpack, width
from kernels.rows import GROUP_SIZE, Bank, ChannelScale, QuantizedSlab, Slabs

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KIND_NAMES = {torch.int8: "int8", torch.quint4x2: "int4", torch.float8_e4m3fn: "fp8", torch.quint2x4: "int2"}
every_kind = pytest.mark.parametrize("kind", KINDS, ids=KIND_NAMES.get)
ROWS = (5, 63, 43)  # sinks, and two slabs behind them


@dataclass(frozen=True)
class Case:
    """The arguments of attention in one dtype."""

    q: Tensor
    keys: Slabs
    values: Slabs
    span: VisibleRange
    lists: BlockTable | None

    def wide(self) -> Case:
        """Return this case in float64."""
        lists = self.lists
        if lists is not None:
            lists = dataclasses.replace(lists, cos=lists.cos.double(), sin=lists.sin.double())
        return Case(self.q.double(), wide(self.keys), wide(self.values), self.span, lists)


@dataclass(frozen=True)
class Coding:
    """The quantisation of a case: `group_size` rows share a scale, in slabs whose `coded` is True."""

    kind: torch.dtype
    group_size: int = GROUP_SIZE
    coded: tuple[bool, ...] = (False, True, True)


def wide(slabs: Slabs) -> Slabs:
    """Return the slabs in float64, dequantised."""
    return [(slab.double() if isinstance(slab, Tensor) else numbers(slab), length) for slab, length in slabs]


def numbers(pages: QuantizedSlab) -> Tensor:
    """Return a quantised slab as numbers, float64 [H, capacity, D]."""
    scale = pages.scale.double().repeat_interleave(pages.group_size, dim=1)[..., None]
    return (
        unpack(pages.quantized, pages.kind, torch.float64) * scale * pages.channel_scale.range.double()[:, None]
        + pages.channel_scale.mean.double()[:, None]
    )


def slab_of(x: Tensor, spare: int, coding: Coding | None = None, levels: ChannelScale | None = None) -> Bank:
    """Return a slab of rows x [H, N, D] and at least `spare` more, which hold NaN or codes that nobody should read."""
    heads, length, size = x.shape
    if coding is None or levels is None:
        return torch.cat([x, x.new_full((heads, spare, size), float("nan"))], dim=1)
    capacity = -(-(length + spare) // coding.group_size) * coding.group_size
    codes = torch.empty(heads, capacity, width(coding.kind, size), dtype=stored(coding.kind), device=x.device)
    pages = QuantizedSlab(
        codes, torch.empty(heads, capacity // coding.group_size, device=x.device), levels, coding.kind, x.dtype
    )
    pages.write(0, torch.cat([x, x.new_zeros(heads, capacity - length, size)], dim=1))
    codes.view(torch.uint8)[:, length:] = 0x7F  # NaN in 8-bit floats
    pages.scale[:, -(-length // coding.group_size) :] = float("nan")
    return pages


def case(
    heads: tuple[int, int],
    size: int,
    half: int,
    dtype: torch.dtype,
    count: int = 21,
    block: int = 0,
    listed: int = 37,
    sinks: torch.dtype | None = None,
    by_head: bool = False,
    coding: Coding | None = None,
) -> Case:
    """Return `count` queries over 111 rows, with NaN behind the rows that count.

    Each block's table lists sinks, rows chosen at random, empty places, and the rows up to the queries' own. Each query
    sees the rows before its own. Without a table, each query sees a window of 30 rows.

    Args:
        heads: query heads and KV heads.
        size: head size.
        half: half of the rotated width.
        dtype: dtype of queries, keys and values.
        count: queries.
        block: queries per block; the last block may be short; 0 for no table.
        listed: rows listed for each block.
        sinks: dtype of the first slab; None for `dtype`.
        by_head: whether the table hides other rows from each head.
        coding: quantisation of the slabs.
    """
    generator = torch.Generator().manual_seed(size + count + block)

    def random(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.randn(*shape, generator=generator).to(DEVICE, dtype)

    def bank() -> Slabs:
        slabs: list[tuple[Bank, int]] = []
        levels = ChannelScale(*(random(heads[1], size).float().abs() + 0.5 for _ in range(2))) if coding else None
        for number, length in enumerate(ROWS):
            own = sinks if sinks is not None and number == 0 else dtype
            how = coding if coding is not None and coding.coded[number] else None
            slabs.append((slab_of(random(heads[1], length, size, dtype=own), 3 * number, how, levels), length))
        return slabs

    rows = sum(ROWS)
    end = torch.arange(rows - count, rows, device=DEVICE) + 1
    if not block:
        return Case(random(heads[0], count, size), bank(), bank(), VisibleRange(end - 30, end), None)
    blocks = -(-count // block)
    index = torch.full((blocks, listed), 1 << 60)
    places = torch.randint(0, 200, (blocks, listed), generator=generator)
    for number in range(blocks):
        first = rows - count + number * block
        last = min(first + block, rows)
        chosen = torch.randperm(first - ROWS[0], generator=generator)[: listed - ROWS[0] - block - 3] + ROWS[0]
        own = torch.cat([torch.arange(ROWS[0]), chosen.sort().values])
        index[number, : len(own)] = own
        index[number, listed - (last - first) :] = torch.arange(first, last)
    angles = torch.rand(200, half, generator=generator).to(DEVICE) * 6
    seen = torch.rand(heads[1], blocks, listed, generator=generator).to(DEVICE) > 0.4 if by_head else None
    lists = BlockTable(index.to(DEVICE), places.to(DEVICE), block, angles.cos(), angles.sin(), seen)
    return Case(random(heads[0], count, size), bank(), bank(), VisibleRange(torch.zeros_like(end), end), lists)


def plainly(case: Case, scaling: float, softcap: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return output, log-sum-exp and probabilities [HQ, T, rows], computed in loops over queries and heads."""
    keys, values = (torch.cat([slab[:, :length] for slab, length in bank], dim=1) for bank in (case.keys, case.values))
    query_heads, count, _ = case.q.shape
    group = query_heads // keys.shape[0]
    outputs, totals = torch.zeros_like(case.q), torch.full((query_heads, count), float("-inf")).to(case.q)
    given = torch.zeros(query_heads, count, keys.shape[1]).to(case.q)
    for query in range(count):
        rows = torch.arange(keys.shape[1], device=DEVICE)
        place = None
        if case.lists is not None:
            rows, place = (
                case.lists.rows[query // case.lists.block_size],
                case.lists.positions[query // case.lists.block_size],
            )
        seen = (rows >= case.span.start[query]) & (rows < case.span.end[query])
        if not seen.any():
            continue
        shown, every = seen, rows
        for head in range(query_heads):
            if case.lists is not None and case.lists.head_mask is not None:
                seen = shown & case.lists.head_mask[head // group, query // case.lists.block_size]
            rows = every[seen]
            k = keys[head // group, rows]
            if place is not None and case.lists is not None:
                cos, sin = case.lists.cos[place[seen]], case.lists.sin[place[seen]]
                half = cos.shape[1]
                a, b = k[:, :half], k[:, half : 2 * half]
                k = torch.cat([a * cos - b * sin, b * cos + a * sin, k[:, 2 * half :]], dim=1)
            logits = k @ case.q[head, query] * scaling
            if softcap is not None:
                logits = torch.tanh(logits / softcap) * softcap
            totals[head, query] = logits.logsumexp(0)
            weights = logits.softmax(0)
            given[head, query].index_add_(0, rows, weights)
            outputs[head, query] = weights @ values[head // group, rows]
    return outputs, totals, given


def by_row(given: Case, found: Tensor) -> Tensor:
    """Return sums [HQ, rows] of the bank from sums [HQ, NB, N] of a block table."""
    if given.lists is None:
        return found[:, 0]
    index = given.lists.rows.clamp_max(111).flatten()
    return found.new_zeros(len(found), 112).index_add_(1, index, found.flatten(1))[:, :111]
