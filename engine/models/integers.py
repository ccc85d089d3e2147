"""Linear layers of integers for a CPU: products are computed from weights in 8 or 4 bits directly.

| kind | a weight | beside the weights |
|---|---|---|
| int8 | a byte | one scale a row |
| int4 | half a byte | one scale and one offset for each `GROUP` weights of a row, in bfloat16 |

The products are PyTorch's (`_weight_int8pack_mm`, `_weight_int4pack_mm_for_cpu`). For one token they take as long as
reading the weights, so half the bytes take half the time. They are no faster in long passes, where weights of 8 bits
are unpacked first.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

INTEGERS = ("int8", "int4")
GROUP = 32  # weights that share a scale and an offset
DIRECT = 8  # most rows whose product with weights of 8 bits is faster than unpacking them
LEAST_ROWS, LEAST_COLUMNS = 16, 32  # PyTorch's products take multiples of these


def fits(rows: int, columns: int) -> bool:
    """Return whether PyTorch's products take a layer of this size; others keep their weights."""
    return rows % LEAST_ROWS == 0 and columns % LEAST_COLUMNS == 0


def layer_bytes(kind: str, rows: int, columns: int, itemsize: int) -> int:
    """Return the bytes of a layer's weights, scales and offsets. itemsize: of the dtype that the model computes in."""
    if not fits(rows, columns):
        return rows * columns * itemsize
    if kind == "int8":
        return rows * (columns + itemsize)
    return rows * columns // 2 + 4 * rows * columns // GROUP


class IntegerLinear(nn.Module):
    """Takes the place of a linear layer. Nothing can be trained through it."""

    codes: Tensor
    scales: Tensor

    def __init__(self, linear: nn.Linear, kind: str) -> None:
        """Quantise the weight of a layer. kind: int8 or int4."""
        super().__init__()
        self.in_features, self.out_features, self.kind = linear.in_features, linear.out_features, kind
        self.bias = linear.bias
        weight = linear.weight.detach()
        codes, scales = _in_eight_bits(weight) if kind == "int8" else _in_four_bits(weight)
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales)

    def forward(self, x: Tensor) -> Tensor:
        """Return the products [..., out] with x [..., in], and the bias added."""
        rows = x.reshape(-1, self.in_features)
        if self.kind == "int4":
            codes, scales = self.codes, self.scales
            found = torch.ops.aten._weight_int4pack_mm_for_cpu(rows.bfloat16(), codes, GROUP, scales).to(x.dtype)
        elif len(rows) <= DIRECT:
            found = torch.ops.aten._weight_int8pack_mm(rows.contiguous(), self.codes, self.scales)
        else:
            found = F.linear(rows, self.codes.to(x.dtype)).mul_(self.scales)
        product: Tensor = found.view(*x.shape[:-1], self.out_features)
        return product if self.bias is None else product.add_(self.bias)


def _in_eight_bits(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes int8 [rows, columns], and scales [rows] in the dtype of the weight."""
    scales = (weight.float().abs().amax(dim=1) / 127).clamp_min(torch.finfo(weight.dtype).tiny).to(weight.dtype)
    return (weight.float() / scales.float()[:, None]).round().clamp(-127, 127).to(torch.int8), scales


def _in_four_bits(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes in PyTorch's packing, and scales and offsets bfloat16 [columns / GROUP, rows, 2].

    A code c stands for (c - 8) * scale + offset.
    """
    groups = weight.float().view(len(weight), -1, GROUP)
    low, high = groups.amin(dim=2), groups.amax(dim=2)
    scale = ((high - low) / 15).clamp_min(torch.finfo(torch.float32).tiny).bfloat16()
    offset = (low + 8 * scale.float()).bfloat16()
    codes = ((groups - offset.float()[..., None]) / scale.float()[..., None] + 8).round().clamp(0, 15)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.view(weight.shape).int(), 1)
    return packed, torch.stack([scale, offset], dim=-1).transpose(0, 1).contiguous()


def in_integers(network: nn.Module, kind: str, head: nn.Module | None, kept: Sequence[str] = ()) -> None:
    """Replace a network's linear layers by layers of integers, one after another.

    The head stays as it is, and so do layers whose names end with one of `kept`.
    """
    for path, module in list(network.named_modules()):
        for name, layer in list(module.named_children()):
            stays = layer is head or f"{path}.{name}".endswith(tuple(kept))
            if isinstance(layer, nn.Linear) and not stays and fits(*layer.weight.shape):
                setattr(module, name, IntegerLinear(layer, kind))
