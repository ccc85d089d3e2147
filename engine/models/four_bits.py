"""Weights of 4 bits: rounded in groups and fitted, or as a GGUF file has them; packed and multiplied by PyTorch.

A code c from 0 to 15 stands for (c - 8) * scale + offset; a group of weights of a row shares scale and offset, which
are bfloat16. Both products compute in bfloat16. They take different packings, so codes stay on the device they were
packed for.

| device | product | passes of more than `TILE` rows |
|---|---|---|
| CPU | `_weight_int4pack_mm_for_cpu` | the same |
| GPU | `_weight_int4pack_mm`, by tensor cores | weights are unpacked (`kernels/int4`) and multiplied |
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.errors import require
from engine.models.gguf.blocks import Blocks
from kernels import int4

GROUP = 32  # weights that share a scale and an offset
LEAST_CAPABILITY = (8, 0)
TILE = 16  # rows that the product on a GPU takes at the price of one
AT_ONCE, AT_ONCE_ON_CPU = 1 << 22, 1 << 17  # weights that are fitted at once; a CPU's fit its cache
UNPACKED = 1 << 27  # weights that are unpacked at once: all of a layer, but not of a large vocabulary's head
ROUNDS, NORM, STRENGTH, STRONGER = 20, 0.7, 10.0, 1.01  # of the fit: HQQ's own settings


def check_device(place: torch.device) -> None:
    """Refuse a GPU that has no product with weights of 4 bits, or another layout of them.

    Raises:
        SettingsError: naming another quantisation.
    """
    if place.type == "cuda":
        able = torch.version.hip is None and torch.cuda.get_device_capability(place) >= LEAST_CAPABILITY
        require(able, "--quantize int4 needs an NVIDIA GPU of compute capability 8.0 or more: choose nf4.")


def in_four_bits(weight: Tensor, group: int = GROUP, fit: bool = True) -> tuple[Tensor, Tensor]:
    """Return codes uint8 [rows, columns], and scales and offsets bfloat16 [columns / group, rows, 2].

    fit: move offsets by half-quadratic quantisation; without it a group reaches from its least to its largest weight.
    """
    rows = max(1, (AT_ONCE_ON_CPU if weight.device.type == "cpu" else AT_ONCE) // weight.shape[1])
    pieces = [_rounded(piece.float().view(len(piece), -1, group), fit) for piece in torch.split(weight, rows)]
    codes, scales, offsets = (torch.cat(each) for each in zip(*pieces, strict=True))
    return codes.view(weight.shape), torch.stack([scales, offsets], dim=-1).transpose(0, 1).contiguous()


def of_blocks(pieces: Iterable[Blocks]) -> tuple[Tensor, Tensor]:
    """Return the rows of a file as `in_four_bits` does, in its own codes of 4 bits. Scales and offsets are rounded."""
    codes, scales = [], []
    for each in pieces:
        codes.append(each.codes.view(torch.uint8).add(8).flatten(1))  # counted from -8 there
        offsets = torch.zeros_like(each.scales) if each.offsets is None else each.offsets
        scales.append(torch.stack([each.scales, offsets], dim=-1).bfloat16())
    return torch.cat(codes), torch.cat(scales).transpose(0, 1).contiguous()


def _rounded(groups: Tensor, fit: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the codes of groups [rows, groups, group], and their scales and offsets bfloat16 [rows, groups]."""
    low, high = groups.amin(dim=2, keepdim=True), groups.amax(dim=2, keepdim=True)
    scale = ((high - low) / 15).clamp_min(torch.finfo(torch.float32).tiny).bfloat16().float()
    offset = low + 8 * scale
    if fit:
        offset = _fitted(groups, scale, offset)
    offset = offset.bfloat16().float()
    codes = _codes(groups, scale, offset).add_(8).to(torch.uint8)
    return codes, scale[..., 0].bfloat16(), offset[..., 0].bfloat16()


def _codes(groups: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """Return codes less 8, as floats."""
    return ((groups - offset) / scale).round_().clamp_(-8, 7)


def _fitted(groups: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """Return offsets that make few weights err much rather than all err a little.

    Source: half-quadratic quantisation (https://mobiusml.github.io/hqq_blog/). The errors' norm of 0.7 is split in two:
    errors are shrunk towards 0, then each offset becomes the mean of what shrunken errors leave. Each group keeps the
    offset of its least mean error.
    """
    best, least = offset, torch.full_like(offset, torch.inf)
    strength = STRENGTH
    for _ in range(ROUNDS):
        rounded = _codes(groups, scale, offset.bfloat16().float()).mul_(scale)
        error = groups - rounded - offset
        size = error.abs()
        mean = size.mean(dim=2, keepdim=True)
        best, least = torch.where(mean < least, offset, best), torch.minimum(mean, least)
        kept = (size - size.pow(NORM - 1) / strength).clamp_min_(0).copysign(error)
        offset = (groups - kept - rounded).mean(dim=2, keepdim=True)
        strength *= STRONGER
    return best


def packed(codes: Tensor) -> Tensor:
    """Return codes uint8 [rows, columns] as the product of their device takes them."""
    if codes.device.type == "cpu":
        laid: Tensor = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int(), 1)
        return laid
    pairs = codes[:, ::2] << 4 | codes[:, 1::2]
    tiles = next(each for each in (8, 4, 2) if codes.shape[1] % (16 * each) == 0)  # that a lane reads at once
    laid = torch.ops.aten._convert_weight_to_int4pack(pairs, tiles)
    return laid


def product(x: Tensor, codes: Tensor, scales: Tensor) -> Tensor:
    """Return the products bfloat16 [T, rows] of inputs [T, columns] with packed weights."""
    x, group, scales = x.bfloat16().contiguous(), x.shape[1] // len(scales), scales.contiguous()
    on_cpu = codes.device.type == "cpu"
    if on_cpu or len(x) <= TILE:
        multiply = torch.ops.aten._weight_int4pack_mm_for_cpu if on_cpu else torch.ops.aten._weight_int4pack_mm
        found: Tensor = multiply(x, codes, group, scales)
        return found
    tiles = max(1, UNPACKED // (8 * x.shape[1]))
    pieces = zip(torch.split(codes, tiles), torch.split(scales, 8 * tiles, dim=1), strict=True)
    products = [F.linear(x, int4.unpack(*piece, torch.bfloat16)) for piece in pieces]
    return products[0] if len(products) == 1 else torch.cat(products, dim=1)
