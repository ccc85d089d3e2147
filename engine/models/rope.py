"""Rotary position embedding, applied by the engine and not by the model (see `attention_interface.py`).

Half-split layout, as in Llama: dimension i is paired with i + R/2, where R is the rotated width (R < D for partial
rotary). Where a model pairs neighbours instead, the attention function puts queries and keys into this order. Memories
keep keys before rotation; `engine/positions.py` says which position a key or query gets.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.rotation import rotate


class Rope:
    """One frequency table. `rotate` is exact to transformers' own rotation in the same dtype."""

    def __init__(self, inv_freq: Tensor, attention_scaling: float = 1.0) -> None:
        """inv_freq: [R/2] float32; attention_scaling multiplies cosine and sine (YaRN)."""
        self.inv_freq = inv_freq.float()
        self.attention_scaling = attention_scaling
        self._tables: dict[torch.dtype, tuple[Tensor, Tensor]] = {}

    def rotate(self, x: Tensor, start: int | Tensor, limit: int | None = None) -> Tensor:
        """Rotate x [..., T, D] to positions start, start+1, ... or, if `start` is an int64 tensor [T], to those.

        limit: what the positions in a tensor are known to lie below, so that they need not be looked at.
        """
        length = x.shape[-2]
        if isinstance(start, int):
            cos, sin = self._table(start + length, x.dtype)
            cos, sin = cos[start : start + length], sin[start : start + length]
        else:
            cos, sin = self._table(int(start.max()) + 1 if limit is None else limit, x.dtype)
            cos, sin = cos[start], sin[start]
        return rotate(x, cos, sin)

    def to_constant(self, x: Tensor, position: int) -> Tensor:
        """Rotate every row of x [..., T, D] to one and the same position."""
        cos, sin = self._table(position + 1, x.dtype)
        return rotate(x, cos[position], sin[position])

    def towards_kept(self, turned: Tensor) -> Tensor:
        """Rotated queries [..., D], to be compared with keys at position 0 that are as they were kept: what rotation
        would scale in those is scaled in the queries. Where all of D is rotated, products are in the same order anyway.
        """
        width = 2 * self.inv_freq.shape[0]
        if self.attention_scaling == 1.0 or width in (0, turned.shape[-1]):
            return turned
        return torch.cat([turned[..., :width] * self.attention_scaling, turned[..., width:]], dim=-1)

    def table(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines [length, R/2], float32, scaled."""
        cos, sin = self._table(length, torch.float32)
        return cos[:length], sin[:length]

    def tables(self) -> list[Tensor]:
        """The tables there are, of all dtypes."""
        return [part for table in self._tables.values() for part in table]

    def bytes_for(self, length: int, itemsize: int) -> int:
        """Bytes of the tables for so many positions, in float32 and in a dtype of so many bytes."""
        return 2 * _grown(length) * self.inv_freq.shape[0] * (4 + (itemsize if itemsize != 4 else 0))

    def _table(self, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines [>= length, R/2] in the dtype of what they rotate, grown by doubling."""
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
    """Positions of a table in which there are at least so many."""
    return max(1024, 1 << (length - 1).bit_length())


class NoRope(Rope):
    """For layers without positions (SmolLM3's every fourth): rotation by nothing."""

    def __init__(self, device: torch.device | None = None) -> None:
        """A table that is never consulted, on the model's device, for kernels that ask for one."""
        super().__init__(torch.zeros(0, device=device))

    def rotate(self, x: Tensor, start: int | Tensor, limit: int | None = None) -> Tensor:
        """X itself."""
        return x

    def to_constant(self, x: Tensor, position: int) -> Tensor:
        """X itself."""
        return x

    def table(self, length: int) -> tuple[Tensor, Tensor]:
        """Of no width."""
        empty = self.inv_freq.expand(length, 0)
        return empty, empty
