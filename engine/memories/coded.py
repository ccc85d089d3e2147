"""Slots in codes of 8 or 4 bits: kept entries take a half or a quarter of their bytes, on the device itself.

Keys (before RoPE) and values are coded row by row, each row of a head by a scale of its own, after its channels have
been levelled by what the first entries were like (`kernels/rows.py`). So entries that are kept move to new slots as the
codes they are: however often a memory is condensed, each was rounded once. Nothing is kept rotated. For few queries, as
for a token of an answer, Triton kernels read codes where they lie. Else attention turns the codes of one layer into
numbers and rotates those, for as long as that layer's turn lasts.

What comes in waits in the model's own type until there are `Coding.waiting` of it, and is coded together. That happens
between two passes and no pass goes beyond it, so the size of passes does not change what a query sees.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from engine.errors import SettingsError
from engine.memories.attention import FEW_QUERIES, BlockTable
from engine.memories.entries import Slots
from engine.models.spec import LayerSpec, ModelSpec
from kernels import choice, quantise
from kernels.rows import BANKS, Bank, ChannelScale, QuantizedSlab, Slabs

CODES = {"int8": torch.int8, "int4": torch.quint4x2, "fp8": torch.float8_e4m3fn}  # of quint4x2 two are in a byte
MODEL = "model"  # the store that is no code
STORES = (MODEL, *CODES)
UNBOUNDED_WAIT = 256  # entries that wait where there is no budget
LEAST_WAIT, LONGEST_WAIT = 64, 2048  # and where there is one: a longer wait costs memory, a shorter one longer reading
WAIT_SHARE = 8  # of the budget


def check_codes(spec: ModelSpec, kind: torch.dtype) -> None:
    """Refuse codes that a model or its device cannot have.

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


def level_bytes(spec: ModelSpec) -> int:
    """Bytes of the levels of all layers, which are there from the first coding on: two float32 for each channel."""
    return 2 * 4 * spec.entry_width


@dataclass(frozen=True)
class Coding:
    """How slots are coded.

    kind: one of `quantise.KINDS`; waiting: entries per head that wait for one another; catalyst: tokens that may come
    behind them in a pass and are never kept.
    """

    kind: torch.dtype
    waiting: int
    catalyst: int = 0

    @classmethod
    def of(cls, store: str, budget: int | None, catalyst: int = 0) -> Coding | None:
        """By the name of a store; None for the model's own type."""
        if store == MODEL:
            return None
        if budget is None:
            return cls(CODES[store], UNBOUNDED_WAIT, catalyst)
        least = min(LEAST_WAIT, budget // 4)
        return cls(CODES[store], max(least, min(LONGEST_WAIT, budget // WAIT_SHARE)), catalyst)

    def slots(self, layer: LayerSpec, spec: ModelSpec, first_slot: int, capacity: int, surplus: int) -> CodedSlots:
        """Empty slots that are coded so."""
        return CodedSlots(layer, spec, first_slot, capacity, surplus, self)

    def slot_bytes(self, spec: ModelSpec, capacity: int) -> int:
        """Bytes of the slots of all layers: codes, a scale each, source and score; and what waits. Without levels."""
        total = 0
        for layer in spec.layers:
            entry = quantise.width(self.kind, layer.head_size) + 4
            wait = (self.waiting + self.catalyst) * layer.head_size * spec.dtype.itemsize
            total += (layer.kv_heads + layer.value_heads) * (capacity * entry + wait) + 8 * layer.kv_heads * capacity
        return total


class CodedSlots(Slots):
    """The first `coded` entries in codes, those behind them in `keys` and `values` [H, waiting + catalyst, D]."""

    ROWS: ClassVar[tuple[str, ...]] = (
        *("keys_codes", "keys_scale", "values_codes", "values_scale"),
        *("source", "score"),
    )

    def __init__(
        self, layer: LayerSpec, spec: ModelSpec, first_slot: int, capacity: int, surplus: int, coding: Coding
    ) -> None:
        """Empty; see `Slots`."""
        self.coding = coding
        self.coded = 0
        self.levels: tuple[ChannelScale, ChannelScale] | None = (
            None  # of keys and values, until entries have shown them
        )
        super().__init__(layer, spec, first_slot, capacity, surplus)

    def _allocate(self, spec: ModelSpec, capacity: int) -> None:
        heads, size, kind = self.layer.kv_heads, self.layer.head_size, self.coding.kind
        waiting = (heads, self.coding.waiting + self.coding.catalyst, size)
        valued = self.layer.value_heads
        self.keys = torch.empty(waiting, dtype=spec.dtype, device=spec.device)
        self.values = self.keys.new_empty(valued, *waiting[1:])
        codes = (heads, capacity, quantise.width(kind, size))
        self.keys_codes = torch.empty(codes, dtype=quantise.stored(kind), device=spec.device)
        self.keys_scale = torch.empty(heads, capacity, device=spec.device)
        self.values_codes = self.keys_codes.new_empty(valued, *codes[1:])
        self.values_scale = self.keys_scale.new_empty(valued, capacity)

    def follow(self, base: Self) -> None:
        """What is coded behind the base is levelled like it."""
        self.levels = base.levels

    def _put(self, at: int, keys: Tensor, values: Tensor) -> None:
        begin, end = at - self.coded, at - self.coded + keys.shape[1]
        assert end <= self.keys.shape[1], "a pass that goes beyond what may wait"
        self.keys[:, begin:end] = keys
        self.values[:, begin:end] = values[: self.layer.value_heads]

    def waiting(self, length: int) -> int:
        """Those that are not coded."""
        return length - self.coded

    def settled(self, length: int) -> Self:
        """Coded up to there, behind the codes that are there already; what waits here stays for whoever looks back."""
        new = copy.copy(self)
        count = length - self.coded
        waiting = {name: self._bank(name)[:, :count] for name in BANKS}
        new.levels = self.levels or (ChannelScale.of(waiting["keys"]), ChannelScale.of(waiting["values"]))
        for name in BANKS:
            new._pages(name).write(self.coded, waiting[name])
        new.keys, new.values = torch.empty_like(self.keys), torch.empty_like(self.values)
        new.coded = length
        return new

    def shown(
        self, base: Self | None, length: int, queries: int, in_sight: Tensor | None = None
    ) -> tuple[Slabs, Slabs, BlockTable | None]:
        """As codes where kernels read them, for few queries; else as numbers, for as long as somebody holds them."""
        assert in_sight is None, "what is in codes is seen by all heads"
        if queries <= FEW_QUERIES and choice.uses_triton(self.keys.device):
            total = sum(count for _, count in self.sides(base, length))
            every = torch.arange(total, device=self.keys.device)[None]
            lists = BlockTable(every, every, queries, *self.layer.rope.table(total))
            keys = self._as_they_lie("keys", base, length)
            return keys, keys if self.layer.latent else self._as_they_lie("values", base, length), lists
        rotated = self.layer.rope.rotate(self._numbers("keys", base, length), 0)
        values = rotated if self.layer.latent else self._numbers("values", base, length)
        return [(rotated, rotated.shape[1])], [(values, values.shape[1])], None

    def take_over(self, old: Self, base: Self | None, length: int, index: Tensor) -> None:
        """Codes and scales go over as they are; what still waits is coded on the way."""
        sides = old.sides(base, length)
        self.levels = old.levels
        if self.levels is None:  # condensed early, before anything had to be coded
            waiting = (torch.cat([slots._bank(name)[:, :count] for slots, count in sides], dim=1) for name in BANKS)
            keys, values = map(ChannelScale.of, waiting)
            self.levels = keys, values
        for name in BANKS:
            mine = self._pages(name)
            codes, scale = zip(*(slots._in_codes(name, count, mine) for slots, count in sides), strict=True)
            found = torch.cat(codes, dim=1).view(torch.uint8)  # because PyTorch gathers no 8-bit floats
            own = index[: len(found)]
            rows = own[..., None].expand(-1, -1, found.shape[2])
            mine.quantized[:, : index.shape[1]] = found.gather(1, rows).view(mine.quantized.dtype)
            mine.scale[:, : index.shape[1]] = torch.cat(scale, dim=1).gather(1, own)
        self.coded = index.shape[1]

    def saved(self, length: int) -> dict[str, Tensor]:
        """Codes as they are with their levels, and what waits as it is."""
        tensors: dict[str, Tensor] = {name: getattr(self, name)[:, :length] for name in ("source", "score")}
        for name in BANKS:
            tensors[name] = self._bank(name)[:, : length - self.coded]
            if self.coded:
                pages = self._pages(name)
                tensors[f"{name}.codes"], tensors[f"{name}.scale"] = (
                    x[:, : self.coded] for x in (pages.quantized, pages.scale)
                )
                tensors |= pages.channel_scale.saved(name)
        return tensors

    def load(self, saved: dict[str, Tensor], length: int) -> None:
        """Become what was saved. A conversation's has the levels of its context, if that has any."""
        if length > self.capacity:
            self._grow(length, 0)
        if "keys.codes" in saved:
            if self.levels is None:
                each = zip(BANKS, (len(self.keys), len(self.values)), strict=True)
                keys, values = (ChannelScale.loaded(saved, name, heads, self.keys.device) for name, heads in each)
                self.levels = keys, values
            self.coded = saved["keys.codes"].shape[1]
            for name in BANKS:
                pages = self._pages(name)
                pages.quantized[:, : self.coded] = saved[f"{name}.codes"].to(self.keys.device)
                pages.scale[:, : self.coded] = saved[f"{name}.scale"].to(self.keys.device)
        self._put(self.coded, saved["keys"].to(self.keys), saved["values"].to(self.keys))
        self.source[:, :length] = saved["source"].to(self.keys.device)
        self.score[:, :length] = saved["score"].to(self.keys.device)

    def tensors(self) -> list[Tensor]:
        """Levels, once they are known, belong to a context and its forks together."""
        levels = [x for each in self.levels or () for x in (each.mean, each.range)]
        return [*super().tensors(), self.keys, self.values, *levels]

    def _bank(self, name: str) -> Tensor:
        """What waits, of keys or values."""
        return self.keys if name == "keys" else self.values

    def _pages(self, name: str) -> QuantizedSlab:
        """What is coded, of keys or values."""
        assert self.levels is not None, "nothing is coded before anything was levelled"
        codes, scale = getattr(self, f"{name}_codes"), getattr(self, f"{name}_scale")
        return QuantizedSlab(codes, scale, self.levels[name == "values"], self.coding.kind, self.keys.dtype)

    def _in_codes(self, name: str, length: int, like: QuantizedSlab) -> tuple[Tensor, Tensor]:
        """Codes [H, length, W] and scales [H, length] of the first entries, those that wait levelled like others."""
        codes: Tensor = getattr(self, f"{name}_codes")[:, : self.coded]
        scale: Tensor = getattr(self, f"{name}_scale")[:, : self.coded]
        count = length - self.coded
        if count == 0:
            return codes, scale
        waiting = dataclasses.replace(
            like,
            quantized=codes.new_empty(codes.shape[0], count, codes.shape[2]),
            scale=scale.new_empty(scale.shape[0], count),
        )
        waiting.write(0, self._bank(name)[:, :count])
        return torch.cat([codes, waiting.quantized], dim=1), torch.cat([scale, waiting.scale], dim=1)

    def _as_they_lie(self, name: str, base: Self | None, length: int) -> Slabs:
        """Keys or values of the base and of so many own entries: codes, and behind them what waits."""
        slabs: list[tuple[Bank, int]] = []
        for slots, count in self.sides(base, length):
            if slots.coded:
                slabs.append((slots._pages(name), slots.coded))
            if count > slots.coded:
                slabs.append((slots._bank(name), count - slots.coded))
        return slabs

    def _numbers(self, name: str, base: Self | None, length: int) -> Tensor:
        """Keys or values [H, N, D] of the base and of so many own entries, in the model's own type."""
        slabs = self._as_they_lie(name, base, length)
        numbers = (bank[:, :n] if isinstance(bank, Tensor) else bank.dequantized(n) for bank, n in slabs)
        return torch.cat(list(numbers), dim=1)
