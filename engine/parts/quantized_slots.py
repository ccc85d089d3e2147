"""Slots quantised to 8 or 4 bits: kept entries take a half or a quarter of their bytes on the device.

Keys (before RoPE) and values are quantised row by row, with one scale for each row of a head, after their channels have
been normalised by the statistics of the first entries (`kernels/rows.py`). Entries that are kept move to new slots
without being quantised again. However often a memory is condensed, each entry was rounded once. No rotated key is kept.
For few queries, such as a token of an answer, Triton kernels read the quantised rows in place. Otherwise attention
dequantises and rotates one layer at a time.

New entries stay pending in the model's dtype until there are `Quantization.most_pending` of them, and are quantised
together. This happens between two passes and no pass goes beyond it, so queries see the same values in passes of any
size.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from engine.errors import SettingsError
from engine.models.spec import LayerSpec, ModelSpec
from engine.parts.attention import FEW_QUERIES, BlockTable
from engine.parts.slot_rows import Slots
from kernels import choice, quantise
from kernels.rows import BANKS, Bank, ChannelScale, QuantizedSlab, Slabs

QUANTIZED_TYPES = {
    "int8": torch.int8,
    "int4": torch.quint4x2,
    "fp8": torch.float8_e4m3fn,
}  # of quint4x2 two are in a byte
MODEL = "model"  # the store without quantisation
STORES = (MODEL, *QUANTIZED_TYPES)
UNBOUNDED_WAIT = 256  # pending entries without a budget
LEAST_WAIT, LONGEST_WAIT = 64, 2048  # with a budget: more costs memory, fewer cost time
WAIT_SHARE = 8  # of the budget


def check_quantization(spec: ModelSpec, kind: torch.dtype) -> None:
    """Raise if a model or its device does not support a quantisation.

    Raises:
        SettingsError: naming the way out.
    """
    if kind == torch.quint4x2:
        odd = [layer.head_size for layer in spec.layers if layer.head_size % 2]
        if odd:
            raise SettingsError(f"store=int4 needs an even head size, and this model's is {odd[0]}: take int8.")
    on_gpu = spec.device.type == "cuda"
    if kind == torch.float8_e4m3fn and on_gpu and torch.cuda.get_device_capability(spec.device) < (8, 9):
        raise SettingsError("store=fp8 needs a GPU of compute capability 8.9 or more: take int8.")


def channel_scale_bytes(spec: ModelSpec) -> int:
    """Return the bytes of the channel scales of all layers: two float32 for each channel."""
    return 2 * 4 * spec.entry_width


@dataclass(frozen=True)
class Quantization:
    """The quantisation of slots.

    Attributes:
        kind: one of `quantise.KINDS`.
        most_pending: entries per head that may be pending before they are quantised together.
        catalyst: tokens of a catalyst that may follow them in a pass and are never kept.
    """

    kind: torch.dtype
    most_pending: int
    catalyst: int = 0

    @classmethod
    def of(cls, store: str, budget: int | None, catalyst: int = 0) -> Quantization | None:
        """Return the quantisation of a store, or None for the model's dtype.

        Args:
            store: one of `STORES`.
            budget: entries per head, or None without a limit.
            catalyst: tokens of the catalyst prompt.
        """
        if store == MODEL:
            return None
        if budget is None:
            return cls(QUANTIZED_TYPES[store], UNBOUNDED_WAIT, catalyst)
        least = min(LEAST_WAIT, budget // 4)
        return cls(QUANTIZED_TYPES[store], max(least, min(LONGEST_WAIT, budget // WAIT_SHARE)), catalyst)

    def slots(
        self, layer: LayerSpec, spec: ModelSpec, first_slot: int, capacity: int, extra_entries: int
    ) -> QuantizedSlots:
        """Return empty slots with this quantisation."""
        return QuantizedSlots(layer, spec, first_slot, capacity, extra_entries, self)

    def slot_bytes(self, spec: ModelSpec, capacity: int) -> int:
        """Return the bytes of the slots of all layers: quantised rows, scales, sources, scores and pending rows.

        Channel scales are not counted; see `channel_scale_bytes`.
        """
        total = 0
        for layer in spec.layers:
            entry = quantise.width(self.kind, layer.head_size) + 4
            wait = (self.most_pending + self.catalyst) * layer.head_size * spec.dtype.itemsize
            total += (layer.kv_heads + layer.value_heads) * (capacity * entry + wait) + 8 * layer.kv_heads * capacity
        return total


class QuantizedSlots(Slots):
    """Slots with the first `num_quantized` entries quantised, and pending ones in `keys` and `values` [H, P, D].

    P is `most_pending` + `catalyst` of the quantisation.
    """

    rotates: ClassVar[bool] = False
    ROWS: ClassVar[tuple[str, ...]] = (
        *("keys_quantized", "keys_scale", "values_quantized", "values_scale"),
        *("source", "score"),
    )

    def __init__(
        self,
        layer: LayerSpec,
        spec: ModelSpec,
        first_slot: int,
        capacity: int,
        extra_entries: int,
        quantization: Quantization,
    ) -> None:
        """Allocate empty slots; see `Slots`."""
        self.quantization = quantization
        self.num_quantized = 0
        self.channel_scales: tuple[ChannelScale, ChannelScale] | None = (
            None  # of keys and values, from the first quantisation on
        )
        super().__init__(layer, spec, first_slot, capacity, extra_entries)

    def _allocate(self, spec: ModelSpec, capacity: int) -> None:
        heads, size, kind = self.layer.kv_heads, self.layer.head_size, self.quantization.kind
        pending = (heads, self.quantization.most_pending + self.quantization.catalyst, size)
        valued = self.layer.value_heads
        self.keys = torch.empty(pending, dtype=spec.dtype, device=spec.device)
        self.values = self.keys.new_empty(valued, *pending[1:])
        quantized_rows = (heads, capacity, quantise.width(kind, size))
        self.keys_quantized = torch.empty(quantized_rows, dtype=quantise.stored(kind), device=spec.device)
        self.keys_scale = torch.empty(heads, capacity, device=spec.device)
        self.values_quantized = self.keys_quantized.new_empty(valued, *quantized_rows[1:])
        self.values_scale = self.keys_scale.new_empty(valued, capacity)

    def share_scales(self, base: Self) -> None:
        """Normalise as the base does."""
        self.channel_scales = base.channel_scales

    def write(self, at: int | Tensor, keys: Tensor, rotated: Tensor, values: Tensor) -> None:
        """Write a pass behind the pending entries. Rotated keys are not kept."""
        assert isinstance(at, int), "quantised slots are not recorded"
        begin, end = at - self.num_quantized, at - self.num_quantized + keys.shape[1]
        assert end <= self.keys.shape[1], "a pass with more tokens than may be pending"
        self.keys[:, begin:end] = keys
        self.values[:, begin:end] = values[: self.layer.value_heads]

    def pending(self, length: int) -> int:
        """Return how many of the first `length` entries are not quantised."""
        return length - self.num_quantized

    def quantize_pending(self, length: int) -> Self:
        """Return the same slots with the first `length` entries quantised; pending rows of these stay for snapshots."""
        new = copy.copy(self)
        count = length - self.num_quantized
        pending = {name: self._pending_rows(name)[:, :count] for name in BANKS}
        new.channel_scales = self.channel_scales or (
            ChannelScale.of(pending["keys"]),
            ChannelScale.of(pending["values"]),
        )
        for name in BANKS:
            new.quantized_slab(name).write(self.num_quantized, pending[name])
        new.keys, new.values = torch.empty_like(self.keys), torch.empty_like(self.values)
        new.num_quantized = length
        return new

    def slabs(
        self, base: Self | None, length: int, queries: int, mask: Tensor | None = None
    ) -> tuple[Slabs, Slabs, BlockTable | None]:
        """Return quantised rows if kernels read them, for few queries; else dequantised rows."""
        assert mask is None, "quantised entries are seen by all heads"
        if queries <= FEW_QUERIES and choice.uses_triton(self.keys.device):
            total = sum(count for _, count in self.with_base(base, length))
            every = torch.arange(total, device=self.keys.device)[None]
            lists = BlockTable(every, every, queries, *self.layer.rope.table(total))
            keys = self._stored_rows("keys", base, length)
            return keys, keys if self.layer.latent else self._stored_rows("values", base, length), lists
        rotated = self.layer.rope.rotate(self.dequantized("keys", base, length), 0)
        values = rotated if self.layer.latent else self.dequantized("values", base, length)
        return [(rotated, rotated.shape[1])], [(values, values.shape[1])], None

    def gather_from(self, old: Self, base: Self | None, length: int, index: Tensor) -> None:
        """Copy quantised rows and scales unchanged, and quantise the pending rows."""
        sides = old.with_base(base, length)
        self.channel_scales = old.channel_scales
        if self.channel_scales is None:  # condensed before anything had to be quantised
            pending = (
                torch.cat([slots._pending_rows(name)[:, :count] for slots, count in sides], dim=1) for name in BANKS
            )
            keys, values = map(ChannelScale.of, pending)
            self.channel_scales = keys, values
        for name in BANKS:
            mine = self.quantized_slab(name)
            quantized_rows, scale = zip(
                *(slots._quantized_rows(name, count, mine) for slots, count in sides), strict=True
            )
            found = torch.cat(quantized_rows, dim=1).view(torch.uint8)  # because PyTorch gathers no 8-bit floats
            own = index[: len(found)]
            rows = own[..., None].expand(-1, -1, found.shape[2])
            mine.quantized[:, : index.shape[1]] = found.gather(1, rows).view(mine.quantized.dtype)
            mine.scale[:, : index.shape[1]] = torch.cat(scale, dim=1).gather(1, own)
        self.num_quantized = index.shape[1]

    def saved(self, length: int) -> dict[str, Tensor]:
        """Return tensors to save: quantised rows, scales, channel scales and pending rows, unchanged."""
        tensors: dict[str, Tensor] = {name: getattr(self, name)[:, :length] for name in ("source", "score")}
        for name in BANKS:
            tensors[name] = self._pending_rows(name)[:, : length - self.num_quantized]
            if self.num_quantized:
                slab = self.quantized_slab(name)
                tensors[f"{name}.codes"], tensors[f"{name}.scale"] = (
                    x[:, : self.num_quantized] for x in (slab.quantized, slab.scale)
                )
                tensors |= slab.channel_scale.saved(name)
        return tensors

    def load(self, saved: dict[str, Tensor], length: int) -> None:
        """Load saved slots. A conversation uses the channel scales of its context, if that has any."""
        if length > self.capacity:
            self._grow(length, 0)
        if "keys.codes" in saved:
            if self.channel_scales is None:
                each = zip(BANKS, (len(self.keys), len(self.values)), strict=True)
                keys, values = (ChannelScale.loaded(saved, name, heads, self.keys.device) for name, heads in each)
                self.channel_scales = keys, values
            self.num_quantized = saved["keys.codes"].shape[1]
            for name in BANKS:
                slab = self.quantized_slab(name)
                slab.quantized[:, : self.num_quantized] = saved[f"{name}.codes"].to(self.keys.device)
                slab.scale[:, : self.num_quantized] = saved[f"{name}.scale"].to(self.keys.device)
        pending = saved["keys"].to(self.keys)
        self.write(self.num_quantized, pending, pending, saved["values"].to(self.keys))
        self.source[:, :length] = saved["source"].to(self.keys.device)
        self.score[:, :length] = saved["score"].to(self.keys.device)

    def tensors(self) -> list[Tensor]:
        """Return all tensors; channel scales are shared by a context and its forks."""
        channel_scales = [x for each in self.channel_scales or () for x in (each.mean, each.range)]
        return [*super().tensors(), self.keys, self.values, *channel_scales]

    def _pending_rows(self, name: str) -> Tensor:
        """Return the buffer of pending keys or values."""
        return self.keys if name == "keys" else self.values

    def quantized_slab(self, name: str) -> QuantizedSlab:
        """Return the quantised keys or values as a slab."""
        assert self.channel_scales is not None, "nothing is quantised before there are channel scales"
        quantized_rows, scale = getattr(self, f"{name}_quantized"), getattr(self, f"{name}_scale")
        return QuantizedSlab(
            quantized_rows, scale, self.channel_scales[name == "values"], self.quantization.kind, self.keys.dtype
        )

    def _quantized_rows(self, name: str, length: int, like: QuantizedSlab) -> tuple[Tensor, Tensor]:
        """Return quantised rows [H, length, W] and scales [H, length] of the first entries, pending ones included."""
        quantized_rows: Tensor = getattr(self, f"{name}_quantized")[:, : self.num_quantized]
        scale: Tensor = getattr(self, f"{name}_scale")[:, : self.num_quantized]
        count = length - self.num_quantized
        if count == 0:
            return quantized_rows, scale
        pending = dataclasses.replace(
            like,
            quantized=quantized_rows.new_empty(quantized_rows.shape[0], count, quantized_rows.shape[2]),
            scale=scale.new_empty(scale.shape[0], count),
        )
        pending.write(0, self._pending_rows(name)[:, :count])
        return torch.cat([quantized_rows, pending.quantized], dim=1), torch.cat([scale, pending.scale], dim=1)

    def _stored_rows(self, name: str, base: Self | None, length: int) -> Slabs:
        """Return keys or values of the base and of `length` own entries: quantised rows, then pending rows."""
        slabs: list[tuple[Bank, int]] = []
        for slots, count in self.with_base(base, length):
            if slots.num_quantized:
                slabs.append((slots.quantized_slab(name), slots.num_quantized))
            if count > slots.num_quantized:
                slabs.append((slots._pending_rows(name), count - slots.num_quantized))
        return slabs

    def dequantized(self, name: str, base: Self | None, length: int) -> Tensor:
        """Return keys or values [H, N, D] of the base and of `length` own entries, dequantised to the model's dtype."""
        slabs = self._stored_rows(name, base, length)
        numbers = (bank[:, :n] if isinstance(bank, Tensor) else bank.dequantized(n) for bank, n in slabs)
        return torch.cat(list(numbers), dim=1)
