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
    slab, row, head, m_row, to, p_slabs, p_centre, p_spread, p_out,
    FIRST: tl.constexpr, OTHER: tl.constexpr, PAGE: tl.constexpr, ALIGN: tl.constexpr,
    SIZE: tl.constexpr, SIZE_PAD: tl.constexpr,
):  # fmt: skip
    """Copy a head's rows [TILE] to the offsets `to` [TILE, 1] of p_out."""
    column = tl.arange(0, SIZE_PAD)
    b_x = load_part(
        slab, row, head, m_row, column, column < SIZE, p_slabs, p_centre, p_spread, FIRST, OTHER, PAGE, ALIGN, SIZE
    )
    tl.store(p_out + to + column[None, :], b_x, mask=m_row[:, None] & (column < SIZE)[None, :])


@triton.jit(do_not_specialize=CHANGING)
def _gather(
    p_index,
    p_keys,
    p_key_centre,
    p_key_spread,
    p_values,
    p_value_centre,
    p_value_spread,
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
    KEY_PAGE: tl.constexpr,
    KEY_ALIGN: tl.constexpr,
    VALUE_FIRST: tl.constexpr,
    VALUE_OTHER: tl.constexpr,
    VALUE_PAGE: tl.constexpr,
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
    row, head = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE), tl.program_id(1).to(tl.int64)
    m_row = row < count
    index = tl.load(p_index + head * count + row, mask=m_row, other=0)
    to = (head * capacity + row)[:, None] * SIZE
    slab, in_slab = rows_of(index, p_keys, halvings)
    b_k1, b_k2, b_k3 = load_key(
        slab, in_slab, head, m_row, p_keys, p_key_centre, p_key_spread,
        KEY_FIRST, KEY_OTHER, KEY_PAGE, KEY_ALIGN, SIZE, HALF, HALF_PAD, REST_PAD,
    )  # fmt: skip
    if HALF > 0:
        half = tl.arange(0, HALF_PAD)
        m_half = m_row[:, None] & (half < HALF)[None, :]
        b_r1, b_r2 = b_k1, b_k2
        if TURN:
            b_r1, b_r2 = turn(b_k1, b_k2, m_row, row, p_cos, p_sin, HALF, HALF_PAD)
        tl.store(p_kept_keys + to + half[None, :], b_k1, mask=m_half)
        tl.store(p_kept_keys + to + HALF + half[None, :], b_k2, mask=m_half)
        tl.store(p_kept_rotated + to + half[None, :], b_r1, mask=m_half)
        tl.store(p_kept_rotated + to + HALF + half[None, :], b_r2, mask=m_half)
    if SIZE > 2 * HALF:
        rest = 2 * HALF + tl.arange(0, REST_PAD)
        m_rest = m_row[:, None] & (rest < SIZE)[None, :]
        tl.store(p_kept_keys + to + rest[None, :], b_k3, mask=m_rest)
        tl.store(p_kept_rotated + to + rest[None, :], b_k3, mask=m_rest)
    if VALUES:
        _copy(
            slab, in_slab, head, m_row, to, p_values, p_value_centre, p_value_spread, p_kept_values,
            VALUE_FIRST, VALUE_OTHER, VALUE_PAGE, VALUE_ALIGN, SIZE, SIZE_PAD,
        )  # fmt: skip


@triton.jit(do_not_specialize=CHANGING)
def _take(
    p_index,
    p_slabs,
    p_centre,
    p_spread,
    p_out,
    count,
    halvings,
    ROW_FIRST: tl.constexpr,
    ROW_OTHER: tl.constexpr,
    ROW_PAGE: tl.constexpr,
    ROW_ALIGN: tl.constexpr,
    SIZE: tl.constexpr,
    SIZE_PAD: tl.constexpr,
    TILE: tl.constexpr,
):
    number, head = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE), tl.program_id(1).to(tl.int64)
    m_row = number < count
    slab, row = rows_of(tl.load(p_index + head * count + number, mask=m_row, other=0), p_slabs, halvings)
    _copy(
        slab, row, head, m_row, (head * count + number)[:, None] * SIZE, p_slabs, p_centre, p_spread, p_out,
        ROW_FIRST, ROW_OTHER, ROW_PAGE, ROW_ALIGN, SIZE, SIZE_PAD,
    )  # fmt: skip


def gather(keys: Slabs, values: Slabs, index: Tensor, cos: Tensor, sin: Tensor, room: EntryBuffers) -> None:
    """Run `reference.gather` in Triton. The slabs must be on the device of the index or in pinned host memory."""
    heads, count = index.shape
    _, capacity, width = room.keys.shape
    key_table, value_table = table(keys, index.device), table(values, index.device)
    _prepared_gather(key_table.layout, value_table.layout, width, cos.shape[1], len(room.values) > 0)(
        (cdiv(count, TILE), heads, 1),
        (
            *(index.contiguous(), *key_table.pointers, *value_table.pointers),
            *(angle.to(index.device, torch.float32).contiguous() for angle in (cos, sin)),
            *(room.keys, room.rotated, room.values),
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
