"""The tensors of a bank of units. All stay at their addresses, so that a recorded pass can look units up."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels import quantise
from kernels.rows import Bank, QuantizedSlab
from kernels.slab_facts import tensors_of

FREE, CLAIMED = -1, -2  # no slot, or no unit; and a unit that is about to get a slot
NEVER = -(1 << 30)  # the last use of a slot that is free
NOWHERE = 1 << 60  # a row that no query sees
AGES = (1 << 29, 64, 16, 4, -(1 << 29))  # of a clock's rounds, in look-ups: free slots, older ones than so many, any
FACTS = 5
LOOKUP, HAND, MISSES, LOOKED, FETCHED = range(FACTS)  # indices of `facts`


@dataclass(frozen=True)
class UnitBank:
    """Units of one layer on the device.

    Attributes:
        size: rows of a unit.
        by_attention: whether units leave first that get the least attention; otherwise the least recently used.
        keys: [H, slots * size, D], in the type of the slabs that units come from.
        values: the same for the heads of values; none if keys are also the values.
        table: int32 [units], the slot of each unit, or FREE.
        owner: int32 [slots], the unit in each slot, or FREE.
        used: int32 [slots], the number of the last look-up of each slot.
        importance: float32 [slots], rank of each slot by attention: the look-up at which attention of 1 would weigh as
            much as all attention to the unit does now.
        filled: int32 [slots], rows of each unit that were there when it was fetched.
        missing: int32 [slots], units that a look-up misses.
        facts: int32 [FACTS]: number of the look-up, hand of the clock, units missed and looked up so far, units to be
            fetched.
    """

    size: int
    by_attention: bool
    keys: Bank
    values: Bank
    table: Tensor
    owner: Tensor
    used: Tensor
    importance: Tensor
    filled: Tensor
    missing: Tensor
    facts: Tensor

    @classmethod
    def empty(
        cls,
        like: tuple[Bank, Bank],
        slots: int,
        size: int,
        units: int,
        by_attention: bool,
        place: torch.device,
        latent: bool = False,
    ) -> UnitBank:
        """Return a bank without units.

        Args:
            like: a slab of keys and one of values that units come from.
            slots: units that fit.
            size: rows of a unit.
            units: length of the table.
            by_attention: whether units leave first that get the least attention.
            place: the device.
            latent: whether keys are also the values.
        """

        def integers(count: int, number: int) -> Tensor:
            return torch.full((count,), number, dtype=torch.int32, device=place)

        facts = integers(FACTS, 0)
        facts[LOOKUP] = 1
        heads = like[0].shape[0], 0 if latent else like[1].shape[0]
        keys, values = (_room(slab, own, slots, size, place) for slab, own in zip(like, heads, strict=True))
        return cls(
            size,
            by_attention,
            keys,
            values,
            table=integers(units, FREE),
            owner=integers(slots, FREE),
            used=integers(slots, NEVER),
            importance=torch.full((slots,), float(NEVER), device=place),
            filled=integers(slots, 0),
            missing=integers(slots, FREE),
            facts=facts,
        )

    @property
    def slots(self) -> int:
        """Units that fit."""
        return len(self.owner)

    @property
    def rank(self) -> Tensor:
        """Numbers that ages are told from, [slots]."""
        return self.importance if self.by_attention else self.used

    def with_room(self, units: int) -> UnitBank:
        """Return the bank with a table for at least so many units; itself if it has one."""
        if len(self.table) >= units:
            return self
        table = torch.full((max(units, 2 * len(self.table)),), FREE, dtype=torch.int32, device=self.table.device)
        table[: len(self.table)] = self.table
        return dataclasses.replace(self, table=table)

    def forget(self, first: int) -> None:
        """Give up all units from number `first` on."""
        gone = self.owner >= first
        self.owner.masked_fill_(gone, FREE)
        self.used.masked_fill_(gone, NEVER)
        self.importance.masked_fill_(gone, float(NEVER))
        self.table[first:] = FREE

    def attended(self, rows: Tensor, entries: Tensor, attention: Tensor) -> None:
        """Raise the importance of units by attention that was given to their rows (InfLLM, appendix, equation 1).

        A sum that decays by a factor of 10 at each look-up is compared by its logarithm, which then is a number of
        look-ups, and does not change while nothing is given to the unit.

        Args:
            rows: int64 [NB, N], rows of the bank, any for none.
            entries: int64 [NB, N], rows of the slabs that were there, NOWHERE for none. Units that have left since get
                nothing.
            attention: float32 [NB, N], summed over heads and queries.
        """
        slot = (rows.flatten() // self.size).clamp(0, self.slots - 1)
        held = self.owner.index_select(0, slot) == entries.flatten() // self.size
        total = torch.zeros_like(self.importance).index_add_(0, slot, attention.flatten().float() * held)
        now = self.facts[LOOKUP] - 1
        before = torch.pow(10.0, (self.importance - now).clamp(-30, 30))
        self.importance.copy_(torch.where(total > 0, torch.log10(before + total) + now, self.importance))


def _room(slab: Bank, heads: int, slots: int, size: int, place: torch.device) -> Bank:
    """Return an empty bank for so many units of such rows of the first heads. Rows without a unit hold numbers, so
    they may be masked.
    """
    rows = slots * size
    if isinstance(slab, Tensor):
        return torch.zeros(heads, rows, slab.shape[2], dtype=slab.dtype, device=place)
    codes = slab.quantized
    found = torch.zeros(heads, rows, codes.shape[2], dtype=torch.uint8, device=place).view(codes.dtype)
    scale = torch.zeros(heads, rows // _together(size, slab.group_size), device=place)
    return QuantizedSlab(found, scale, slab.channel_scale, slab.kind, slab.dtype)


def _together(size: int, group: int) -> int:
    """Return how many rows of a unit share a scale in the bank, where `group` rows share one in the slabs."""
    return math.gcd(size, group)


def unit_bytes(bank: UnitBank) -> int:
    """Return the bytes that one unit is fetched with."""
    return sum(part.nbytes for rows in (bank.keys, bank.values) for part in tensors_of(rows)) // bank.slots


def units_bytes(heads: int, head_size: int, size: int, dtype: torch.dtype, group: int) -> int:
    """Return the bytes of a unit's rows, of so many heads of keys and values together.

    Args:
        heads: of keys and of values.
        head_size: D.
        size: rows of the unit.
        dtype: of the slabs, a float type or a quantised one.
        group: rows of the slabs that share a scale.
    """
    if dtype not in quantise.KINDS:
        return heads * size * head_size * dtype.itemsize
    return heads * (size * quantise.width(dtype, head_size) + size // _together(size, group) * 4)
