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
    p_rows,
    p_positions,
    p_head_mask,
    p_first,
    p_end,
    p_keys,
    p_key_mean,
    p_key_range,
    p_values,
    p_value_mean,
    p_value_range,
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
    KEY_GROUP_SIZE: tl.constexpr,
    KEY_ALIGN: tl.constexpr,
    VALUE_FIRST: tl.constexpr,
    VALUE_OTHER: tl.constexpr,
    VALUE_GROUP_SIZE: tl.constexpr,
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
    # o_number, o_query, o_row, m_q: [QUERIES]
    o_number = tile * QUERIES + tl.arange(0, QUERIES)
    o_query = block * size + o_number % size
    m_q = (o_number < GROUP * size) & (o_query < count)
    o_row = (head * GROUP + o_number // size) * count + o_query
    p_row = p_q + o_row[:, None] * SIZE
    o_half, o_rest = tl.arange(0, HALF_PAD)[None, :], 2 * HALF + tl.arange(0, REST_PAD)[None, :]
    # b_q1, b_q2: [QUERIES, HALF_PAD], b_q3: [QUERIES, REST_PAD]
    b_q1 = tl.load(p_row + o_half, mask=m_q[:, None] & (o_half < HALF), other=0.0).to(DOT)
    b_q2 = tl.load(p_row + HALF + o_half, mask=m_q[:, None] & (o_half < HALF), other=0.0).to(DOT)
    b_q3 = tl.load(p_row + o_rest, mask=m_q[:, None] & (o_rest < SIZE), other=0.0).to(DOT)
    # b_first, b_end: [QUERIES]
    b_first = tl.load(p_first + o_query, mask=m_q, other=0)
    b_end = tl.load(p_end + o_query, mask=m_q, other=0)
    lowest = tl.min(tl.where(m_q, b_first, rows), axis=0)
    highest = tl.minimum(tl.max(b_end, axis=0), rows)
    begin, stop = share * per_share, tl.minimum((share + 1) * per_share, listed)
    if not LISTS:  # rows are in order, so skip those that no query sees
        begin = tl.maximum(begin, tl.maximum(lowest, 0) // TILE * TILE)
        stop = tl.minimum(stop, highest)

    o_column = tl.arange(0, SIZE_PAD)
    # b_max, b_sum: [QUERIES], b_out: [QUERIES, SIZE_PAD], b_out1, b_out2: [QUERIES, HALF_PAD]
    b_max = tl.full((QUERIES,), float("-inf"), dtype=tl.float32)
    b_sum = tl.zeros((QUERIES,), dtype=tl.float32)
    b_out = tl.zeros((QUERIES, REST_PAD if SAME else SIZE_PAD), dtype=tl.float32)
    b_out1 = tl.zeros((QUERIES, HALF_PAD), dtype=tl.float32)  # if values are the keys: the rotated halves
    b_out2 = tl.zeros((QUERIES, HALF_PAD), dtype=tl.float32)
    for at in range(begin, stop, TILE):
        # b_position, b_row, m_key: [TILE]
        b_position = at + tl.arange(0, TILE).to(tl.int64)
        b_row = b_position
        m_key = b_position < stop
        if LISTS:
            b_row = tl.load(p_rows + block * listed + b_position, mask=m_key, other=rows)
            if BY_HEAD:
                o_mask = (head * tl.num_programs(1) + block) * listed + at + tl.arange(0, TILE)
                m_key = m_key & (tl.load(p_head_mask + o_mask, mask=m_key, other=0) > 0)
            b_position = tl.load(p_positions + block * listed + b_position, mask=m_key, other=0)
        m_key = m_key & (b_row >= lowest) & (b_row < highest)
        b_row = tl.where(m_key, b_row, 0)
        b_slab, b_in_slab = rows_of(b_row, p_keys, halvings)
        # b_k1, b_k2: [TILE, HALF_PAD], b_k3: [TILE, REST_PAD]
        b_k1, b_k2, b_k3 = load_key(
            b_slab, b_in_slab, head, m_key, p_keys, p_key_mean, p_key_range,
            KEY_FIRST, KEY_OTHER, KEY_GROUP_SIZE, KEY_ALIGN, SIZE, HALF, HALF_PAD, REST_PAD,
        )  # fmt: skip
        if SAME:
            b_v1, b_v2, b_v = b_k1.to(DOT), b_k2.to(DOT), b_k3.to(DOT)
        else:
            # b_v: [TILE, SIZE_PAD]
            b_v = load_part(  # issued early, to overlap with the load of the keys
                b_slab, b_in_slab, head, m_key, o_column, o_column < SIZE, p_values, p_value_mean, p_value_range,
                VALUE_FIRST, VALUE_OTHER, VALUE_GROUP_SIZE, VALUE_ALIGN, SIZE,
            )  # fmt: skip
        b_k1, b_k2, b_k3 = factors_of(b_k1, b_k2, b_k3, m_key, b_position, p_cos, p_sin, DOT, HALF, TURN, HALF_PAD)
        # b_logits, m_seen, b_p: [QUERIES, TILE]
        b_logits = logits_of(b_q1, b_q2, b_q3, b_k1, b_k2, b_k3, scaling, softcap, HALF, SIZE)
        m_seen = m_key[None, :] & (b_row[None, :] >= b_first[:, None]) & (b_row[None, :] < b_end[:, None])
        b_logits = tl.where(m_seen, b_logits, float("-inf"))
        b_higher = tl.maximum(b_max, tl.max(b_logits, axis=1))
        b_base = tl.where(b_higher == float("-inf"), 0.0, b_higher)
        b_p = tl.exp(b_logits - b_base[:, None])
        b_shrink = tl.exp(b_max - b_base)
        b_sum = b_sum * b_shrink + tl.sum(b_p, axis=1)
        b_out = tl.dot(b_p.to(DOT), b_v.to(DOT), acc=b_out * b_shrink[:, None], input_precision="ieee")
        if SAME and HALF > 0:
            b_out1 = tl.dot(b_p.to(DOT), b_v1, acc=b_out1 * b_shrink[:, None], input_precision="ieee")
            b_out2 = tl.dot(b_p.to(DOT), b_v2, acc=b_out2 * b_shrink[:, None], input_precision="ieee")
        b_max = b_higher

    # p_out: [shares, HQ, T, D], p_total: [shares, HQ, T]
    o_out = share * tl.num_programs(2) * GROUP * count + o_row
    b_some = tl.where(b_sum > 0, b_sum, 1.0)[:, None]
    b_total = tl.where(b_sum > 0, b_max + tl.log(tl.where(b_sum > 0, b_sum, 1.0)), float("-inf"))
    p_to = p_out + o_out[:, None] * SIZE
    if SAME:
        tl.store(p_to + o_rest, b_out / b_some, mask=m_q[:, None] & (o_rest < SIZE))
        if HALF > 0:
            tl.store(p_to + o_half, b_out1 / b_some, mask=m_q[:, None] & (o_half < HALF))
            tl.store(p_to + HALF + o_half, b_out2 / b_some, mask=m_q[:, None] & (o_half < HALF))
    else:
        tl.store(p_to + o_column[None, :], b_out / b_some, mask=m_q[:, None] & (o_column < SIZE)[None, :])
    tl.store(p_total + o_out, b_total, mask=m_q)


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
    # o_column: [SIZE_PAD]; one row of queries and heads a program
    row, o_column = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE_PAD)
    b_max = tl.full((1,), float("-inf"), dtype=tl.float32)
    b_sum = tl.zeros((1,), dtype=tl.float32)
    b_out = tl.zeros((SIZE_PAD,), dtype=tl.float32)
    for at in range(0, shares, MERGED):
        o_share = at + tl.arange(0, MERGED)
        m_share = o_share < shares
        # b_totals, b_weight: [MERGED], m_part, p_part: [MERGED, SIZE_PAD]
        b_totals = tl.load(p_totals + o_share * rows + row, mask=m_share, other=float("-inf"))
        b_higher = tl.maximum(b_max, tl.max(b_totals, axis=0))
        b_base = tl.where(b_higher == float("-inf"), 0.0, b_higher)
        b_weight, b_shrink = tl.exp(b_totals - b_base), tl.exp(b_max - b_base)
        m_part = m_share[:, None] & (o_column < SIZE)[None, :]
        p_part = p_parts + (o_share[:, None] * rows + row) * SIZE + o_column[None, :]
        b_out = b_out * b_shrink + tl.sum(tl.load(p_part, mask=m_part, other=0.0) * b_weight[:, None], axis=0)
        b_sum = b_sum * b_shrink + tl.sum(b_weight, axis=0)
        b_max = b_higher
    b_some = tl.where(b_sum > 0, b_sum, 1.0)
    tl.store(p_out + row * SIZE + o_column, b_out / b_some, mask=o_column < SIZE)
    tl.store(p_total + row + tl.arange(0, 1), tl.where(b_sum > 0, b_max + tl.log(b_some), float("-inf")))


class Listing(NamedTuple):
    """Arguments of a kernel that come from spans and lists.

    Attributes:
        pointers: p_rows, p_positions, p_head_mask, p_first, p_end.
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
def tiling_of(queries: int, width: int, dtype: torch.dtype, quantized: bool) -> Tiling:
    """Return the tile sizes for this many query rows of a block.

    They spill the fewest registers and fit the shared memory of a consumer GPU. A tile holds as many queries as
    possible, because listed rows may be in host memory and are read once per tile.
    """
    if width > 256:
        return Tiling(min(16, padded(queries)), 16 if quantized or dtype == torch.float32 else 32, 8)
    if dtype == torch.float32:  # no tensor cores
        return Tiling(min(32, padded(queries)), 16, 8)
    together = min(64 if width > 128 else 128, padded(queries))
    return Tiling(together, 32 if quantized else 64, 8 if width > 128 or together >= 64 else 4)


def shares_of(programs: int, listed: int, device: torch.device) -> int:
    """Return the number of shares to split the keys into, a power of two, so that every core of the device has work."""
    wanted = cdiv(PROGRAMS_PER_CORE * cores_of(device), programs)
    return power_of_2(max(1, min(wanted, listed // LEAST)))
