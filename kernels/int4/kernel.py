"""Unpacking weights of 4 bits in Triton. Signature and meaning are those of `reference`.

A program writes a tile of rows and columns. The eight codes of an int32 lie near each other, so that seven of eight
reads are served by the cache. Sizes: as in `reference`. Prefixes: o_ offset, p_ pointer, b_ loaded value, m_ mask.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import cdiv

ROWS, COLUMNS = 8, 256  # of a program: all rows of a tile


@triton.jit
def _unpack(
    p_codes, p_scales, p_out, rows, columns, group,
    WORDS: tl.constexpr, ROWS_AT_ONCE: tl.constexpr, COLUMNS_AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Dequantise one tile of weights. group: columns that share a scale."""
    # o_row: [ROWS_AT_ONCE, 1], o_column, m_column: [1, COLUMNS_AT_ONCE]
    o_row = tl.program_id(0).to(tl.int64) * ROWS_AT_ONCE + tl.arange(0, ROWS_AT_ONCE)[:, None]
    o_column = tl.program_id(1) * COLUMNS_AT_ONCE + tl.arange(0, COLUMNS_AT_ONCE)[None, :]
    m_column = o_column < columns
    lane = o_row % 8 * 4 + o_column % 8 // 2
    chunk = o_row // 8 * (columns // (32 * WORDS)) + o_column // (32 * WORDS)
    o_word = (chunk * 32 + lane) * WORDS + o_column // 32 % WORDS
    b_word = tl.load(p_codes + o_word, mask=m_column, other=0)
    place = o_column % 32 // 8 + o_column % 2 * 4
    b_code = ((b_word >> (4 * place)) & 15).to(tl.float32)
    p_scale = p_scales + (o_column // group * rows + o_row) * 2
    b_scale = tl.load(p_scale, mask=m_column, other=0.0).to(tl.float32)
    b_offset = tl.load(p_scale + 1, mask=m_column, other=0.0).to(tl.float32)
    tl.store(p_out + o_row * columns + o_column, (b_code - 8) * b_scale + b_offset, mask=m_column)


def unpack(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute `reference.unpack` in Triton."""
    rows, columns, words = 8 * codes.shape[0], 32 * codes.shape[1] * codes.shape[3], codes.shape[3]
    out = torch.empty(rows, columns, dtype=dtype, device=codes.device)
    if out.numel():
        group = columns // len(scales)
        grid = (rows // ROWS, cdiv(columns, COLUMNS))
        _unpack[grid](codes.contiguous(), scales.contiguous(), out, rows, columns, group, words, ROWS, COLUMNS)
    return out
