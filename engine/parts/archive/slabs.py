"""A slab of the host tier: keys and values of all layers for some tokens, allocated whole and filled in place.

Where the tier keeps codes (8 or 4 bits, see `kernels/rows.py`), a slab holds whole pages. Sizes: H KV heads, T tokens,
D head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.spec import ModelSpec
from kernels import quantise, rows
from kernels.rows import BANKS, Bank, ChannelScale, QuantizedSlab


def group_size_of(dtype: torch.dtype) -> int:
    """Entries that are stored together: a page where the host tier keeps codes, else 1."""
    return rows.GROUP_SIZE if dtype in quantise.KINDS else 1


@dataclass
class Slab:
    """Keys and values of all layers: per layer [H, capacity, D], of values for `value_heads`; source int32 [capacity].

    mapped: whether they are in a file that is mapped into memory, and so take none of it for good.
    """

    keys: list[Bank]
    values: list[Bank]
    source: Tensor
    length: int = 0
    mapped: bool = False

    @property
    def capacity(self) -> int:
        """Entries that fit."""
        return self.source.shape[0]

    @property
    def full(self) -> bool:
        """Whether nothing more goes in."""
        return self.length == self.capacity

    def nbytes(self) -> int:
        """Bytes of all its tensors; levels are counted once for the whole tier."""
        banks = [*self.keys, *self.values]
        return self.source.nbytes + sum(tensor.nbytes for bank in banks for tensor in _tensors(bank).values())

    def put(self, keys: list[Tensor], values: list[Tensor], source: Tensor) -> None:
        """Entries behind those that are there, for which there is room: per layer [H, T, D]; int32 [T]."""
        end = self.length + source.shape[0]
        for bank, new in zip([*self.keys, *self.values], [*keys, *values], strict=True):
            if isinstance(bank, QuantizedSlab):
                bank.write(self.length, new)
            else:
                bank[:, self.length : end] = new
        self.source[self.length : end] = source
        self.length = end

    def moved(self, larger: Slab) -> Slab:
        """All of it at the beginning of another slab, which has more room and held nothing; codes go as they are."""
        for mine, bank in zip([*self.keys, *self.values], [*larger.keys, *larger.values], strict=True):
            for (_, tensor), (_, room) in zip(_tensors(mine).items(), _tensors(bank).items(), strict=True):
                room[:, : tensor.shape[1]] = tensor
        larger.source[: self.length] = self.source[: self.length]
        larger.length = self.length
        return larger

    def saved(self) -> dict[str, Tensor]:
        """What counts of it by name, for disk. Codes go as they are, without their levels."""
        tensors = {"source": self.source[: self.length]}
        for layer, pair in enumerate(zip(self.keys, self.values, strict=True)):
            for name, bank in zip(BANKS, pair, strict=True):
                for end, tensor in _tensors(bank).items():
                    tensors[f"{layer}.{name}{end}"] = tensor[:, : rows.used(tensor, self.length, self.capacity)]
        return tensors

    @classmethod
    def loaded(
        cls,
        tensors: dict[str, Tensor],
        spec: ModelSpec,
        dtype: torch.dtype,
        channel_scales: list[tuple[ChannelScale, ChannelScale]],
    ) -> Slab:
        """Of what was saved, where it lies, the heads that the spec has; it is full.

        dtype: of the tier; levels: of codes, per layer of both.
        """

        def bank(layer: int, which: int) -> Bank:
            own = spec.layers[layer]
            name, heads = f"{layer}.{BANKS[which]}", slice(0, own.value_heads if which else own.kv_heads)
            if group_size_of(dtype) == 1:
                return tensors[name][heads]
            codes, scale = tensors[f"{name}.codes"][heads], tensors[f"{name}.scale"][heads]
            return QuantizedSlab(codes, scale, channel_scales[layer][which], dtype, spec.dtype)

        keys, values = ([bank(layer, which) for layer in range(len(spec.layers))] for which in (0, 1))
        return cls(keys, values, tensors["source"], tensors["source"].shape[0])


def _tensors(bank: Bank) -> dict[str, Tensor]:
    """A bank's own tensors by the ends of their names on disk; the second dimension of each is of entries or pages."""
    return {"": bank} if isinstance(bank, Tensor) else {".codes": bank.quantized, ".scale": bank.scale}
