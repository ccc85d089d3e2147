"""Layers of a model on a CPU whose weights stay in the blocks of its GGUF file.

| layer | a pass of one or more tokens |
|---|---|
| linear | ONNX Runtime multiplies with the blocks, packed anew in memory (`products.py`) |
| linear, in bfloat16 on a processor that is fast in it, and many tokens | the weight is unpacked for that pass |
| embeddings | the rows of the tokens are read from the file |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.memory_usage import give_back
from engine.models.gguf.header import BLOCKS, FLOATS, Stored
from engine.models.gguf.kept import Kept, OpenFile
from engine.models.gguf.weights import Place
from engine.models.packed_file import PackedFile
from engine.models.placement import fast_in_bfloat16
from engine.models.products import Product

FREED_AFTER = 1 << 25  # weights that are packed before memory is given back
UNPACKED_FROM = 64  # rows of a pass from which products in bfloat16 are worth unpacking weights


class FileProduct:
    """Products with the rows of one or several weights in a file."""

    def __init__(self, weights: Sequence[Kept], bias: Tensor | None = None) -> None:
        """Take the rows of all weights, in order; bias: of all of them."""
        self.weights, self.bias = weights, bias
        self._product: Product | None = None  # made when it is first wanted, or one for each layer would come first

    def prepared(self, packed: PackedFile | None = None) -> Product:
        """Return the product, made if it was not yet. packed: has the packed weights."""
        if self._product is None:
            of = Kept.packed if packed is None else packed.pieces
            self._product = Product(self.weights[0].shape[1], (piece for each in self.weights for piece in of(each)))
        return self._product

    def __call__(self, x: Tensor) -> Tensor:
        """Return the products [..., rows] with x [..., columns], in its dtype."""
        rows = x.reshape(-1, x.shape[-1])
        if x.dtype == torch.bfloat16 and len(rows) >= UNPACKED_FROM and fast_in_bfloat16(x.device):
            products = [F.linear(rows, each.weight(x.dtype)) for each in self.weights]
            found = products[0] if len(products) == 1 else torch.cat(products, dim=1)
        else:
            found = self.prepared()(rows).to(x.dtype)
        found = found.view(*x.shape[:-1], -1)
        return found if self.bias is None else found.add_(self.bias)


class FileLinear(nn.Module):
    """Takes the place of a linear layer. Nothing can be trained through it."""

    def __init__(self, linear: nn.Linear, weight: Kept) -> None:
        """Take over the sizes and the bias of a layer."""
        super().__init__()
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias
        self.kept = weight
        self._own: FileProduct | None = None

    @property
    def own(self) -> FileProduct:
        """The product of this layer alone."""
        if self._own is None:  # not before the bias is loaded
            self._own = FileProduct([self.kept], self.bias)
        return self._own

    def forward(self, x: Tensor) -> Tensor:
        """Return the products [..., out] with x [..., in], and the bias added."""
        return self.own(x)


class FileEmbedding(nn.Embedding):
    """Takes the place of embeddings. Arithmetic of the model's own class stays."""

    kept: Kept

    def forward(self, ids: Tensor) -> Tensor:
        """Return the rows [..., hidden] of ids [...]."""
        each, back = torch.unique(ids, return_inverse=True)
        return self.kept.numbers(each)[back].to(self.weight.dtype)


def prepare_products(layers: Iterable[nn.Module], packed: PackedFile | None = None) -> None:
    """Pack the blocks of layers, once those with one input are joined, and free what that took.

    packed: has the packed weights, or takes them.
    """
    weights = 0
    for layer in layers:
        if isinstance(layer, FileLinear):
            product = getattr(getattr(layer, "joined", None), "product", None) or layer.own
            product.prepared(packed)
            weights += layer.in_features * layer.out_features
            if weights > FREED_AFTER:
                give_back()
                weights = 0
    give_back()


def keep_in_file(network: nn.Module, weights: Mapping[str, Kept], dtype: torch.dtype) -> None:
    """Replace layers of a network on the meta device. weights: by the names of the layers, as `kept_in` gives them."""
    for path, weight in weights.items():
        parent, _, name = path.rpartition(".")
        layer: Any = network.get_submodule(path)
        if isinstance(layer, nn.Linear):
            setattr(network.get_submodule(parent), name, FileLinear(layer, weight))
            continue
        kind = type(layer)
        layer.__class__ = FileEmbedding if kind is nn.Embedding else type(kind.__name__, (kind, FileEmbedding), {})
        layer.kept = weight
        del layer.weight
        layer.weight = torch.full((), torch.nan, dtype=dtype).expand(weight.shape)  # for its shape and dtype
        layer.weight._is_hf_initialized = True  # transformers leaves it alone then


def kept_in(
    network: nn.Module, places: Mapping[str, Place], tensors: Mapping[str, Stored], left: Sequence[str]
) -> dict[str, Kept]:
    """Return the weights of a network that stay in their file, by the names of its layers.

    A head that is the embeddings stays with them, and embeddings with such a head.

    Args:
        network: of the file's configuration, on the meta device.
        places: of its weights, by their names; without those that are tied to another.
        tensors: of the file, by name.
        left: endings of the names of layers that are not replaced.
    """
    files: dict[Path, OpenFile] = {}
    found: dict[str, Kept] = {}
    tied: Any = getattr(network, "all_tied_weights_keys", {})
    for path, layer in network.named_modules():
        if not isinstance(layer, nn.Linear | nn.Embedding) or path.endswith(tuple(left)):
            continue
        name = f"{path}.weight"
        place = places.get(tied.get(name, name))
        kinds = BLOCKS if isinstance(layer, nn.Linear) or name in tied.values() else BLOCKS | FLOATS
        kept = None if place is None else Kept.of(place, tensors, files, kinds)
        if kept is not None:
            found[path], kept.name = kept, path
    return found
