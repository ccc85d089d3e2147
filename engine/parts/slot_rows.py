"""Rows of slots: entries of heads that hold equally many, in the model's dtype.

Sizes: H KV heads, T tokens, N and M entries, D head size.
"""

from __future__ import annotations

import sys
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.spec import LayerSpec, ModelSpec
from engine.parts.attention import BlockTable
from engine.parts.mass import NOT_IN_SOURCE
from kernels.gathering import EntryBuffers, gather
from kernels.rows import Slabs, put_rows


class Slots:
    """Entries of heads that hold equally many: keys before and after RoPE and values [H, capacity, D].

    Attributes:
        source: int32 [H, capacity], the source position of each entry.
        score: float32 [H, capacity], its importance or novelty when it was read.
        first_slot: position of the first row.
        extra_entries: entries that these heads hold above the store's average, negative below.
    """

    rotates: ClassVar[bool] = True  # whether rotated keys are kept
    ROWS: ClassVar[tuple[str, ...]] = ("keys", "rotated", "values", "source", "score")  # tensors with a row an entry

    def __init__(self, layer: LayerSpec, spec: ModelSpec, first_slot: int, capacity: int, extra_entries: int) -> None:
        """Allocate empty slots for the heads that `layer` describes."""
        self.layer = layer
        self.first_slot = first_slot
        self.extra_entries = extra_entries
        shape = (layer.kv_heads, capacity)
        self.source = torch.full(shape, NOT_IN_SOURCE, dtype=torch.int32, device=spec.device)
        self.score = torch.zeros(shape, dtype=torch.float32, device=spec.device)
        self.blank = False  # whether rows without an entry hold numbers, so that they may be masked
        self._allocate(spec, capacity)

    def _allocate(self, spec: ModelSpec, capacity: int) -> None:
        shape = (self.layer.kv_heads, capacity, self.layer.head_size)
        self.keys = torch.empty(shape, dtype=spec.dtype, device=spec.device)
        self.rotated = torch.empty_like(self.keys)
        self.values = self.keys.new_empty(self.layer.value_heads, *shape[1:])

    @property
    def unrotated(self) -> tuple[Tensor, Tensor]:
        """Keys before RoPE, and values."""
        return self.keys, self.keys if self.layer.latent else self.values

    @property
    def capacity(self) -> int:
        """Entries per head that fit."""
        return self.source.shape[1]

    def make_room(self, length: int, end: int, most: int = sys.maxsize) -> None:
        """Grow, by doubling, until `end` entries fit; the first `length` are kept. most: entries that ever come."""
        if end > self.capacity:
            self._grow(max(end, min(2 * self.capacity, most)), length)

    def write(self, at: int | Tensor, keys: Tensor, rotated: Tensor, values: Tensor) -> None:
        """Write a pass of T tokens into rows. There must be room for them.

        Args:
            at: the first row, or int64 [1] on the device for a pass of one token.
            keys: [H, T, D], before RoPE.
            rotated: [H, T, D], keys after RoPE.
            values: [H, T, D].
        """
        put_rows(at, (self.keys, keys), (self.rotated, rotated), (self.values, values[: self.layer.value_heads]))

    def _grow(self, capacity: int, length: int) -> None:
        larger: dict[str, Tensor] = {}
        for name in self.ROWS:
            old: Tensor = getattr(self, name)
            new = old.new_empty(old.shape[0], capacity, *old.shape[2:])
            new[:, :length] = old[:, :length]
            larger[name] = new
        larger["score"][:, length:] = 0.0
        vars(self).update(larger)  # all or none: memory may run out on the way
        self.blank = False

    def blank_from(self, length: int) -> None:
        """Fill the rows behind the first `length` with zeros, once, so that they can be masked."""
        if not self.blank:
            self.rotated[:, length:], self.values[:, length:], self.score[:, length:] = 0.0, 0.0, 0.0
            self.source[:, length:] = NOT_IN_SOURCE
            self.blank = True

    def pending(self, length: int) -> int:
        """Return how many of the first `length` entries `quantize_pending` would quantise."""
        return 0

    def quantize_pending(self, length: int) -> Self:
        """Return the same slots with nothing pending; these are not changed."""
        return self

    def with_base(self, base: Self | None, length: int) -> list[tuple[Self, int]]:
        """Return the slots before these, if there are any, and these, each with how many entries count."""
        return [(base, self.first_slot), (self, length)] if base is not None and self.first_slot else [(self, length)]

    def slabs(
        self, base: Self | None, length: int, queries: int, mask: Tensor | None = None
    ) -> tuple[Slabs, Slabs, BlockTable | None]:
        """Return keys and values of the base and of the first `length` own entries.

        Args:
            base: the slots before these, or None.
            length: own entries that count.
            queries: of the pass; the last entries are theirs.
            mask: which of the entries before the queries' own each head sees, bool [H, N]; None for all.

        Returns:
            Keys after RoPE and no table, or keys before RoPE and a table of the rows to see.
        """
        sides = self.with_base(base, length)
        name = "rotated" if mask is None else "keys"
        names = (name, name if self.layer.latent else "values")
        keys, values = ([(getattr(slots, each), count) for slots, count in sides] for each in names)
        if mask is None:
            return keys, values, None
        seen = F.pad(mask, (0, queries), value=True)
        rows = seen.any(dim=0).nonzero().T
        table = self.layer.rope.table(seen.shape[1])
        return keys, values, BlockTable(rows, rows, queries, *table, head_mask=seen[:, None, rows[0]])

    def sources(self, base: Self | None, length: int) -> Tensor:
        """Return the source positions of the base and of the first `length` own entries, int32 [H, N]."""
        pieces = [slots.source[:, :count] for slots, count in self.with_base(base, length)]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)

    def gather_from(self, old: Self, base: Self | None, length: int, index: Tensor) -> None:
        """Become entries `index` [H, M] of the base and the first `length` old slots, rotated to 0, 1, 2, ..."""
        sides = old.with_base(base, length)
        keys = [(slots.keys, count) for slots, count in sides]
        values = [(slots.values, count) for slots, count in sides]
        cos, sin = self.layer.rope.table(index.shape[1])
        gather(keys, values, index, cos, sin, EntryBuffers(self.keys, self.rotated, self.values))

    def saved(self, length: int) -> dict[str, Tensor]:
        """Return views of the first `length` entries, by name, for disk."""
        return {name: getattr(self, name)[:, :length] for name in ("keys", "values", "source", "score")}

    def load(self, saved: dict[str, Tensor], length: int) -> None:
        """Take over saved entries; these slots are empty.

        Raises:
            RuntimeError: the saved entries are quantised.
        """
        if saved["keys"].shape[1] != length:
            raise RuntimeError(f"keys of {saved['keys'].shape[1]} entries, where there are {length}")
        self.make_room(0, length, length)
        keys = saved["keys"].to(self.keys)
        self.write(0, keys, self.layer.rope.rotate(keys, self.first_slot), saved["values"].to(self.keys))
        for name in ("source", "score"):
            column: Tensor = getattr(self, name)
            column[:, :length] = saved[name].to(column.device)

    def share_scales(self, base: Self) -> None:
        """Quantise like the base; only quantised slots do something."""

    def tensors(self) -> list[Tensor]:
        """Return all tensors that take memory."""
        return [getattr(self, name) for name in self.ROWS]
