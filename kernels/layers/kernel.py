"""Small steps of a layer in Triton: one program per vector, or per piece of it. Signatures are `reference`'s.

Prefixes: o_ offset, p_ pointer, b_ loaded value, m_ mask.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import Prepared, cdiv, power_of_2
from kernels.rotation import rotate

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


@triton.jit
def _turned(p_x, p_angle_cos, p_angle_sin, o, m, HALF: tl.constexpr):
    """Load a vector and rotate it, each product rounded as PyTorch rounds it."""
    # All blocks: [SIZE_PAD], as o and m are
    kind = p_x.dtype.element_ty
    m_turned = m & (o < 2 * HALF)
    o_other = tl.where(o < HALF, o + HALF, o - HALF)
    o_angle = tl.where(o < HALF, o, o - HALF)
    b_x = tl.load(p_x + o, mask=m, other=0.0)
    b_other = tl.load(p_x + o_other, mask=m_turned, other=0.0).to(tl.float32)
    b_cos = tl.load(p_angle_cos + o_angle, mask=m_turned, other=1.0).to(tl.float32)
    b_sin = tl.load(p_angle_sin + o_angle, mask=m_turned, other=0.0).to(tl.float32)
    b_along = (b_x.to(tl.float32) * b_cos).to(kind).to(tl.float32)
    b_across = (b_other * b_sin).to(kind).to(tl.float32)
    return b_x, b_along + tl.where(o < HALF, -b_across, b_across)


@triton.jit(do_not_specialize=("head_step", "token_step", "angle_step"))
def _turn(
    p_x, p_cos, p_sin, p_out, head_step, token_step, angle_step,
    SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Rotate one token's vector of one head. Steps: from a head, a token, or a token's angles to the next."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    # o, m, b_turned: [SIZE_PAD]
    o = tl.arange(0, SIZE_PAD)
    m = o < SIZE
    p_from = p_x + head * head_step + token * token_step
    _, b_turned = _turned(p_from, p_cos + token * angle_step, p_sin + token * angle_step, o, m, HALF)
    tl.store(p_out + (head * tl.num_programs(0) + token) * SIZE + o, b_turned, mask=m)


@triton.jit(do_not_specialize=(
    "at", "q_heads", "heads", "q_head_step", "q_step", "k_head_step", "k_step", "v_head_step", "v_step", "rows",
))  # fmt: skip
def _append(
    p_q, p_k, p_v, p_cos, p_sin, p_at, p_keys, p_rotated, p_values, p_out,
    at, q_heads, heads, q_head_step, q_step, k_head_step, k_step, v_head_step, v_step, rows,
    SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, HALF: tl.constexpr, READ: tl.constexpr,
):  # fmt: skip
    """Rotate a query, or write a key twice or a value. rows: of the buffers. READ: the first row is in a tensor."""
    token, number = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    # o, m, b_turned, b_k, b_v: [SIZE_PAD]
    o = tl.arange(0, SIZE_PAD)
    m = o < SIZE
    row = token + (tl.load(p_at) if READ else at)
    p_angle_cos, p_angle_sin = p_cos + token * HALF, p_sin + token * HALF
    if number < q_heads:
        p_from = p_q + number * q_head_step + token * q_step
        _, b_turned = _turned(p_from, p_angle_cos, p_angle_sin, o, m, HALF)
        tl.store(p_out + (number * tl.num_programs(0) + token) * SIZE + o, b_turned, mask=m)
    elif number < q_heads + heads:
        head = number - q_heads
        p_from = p_k + head * k_head_step + token * k_step
        b_k, b_turned = _turned(p_from, p_angle_cos, p_angle_sin, o, m, HALF)
        tl.store(p_keys + (head * rows + row) * SIZE + o, b_k, mask=m)
        tl.store(p_rotated + (head * rows + row) * SIZE + o, b_turned, mask=m)
    else:
        head = number - q_heads - heads
        b_v = tl.load(p_v + head * v_head_step + token * v_step + o, mask=m, other=0.0)
        tl.store(p_values + (head * rows + row) * SIZE + o, b_v, mask=m)


@triton.jit
def _merge_two(
    p_first, p_first_total, p_second, p_second_total, p_out, p_total, SIZE: tl.constexpr, SIZE_PAD: tl.constexpr
):
    """Merge one query's attention to two sets of keys."""
    row = tl.program_id(0).to(tl.int64)
    # o, m, b_first, b_second: [SIZE_PAD]; the rest are single numbers
    o = tl.arange(0, SIZE_PAD)
    m = o < SIZE
    b_one, b_two = tl.load(p_first_total + row), tl.load(p_second_total + row)
    b_most = tl.maximum(b_one, b_two)
    b_most = tl.where(b_most == float("-inf"), 0.0, b_most)
    b_one, b_two = tl.exp(b_one - b_most), tl.exp(b_two - b_most)
    b_sum = b_one + b_two
    b_safe = tl.where(b_sum == 0.0, 1.0, b_sum)
    b_first = tl.load(p_first + row * SIZE + o, mask=m, other=0.0).to(tl.float32)
    b_second = tl.load(p_second + row * SIZE + o, mask=m, other=0.0).to(tl.float32)
    tl.store(p_out + row * SIZE + o, (b_first * b_one + b_second * b_two) / b_safe, mask=m)
    tl.store(p_total + row, tl.where(b_sum == 0.0, float("-inf"), b_most + tl.log(b_safe)))


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


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Compute `reference.turn` in Triton; in PyTorch where gradients are wanted."""
    if torch.is_grad_enabled() and x.requires_grad:
        return rotate(x, cos, sin)
    shape, x = x.shape, _side_by_side(x.flatten(0, -3) if x.dim() > 2 else x[None])
    heads, tokens, width = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        half = cos.shape[-1]
        step = 0 if cos.dim() == 1 else half
        _turning(width, half)((tokens, heads, 1), (x, cos, sin, out), (x.stride(0), x.stride(1), step))
    return out.view(shape)


def append(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    at: int | Tensor,
    keys: Tensor,
    rotated: Tensor,
    values: Tensor,
) -> Tensor:
    """Run `reference.append` in Triton."""
    q, k, v = map(_side_by_side, (q, k, v))
    (heads, tokens, width), read = k.shape, isinstance(at, Tensor)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if tokens:
        _appending(width, cos.shape[-1], read)(
            (tokens, len(q) + heads + len(v), 1),
            (q, k, v, cos, sin, at if isinstance(at, Tensor) else k, keys, rotated, values, out),
            (
                *(0 if isinstance(at, Tensor) else at, len(q), heads, q.stride(0), q.stride(1)),
                *(k.stride(0), k.stride(1), v.stride(0), v.stride(1), keys.shape[1]),
            ),
        )
    return out


def merge(first: Tensor, first_total: Tensor, second: Tensor, second_total: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `reference.merge` in Triton."""
    out, total = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (first, first_total))
    if out.numel():
        given = (x.contiguous() for x in (first, first_total, second, second_total))
        _merging(first.shape[-1])((total.numel(), 1, 1), (*given, out, total), ())
    return out, total


def _side_by_side(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


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


@functools.cache
def _turning(width: int, half: int) -> Prepared:
    constants = {"SIZE": width, "SIZE_PAD": power_of_2(width), "HALF": half}
    return Prepared(_turn, constants, num_warps=1, enable_fp_fusion=False)


@functools.cache
def _appending(width: int, half: int, read: bool) -> Prepared:
    constants = {"SIZE": width, "SIZE_PAD": power_of_2(width), "HALF": half, "READ": read}
    return Prepared(_append, constants, num_warps=1, enable_fp_fusion=False)


@functools.cache
def _merging(width: int) -> Prepared:
    return Prepared(_merge_two, {"SIZE": width, "SIZE_PAD": power_of_2(width)}, num_warps=1)
