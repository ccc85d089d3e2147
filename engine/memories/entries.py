"""Entries of heads that hold equally many, slot by slot, in the model's own type.

Sizes: H KV heads, T tokens, N and M entries, D head size.
"""

from __future__ import annotations

from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.memories.attention import BlockTable
from engine.memories.memory import NOT_IN_SOURCE, UNLIMITED
from engine.models.spec import LayerSpec, ModelSpec
from kernels.gathering import EntryBuffers, gather
from kernels.rows import Slabs


class Slots:
    """Entries of heads that hold equally many: keys before and after RoPE and values [H, capacity, D], source and score
    [H, capacity]. Of values there are `LayerSpec.value_heads`.

    score is what an entry was given when it was read, for methods that judge by that: its novelty, its importance.
    """

    ROWS: ClassVar[tuple[str, ...]] = ("keys", "rotated", "values", "source", "score")  # a row of each for every entry

    def __init__(self, layer: LayerSpec, spec: ModelSpec, first_slot: int, capacity: int, surplus: int) -> None:
        """Empty slots that begin at position first_slot, for the heads that `layer` describes.

        surplus: entries that these heads hold above the memory's average, negative below.
        """
        self.layer = layer
        self.first_slot = first_slot
        self.surplus = surplus
        shape = (layer.kv_heads, capacity)
        self.source = torch.full(shape, NOT_IN_SOURCE, dtype=torch.int32, device=spec.device)
        self.score = torch.zeros(shape, dtype=torch.float32, device=spec.device)
        self._allocate(spec, capacity)

    def _allocate(self, spec: ModelSpec, capacity: int) -> None:
        shape = (self.layer.kv_heads, capacity, self.layer.head_size)
        self.keys = torch.empty(shape, dtype=spec.dtype, device=spec.device)
        self.rotated = torch.empty_like(self.keys)
        self.values = self.keys.new_empty(self.layer.value_heads, *shape[1:])

    @property
    def as_kept(self) -> tuple[Tensor, Tensor]:
        """Keys before RoPE and values."""
        return self.keys, self.keys if self.layer.latent else self.values

    @property
    def capacity(self) -> int:
        """Entries per head that fit."""
        return self.source.shape[1]

    def write(self, at: int, keys: Tensor, values: Tensor, most: int = UNLIMITED) -> None:
        """Put keys and values [H, T, D] behind the first `at` entries, growing by doubling where there is no room.

        Their scores are 0 until they are given others. most: entries that are ever to come in.
        """
        end = at + keys.shape[1]
        if end > self.capacity:
            self._grow(max(end, min(2 * self.capacity, most)), at)
        self.score[:, at:end] = 0.0
        self._put(at, keys, values)

    def _put(self, at: int, keys: Tensor, values: Tensor) -> None:
        end = at + keys.shape[1]
        self.keys[:, at:end] = keys
        self.values[:, at:end] = values[: self.layer.value_heads]
        self.rotated[:, at:end] = self.layer.rope.rotate(keys, self.first_slot + at)

    def _grow(self, capacity: int, length: int) -> None:
        larger: dict[str, Tensor] = {}
        for name in self.ROWS:
            old: Tensor = getattr(self, name)
            new = old.new_empty(old.shape[0], capacity, *old.shape[2:])
            new[:, :length] = old[:, :length]
            larger[name] = new
        vars(self).update(larger)  # all or none: memory may run out on the way

    def waiting(self, length: int) -> int:
        """Of the first `length` entries, those that `settled` would do something about."""
        return 0

    def settled(self, length: int) -> Self:
        """The same slots, no longer waiting; what these hold is not touched."""
        return self

    def sides(self, base: Self | None, length: int) -> list[tuple[Self, int]]:
        """The slots before these, if there are any, and `length` entries of these: each with how many entries count."""
        return [(base, self.first_slot), (self, length)] if base is not None and self.first_slot else [(self, length)]

    def shown(
        self, base: Self | None, length: int, queries: int, in_sight: Tensor | None = None
    ) -> tuple[Slabs, Slabs, BlockTable | None]:
        """Keys and values of the base and of so many own entries, for so many queries: keys after RoPE, or lists.

        in_sight: which of the entries, but for the queries' own, each head sees, bool [H, N]; None for all.
        """
        sides = self.sides(base, length)
        name = "rotated" if in_sight is None else "keys"
        names = (name, name if self.layer.latent else "values")
        keys, values = ([(getattr(slots, each), count) for slots, count in sides] for each in names)
        if in_sight is None:
            return keys, values, None
        seen = F.pad(in_sight, (0, queries), value=True)
        rows = seen.any(dim=0).nonzero().T
        table = self.layer.rope.table(seen.shape[1])
        return keys, values, BlockTable(rows, rows, queries, *table, head_mask=seen[:, None, rows[0]])

    def take_over(self, old: Self, base: Self | None, length: int, index: Tensor) -> None:
        """Become entries index [H, M] of the base and the first `length` of old slots, rotated to 0, 1, 2, ..."""
        sides = old.sides(base, length)
        keys = [(slots.keys, count) for slots, count in sides]
        values = [(slots.values, count) for slots, count in sides]
        cos, sin = self.layer.rope.table(index.shape[1])
        gather(keys, values, index, cos, sin, EntryBuffers(self.keys, self.rotated, self.values))

    def saved(self, length: int) -> dict[str, Tensor]:
        """The first `length` entries by name, for disk: views, which on a full GPU are brought home one by one."""
        return {name: getattr(self, name)[:, :length] for name in ("keys", "values", "source", "score")}

    def load(self, saved: dict[str, Tensor], length: int) -> None:
        """Become what was saved; these slots are empty.

        Raises:
            RuntimeError: what was saved is in codes.
        """
        if saved["keys"].shape[1] != length:
            raise RuntimeError(f"keys of {saved['keys'].shape[1]} entries, where there are {length}")
        self.write(0, saved["keys"].to(self.keys), saved["values"].to(self.keys), length)
        for name in ("source", "score"):
            column: Tensor = getattr(self, name)
            column[:, :length] = saved[name].to(column.device)

    def follow(self, base: Self) -> None:
        """Go on behind a base; only codes have something to take from it."""

    def tensors(self) -> list[Tensor]:
        """All that takes memory."""
        return [getattr(self, name) for name in self.ROWS]
