"""Quantisation of groups of rows in Triton: one program per group of one head. Signatures are those of `reference`.

Each element of a group is read once and each code written once. Prefixes: p_ pointer, b_ loaded value, m_ mask.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import power_of_2
from kernels.quantise.kinds import BELL, LARGEST, LOWEST, SHARING, stored, width


@triton.jit
def _round(x):
    """Round to the nearest integer, halves to even, as PyTorch does."""
    down = tl.floor(x)
    rest = x - down
    odd = down - 2 * tl.floor(down / 2)
    return down + tl.where((rest > 0.5) | ((rest == 0.5) & (odd == 1)), 1.0, 0.0)


@triton.jit
def _quantise(
    p_x, p_codes, p_scale, rows, LARGEST: tl.constexpr, FLOAT: tl.constexpr, SPLIT: tl.constexpr, WIDTH: tl.constexpr,
    ROWS_PAD: tl.constexpr, WIDTH_PAD: tl.constexpr,
):  # fmt: skip
    """Quantise one group to 8 or 4 bits.

    SPLIT: channels in a byte, 1 or 2. WIDTH: bytes of a row.
    """
    group = tl.program_id(0).to(tl.int64)
    # o_row: [ROWS_PAD, 1], o_column: [1, WIDTH_PAD]; every block is [ROWS_PAD, WIDTH_PAD]
    o_row, o_column = tl.arange(0, ROWS_PAD)[:, None], tl.arange(0, WIDTH_PAD)[None, :]
    m_x = (o_row < rows) & (o_column < WIDTH)
    p_row = p_x + (group * rows + o_row) * (WIDTH * SPLIT)
    b_low = tl.load(p_row + o_column, mask=m_x, other=0.0).to(tl.float32)
    b_largest = tl.max(tl.abs(b_low))
    if SPLIT == 2:
        b_high = tl.load(p_row + WIDTH + o_column, mask=m_x, other=0.0).to(tl.float32)
        b_largest = tl.maximum(b_largest, tl.max(tl.abs(b_high)))
    b_scale = b_largest / LARGEST
    tl.store(p_scale + group, b_scale)
    b_scale = tl.maximum(b_scale, 1.1754943508222875e-38)  # the smallest normal number
    b_codes = tl.minimum(tl.maximum(b_low / b_scale, -LARGEST), LARGEST)
    p_out = p_codes + (group * rows + o_row) * WIDTH + o_column
    if FLOAT:
        tl.store(p_out, b_codes.to(tl.float8e4nv), mask=m_x)
    elif SPLIT == 1:
        tl.store(p_out, _round(b_codes).to(tl.int8), mask=m_x)
    else:
        b_upper = tl.minimum(tl.maximum(b_high / b_scale, -LARGEST), LARGEST)
        b_both = (_round(b_codes) + 8).to(tl.int32) | ((_round(b_upper) + 8).to(tl.int32) << 4)
        tl.store(p_out, b_both.to(tl.uint8), mask=m_x)


@triton.jit
def _quantise_in_two_bits(
    p_x, p_codes, p_scale, rows, STEP: tl.constexpr, WIDTH: tl.constexpr, ROWS_PAD: tl.constexpr,
    WIDTH_PAD: tl.constexpr,
):  # fmt: skip
    """Quantise one group to 2 bits.

    STEP: distance of two codes as a multiple of the root mean square. WIDTH: bytes of a row.
    """
    group = tl.program_id(0).to(tl.int64)
    # o_row: [ROWS_PAD, 1], o_column: [1, WIDTH_PAD]; every block is [ROWS_PAD, WIDTH_PAD]
    o_row, o_column = tl.arange(0, ROWS_PAD)[:, None], tl.arange(0, WIDTH_PAD)[None, :]
    m_x = (o_row < rows) & (o_column < WIDTH)
    p_row = p_x + (group * rows + o_row) * (WIDTH * 4)
    b_squares = 0.0
    for part in tl.static_range(4):
        b_x = tl.load(p_row + part * WIDTH + o_column, mask=m_x, other=0.0).to(tl.float32)
        b_squares += tl.sum(b_x * b_x)
    b_step = tl.maximum(STEP * tl.sqrt(b_squares / (rows * WIDTH * 4)), 1.1754943508222875e-38)
    b_byte = tl.zeros((ROWS_PAD, WIDTH_PAD), tl.int32)
    b_along, b_size = 0.0, 0.0
    for part in tl.static_range(4):
        b_x = tl.load(p_row + part * WIDTH + o_column, mask=m_x, other=0.0).to(tl.float32)
        b_code = tl.minimum(tl.maximum(_round(b_x / b_step - 0.5), -2.0), 1.0)
        b_number = tl.where(m_x, b_code + 0.5, 0.0)
        b_along += tl.sum(b_x * b_number)
        b_size += tl.sum(b_number * b_number)
        b_byte |= (b_code + 2).to(tl.int32) << (2 * part)
    tl.store(p_scale + group, b_along / b_size)
    tl.store(p_codes + (group * rows + o_row) * WIDTH + o_column, b_byte.to(tl.uint8), mask=m_x)


@triton.jit
def _dequantise(
    p_codes, p_scale, p_out, rows, SPLIT: tl.constexpr, LOWEST: tl.constexpr, WIDTH: tl.constexpr,
    ROWS_PAD: tl.constexpr, WIDTH_PAD: tl.constexpr,
):  # fmt: skip
    """Dequantise one group of rows.

    SPLIT: channels in a byte. LOWEST: offset subtracted from their codes. WIDTH: bytes of a row.
    """
    group = tl.program_id(0).to(tl.int64)
    # o_row: [ROWS_PAD, 1], o_column: [1, WIDTH_PAD]; every block is [ROWS_PAD, WIDTH_PAD]
    o_row, o_column = tl.arange(0, ROWS_PAD)[:, None], tl.arange(0, WIDTH_PAD)[None, :]
    m_x = (o_row < rows) & (o_column < WIDTH)
    b_scale = tl.load(p_scale + group)
    b_codes = tl.load(p_codes + (group * rows + o_row) * WIDTH + o_column, mask=m_x)
    p_row = p_out + (group * rows + o_row) * (WIDTH * SPLIT)
    if SPLIT == 1:
        tl.store(p_row + o_column, b_codes.to(tl.float32) * b_scale, mask=m_x)
    else:
        BITS: tl.constexpr = 8 // SPLIT
        b_byte = b_codes.to(tl.int32)
        for part in tl.static_range(SPLIT):
            b_number = ((b_byte >> (BITS * part)) & ((1 << BITS) - 1)).to(tl.float32) - LOWEST
            tl.store(p_row + part * WIDTH + o_column, b_number * b_scale, mask=m_x)


def quantise(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Compute `reference.quantise` in Triton."""
    groups, rows, size = x.shape
    codes = torch.empty(groups, rows, width(kind, size), dtype=stored(kind), device=x.device)
    scale = torch.empty(groups, dtype=torch.float32, device=x.device)
    if codes.numel() and kind == torch.quint2x4:
        _quantise_in_two_bits[(groups,)](x.contiguous(), codes, scale, rows, BELL, **_sizes(codes))
    elif codes.numel():
        _quantise[(groups,)](
            x.contiguous(),
            codes,
            scale,
            rows,
            LARGEST[kind],
            kind == torch.float8_e4m3fn,
            SHARING.get(kind, 1),
            **_sizes(codes),
        )
    return codes, scale


def dequantise(codes: Tensor, scale: Tensor, kind: torch.dtype, dtype: torch.dtype) -> Tensor:
    """Compute `reference.dequantise` in Triton."""
    groups, rows, bytes_ = codes.shape
    share = SHARING.get(kind, 1)
    out = torch.empty(groups, rows, bytes_ * share, dtype=dtype, device=codes.device)
    if out.numel():
        _dequantise[(groups,)](
            codes.contiguous(), scale.contiguous(), out, rows, share, LOWEST.get(kind, 0.0), **_sizes(codes)
        )
    return out


def _sizes(codes: Tensor) -> dict[str, int]:
    _, rows, bytes_ = codes.shape
    return {
        "WIDTH": bytes_,
        "ROWS_PAD": power_of_2(rows),
        "WIDTH_PAD": power_of_2(bytes_),
    }
