"""Slabs of an archive: keys and values of all layers for some tokens, allocated whole and filled in place.

If the archive is quantised (8 or 4 bits, see `kernels/rows.py`), a slab holds whole groups. Sizes: H KV heads, R heads
of a stack, T tokens, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.spec import ModelSpec
from engine.parts.archive.stacks import Stacks
from kernels import quantise, rows
from kernels.rows import BANKS, Bank, ChannelScale, QuantizedSlab


def group_size_of(dtype: torch.dtype) -> int:
    """Return how many entries share a scale: the group size of a quantised tier, else 1."""
    return rows.GROUP_SIZE if dtype in quantise.KINDS else 1


@dataclass
class Slab:
    """Keys and values of all layers for some tokens.

    Attributes:
        keys: per layer [H, capacity, D].
        values: the same for `value_heads`.
        source: int32 [capacity].
        length: entries that are filled.
        mapped: whether they are in a mapped file, so that their memory can be reclaimed.
        stacks: the tensors that hold all of them [R, capacity or groups, ...], per stack one, or codes and scales;
            none if the slab was loaded, and is full.
    """

    keys: list[Bank]
    values: list[Bank]
    source: Tensor
    length: int = 0
    mapped: bool = False
    stacks: tuple[Tensor, ...] = ()

    @classmethod
    def empty(
        cls,
        spec: ModelSpec,
        stacks: Stacks,
        dtype: torch.dtype,
        capacity: int,
        channel_scales: list[tuple[ChannelScale, ChannelScale]],
        place: torch.device,
        pinned: bool,
    ) -> Slab:
        """Return a slab without entries.

        Args:
            spec: sizes of the tier.
            stacks: where heads lie.
            dtype: type of the tier.
            capacity: entries that fit.
            channel_scales: per layer, of keys and values; empty without quantisation.
            place: device of the entries; their source positions are in host memory.
            pinned: whether a GPU reads them in host memory.
        """
        source, each = torch.empty(capacity, dtype=torch.int32), list(zip(stacks.rows, stacks.sizes, strict=True))

        def new_buffer(heads: int, *shape: int, kind: torch.dtype = torch.float32) -> Tensor:
            return torch.empty(heads, *shape, dtype=kind, device=place, pin_memory=pinned)

        if group_size_of(dtype) == 1:
            numbers = [new_buffer(heads, capacity, size, kind=dtype) for heads, size in each]
            parts = stacks.parted(numbers)
            return cls([*parts[0]], [*parts[1]], source, stacks=tuple(numbers))
        kind, groups = quantise.stored(dtype), capacity // group_size_of(dtype)
        codes = [new_buffer(heads, capacity, quantise.width(dtype, size), kind=kind) for heads, size in each]
        scales = [new_buffer(heads, groups) for heads, _ in each]
        quantized: list[list[Bank]] = [
            [
                QuantizedSlab(rows, scale, pair[which], dtype, spec.dtype)
                for rows, scale, pair in zip(parts, coarse, channel_scales, strict=True)
            ]
            for which, (parts, coarse) in enumerate(zip(stacks.parted(codes), stacks.parted(scales), strict=True))
        ]
        every = (x for pair in zip(codes, scales, strict=True) for x in pair)
        keys, values = quantized
        return cls(keys, values, source, stacks=tuple(every))

    @property
    def capacity(self) -> int:
        """Entries that fit into the slab."""
        return self.source.shape[0]

    @property
    def full(self) -> bool:
        """True if no entry fits any more."""
        return self.length == self.capacity

    def nbytes(self) -> int:
        """Return the bytes of all tensors. Channel scales are counted once for the whole tier."""
        return self.source.nbytes + self.row_bytes()

    def row_bytes(self) -> int:
        """Return the bytes of keys and values."""
        return sum(x.nbytes for bank in [*self.keys, *self.values] for x in _tensors(bank).values())

    def put(self, new: list[Tensor], source: Tensor) -> None:
        """Add entries behind those that are there.

        Args:
            new: rows for each of `stacks`.
            source: int32 [T].
        """
        end = self.length + source.shape[0]
        for buffer, x in zip(self.stacks, new, strict=True):
            first, last = (rows.used(buffer, length, self.capacity) for length in (self.length, end))
            buffer[:, first:last] = x
        self.source[self.length : end] = source
        self.length = end

    def moved(self, larger: Slab) -> Slab:
        """Copy all entries to the beginning of an empty, larger slab and return that. Quantised rows stay unchanged."""
        for mine, bank in zip([*self.keys, *self.values], [*larger.keys, *larger.values], strict=True):
            for (_, tensor), (_, buffer) in zip(_tensors(mine).items(), _tensors(bank).items(), strict=True):
                buffer[:, : tensor.shape[1]] = tensor
        larger.source[: self.length] = self.source[: self.length]
        larger.length = self.length
        return larger

    def saved(self) -> dict[str, Tensor]:
        """Return the filled part by name, for disk. Quantised rows stay unchanged, without channel scales."""
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
        """Return a full slab over saved tensors, with the heads that the spec has.

        Args:
            tensors: as `saved` returned them.
            spec: sizes of the tier.
            dtype: type of the tier.
            channel_scales: per layer, of keys and values; empty without quantisation.
        """

        def bank(layer: int, which: int) -> Bank:
            own = spec.layers[layer]
            name, heads = f"{layer}.{BANKS[which]}", slice(0, own.value_heads if which else own.kv_heads)
            if group_size_of(dtype) == 1:
                return tensors[name][heads]
            quantized, scale = tensors[f"{name}.codes"][heads], tensors[f"{name}.scale"][heads]
            return QuantizedSlab(quantized, scale, channel_scales[layer][which], dtype, spec.dtype)

        keys, values = ([bank(layer, which) for layer in range(len(spec.layers))] for which in (0, 1))
        return cls(keys, values, tensors["source"], tensors["source"].shape[0])


def _tensors(bank: Bank) -> dict[str, Tensor]:
    """Return a bank's tensors by the ends of their names on disk. Dimension 1 counts entries or groups."""
    return {"": bank} if isinstance(bank, Tensor) else {".codes": bank.quantized, ".scale": bank.scale}
