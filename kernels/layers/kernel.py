"""Norms and gates in Triton: one program per vector, or per piece of it. Signatures and meaning are `reference`'s.

Prefixes: o_ offset, p_ pointer, b_ loaded value, m_ mask.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import Prepared, cdiv, power_of_2

PIECE = 1024  # outputs of one program of `gated`


@triton.jit(do_not_specialize=("step", "eps"))
def _rms_norm(
    p_x, p_weight, p_out, step, eps, SHIFT: tl.constexpr, EARLY: tl.constexpr,
    WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr,
):  # fmt: skip
    """Norm one vector. step: from a vector to the next."""
    row = tl.program_id(0).to(tl.int64)
    # o, m, b_x, b_weight: [WIDTH_PAD]
    o = tl.arange(0, WIDTH_PAD)
    m = o < WIDTH
    b_x = tl.load(p_x + row * step + o, mask=m, other=0.0).to(tl.float32)
    b_weight = tl.load(p_weight + o, mask=m, other=0.0).to(tl.float32)
    b_x = b_x * (1.0 / tl.sqrt(tl.sum(b_x * b_x, axis=0) / WIDTH + eps))
    if EARLY:
        b_x = b_x.to(p_out.dtype.element_ty).to(tl.float32)
    tl.store(p_out + row * WIDTH + o, b_x * (b_weight + SHIFT), mask=m)


@triton.jit(do_not_specialize=("step", "width"))
def _gated(p_x, p_out, step, width, SILU: tl.constexpr, PIECE: tl.constexpr):
    """Multiply a piece of a vector's second half by its activated first half. step: from a vector to the next."""
    row = tl.program_id(0).to(tl.int64)
    # o, m, b_first, b_second: [PIECE]
    o = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    m = o < width
    b_first = tl.load(p_x + row * step + o, mask=m, other=0.0).to(tl.float32)
    b_second = tl.load(p_x + row * step + width + o, mask=m, other=0.0).to(tl.float32)
    b_inner = b_first
    if not SILU:  # x / 2 * (1 + tanh(u)) is x * sigmoid(2 u)
        b_inner = 1.5957691216057308 * (b_first + 0.044715 * b_first * b_first * b_first)
    b_active = (b_first * tl.sigmoid(b_inner)).to(p_out.dtype.element_ty).to(tl.float32)
    tl.store(p_out + row * width + o, b_active * b_second, mask=m)


def rms_norm(x: Tensor, weight: Tensor, eps: float, shift: float, early: bool) -> Tensor:
    """Compute `reference.rms_norm` in Triton."""
    rows, out = _rows(x), torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        launch = _norming(float(shift), early, x.shape[-1])
        launch((len(rows), 1, 1), (rows, weight, out), (rows.stride(0), float(eps)))
    return out


def gated(x: Tensor, gate: str) -> Tensor:
    """Compute `reference.gated` in Triton."""
    rows, width = _rows(x), x.shape[-1] // 2
    out = torch.empty(*x.shape[:-1], width, dtype=x.dtype, device=x.device)
    if out.numel():
        _gating(gate == "silu")((len(rows), cdiv(width, PIECE), 1), (rows, out), (rows.stride(0), width))
    return out


def _rows(x: Tensor) -> Tensor:
    """Return x [..., D] as rows [N, D] whose numbers lie side by side, without a copy where that goes."""
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


@functools.cache
def _norming(shift: float, early: bool, width: int) -> Prepared:
    padded = power_of_2(width)
    constants = {"SHIFT": shift, "EARLY": early, "WIDTH": width, "WIDTH_PAD": padded}
    return Prepared(_rms_norm, constants, num_warps=min(16, max(1, padded // 256)))


@functools.cache
def _gating(silu: bool) -> Prepared:
    return Prepared(_gated, {"SILU": silu, "PIECE": PIECE})
