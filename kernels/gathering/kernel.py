"""Gathering of entries in Triton: one program per tile of rows and KV head; each row is read and written once.

Signatures and meaning are those of `reference.py`. Prefixes: p_ pointer, b_ loaded value, m_ mask.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.gathering.buffers import EntryBuffers
from kernels.launch import Prepared, cdiv
from kernels.rows import Slabs
from kernels.slab_rows.kernel import CHANGING, Layout, load_key, load_part, padded, rows_of, table, turn, widths

TILE = 32  # rows per program


@triton.jit
def _copy(
    slab, row, head, m_row, to, p_slabs, p_mean, p_range, p_out,
    FIRST: tl.constexpr, OTHER: tl.constexpr, GROUP_SIZE: tl.constexpr, ALIGN: tl.constexpr,
    SIZE: tl.constexpr, SIZE_PAD: tl.constexpr,
):  # fmt: skip
    """Copy a head's rows [TILE] to the offsets `to` [TILE, 1] of p_out."""
    column = tl.arange(0, SIZE_PAD)
    b_x = load_part(
        slab, row, head, m_row, column, column < SIZE, p_slabs, p_mean, p_range, FIRST, OTHER, GROUP_SIZE, ALIGN, SIZE
    )
    tl.store(p_out + to + column[None, :], b_x, mask=m_row[:, None] & (column < SIZE)[None, :])


@triton.jit(do_not_specialize=CHANGING)
def _gather(
    p_index,
    p_keys,
    p_key_mean,
    p_key_range,
    p_values,
    p_value_mean,
    p_value_range,
    p_cos,
    p_sin,
    p_kept_keys,
    p_kept_rotated,
    p_kept_values,
    count,
    capacity,
    halvings,
    KEY_FIRST: tl.constexpr,
    KEY_OTHER: tl.constexpr,
    KEY_GROUP_SIZE: tl.constexpr,
    KEY_ALIGN: tl.constexpr,
    VALUE_FIRST: tl.constexpr,
    VALUE_OTHER: tl.constexpr,
    VALUE_GROUP_SIZE: tl.constexpr,
    VALUE_ALIGN: tl.constexpr,
    SIZE: tl.constexpr,
    HALF: tl.constexpr,
    TURN: tl.constexpr,
    HALF_PAD: tl.constexpr,
    REST_PAD: tl.constexpr,
    SIZE_PAD: tl.constexpr,
    VALUES: tl.constexpr,
    TILE: tl.constexpr,
):
    # o_row, m_row, b_index: [TILE], o_out: [TILE, 1]
    o_row, head = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE), tl.program_id(1).to(tl.int64)
    m_row = o_row < count
    b_index = tl.load(p_index + head * count + o_row, mask=m_row, other=0)
    o_out = (head * capacity + o_row)[:, None] * SIZE
    b_slab, b_in_slab = rows_of(b_index, p_keys, halvings)
    # b_k1, b_k2, b_r1, b_r2: [TILE, HALF_PAD], b_k3: [TILE, REST_PAD]
    b_k1, b_k2, b_k3 = load_key(
        b_slab, b_in_slab, head, m_row, p_keys, p_key_mean, p_key_range,
        KEY_FIRST, KEY_OTHER, KEY_GROUP_SIZE, KEY_ALIGN, SIZE, HALF, HALF_PAD, REST_PAD,
    )  # fmt: skip
    if HALF > 0:
        o_half = tl.arange(0, HALF_PAD)
        m_half = m_row[:, None] & (o_half < HALF)[None, :]
        b_r1, b_r2 = b_k1, b_k2
        if TURN:
            b_r1, b_r2 = turn(b_k1, b_k2, m_row, o_row, p_cos, p_sin, HALF, HALF_PAD)
        tl.store(p_kept_keys + o_out + o_half[None, :], b_k1, mask=m_half)
        tl.store(p_kept_keys + o_out + HALF + o_half[None, :], b_k2, mask=m_half)
        tl.store(p_kept_rotated + o_out + o_half[None, :], b_r1, mask=m_half)
        tl.store(p_kept_rotated + o_out + HALF + o_half[None, :], b_r2, mask=m_half)
    if SIZE > 2 * HALF:
        o_rest = 2 * HALF + tl.arange(0, REST_PAD)
        m_rest = m_row[:, None] & (o_rest < SIZE)[None, :]
        tl.store(p_kept_keys + o_out + o_rest[None, :], b_k3, mask=m_rest)
        tl.store(p_kept_rotated + o_out + o_rest[None, :], b_k3, mask=m_rest)
    if VALUES:
        _copy(
            b_slab, b_in_slab, head, m_row, o_out, p_values, p_value_mean, p_value_range, p_kept_values,
            VALUE_FIRST, VALUE_OTHER, VALUE_GROUP_SIZE, VALUE_ALIGN, SIZE, SIZE_PAD,
        )  # fmt: skip


@triton.jit(do_not_specialize=CHANGING)
def _take(
    p_index,
    p_slabs,
    p_mean,
    p_range,
    p_out,
    count,
    halvings,
    ROW_FIRST: tl.constexpr,
    ROW_OTHER: tl.constexpr,
    ROW_GROUP_SIZE: tl.constexpr,
    ROW_ALIGN: tl.constexpr,
    SIZE: tl.constexpr,
    SIZE_PAD: tl.constexpr,
    TILE: tl.constexpr,
):
    # o_row, m_row: [TILE]
    o_row, head = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE), tl.program_id(1).to(tl.int64)
    m_row = o_row < count
    b_slab, b_in_slab = rows_of(tl.load(p_index + head * count + o_row, mask=m_row, other=0), p_slabs, halvings)
    _copy(
        b_slab, b_in_slab, head, m_row, (head * count + o_row)[:, None] * SIZE, p_slabs, p_mean, p_range, p_out,
        ROW_FIRST, ROW_OTHER, ROW_GROUP_SIZE, ROW_ALIGN, SIZE, SIZE_PAD,
    )  # fmt: skip


def gather(keys: Slabs, values: Slabs, index: Tensor, cos: Tensor, sin: Tensor, buffers: EntryBuffers) -> None:
    """Run `reference.gather` in Triton. The slabs must be on the device of the index or in pinned host memory."""
    heads, count = index.shape
    _, capacity, width = buffers.keys.shape
    key_table, value_table = table(keys, index.device), table(values, index.device)
    _prepared_gather(key_table.layout, value_table.layout, width, cos.shape[1], len(buffers.values) > 0)(
        (cdiv(count, TILE), heads, 1),
        (
            *(index.contiguous(), *key_table.pointers, *value_table.pointers),
            *(angle.to(index.device, torch.float32).contiguous() for angle in (cos, sin)),
            *(buffers.keys, buffers.rotated, buffers.values),
        ),
        (count, capacity, key_table.halvings),
    )


def gather_rows(slabs: Slabs, index: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Compute `reference.gather_rows` in Triton. The slabs must be on the device or in pinned host memory."""
    index = index.to(device, non_blocking=True)
    heads, count = index.shape
    rows, width = table(slabs, device), slabs[0][0].shape[2]
    out = torch.empty(heads, count, width, dtype=dtype, device=device)
    _prepared_take(rows.layout, width)(
        (cdiv(count, TILE), heads, 1), (index.contiguous(), *rows.pointers, out), (count, rows.halvings)
    )
    return out


@functools.cache
def _prepared_gather(keys: Layout, values: Layout, width: int, half: int, with_values: bool) -> Prepared:
    constants = {
        **{**keys.constants("KEY"), **values.constants("VALUE"), **widths(width, half)},
        **{"SIZE_PAD": padded(width), "VALUES": with_values, "TILE": TILE},
    }
    return Prepared(_gather, constants)


@functools.cache
def _prepared_take(rows: Layout, width: int) -> Prepared:
    return Prepared(_take, {**rows.constants("ROW"), "SIZE": width, "SIZE_PAD": padded(width), "TILE": TILE})
