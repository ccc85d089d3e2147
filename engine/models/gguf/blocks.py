"""Decode the blocks of GGUF files: codes, scales and offsets as they are stored, and the numbers that they stand for.

A block of a row holds 32 or 256 weights. Its codes are small integers; 16 or 32 neighbours share a scale, and in some
types an offset: weight = code * scale + offset.

Source of the layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from torch import Tensor

Type = GGMLQuantizationType


class Blocks(NamedTuple):
    """Weights of rows as integers. R rows, G groups of a row, S weights of a group."""

    codes: Tensor  # int8 [R, G, S]
    scales: Tensor  # float32 [R, G]
    offsets: Tensor | None  # float32 [R, G]; None: all are 0

    def numbers(self, out: Tensor) -> None:
        """Write the weights that the blocks stand for into a tensor [R, G * S], in its dtype."""
        wanted = out.view(self.codes.shape) if out.is_contiguous() else torch.empty(self.codes.shape, dtype=out.dtype)
        if out.dtype == torch.float32:
            wanted.copy_(self.codes).mul_(self.scales[..., None])
            if self.offsets is not None:
                wanted.add_(self.offsets[..., None])
        else:
            numbers = self.codes.float().mul_(self.scales[..., None])
            wanted.copy_(numbers if self.offsets is None else numbers.add_(self.offsets[..., None]))
        if not out.is_contiguous():
            out.copy_(wanted.view(out.shape))


def bits_of(kind: Type) -> int:
    """Return the bits in which a product holds the codes of a type as they are, 4 or 8; 0 if it does not."""
    return DECODERS[kind][0] if kind in DECODERS else 0


def decode(rows: Tensor, kind: Type) -> Blocks:
    """Return the blocks of rows uint8 [R, bytes of a row], in one of `DECODERS`."""
    _, size, decoder = DECODERS[kind]
    return decoder(rows.view(len(rows), -1, size))


def unpack(rows: Tensor, kind: Type, out: Tensor) -> None:
    """Write the numbers of rows uint8 [R, bytes of a row] into a tensor [R, columns]. Any type that is read."""
    if kind in DECODERS:
        decode(rows, kind).numbers(out)
    else:
        out.copy_(torch.from_numpy(quants.dequantize(rows.numpy(), kind)).view(out.shape))


def unpacked(rows: Tensor, kind: Type) -> Tensor:
    """Return the numbers of rows uint8 [R, bytes of a row], float32 [R, columns]."""
    weights, size = GGML_QUANT_SIZES[kind]
    out = torch.empty(len(rows), rows.shape[1] // size * weights)
    unpack(rows, kind, out)
    return out


def _halves(block: Tensor, first: int) -> Tensor:
    """Read float16 numbers of blocks [R, B, bytes] at the first two bytes from `first`, as float32 [R, B]."""
    return block[..., first : first + 2].contiguous().view(torch.float16)[..., 0].float()


def _nibbles(packed: Tensor) -> Tensor:
    """Return uint8 codes [..., 2, N] of bytes [..., N]: the low halves, then the high ones."""
    out = torch.empty(*packed.shape[:-1], 2, packed.shape[-1], dtype=torch.uint8)
    torch.bitwise_and(packed, 15, out=out[..., 0, :])
    torch.bitwise_right_shift(packed, 4, out=out[..., 1, :])
    return out


def _split(packed: Tensor, *sizes: int) -> Tensor:
    """Return bytes [..., N] with their last dimension split into others."""
    return packed.reshape(*packed.shape[:-1], *sizes)


def _less(codes: Tensor, middle: int) -> Tensor:
    """Return uint8 codes less a number, as int8."""
    return codes.sub_(middle).view(torch.int8)


def _groups(codes: Tensor, size: int) -> Tensor:
    """Return codes [R, ...] as groups [R, G, size]."""
    return codes.reshape(len(codes), -1, size)


def _fifth_bits(words: Tensor) -> Tensor:
    """Return 16 times each bit of four bytes [R, B, 4], lowest first: uint8 [R, B, 32]."""
    place = torch.arange(8, dtype=torch.uint8)
    return ((words[..., None] >> place) & 1).flatten(-2).mul_(16)


def _q4_0(block: Tensor) -> Blocks:
    return Blocks(_less(_groups(_nibbles(block[..., 2:]), 32), 8), _halves(block, 0), None)


def _q4_1(block: Tensor) -> Blocks:
    scale = _halves(block, 0)
    return Blocks(_less(_groups(_nibbles(block[..., 4:]), 32), 8), scale, _halves(block, 2) + 8 * scale)


def _q5_0(block: Tensor) -> Blocks:
    codes = _groups(_nibbles(block[..., 6:]), 32).add_(_fifth_bits(block[..., 2:6]))
    return Blocks(_less(codes, 16), _halves(block, 0), None)


def _q5_1(block: Tensor) -> Blocks:
    codes, scale = _groups(_nibbles(block[..., 8:]), 32).add_(_fifth_bits(block[..., 4:8])), _halves(block, 0)
    return Blocks(_less(codes, 16), scale, _halves(block, 2) + 16 * scale)


def _q8_0(block: Tensor) -> Blocks:
    return Blocks(block[..., 2:].view(torch.int8), _halves(block, 0), None)


def _scales_of_k(block: Tensor, middle: int) -> tuple[Tensor, Tensor]:
    """Return scales and offsets [R, 8 B] of Q4_K and Q5_K, whose codes are taken less `middle`."""
    low, high, rest = block[..., 4:8], block[..., 8:12], block[..., 12:16]
    scales = torch.cat([low & 63, (rest & 15) | (low >> 6 << 4)], dim=-1).float() * _halves(block, 0)[..., None]
    least = torch.cat([high & 63, (rest >> 4) | (high >> 6 << 4)], dim=-1).float() * _halves(block, 2)[..., None]
    return scales.flatten(1), (middle * scales - least).flatten(1)


def _q4_k(block: Tensor) -> Blocks:
    codes = _nibbles(_split(block[..., 16:], 4, 32))
    return Blocks(_less(_groups(codes, 32), 8), *_scales_of_k(block, 8))


def _q5_k(block: Tensor) -> Blocks:
    codes = _nibbles(_split(block[..., 48:], 4, 32))
    place = torch.arange(8, dtype=torch.uint8)[:, None]
    fifth = ((block[..., None, 16:48] >> place) & 1).mul_(16)
    return Blocks(_less(_groups(codes, 32).add_(_groups(fifth, 32)), 16), *_scales_of_k(block, 16))


def _q6_k(block: Tensor) -> Blocks:
    low = _nibbles(_split(block[..., :128], 2, 64))  # [R, B, half, nibble, 64]: in the order of the weights
    place = torch.arange(0, 8, 2, dtype=torch.uint8)[:, None]
    high = ((_split(block[..., 128:192], 2, 1, 32) >> place) & 3).mul_(16)
    scales = block[..., 192:208].view(torch.int8).float() * _halves(block, 208)[..., None]
    return Blocks(_less(_groups(low, 16).add_(_groups(high, 16)), 32), scales.flatten(1), None)


GROUP = 32  # weights that share a scale where `bits_of` is not 0
WITH_OFFSETS = frozenset({Type.Q4_1, Type.Q5_1, Type.Q4_K, Type.Q5_K})
DECODERS: dict[Type, tuple[int, int, Callable[[Tensor], Blocks]]] = {  # bits in a product, bytes of a block
    Type.Q4_0: (4, 18, _q4_0),
    Type.Q4_1: (4, 20, _q4_1),
    Type.Q5_0: (8, 22, _q5_0),
    Type.Q5_1: (8, 24, _q5_1),
    Type.Q8_0: (8, 34, _q8_0),
    Type.Q4_K: (4, 144, _q4_k),
    Type.Q5_K: (8, 176, _q5_k),
    Type.Q6_K: (0, 210, _q6_k),  # a scale for 16 weights takes a product half as many bytes as their codes
}
