"""Dot products with quantised rows in Triton: one program per tile of rows and KV head; each code is read once.

Signature and meaning are those of `reference.py`. Prefixes: p_ pointer, b_ loaded value, m_ mask.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import cdiv
from kernels.quantise.kinds import LOWEST, SHARING
from kernels.slab_rows.kernel import CHANGING, factor_dtype, padded

MOST_ROWS = 128  # most rows per program
TILE_BYTES = 32 << 10  # shared memory for the dequantised rows of a program
QUERIES = 16  # queries per step


@triton.jit(do_not_specialize=CHANGING)
def _scores(
    p_q, p_codes, p_scale, p_shift, p_out, queries, rows, head_step, scale_step, out_head_step, out_query_step,
    GROUP_SIZE: tl.constexpr, SPLIT: tl.constexpr, LOWEST: tl.constexpr, WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr,
    DOT: tl.constexpr, ROWS: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """Write `scores` of one tile.

    SPLIT: channels in a byte. LOWEST: offset subtracted from their codes. WIDTH: bytes of a row.
    """
    # o_row, m_row: [ROWS], o_column, m_column: [WIDTH_PAD]
    o_row, head = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.program_id(1).to(tl.int64)
    o_column, m_row = tl.arange(0, WIDTH_PAD), o_row < rows
    m_column = o_column < WIDTH
    # b_codes: [ROWS, WIDTH_PAD], b_scale: [ROWS]
    b_codes = tl.load(
        p_codes + head * head_step + o_row[:, None] * WIDTH + o_column[None, :], mask=m_row[:, None] & m_column[None, :]
    )
    b_scale = tl.load(p_scale + head * scale_step + o_row // GROUP_SIZE, mask=m_row)
    for at in range(0, queries, QUERIES):
        o_query = at + tl.arange(0, QUERIES).to(tl.int64)  # 64 bits: o_query * rows may exceed 32
        m_query = o_query < queries
        p_query = p_q + (head * queries + o_query)[:, None] * (WIDTH * SPLIT) + o_column[None, :]
        # p_query, b_q: [QUERIES, WIDTH_PAD], b_number: [ROWS, WIDTH_PAD], b_found: [QUERIES, ROWS]
        b_found = tl.zeros((QUERIES, ROWS), tl.float32)
        for part in tl.static_range(SPLIT):
            b_q = tl.load(p_query + part * WIDTH, mask=m_query[:, None] & m_column[None, :], other=0.0)
            if SPLIT == 1:
                b_number = b_codes.to(tl.float32)
            else:
                b_digit = (b_codes.to(tl.int32) >> (8 // SPLIT * part)) & ((1 << (8 // SPLIT)) - 1)
                b_number = b_digit.to(tl.float32) - LOWEST
            b_number = tl.where(m_row[:, None] & m_column[None, :], b_number, 0.0)
            b_found = tl.dot(b_q.to(DOT), tl.trans(b_number.to(DOT)), acc=b_found, input_precision="ieee")
        p_to = p_out + head * out_head_step + o_query[:, None] * out_query_step + o_row[None, :]
        b_shift = tl.load(p_shift + head * queries + o_query, mask=m_query)
        tl.store(p_to, b_found * b_scale[None, :] + b_shift[:, None], mask=m_query[:, None] & m_row[None, :])


def scores(
    q: Tensor, codes: Tensor, scale: Tensor, shift: Tensor, kind: torch.dtype, wide: torch.dtype, out: Tensor
) -> None:
    """Run `reference.scores` in Triton. Codes, scales and `out` must be on the device of the queries."""
    heads, queries, rows = out.shape
    share, width = SHARING.get(kind, 1), codes.shape[2]
    tile = max(16, min(MOST_ROWS, TILE_BYTES // (padded(width) * share * wide.itemsize)))
    _scores[(cdiv(rows, tile), heads)](
        q.contiguous(),
        codes,
        scale,
        shift.contiguous(),
        out,
        queries,
        rows,
        codes.stride(0),
        scale.stride(0),
        out.stride(0),
        out.stride(1),
        GROUP_SIZE=codes.shape[1] // scale.shape[1],
        SPLIT=share,
        LOWEST=LOWEST.get(kind, 0.0),
        WIDTH=width,
        WIDTH_PAD=padded(width),
        DOT=factor_dtype(wide),
        ROWS=tile,
        QUERIES=QUERIES,
        num_stages=3 if padded(width) * share <= 512 else 1,  # wide queries leave no shared memory for prefetching
    )
