"""Attention over rows of slabs in Triton: one program per tile of queries, block, KV head and share of the keys.

If there are too few blocks and heads to fill the device (decoding: one query), the keys are split into shares. Each
share gives an output and a log-sum-exp, and a second kernel merges them (split-K, as in FlashDecoding). If the slabs of
keys are also those of values, each row is loaded once, in the three parts of a key.
Signature and meaning are those of `reference.attend`. Prefixes: p_ pointer, b_ loaded value, m_ mask.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attention.visible import BlockTable, VisibleRange
from kernels.launch import Prepared, cdiv, cores_of, power_of_2
from kernels.rows import Slabs, require_unquantized
from kernels.slab_rows.kernel import (
    CHANGING,
    Layout,
    factor_dtype,
    factors_of,
    load_key,
    load_part,
    logits_of,
    padded,
    rows_of,
    table,
    widths,
)

LEAST = 64  # smallest number of keys in a share
DENSE_QUERIES = 64  # query rows of a block without lists
MERGED = 16  # shares merged at a time
PROGRAMS_PER_CORE = 4


@triton.jit(do_not_specialize=CHANGING)
def _attend(
    p_q,
    p_index,
    p_places,
    p_seen,
    p_first,
    p_end,
    p_keys,
    p_key_centre,
    p_key_spread,
    p_values,
    p_value_centre,
    p_value_spread,
    p_cos,
    p_sin,
    p_out,
    p_total,
    count,
    size,
    listed,
    rows,
    per_share,
    shares,
    halvings,
    scaling,
    softcap,
    SAME: tl.constexpr,
    LISTS: tl.constexpr,
    BY_HEAD: tl.constexpr,
    GROUP: tl.constexpr,
    KEY_FIRST: tl.constexpr,
    KEY_OTHER: tl.constexpr,
    KEY_PAGE: tl.constexpr,
    KEY_ALIGN: tl.constexpr,
    VALUE_FIRST: tl.constexpr,
    VALUE_OTHER: tl.constexpr,
    VALUE_PAGE: tl.constexpr,
    VALUE_ALIGN: tl.constexpr,
    DOT: tl.constexpr,
    SIZE: tl.constexpr,
    HALF: tl.constexpr,
    TURN: tl.constexpr,
    HALF_PAD: tl.constexpr,
    REST_PAD: tl.constexpr,
    SIZE_PAD: tl.constexpr,
    QUERIES: tl.constexpr,
    TILE: tl.constexpr,
):
    tile, share = tl.program_id(0) // shares, (tl.program_id(0) % shares).to(tl.int64)
    block, head = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    # Index into the block's queries of all heads of the group. 32 bits: division of 64 bits calls a subroutine.
    number = tile * QUERIES + tl.arange(0, QUERIES)
    query = block * size + number % size
    m_q = (number < GROUP * size) & (query < count)
    row = (head * GROUP + number // size) * count + query
    p_row = p_q + row[:, None] * SIZE
    half, rest = tl.arange(0, HALF_PAD)[None, :], 2 * HALF + tl.arange(0, REST_PAD)[None, :]
    b_q1 = tl.load(p_row + half, mask=m_q[:, None] & (half < HALF), other=0.0).to(DOT)
    b_q2 = tl.load(p_row + HALF + half, mask=m_q[:, None] & (half < HALF), other=0.0).to(DOT)
    b_q3 = tl.load(p_row + rest, mask=m_q[:, None] & (rest < SIZE), other=0.0).to(DOT)
    first = tl.load(p_first + query, mask=m_q, other=0)
    end = tl.load(p_end + query, mask=m_q, other=0)
    lowest = tl.min(tl.where(m_q, first, rows), axis=0)
    highest = tl.minimum(tl.max(end, axis=0), rows)
    begin, stop = share * per_share, tl.minimum((share + 1) * per_share, listed)
    if not LISTS:  # rows are in order, so skip those that no query sees
        begin = tl.maximum(begin, tl.maximum(lowest, 0) // TILE * TILE)
        stop = tl.minimum(stop, highest)

    column = tl.arange(0, SIZE_PAD)
    best = tl.full((QUERIES,), float("-inf"), dtype=tl.float32)
    weight = tl.zeros((QUERIES,), dtype=tl.float32)
    b_out = tl.zeros((QUERIES, REST_PAD if SAME else SIZE_PAD), dtype=tl.float32)
    b_out1 = tl.zeros((QUERIES, HALF_PAD), dtype=tl.float32)  # if values are the keys: the rotated halves
    b_out2 = tl.zeros((QUERIES, HALF_PAD), dtype=tl.float32)
    for at in range(begin, stop, TILE):
        place = at + tl.arange(0, TILE).to(tl.int64)
        index = place
        m_key = place < stop
        if LISTS:
            index = tl.load(p_index + block * listed + place, mask=m_key, other=rows)
            if BY_HEAD:
                seen_at = (head * tl.num_programs(1) + block) * listed + at + tl.arange(0, TILE)
                m_key = m_key & (tl.load(p_seen + seen_at, mask=m_key, other=0) > 0)
            place = tl.load(p_places + block * listed + place, mask=m_key, other=0)
        m_key = m_key & (index >= lowest) & (index < highest)
        index = tl.where(m_key, index, 0)
        slab, in_slab = rows_of(index, p_keys, halvings)
        b_k1, b_k2, b_k3 = load_key(
            slab, in_slab, head, m_key, p_keys, p_key_centre, p_key_spread,
            KEY_FIRST, KEY_OTHER, KEY_PAGE, KEY_ALIGN, SIZE, HALF, HALF_PAD, REST_PAD,
        )  # fmt: skip
        if SAME:
            b_v1, b_v2, b_v = b_k1.to(DOT), b_k2.to(DOT), b_k3.to(DOT)
        else:
            b_v = load_part(  # issued early, to overlap with the load of the keys
                slab, in_slab, head, m_key, column, column < SIZE, p_values, p_value_centre, p_value_spread,
                VALUE_FIRST, VALUE_OTHER, VALUE_PAGE, VALUE_ALIGN, SIZE,
            )  # fmt: skip
        b_k1, b_k2, b_k3 = factors_of(b_k1, b_k2, b_k3, m_key, place, p_cos, p_sin, DOT, HALF, TURN, HALF_PAD)
        logits = logits_of(b_q1, b_q2, b_q3, b_k1, b_k2, b_k3, scaling, softcap, HALF, SIZE)
        seen = m_key[None, :] & (index[None, :] >= first[:, None]) & (index[None, :] < end[:, None])
        logits = tl.where(seen, logits, float("-inf"))
        higher = tl.maximum(best, tl.max(logits, axis=1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        b_p = tl.exp(logits - base[:, None])
        shrink = tl.exp(best - base)
        weight = weight * shrink + tl.sum(b_p, axis=1)
        b_out = tl.dot(b_p.to(DOT), b_v.to(DOT), acc=b_out * shrink[:, None], input_precision="ieee")
        if SAME and HALF > 0:
            b_out1 = tl.dot(b_p.to(DOT), b_v1, acc=b_out1 * shrink[:, None], input_precision="ieee")
            b_out2 = tl.dot(b_p.to(DOT), b_v2, acc=b_out2 * shrink[:, None], input_precision="ieee")
        best = higher

    # p_out: [shares, HQ, T, D], p_total: [shares, HQ, T]
    to = share * tl.num_programs(2) * GROUP * count + row
    some = tl.where(weight > 0, weight, 1.0)[:, None]
    total = tl.where(weight > 0, best + tl.log(tl.where(weight > 0, weight, 1.0)), float("-inf"))
    p_to = p_out + to[:, None] * SIZE
    if SAME:
        tl.store(p_to + rest, b_out / some, mask=m_q[:, None] & (rest < SIZE))
        if HALF > 0:
            tl.store(p_to + half, b_out1 / some, mask=m_q[:, None] & (half < HALF))
            tl.store(p_to + HALF + half, b_out2 / some, mask=m_q[:, None] & (half < HALF))
    else:
        tl.store(p_to + column[None, :], b_out / some, mask=m_q[:, None] & (column < SIZE)[None, :])
    tl.store(p_total + to, total, mask=m_q)


@triton.jit(do_not_specialize=CHANGING)
def _merge(
    p_parts,
    p_totals,
    p_out,
    p_total,
    rows,
    shares,
    SIZE: tl.constexpr,
    SIZE_PAD: tl.constexpr,
    MERGED: tl.constexpr,
):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE_PAD)
    best = tl.full((1,), float("-inf"), dtype=tl.float32)
    whole = tl.zeros((1,), dtype=tl.float32)
    b_out = tl.zeros((SIZE_PAD,), dtype=tl.float32)
    for at in range(0, shares, MERGED):
        share = at + tl.arange(0, MERGED)
        m_share = share < shares
        totals = tl.load(p_totals + share * rows + row, mask=m_share, other=float("-inf"))
        higher = tl.maximum(best, tl.max(totals, axis=0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight, shrink = tl.exp(totals - base), tl.exp(best - base)
        m_part = m_share[:, None] & (column < SIZE)[None, :]
        p_part = p_parts + (share[:, None] * rows + row) * SIZE + column[None, :]
        b_out = b_out * shrink + tl.sum(tl.load(p_part, mask=m_part, other=0.0) * weight[:, None], axis=0)
        whole = whole * shrink + tl.sum(weight, axis=0)
        best = higher
    some = tl.where(whole > 0, whole, 1.0)
    tl.store(p_out + row * SIZE + column, b_out / some, mask=column < SIZE)
    tl.store(p_total + row + tl.arange(0, 1), tl.where(whole > 0, best + tl.log(some), float("-inf")))


class Listing(NamedTuple):
    """Arguments of a kernel that come from spans and lists.

    Attributes:
        pointers: p_index, p_places, p_seen, p_first, p_end.
        angles: p_cos, p_sin.
        half: half of the rotated width.
        flags: constants LISTS and BY_HEAD.
    """

    pointers: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
    angles: tuple[Tensor, Tensor]
    half: int
    flags: tuple[bool, bool]


def listing(span: VisibleRange, lists: BlockTable | None) -> Listing:
    """Return the kernel arguments for a span, with or without lists."""
    first, end = span.start.contiguous(), span.end.contiguous()
    nothing = first  # a valid pointer for unused arguments
    if lists is None:
        return Listing((nothing, nothing, nothing, first, end), (nothing, nothing), 0, (False, False))
    seen = nothing if lists.head_mask is None else lists.head_mask.to(torch.uint8).contiguous()
    cos, sin = (angle.to(end.device, torch.float32).contiguous() for angle in (lists.cos, lists.sin))
    index, places = lists.rows.contiguous(), lists.positions.contiguous()
    return Listing((index, places, seen, first, end), (cos, sin), cos.shape[1], (True, lists.head_mask is not None))


def attend(
    q: Tensor,
    keys: Slabs,
    values: Slabs,
    span: VisibleRange,
    lists: BlockTable | None,
    scaling: float,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute `reference.attend` in Triton. The slabs must be on the device of q or in pinned host memory."""
    if lists is None:
        require_unquantized([*keys, *values])  # raises for quantised slabs
    query_heads, count, width = q.shape
    heads = keys[0][0].shape[0]
    group = query_heads // heads
    key_table, value_table = table(keys, q.device), table(values, q.device)
    listed = key_table.rows if lists is None else lists.rows.shape[1]
    size = min(count, max(1, DENSE_QUERIES // group)) if lists is None else lists.block_size
    blocks = cdiv(count, size)
    same = key_table.slabs is value_table.slabs  # then each row is loaded once
    tiling = tiling_of(group * size, width, q.dtype, key_table.layout.quantized)
    tiles = cdiv(group * size, tiling.queries)
    shares = shares_of(tiles * blocks * heads, listed, q.device)
    shown = listing(span, lists)
    out = torch.empty(
        shares, query_heads, count, width, dtype=q.dtype if shares == 1 else torch.float32, device=q.device
    )
    total = torch.empty(shares, query_heads, count, dtype=torch.float32, device=q.device)
    launch = _prepared(
        same, *shown.flags, group, key_table.layout, value_table.layout, q.dtype, width, shown.half, tiling
    )
    launch(
        (tiles * shares, blocks, heads),
        (q.contiguous(), *shown.pointers, *key_table.pointers, *value_table.pointers, *shown.angles, out, total),
        (
            *(count, size, listed, key_table.rows, cdiv(cdiv(listed, shares), tiling.keys) * tiling.keys, shares),
            *(key_table.halvings, float(scaling), float(softcap or 0.0)),
        ),
    )
    if shares == 1:
        return out[0], total[0]
    merged, whole = torch.empty_like(q, memory_format=torch.contiguous_format), torch.empty_like(total[0])
    _prepared_merge(width)((query_heads * count, 1, 1), (out, total, merged, whole), (query_heads * count, shares))
    return merged, whole


@functools.cache
def _prepared(
    same: bool,
    lists: bool,
    by_head: bool,
    group: int,
    keys: Layout,
    values: Layout,
    dtype: torch.dtype,
    width: int,
    half: int,
    tiling: Tiling,
) -> Prepared:
    constants = {
        **{"SAME": same, "LISTS": lists, "BY_HEAD": by_head, "GROUP": group, "DOT": factor_dtype(dtype)},
        **{**keys.constants("KEY"), **values.constants("VALUE"), **widths(width, half), "SIZE_PAD": padded(width)},
        **{"QUERIES": tiling.queries, "TILE": tiling.keys},
    }
    return Prepared(_attend, constants, num_warps=tiling.warps)


@functools.cache
def _prepared_merge(width: int) -> Prepared:
    return Prepared(_merge, {"SIZE": width, "SIZE_PAD": padded(width), "MERGED": MERGED})


class Tiling(NamedTuple):
    """Tile sizes of a program.

    Attributes:
        queries: query rows, over all heads of a group.
        keys: keys per step.
        warps: warps per program.
    """

    queries: int
    keys: int
    warps: int


@functools.cache
def tiling_of(queries: int, width: int, dtype: torch.dtype, coded: bool) -> Tiling:
    """Return the tile sizes for this many query rows of a block.

    They spill the fewest registers and fit the shared memory of a consumer GPU. A tile holds as many queries as
    possible, because listed rows may be in host memory and are read once per tile.
    """
    if width > 256:
        return Tiling(min(16, padded(queries)), 16 if coded or dtype == torch.float32 else 32, 8)
    if dtype == torch.float32:  # no tensor cores
        return Tiling(min(32, padded(queries)), 16, 8)
    together = min(64 if width > 128 else 128, padded(queries))
    return Tiling(together, 32 if coded else 64, 8 if width > 128 or together >= 64 else 4)


def shares_of(programs: int, listed: int, device: torch.device) -> int:
    """Return the number of shares to split the keys into, a power of two, so that every core of the device has work."""
    wanted = cdiv(PROGRAMS_PER_CORE * cores_of(device), programs)
    return power_of_2(max(1, min(wanted, listed // LEAST)))
