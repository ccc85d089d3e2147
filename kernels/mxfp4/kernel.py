"""MXFP4 in Triton: weights are dequantised in registers. Signatures and meaning are those of `reference`.

A program takes some rows of one chosen matrix and reads them byte by byte. The two weights of a byte are neighbours, so
inputs are read with stride two. Sizes: as in `reference`. Prefixes: p_ pointer, b_ loaded value, m_ mask.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import cdiv
from kernels.mxfp4.reference import GROUP

PRODUCT_ROWS, PRODUCT_BYTES = 8, 256  # tile of a program
UNPACKED_ROWS, UNPACKED_BYTES = 4, 256


@triton.jit
def _number(code):
    """Return codes 0 .. 15 (E2M1) as float32."""
    size = (code & 7).to(tl.float32)
    size = tl.where(size < 4, size * 0.5, tl.where(size < 6, size - 2, size * 2 - 8))
    return tl.where(code < 8, size, -size)


@triton.jit
def _power(scale):
    """Return scales (E8M0) as float32. The byte is the float's exponent, except 0 (subnormal) and 255 (NaN)."""
    exponent = scale.to(tl.int32)
    power = (exponent << 23).to(tl.float32, bitcast=True)
    power = tl.where(exponent == 0, 5.877471754111438e-39, power)
    return tl.where(exponent == 255, float("nan"), power)


@triton.jit
def _product(
    p_x, p_blocks, p_scales, p_which, p_out, rows, x_stride, BYTES: tl.constexpr, GROUP_BYTES: tl.constexpr,
    ROWS_AT_ONCE: tl.constexpr, BYTES_AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Multiply a tile of rows with its input. BYTES: of a row of codes. GROUP_BYTES: bytes that share a scale."""
    number = tl.program_id(1)
    # o_row, m_row: [ROWS_AT_ONCE]
    o_row = tl.program_id(0) * ROWS_AT_ONCE + tl.arange(0, ROWS_AT_ONCE)
    m_row = o_row < rows
    at = (tl.load(p_which + number) * rows + o_row)[:, None]
    # b_total, b_codes, b_scales: [ROWS_AT_ONCE, BYTES_AT_ONCE], b_even, b_odd: [1, BYTES_AT_ONCE]
    b_total = tl.zeros([ROWS_AT_ONCE, BYTES_AT_ONCE], dtype=tl.float32)
    for begin in range(0, BYTES, BYTES_AT_ONCE):
        o_byte = begin + tl.arange(0, BYTES_AT_ONCE)
        m_byte = o_byte < BYTES
        m_code = m_row[:, None] & m_byte[None, :]
        b_codes = tl.load(p_blocks + at * BYTES + o_byte[None, :], mask=m_code, other=0).to(tl.int32)
        o_scale = at * (BYTES // GROUP_BYTES) + (o_byte // GROUP_BYTES)[None, :]
        b_scales = _power(tl.load(p_scales + o_scale, mask=m_code, other=127))
        p_pair = p_x + number * x_stride + 2 * o_byte
        b_even = tl.load(p_pair, mask=m_byte, other=0.0).to(tl.float32)[None, :]
        b_odd = tl.load(p_pair + 1, mask=m_byte, other=0.0).to(tl.float32)[None, :]
        b_total += (_number(b_codes & 15) * b_even + _number(b_codes >> 4) * b_odd) * b_scales
    tl.store(p_out + number * rows + o_row, tl.sum(b_total, axis=1), mask=m_row)


@triton.jit
def _unpack(
    p_blocks, p_scales, p_which, p_out, rows, BYTES: tl.constexpr, GROUP_BYTES: tl.constexpr,
    ROWS_AT_ONCE: tl.constexpr, BYTES_AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Dequantise a tile of rows. BYTES: of a row of codes. GROUP_BYTES: bytes that share a scale."""
    number = tl.program_id(2).to(tl.int64)
    # o_row: [ROWS_AT_ONCE, 1], o_byte: [1, BYTES_AT_ONCE]
    o_row = (tl.program_id(0) * ROWS_AT_ONCE + tl.arange(0, ROWS_AT_ONCE))[:, None]
    o_byte = tl.program_id(1) * BYTES_AT_ONCE + tl.arange(0, BYTES_AT_ONCE)[None, :]
    m_code = (o_row < rows) & (o_byte < BYTES)
    at = tl.load(p_which + number) * rows + o_row
    b_codes = tl.load(p_blocks + at * BYTES + o_byte, mask=m_code, other=0).to(tl.int32)
    o_scale = at * (BYTES // GROUP_BYTES) + o_byte // GROUP_BYTES
    b_scales = _power(tl.load(p_scales + o_scale, mask=m_code, other=127))
    # b_pairs: [ROWS_AT_ONCE, 2 * BYTES_AT_ONCE]
    b_pairs = tl.interleave(_number(b_codes & 15) * b_scales, _number(b_codes >> 4) * b_scales)
    o_column = tl.program_id(1) * (2 * BYTES_AT_ONCE) + tl.arange(0, 2 * BYTES_AT_ONCE)[None, :]
    p_row = p_out + (number * rows + o_row) * (2 * BYTES)
    tl.store(p_row + o_column, b_pairs, mask=(o_row < rows) & (o_column < 2 * BYTES))


def unpack(blocks: Tensor, scales: Tensor, which: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Compute `reference.unpack` in Triton."""
    count, rows, groups, _ = blocks.shape
    which = torch.arange(count, device=blocks.device) if which is None else which
    out = torch.empty(len(which), rows, groups * GROUP, dtype=dtype, device=blocks.device)
    if out.numel():
        bytes_ = groups * GROUP // 2
        grid = (cdiv(rows, UNPACKED_ROWS), cdiv(bytes_, UNPACKED_BYTES), len(which))
        _unpack[grid](
            blocks.contiguous(),
            scales.contiguous(),
            which,
            out,
            rows,
            bytes_,
            GROUP // 2,
            UNPACKED_ROWS,
            UNPACKED_BYTES,
        )
    return out


def product(x: Tensor, blocks: Tensor, scales: Tensor, which: Tensor) -> Tensor:
    """Compute `reference.product` in Triton."""
    _, rows, groups, _ = blocks.shape
    x = x if x.stride(1) == 1 else x.contiguous()
    out = torch.empty(len(which), rows, dtype=x.dtype, device=x.device)
    if out.numel():
        grid = (cdiv(rows, PRODUCT_ROWS), len(which))
        _product[grid](
            x, blocks.contiguous(), scales.contiguous(), which, out, rows, x.stride(0), groups * GROUP // 2, GROUP // 2,
            PRODUCT_ROWS, PRODUCT_BYTES,
        )  # fmt: skip
    return out
