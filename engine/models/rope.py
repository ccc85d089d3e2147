"""Rotary position embedding, applied by the engine and not by the model (see `attention_interface.py`).

Half-split layout, as in Llama: dimension i is paired with i + R/2, where R is the rotated width (R < D for partial
rotary). Where a model pairs neighbours instead, the attention function puts queries and keys into this order. Memories
keep keys before rotation; `engine/positions.py` says which position a key or query gets.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.layers import turn


class Rope:
    """Rotates by one frequency table, equal to the bit to transformers' own rotation in the same dtype."""

    def __init__(self, inv_freq: Tensor, attention_scaling: float = 1.0) -> None:
        """Rotate by these frequencies.

        inv_freq: [R/2] float32; attention_scaling: factor of cosine and sine (YaRN).
        """
        self.inv_freq = inv_freq.float()
        self.attention_scaling = attention_scaling
        self._tables: dict[torch.dtype, tuple[Tensor, Tensor]] = {}

    def rotate(self, x: Tensor, start: int | Tensor, limit: int | None = None) -> Tensor:
        """Rotate x [H, T, D] to positions start, start+1, ... or, if `start` is an int64 tensor [T], to those.

        limit: bound that all positions in the tensor lie below, which saves reading them from the device.
        """
        return turn(x, *self.rows(start, x.shape[-2], x.dtype, limit))

    def rows(
        self, start: int | Tensor, count: int, dtype: torch.dtype, limit: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines [T, R/2] that `rotate` needs for `count` rows, to serve for many tensors."""
        if isinstance(start, int):
            cos, sin = self._table(start + count, dtype)
            return cos[start : start + count], sin[start : start + count]
        cos, sin = self._table(int(start.max()) + 1 if limit is None else limit, dtype)
        return cos[start], sin[start]

    def to_constant(self, x: Tensor, position: int) -> Tensor:
        """Rotate every row of x [H, T, D] to the same position."""
        if position == 0 and self.attention_scaling == 1.0:  # a rotation by nothing
            return x
        cos, sin = self._table(position + 1, x.dtype)
        return turn(x, cos[position], sin[position])

    def towards_kept(self, turned: Tensor) -> Tensor:
        """Scale rotated queries [..., D] for products with unrotated keys that stand at position 0.

        Rotation would scale a part of those keys, so the queries are scaled there instead. Where all of D is rotated
        the order of the products does not change, and queries stay as they are.
        """
        width = 2 * self.inv_freq.shape[0]
        if self.attention_scaling == 1.0 or width in (0, turned.shape[-1]):
            return turned
        return torch.cat([turned[..., :width] * self.attention_scaling, turned[..., width:]], dim=-1)

    def table(self, length: int) -> tuple[Tensor, Tensor]:
        """Return cosines and sines [length, R/2], float32, scaled."""
        cos, sin = self._table(length, torch.float32)
        return cos[:length], sin[:length]

    def tables(self) -> list[Tensor]:
        """Return all tables that have been computed, in any dtype."""
        return [part for table in self._tables.values() for part in table]

    def bytes_for(self, length: int, itemsize: int) -> int:
        """Return the bytes of the tables for `length` positions, in float32 and in a dtype of `itemsize` bytes."""
        return 2 * _grown(length) * self.inv_freq.shape[0] * (4 + (itemsize if itemsize != 4 else 0))

    def _table(self, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cosines and sines [>= length, R/2] in `dtype`, computed anew at twice the length if too short."""
        known = self._tables.get(dtype)
        if known is None or known[0].shape[0] < length:
            positions = torch.arange(_grown(length), device=self.inv_freq.device, dtype=torch.float32)
            angles = positions[:, None] * self.inv_freq
            known = (
                (angles.cos() * self.attention_scaling).to(dtype),
                (angles.sin() * self.attention_scaling).to(dtype),
            )
            self._tables[dtype] = known
        return known


def _grown(length: int) -> int:
    """Return the number of positions in a table for at least `length`."""
    return max(1024, 1 << (length - 1).bit_length())


class NoRope(Rope):
    """Rotates by nothing, for layers without positions, such as every fourth of SmolLM3."""

    def __init__(self, device: torch.device | None = None) -> None:
        """Make an empty table on the model's device, for kernels that take one."""
        super().__init__(torch.zeros(0, device=device))

    def rows(
        self, start: int | Tensor, count: int, dtype: torch.dtype, limit: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return cosines and sines of no width."""
        return self.inv_freq, self.inv_freq

    def rotate(self, x: Tensor, start: int | Tensor, limit: int | None = None) -> Tensor:
        """Return x without rotating it."""
        return x

    def to_constant(self, x: Tensor, position: int) -> Tensor:
        """Return x without rotating it."""
        return x

    def table(self, length: int) -> tuple[Tensor, Tensor]:
        """Return empty tables [length, 0]."""
        empty = self.inv_freq.expand(length, 0)
        return empty, empty
