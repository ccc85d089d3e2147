"""Rows of slabs, loaded where they lie: on the device, or in pinned host memory without a copy.

A bank is a table of slabs: address, first row, and distance of heads. All slabs but the first are of one dtype, so
that sinks in the model's own may stand before a host tier in another. A row is loaded in three parts: both halves of
its rotated width (HALF each) and the rest, each padded to a power of two. Prefixes: p_ pointer, b_ loaded value,
m_ mask.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.rows import Fixed, Slabs, plain

DTYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


class Table(NamedTuple):
    """A bank's slabs: addresses, first rows and head strides in elements, on the device; what is known beforehand."""

    pointers: tuple[Tensor, Tensor, Tensor]
    slabs: int
    rows: int
    first_dtype: tl.dtype
    dtype: tl.dtype


def table(slabs: Slabs, device: torch.device) -> Table:
    """The table of a bank; of fixed slabs, always the same one.

    Raises:
        ValueError: slabs behind the first differ in dtype, are in codes, or rows of a slab are not next to one another.
    """
    if not isinstance(slabs, Fixed):
        return _table(slabs, device)
    if device not in slabs.tables:
        slabs.tables[device] = _table(slabs, device)
    found: Table = slabs.tables[device]
    return found


def _table(slabs: Slabs, device: torch.device) -> Table:
    slabs = plain(slabs)
    dtypes = {slab.dtype for slab, _ in slabs[1:]} or {slabs[0][0].dtype}
    if len(dtypes) > 1:
        raise ValueError(f"All slabs but the first are of one dtype, not of {sorted(map(str, dtypes))}.")
    if any(slab.stride()[1:] != (slab.shape[2], 1) for slab, _ in slabs):
        raise ValueError("Rows of a slab lie next to one another: make the slab contiguous.")
    *firsts, rows = itertools.accumulate((length for _, length in slabs), initial=0)
    addresses, strides = (slab.data_ptr() for slab, _ in slabs), (slab.stride(0) for slab, _ in slabs)
    return Table(
        pointers=_pointers(tuple(addresses), tuple(firsts), tuple(strides), device),
        slabs=len(slabs),
        rows=rows,
        first_dtype=DTYPES[slabs[0][0].dtype],
        dtype=DTYPES[dtypes.pop()],
    )


@functools.lru_cache(maxsize=1024)
def _pointers(
    addresses: tuple[int, ...], firsts: tuple[int, ...], strides: tuple[int, ...], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """On the device, in one copy; the same for token after token, as only the last slab grows."""
    sent = torch.tensor([addresses, firsts, strides]).to(device, non_blocking=True)
    return sent[0], sent[1], sent[2]


def padded(width: int) -> int:
    """Columns that a tile takes for so many: a power of two, and enough for a product of matrices."""
    return max(16, int(triton.next_power_of_2(width)))


def widths(size: int, half: int) -> dict[str, int]:
    """Of a row of so many columns, twice `half` of them rotated: the constants by which kernels load it in parts."""
    return {"SIZE": size, "HALF": half, "HALF_PAD": padded(half), "REST_PAD": padded(size - 2 * half)}


def factor_dtype(dtype: torch.dtype) -> tl.dtype:
    """What a product is computed from. The interpreter knows none of bfloat16; as float32 they are the same."""
    return tl.float32 if triton.knobs.runtime.interpret else DTYPES[dtype]


@triton.jit
def addresses_of(index, head, p_firsts, p_strides, slab_count, SIZE: tl.constexpr):
    """Slab and offset in it (in elements) of rows index [TILE] of a head; rows must be in the bank."""
    slab = tl.zeros_like(index)
    for other in range(1, slab_count):
        slab += (index >= tl.load(p_firsts + other)).to(tl.int64)
    row = index - tl.load(p_firsts + slab)
    return slab, head * tl.load(p_strides + slab) + row * SIZE


@triton.jit
def load_part(slab, offset, p_addresses, column, m_part, FIRST: tl.constexpr, REST: tl.constexpr):
    """Columns [TILE, WIDTH] of rows, float32; 0 where m_part [TILE, WIDTH] is False."""
    address = tl.load(p_addresses + slab)
    if FIRST == REST:
        p_row = address.to(tl.pointer_type(REST)) + offset
        return tl.load(p_row[:, None] + column[None, :], mask=m_part, other=0.0).to(tl.float32)
    else:
        m_first = m_part & (slab == 0)[:, None]
        p_first = address.to(tl.pointer_type(FIRST)) + offset
        b_first = tl.load(p_first[:, None] + column[None, :], mask=m_first, other=0.0).to(tl.float32)
        m_rest = m_part & (slab > 0)[:, None]
        p_rest = address.to(tl.pointer_type(REST)) + offset
        return b_first + tl.load(p_rest[:, None] + column[None, :], mask=m_rest, other=0.0).to(tl.float32)


@triton.jit
def load_turned(
    index,
    m_row,
    place,
    head,
    p_addresses,
    p_firsts,
    p_strides,
    slab_count,
    p_cos,
    p_sin,
    FIRST: tl.constexpr,
    REST: tl.constexpr,
    SIZE: tl.constexpr,
    HALF: tl.constexpr,
    HALF_PAD: tl.constexpr,
    REST_PAD: tl.constexpr,
):
    """Keys [TILE, HALF_PAD] twice and [TILE, REST_PAD], float32, turned to their places [TILE]; 0 outside m_row."""
    slab, offset = addresses_of(index, head, p_firsts, p_strides, slab_count, SIZE)
    half = tl.arange(0, HALF_PAD)
    m_half = m_row[:, None] & (half < HALF)[None, :]
    rest = 2 * HALF + tl.arange(0, REST_PAD)
    b_k3 = load_part(slab, offset, p_addresses, rest, m_row[:, None] & (rest < SIZE)[None, :], FIRST, REST)
    b_r1 = tl.zeros((index.shape[0], HALF_PAD), dtype=tl.float32)
    b_r2 = tl.zeros((index.shape[0], HALF_PAD), dtype=tl.float32)
    if HALF > 0:
        b_k1 = load_part(slab, offset, p_addresses, half, m_half, FIRST, REST)
        b_k2 = load_part(slab, offset, p_addresses, HALF + half, m_half, FIRST, REST)
        b_cos = tl.load(p_cos + place[:, None] * HALF + half[None, :], mask=m_half, other=0.0)
        b_sin = tl.load(p_sin + place[:, None] * HALF + half[None, :], mask=m_half, other=0.0)
        b_r1 = b_k1 * b_cos - b_k2 * b_sin
        b_r2 = b_k2 * b_cos + b_k1 * b_sin
    return b_r1, b_r2, b_k3


@triton.jit
def logits_of(b_q1, b_q2, b_q3, b_r1, b_r2, b_k3, scaling, softcap, HALF: tl.constexpr, SIZE: tl.constexpr):
    """Logits [QUERIES, TILE], float32, of queries and turned keys in three parts; softcap 0 for none."""
    logits = tl.zeros((b_q1.shape[0], b_r1.shape[0]), dtype=tl.float32)
    if HALF > 0:
        logits = tl.dot(b_q1, tl.trans(b_r1.to(b_q1.dtype)), acc=logits, input_precision="ieee")
        logits = tl.dot(b_q2, tl.trans(b_r2.to(b_q2.dtype)), acc=logits, input_precision="ieee")
    if SIZE > 2 * HALF:
        logits = tl.dot(b_q3, tl.trans(b_k3.to(b_q3.dtype)), acc=logits, input_precision="ieee")
    logits = logits * scaling
    if softcap > 0:
        logits = softcap * (2 * tl.sigmoid(2 * logits / softcap) - 1)  # the hyperbolic tangent
    return logits
