"""Linear layers of integers: products are computed from weights in 8 or 4 bits directly.

| kind | a weight | beside the weights | where |
|---|---|---|---|
| int8 | a byte | one scale a row | CPU |
| int4 | half a byte | a scale and an offset for each group of a row (`four_bits.py`) | CPU or GPU |

The products are PyTorch's. For one token they take as long as reading the weights, so half the bytes take half the
time. In long passes they are no faster than plain ones, and weights of 8 bits are unpacked first.

The head of a small model is half of all that a token is multiplied with. On a CPU it is in 8 bits with either kind, by
`products.py`. Embeddings that it shares its weight with are looked up as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.models import four_bits
from engine.models.gguf.blocks import Blocks
from engine.models.gguf.kept import Kept
from engine.models.products import AT_ONCE, Packed, Product, rounded

INTEGERS = ("int8", "int4")
SAMPLE = 997  # numbers of a weight that tell it from another
DIRECT = 9  # most rows whose product with weights of 8 bits is faster than unpacking them
LEAST_ROWS, LEAST_COLUMNS = 16, 32  # PyTorch's products take multiples of these
PACKED_ROWS = 64  # rows that PyTorch packs together in 4 bits, on some CPUs


def fits(rows: int, columns: int) -> bool:
    """Return whether PyTorch's products take a layer of this size; others keep their weights."""
    return rows % LEAST_ROWS == 0 and columns % LEAST_COLUMNS == 0


def layer_bytes(kind: str, rows: int, columns: int, itemsize: int) -> int:
    """Return the bytes of a layer's weights, scales and offsets. itemsize: of the dtype that the model computes in."""
    if not fits(rows, columns):
        return rows * columns * itemsize
    if kind == "int8":
        return rows * (columns + itemsize)
    return rows * columns // 2 + 4 * rows * columns // four_bits.GROUP


class IntegerLinear(nn.Module):
    """Takes the place of a linear layer. Nothing can be trained through it."""

    codes: Tensor
    scales: Tensor

    def __init__(
        self, linear: nn.Linear, kind: str, place: torch.device | None = None, blocks: Iterable[Blocks] | None = None
    ) -> None:
        """Quantise the weight of a layer.

        Args:
            linear: the layer.
            kind: int8 or int4.
            place: device of the codes; None for the weight's.
            blocks: all rows in codes of 4 bits, which int4 takes as they are; None to round the weight.
        """
        super().__init__()
        self.in_features, self.out_features, self.kind = linear.in_features, linear.out_features, kind
        self.bias = linear.bias
        place = linear.weight.device if place is None else place
        if blocks is not None:
            codes, scales = (each.to(place) for each in four_bits.of_blocks(blocks))
        else:
            weight = linear.weight.detach().to(place)
            codes, scales = _in_eight_bits(weight) if kind == "int8" else four_bits.in_four_bits(weight)
        self.register_buffer("codes", codes if kind == "int8" else four_bits.packed(codes))
        self.register_buffer("scales", scales)

    def forward(self, x: Tensor) -> Tensor:
        """Return the products [..., out] with x [..., in], and the bias added."""
        rows = x.reshape(-1, self.in_features)
        if self.kind == "int4":
            found = four_bits.product(rows, self.codes, self.scales).to(x.dtype)
        elif len(rows) <= DIRECT:  # in float32 the same product takes five times as long
            ones = torch.ones_like(self.scales, dtype=torch.bfloat16)
            found = torch.ops.aten._weight_int8pack_mm(rows.bfloat16().contiguous(), self.codes, ones)
            found = found.to(x.dtype).mul_(self.scales)
        else:
            found = F.linear(rows, self.codes.to(x.dtype)).mul_(self.scales)
        product: Tensor = found.view(*x.shape[:-1], self.out_features)
        return product if self.bias is None else product.add_(self.bias)


def spread(weight: Tensor) -> Tensor:
    """Return about `SAMPLE` numbers of a weight, evenly spread."""
    flat = weight.reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLE)]


class Head(nn.Module):
    """Takes the place of a head on a CPU: multiplies with its weight in 8 bits."""

    def __init__(self, head: nn.Linear, tied: bool) -> None:
        """Round the weight of a head. tied: whether it is the embeddings too."""
        super().__init__()
        self.in_features, self.out_features, self.bias = head.in_features, head.out_features, head.bias
        if tied:
            self.weight = head.weight
        self.sample = None if tied else spread(head.weight.detach()).clone()
        pieces = torch.split(head.weight.detach(), max(1, AT_ONCE // head.in_features))
        self._product = Product(head.in_features, (Packed.of(rounded(each.float()), 8) for each in pieces))

    def forward(self, x: Tensor) -> Tensor:
        """Return the products float32 [..., out] with x [..., in], and the bias added."""
        found = self._product(x.reshape(-1, self.in_features)).view(*x.shape[:-1], self.out_features)
        return found if self.bias is None else found.add_(self.bias)


def joinable(layers: Sequence[IntegerLinear]) -> bool:
    """Return whether the codes of layers, one behind the other, are those of one layer."""
    alike = {(layer.kind, layer.in_features, layer.codes.dtype, layer.scales.dtype) for layer in layers}
    whole = all(layer.out_features % PACKED_ROWS == 0 for layer in layers[:-1])
    return len(alike) == 1 and (whole or layers[0].kind == "int8")


def join_integers(layers: Sequence[IntegerLinear], bias: Tensor | None) -> IntegerLinear:
    """Return the layer of all outputs of these, in order. They keep views of its codes.

    bias: of all of them, or None.
    """
    whole = copy.copy(layers[0])
    whole._buffers, whole._parameters = {}, {}
    whole.out_features = sum(layer.out_features for layer in layers)
    if bias is not None:
        whole.bias = nn.Parameter(bias, requires_grad=False)
    rows = 0 if layers[0].kind == "int8" else 1  # dimension of the rows among the scales
    whole.codes, whole.scales = (
        torch.cat([getattr(layer, name) for layer in layers], dim=dim) for name, dim in (("codes", 0), ("scales", rows))
    )
    begin_of_codes = begin = 0
    for layer in layers:
        count = len(layer.codes)
        layer.codes = whole.codes[begin_of_codes : begin_of_codes + count]
        layer.scales = whole.scales.narrow(rows, begin, layer.out_features)
        begin_of_codes, begin = begin_of_codes + count, begin + layer.out_features
    return whole


def _in_eight_bits(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes int8 [rows, columns], and scales [rows] in the dtype of the weight."""
    scales = (weight.float().abs().amax(dim=1) / 127).clamp_min(torch.finfo(weight.dtype).tiny).to(weight.dtype)
    return (weight.float() / scales.float()[:, None]).round().clamp(-127, 127).to(torch.int8), scales


def in_integers(
    network: nn.Module, kind: str, place: torch.device, head: Any, left: Sequence[str], in_file: Mapping[str, Kept]
) -> None:
    """Replace a network's linear layers by layers of integers on a device, one after another.

    Layers whose names end with one of `left` stay as they are. On a GPU the head becomes int4 unless it is the
    embeddings, which would lie beside it. in_file: weights in the blocks of a file, by the names of their layers; int4
    keeps their codes where these have 4 bits.
    """
    embeddings = {id(each.weight) for each in network.modules() if isinstance(each, nn.Embedding)}
    for path, module in list(network.named_modules()):
        for name, layer in list(module.named_children()):
            own = f"{path}.{name}".removeprefix(".")
            stays = own.endswith(tuple(left))
            if layer is head:
                stays = id(head.weight) in embeddings
                if place.type == "cpu" and fits(*head.weight.shape):
                    setattr(module, name, Head(head, tied=stays))
                    continue
            if isinstance(layer, nn.Linear) and not stays and fits(*layer.weight.shape):
                stored = in_file.get(own)
                blocks = stored.blocks() if stored is not None and stored.bits == 4 else None
                setattr(module, name, IntegerLinear(layer, kind, place, blocks))
