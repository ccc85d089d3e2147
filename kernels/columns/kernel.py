"""Column sums of attention probabilities in Triton: one program per tile of keys, block of queries and KV head.

Only one tile of probabilities exists at a time. Signature and meaning are those of `reference.column_sums`. Prefixes:
p_ pointer, b_ loaded value, m_ mask.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attention.kernel import listing
from kernels.attention.visible import BlockTable, VisibleRange
from kernels.launch import Prepared, cdiv
from kernels.rows import Slabs, require_unquantized
from kernels.slab_rows.kernel import (
    CHANGING,
    Layout,
    factor_dtype,
    factors_of,
    load_key,
    logits_of,
    rows_of,
    table,
    widths,
)

QUERIES, FEW_QUERIES = 32, 16  # queries per step; float32 and wide heads take twice the shared memory
TILE, SMALL_TILE = 64, 32  # keys of one program; small for heads wider than 256


@triton.jit(do_not_specialize=CHANGING)
def _column_sums(
    p_q,
    p_rows,
    p_positions,
    p_head_mask,
    p_first,
    p_end,
    p_total,
    p_keys,
    p_key_mean,
    p_key_range,
    p_cos,
    p_sin,
    p_out,
    count,
    size,
    listed,
    rows,
    halvings,
    scaling,
    softcap,
    LISTS: tl.constexpr,
    BY_HEAD: tl.constexpr,
    GROUP: tl.constexpr,
    KEY_FIRST: tl.constexpr,
    KEY_OTHER: tl.constexpr,
    KEY_GROUP_SIZE: tl.constexpr,
    KEY_ALIGN: tl.constexpr,
    DOT: tl.constexpr,
    SIZE: tl.constexpr,
    HALF: tl.constexpr,
    TURN: tl.constexpr,
    HALF_PAD: tl.constexpr,
    REST_PAD: tl.constexpr,
    QUERIES: tl.constexpr,
    TILE: tl.constexpr,
):
    block, head = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    # o_key, b_row, b_position, m_key, m_row: [TILE]
    o_key = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    m_key = o_key < listed
    b_row, b_position = o_key, o_key
    if LISTS:
        b_row = tl.load(p_rows + block * listed + o_key, mask=m_key, other=rows)
        b_position = tl.load(p_positions + block * listed + o_key, mask=m_key, other=0)
    m_row = m_key & (b_row < rows)
    if BY_HEAD:
        o_mask = (head * tl.num_programs(1) + block) * listed + o_key
        m_row = m_row & (tl.load(p_head_mask + o_mask, mask=m_key, other=0) > 0)
    b_row = tl.where(m_row, b_row, 0)
    b_slab, b_in_slab = rows_of(b_row, p_keys, halvings)
    # b_k1, b_k2: [TILE, HALF_PAD], b_k3: [TILE, REST_PAD]
    b_k1, b_k2, b_k3 = load_key(
        b_slab, b_in_slab, head, m_row, p_keys, p_key_mean, p_key_range,
        KEY_FIRST, KEY_OTHER, KEY_GROUP_SIZE, KEY_ALIGN, SIZE, HALF, HALF_PAD, REST_PAD,
    )  # fmt: skip
    b_k1, b_k2, b_k3 = factors_of(b_k1, b_k2, b_k3, m_row, b_position, p_cos, p_sin, DOT, HALF, TURN, HALF_PAD)
    o_half, o_rest = tl.arange(0, HALF_PAD)[None, :], 2 * HALF + tl.arange(0, REST_PAD)[None, :]
    for query_head in range(head * GROUP, (head + 1) * GROUP):
        b_sums = tl.zeros((TILE,), dtype=tl.float32)
        for at in range(0, size, QUERIES):
            # o_query, m_q, b_first, b_end, b_total: [QUERIES]
            o_query = block * size + at + tl.arange(0, QUERIES)
            m_q = (at + tl.arange(0, QUERIES) < size) & (o_query < count)
            p_row = p_q + (query_head * count + o_query[:, None]) * SIZE
            # b_q1, b_q2: [QUERIES, HALF_PAD], b_q3: [QUERIES, REST_PAD]
            b_q1 = tl.load(p_row + o_half, mask=m_q[:, None] & (o_half < HALF), other=0.0).to(DOT)
            b_q2 = tl.load(p_row + HALF + o_half, mask=m_q[:, None] & (o_half < HALF), other=0.0).to(DOT)
            b_q3 = tl.load(p_row + o_rest, mask=m_q[:, None] & (o_rest < SIZE), other=0.0).to(DOT)
            # b_logits, m_seen: [TILE, QUERIES]
            b_logits = logits_of(b_k1, b_k2, b_k3, b_q1, b_q2, b_q3, scaling, softcap, HALF, SIZE)
            b_first = tl.load(p_first + o_query, mask=m_q, other=0)
            b_end = tl.load(p_end + o_query, mask=m_q, other=0)
            b_total = tl.load(p_total + query_head * count + o_query, mask=m_q, other=0.0)
            b_total = tl.where(b_total == float("-inf"), 0.0, b_total)
            m_seen = m_row[:, None] & (b_row[:, None] >= b_first[None, :]) & (b_row[:, None] < b_end[None, :])
            b_sums += tl.sum(tl.where(m_seen, tl.exp(b_logits - b_total[None, :]), 0.0), axis=1)
        tl.store(p_out + (query_head * tl.num_programs(1) + block) * listed + o_key, b_sums, mask=m_key)


def column_sums(
    q: Tensor,
    keys: Slabs,
    span: VisibleRange,
    lists: BlockTable | None,
    total: Tensor,
    scaling: float,
    softcap: float | None = None,
) -> Tensor:
    """Compute `reference.column_sums` in Triton. The slabs must be on the device of q or in pinned host memory."""
    if lists is None:
        require_unquantized(keys)  # raises for quantised slabs
    (query_heads, count, width), heads = q.shape, keys[0][0].shape[0]
    key_table = table(keys, q.device)
    blocks, listed = (1, key_table.rows) if lists is None else lists.rows.shape
    shown = listing(span, lists)
    out = torch.empty(query_heads, blocks, listed, dtype=torch.float32, device=q.device)
    wide = width > 256
    tile, queries = SMALL_TILE if wide else TILE, FEW_QUERIES if wide or q.dtype == torch.float32 else QUERIES
    launch = _prepared(*shown.flags, query_heads // heads, key_table.layout, q.dtype, width, shown.half, queries, tile)
    launch(
        (cdiv(listed, tile), blocks, heads),
        (
            *(q.contiguous(), *shown.pointers, total.float().contiguous(), *key_table.pointers),
            *(*shown.angles, out),
        ),
        (
            *(count, count if lists is None else lists.block_size, listed, key_table.rows, key_table.halvings),
            *(float(scaling), float(softcap or 0.0)),
        ),
    )
    return out


@functools.cache
def _prepared(
    lists: bool,
    by_head: bool,
    group: int,
    keys: Layout,
    dtype: torch.dtype,
    width: int,
    half: int,
    queries: int,
    tile: int,
) -> Prepared:
    constants = {
        **{"LISTS": lists, "BY_HEAD": by_head, "GROUP": group, "DOT": factor_dtype(dtype)},
        **{**keys.constants("KEY"), **widths(width, half), "QUERIES": queries, "TILE": tile},
    }
    return Prepared(_column_sums, constants)
