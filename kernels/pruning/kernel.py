"""Chunk scores by hierarchical top-1 in Triton: one program per query head, query block and tile of chunks.

Keys are read through a table of slab addresses, on the device or from pinned host memory without a copy. A chunk takes
one key at first and at most one more each round: nine keys for a chunk of 256. Copies of keys are slabs behind the
others; the kernel knows their numbers.
Signature and meaning are those of `reference.chunk_scores`. Prefixes: p_ pointer, b_ loaded value, m_ mask.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.bank import state
from kernels.launch import Prepared, cdiv
from kernels.pruning.copies import Copies
from kernels.pruning.positions import KeyPositions
from kernels.rows import QuantizedSlab, Slabs
from kernels.slab_rows.kernel import (
    CHANGING,
    WIDE,
    Layout,
    factor_dtype,
    factors_of,
    load_key,
    logits_of,
    padded,
    rows_of,
    table,
    widths,
)

NOWHERE = tl.constexpr(state.NOWHERE)  # from here on, a place that no chunk has
LEAST_WIDE = 32  # least queries of a program for wide heads: with fewer, registers spill


@triton.jit
def _load(
    index, m_key, head, b_start, b_place, p_slabs, p_mean, p_range, halvings, copied, slabs,
    FIRST: tl.constexpr, OTHER: tl.constexpr, GROUP_SIZE: tl.constexpr, ALIGN: tl.constexpr,
    SIZE: tl.constexpr, HALF: tl.constexpr, HALF_PAD: tl.constexpr, REST_PAD: tl.constexpr,
    EVERY: tl.constexpr, UNIT_GROUP: tl.constexpr,
):  # fmt: skip
    """Load keys index [TILE] in three parts; 0 outside m_key.

    b_start, b_place: first keys of their chunks, and where copies of the chunks begin [TILE].
    """
    index = tl.where(m_key, index, 0)
    slab, row = rows_of(index, p_slabs, halvings)
    group = row // GROUP_SIZE
    if EVERY > 0:
        m_copied = (index < copied) & (index % EVERY == 0)
        slab = tl.where(m_copied, slabs, slab)
        group = tl.where(m_copied, index // GROUP_SIZE, group)
        row = tl.where(m_copied, index // EVERY, row)
    if UNIT_GROUP > 0:
        m_unit = m_key & (b_place < NOWHERE)
        place = tl.where(m_unit, b_place + index - b_start, 0)
        slab = tl.where(m_unit, slabs + 1, slab)
        group = tl.where(m_unit, place // UNIT_GROUP, group)
        row = tl.where(m_unit, place, row)
    return load_key(
        slab, row, head, m_key, p_slabs, p_mean, p_range,
        FIRST, OTHER, GROUP_SIZE, ALIGN, SIZE, HALF, HALF_PAD, REST_PAD, group,
    )  # fmt: skip


@triton.jit
def _best_scores(
    b_q1, b_q2, b_q3, m_q, b_k1, b_k2, b_k3, index, m_key, number, branch, rule, group, offset, p_cos, p_sin,
    SIZE: tl.constexpr, HALF: tl.constexpr, TURN: tl.constexpr, HALF_PAD: tl.constexpr,
):  # fmt: skip
    """Return the highest score [TILE] of each loaded key over the queries of the block."""
    token = (index + offset).to(tl.int32) // group  # 32 bits: division of 64 bits calls a subroutine
    place = tl.where(rule == 3, token, tl.where(rule == 1, branch, 0))
    place = tl.where(rule == 2, number, place)
    b_k1, b_k2, b_k3 = factors_of(b_k1, b_k2, b_k3, m_key, place, p_cos, p_sin, b_q1.dtype, HALF, TURN, HALF_PAD)
    scores = logits_of(b_k1, b_k2, b_k3, b_q1, b_q2, b_q3, 1.0, 0.0, HALF, SIZE)
    return tl.max(tl.where(m_q[None, :], scores, float("-inf")), axis=1)


@triton.jit(do_not_specialize=CHANGING)
def _chunk_scores(
    p_q,
    p_starts,
    p_places,
    p_limits,
    p_rule,
    p_group,
    p_slabs,
    p_mean,
    p_range,
    p_cos,
    p_sin,
    p_out,
    blocks,
    queries,
    chunks,
    size,
    rounds,
    offset,
    halvings,
    copied,
    slabs,
    query_heads,
    heads_per_group,
    KEY_FIRST: tl.constexpr,
    KEY_OTHER: tl.constexpr,
    KEY_GROUP_SIZE: tl.constexpr,
    KEY_ALIGN: tl.constexpr,
    DOT: tl.constexpr,
    SIZE: tl.constexpr,
    HALF: tl.constexpr,
    TURN: tl.constexpr,
    QUERIES_PAD: tl.constexpr,
    HALF_PAD: tl.constexpr,
    REST_PAD: tl.constexpr,
    TILE: tl.constexpr,
    EVERY: tl.constexpr,
    UNIT_GROUP: tl.constexpr,
):
    block, tile = tl.program_id(1).to(tl.int64), tl.program_id(0) // query_heads
    query_head = (tl.program_id(0) % query_heads).to(tl.int64)  # heads of a group, with the same keys, run side by side
    # o_chunk, m_chunk: [TILE], o_query, m_q: [QUERIES_PAD]
    o_chunk = tile.to(tl.int64) * TILE + tl.arange(0, TILE)
    m_chunk = o_chunk < chunks
    o_query = tl.arange(0, QUERIES_PAD)
    m_q = o_query < queries
    p_row = p_q + ((query_head * blocks + block) * queries + o_query[:, None]) * SIZE
    o_half, o_rest = tl.arange(0, HALF_PAD)[None, :], 2 * HALF + tl.arange(0, REST_PAD)[None, :]
    # b_q1, b_q2: [QUERIES_PAD, HALF_PAD], b_q3: [QUERIES_PAD, REST_PAD]
    b_q1 = tl.load(p_row + o_half, mask=m_q[:, None] & (o_half < HALF), other=0.0).to(DOT)
    b_q2 = tl.load(p_row + HALF + o_half, mask=m_q[:, None] & (o_half < HALF), other=0.0).to(DOT)
    b_q3 = tl.load(p_row + o_rest, mask=m_q[:, None] & (o_rest < SIZE), other=0.0).to(DOT)
    rule, group = tl.load(p_rule + block), tl.load(p_group + block).to(tl.int32)
    limit = tl.load(p_limits + block)
    # b_first, b_whole, b_length: [TILE]
    b_first = tl.load(p_starts + block * chunks + o_chunk, mask=m_chunk, other=0)
    b_whole = tl.where(m_chunk, tl.minimum(tl.maximum(limit - b_first, 0), size), 0)
    b_length = b_whole
    b_start, b_place = b_first, b_first
    if UNIT_GROUP > 0:
        b_place = tl.load(p_places + block * chunks + o_chunk, mask=m_chunk, other=NOWHERE)
    head = query_head // heads_per_group
    # b_l1, b_l2: [TILE, HALF_PAD], b_l3: [TILE, REST_PAD]; so are the keys on the right
    b_l1, b_l2, b_l3 = _load(
        b_first, b_length > 0, head, b_start, b_place, p_slabs, p_mean, p_range, halvings, copied, slabs,
        KEY_FIRST, KEY_OTHER, KEY_GROUP_SIZE, KEY_ALIGN, SIZE, HALF, HALF_PAD, REST_PAD, EVERY, UNIT_GROUP,
    )  # fmt: skip
    for _ in range(rounds):
        b_half = (b_length + 1) // 2
        m_right = b_length > b_half
        b_second = b_first + b_half
        b_r1, b_r2, b_r3 = _load(  # issued early, to overlap with the left scores
            b_second, m_right, head, b_start, b_place, p_slabs, p_mean, p_range, halvings, copied, slabs,
            KEY_FIRST, KEY_OTHER, KEY_GROUP_SIZE, KEY_ALIGN, SIZE, HALF, HALF_PAD, REST_PAD, EVERY, UNIT_GROUP,
        )  # fmt: skip
        # b_left, b_right: [TILE]
        b_left = _best_scores(
            b_q1, b_q2, b_q3, m_q, b_l1, b_l2, b_l3, b_first, b_length > 0, o_chunk, 0, rule, group, offset,
            p_cos, p_sin, SIZE, HALF, TURN, HALF_PAD,
        )  # fmt: skip
        b_right = _best_scores(
            b_q1, b_q2, b_q3, m_q, b_r1, b_r2, b_r3, b_second, m_right, o_chunk, 1, rule, group, offset, p_cos, p_sin,
            SIZE, HALF, TURN, HALF_PAD,
        )  # fmt: skip
        m_go_right = m_right & (b_right > b_left)
        b_first = tl.where(m_go_right, b_second, b_first)
        b_length = tl.where(m_go_right, b_length - b_half, b_half)
        b_l1 = tl.where(m_go_right[:, None], b_r1, b_l1)
        b_l2 = tl.where(m_go_right[:, None], b_r2, b_l2)
        b_l3 = tl.where(m_go_right[:, None], b_r3, b_l3)
    b_best = _best_scores(
        b_q1, b_q2, b_q3, m_q, b_l1, b_l2, b_l3, b_first, b_length > 0, o_chunk, 1, rule, group, offset, p_cos, p_sin,
        SIZE, HALF, TURN, HALF_PAD,
    )  # fmt: skip
    p_here = p_out + (query_head * blocks + block) * chunks + o_chunk
    tl.store(p_here, tl.where(b_whole > 0, b_best, float("-inf")), mask=m_chunk)


def chunk_scores(
    q: Tensor,
    slabs: Slabs,
    starts: Tensor,
    limits: Tensor,
    size: int,
    places: KeyPositions,
    copies: Copies | None = None,
) -> Tensor:
    """Compute `reference.chunk_scores` in Triton. The slabs must be on the device of q or in pinned host memory."""
    query_heads, blocks, queries, width = q.shape
    chunks, key_table = starts.shape[1], table(slabs, q.device, () if copies is None else copies.banks)
    tile = tile_of(width, q.dtype, key_table.layout.quantized)
    starts, every, unit_group = starts.contiguous(), 0, 0
    there = starts  # not read without units
    if copies is not None:
        every = copies.every
        if copies.units is not None and copies.places is not None:
            unit_group = copies.units.group_size if isinstance(copies.units, QuantizedSlab) else 1
            there = copies.places.contiguous()
    out = torch.empty(query_heads, blocks, chunks, dtype=torch.float32, device=q.device)
    launch = _prepared(key_table.layout, q.dtype, width, places.cos.shape[1], queries, tile, every, unit_group)
    launch(
        (cdiv(chunks, tile) * query_heads, blocks, 1),
        (
            *(q.contiguous(), starts, there, limits.contiguous()),
            *(places.rule.contiguous(), places.group.contiguous(), *key_table.pointers),
            *(places.cos.float().contiguous(), places.sin.float().contiguous(), out),
        ),
        (
            *(blocks, queries, chunks, size, (size - 1).bit_length(), places.offset, key_table.halvings),
            *((0, 0) if copies is None else (copies.count, len(slabs))),
            *(query_heads, query_heads // slabs[0][0].shape[0]),
        ),
    )
    return out.amax(dim=0)


@functools.cache
def _prepared(
    keys: Layout, dtype: torch.dtype, width: int, half: int, queries: int, tile: int, every: int, unit_group: int
) -> Prepared:
    constants = {
        **{**keys.constants("KEY"), "DOT": factor_dtype(dtype), **widths(width, half), "TILE": tile},
        "QUERIES_PAD": max(LEAST_WIDE if width > WIDE else 0, padded(queries)),
        "EVERY": every,
        "UNIT_GROUP": unit_group,
    }
    return Prepared(_chunk_scores, constants, num_warps=8 if width > WIDE else 4)


def tile_of(width: int, dtype: torch.dtype, quantized: bool) -> int:
    """Return the chunks per program: as many as possible with few or no spilled registers."""
    return 16 if width > 128 or quantized or dtype == torch.float32 else 32  # float32 has no tensor cores
