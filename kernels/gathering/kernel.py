"""Gathering of kept entries in Triton: one program per tile of rows and KV head, each row read and written once.

Signature and meaning are those of `reference.gather`. Prefixes: p_ pointer, b_ loaded value, m_ mask.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.gathering.reference import Room
from kernels.paged.kernel import addresses_of, load_part, padded, table, widths
from kernels.rows import Slabs

TILE = 32  # rows per program


@triton.jit
def _gather(
    p_index,
    p_keys,
    p_key_firsts,
    p_key_strides,
    p_values,
    p_value_firsts,
    p_value_strides,
    p_cos,
    p_sin,
    p_kept_keys,
    p_kept_rotated,
    p_kept_values,
    count,
    capacity,
    slab_count,
    KEY_FIRST: tl.constexpr,
    KEY: tl.constexpr,
    VALUE_FIRST: tl.constexpr,
    VALUE: tl.constexpr,
    SIZE: tl.constexpr,
    HALF: tl.constexpr,
    HALF_PAD: tl.constexpr,
    REST_PAD: tl.constexpr,
    SIZE_PAD: tl.constexpr,
    TILE: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE), tl.program_id(1).to(tl.int64)
    m_row = row < count
    index = tl.load(p_index + head * count + row, mask=m_row, other=0)
    to = (head * capacity + row)[:, None] * SIZE
    slab, offset = addresses_of(index, head, p_key_firsts, p_key_strides, slab_count, SIZE)
    if HALF > 0:
        half = tl.arange(0, HALF_PAD)
        m_half = m_row[:, None] & (half < HALF)[None, :]
        b_k1 = load_part(slab, offset, p_keys, half, m_half, KEY_FIRST, KEY)
        b_k2 = load_part(slab, offset, p_keys, HALF + half, m_half, KEY_FIRST, KEY)
        b_cos = tl.load(p_cos + row[:, None] * HALF + half[None, :], mask=m_half, other=0.0)
        b_sin = tl.load(p_sin + row[:, None] * HALF + half[None, :], mask=m_half, other=0.0)
        tl.store(p_kept_keys + to + half[None, :], b_k1, mask=m_half)
        tl.store(p_kept_keys + to + HALF + half[None, :], b_k2, mask=m_half)
        tl.store(p_kept_rotated + to + half[None, :], b_k1 * b_cos - b_k2 * b_sin, mask=m_half)
        tl.store(p_kept_rotated + to + HALF + half[None, :], b_k2 * b_cos + b_k1 * b_sin, mask=m_half)
    if SIZE > 2 * HALF:
        rest = 2 * HALF + tl.arange(0, REST_PAD)
        m_rest = m_row[:, None] & (rest < SIZE)[None, :]
        b_k3 = load_part(slab, offset, p_keys, rest, m_rest, KEY_FIRST, KEY)
        tl.store(p_kept_keys + to + rest[None, :], b_k3, mask=m_rest)
        tl.store(p_kept_rotated + to + rest[None, :], b_k3, mask=m_rest)
    column = tl.arange(0, SIZE_PAD)
    m_value = m_row[:, None] & (column < SIZE)[None, :]
    slab, offset = addresses_of(index, head, p_value_firsts, p_value_strides, slab_count, SIZE)
    b_v = load_part(slab, offset, p_values, column, m_value, VALUE_FIRST, VALUE)
    tl.store(p_kept_values + to + column[None, :], b_v, mask=m_value)


def gather(keys: Slabs, values: Slabs, index: Tensor, cos: Tensor, sin: Tensor, room: Room) -> None:
    """See `reference.gather`. The slabs must be where the index is, or in pinned host memory."""
    heads, count = index.shape
    _, capacity, width = room.keys.shape
    key_table, value_table = table(keys, index.device), table(values, index.device)
    _gather[(triton.cdiv(count, TILE), heads)](
        index.contiguous(),
        *key_table.pointers,
        *value_table.pointers,
        cos.to(index.device, torch.float32).contiguous(),
        sin.to(index.device, torch.float32).contiguous(),
        room.keys,
        room.rotated,
        room.values,
        count,
        capacity,
        key_table.slabs,
        KEY_FIRST=key_table.first_dtype,
        KEY=key_table.dtype,
        VALUE_FIRST=value_table.first_dtype,
        VALUE=value_table.dtype,
        **widths(width, cos.shape[1]),
        SIZE_PAD=padded(width),
        TILE=TILE,
    )
