"""Rows that queries see: a range for each query, and a table of listed rows for each block of queries.

Sizes: H KV heads, T queries, NB blocks of queries, N listed rows, R rotated width.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kernels.rows import SlabRows, Slabs, split_by_slab


@dataclass(frozen=True)
class VisibleRange:
    """Visible rows of each query: query t sees rows start[t] .. end[t] - 1, int64 [T] each.

    Attributes:
        on_host: the same range on the host, so that its values can be read without synchronising; None if this is on
            the host.
        changing: the values change when a recorded pass is replayed, so no decision may depend on them.
    """

    start: Tensor
    end: Tensor
    on_host: VisibleRange | None = None
    changing: bool = False

    def to(self, device: torch.device) -> VisibleRange:
        """Return the span on this device, copied in one transfer."""
        if device == self.end.device:
            return self
        start, end = torch.stack([self.start, self.end]).to(device, non_blocking=True)
        return VisibleRange(start, end, self)

    @property
    def host_values(self) -> VisibleRange:
        """The span on the host if there is one: its values can be read without synchronising."""
        return self.on_host or self

    def mask(self, index: Tensor) -> Tensor | None:
        """Return the mask for rows index [..., N], to add to logits: float32 [..., T, N]; None if every query sees
        every row.
        """
        row = index[..., None, :]
        hidden = (row < self.start[..., None]) | (row >= self.end[..., None])
        if hidden.device.type == "cpu" and not self.changing and not bool(hidden.any()):
            return None  # on a GPU the test costs more than adding the mask
        return torch.zeros(hidden.shape, device=hidden.device).masked_fill_(hidden, float("-inf"))

    def mask_between(self, begin: int, end: int) -> Tensor | None:
        """Return the mask [T, end - begin] of rows begin .. end - 1; kept for the next layers."""
        if (begin, end) not in self._masks:
            self._masks[begin, end] = self.mask(torch.arange(begin, end, device=self.end.device))
        return self._masks[begin, end]

    def part(self, begin: int, end: int) -> VisibleRange:
        """Return the span of queries begin .. end - 1; kept for the next layers."""
        if (begin, end) not in self._parts:
            on_host = None if self.on_host is None else self.on_host.part(begin, end)
            self._parts[begin, end] = VisibleRange(self.start[begin:end], self.end[begin:end], on_host, self.changing)
        return self._parts[begin, end]

    @cached_property
    def common(self) -> tuple[int, int]:
        """Rows that every query sees, as (start, stop); none if stop <= start."""
        if self.changing:
            return sys.maxsize, 0
        return int(self.host_values.start.max()), int(self.host_values.end.min())

    @cached_property
    def extent(self) -> tuple[int, int]:
        """Smallest range (start, stop) that holds the rows of all queries."""
        if self.changing:
            return 0, sys.maxsize
        return int(self.host_values.start.min().clamp_min(0)), int(self.host_values.end.max())

    @cached_property
    def grows(self) -> bool:
        """True if each query sees one row more than the query before it."""
        return not self.changing and bool((self.host_values.end.diff() == 1).all())

    def same_within(self, size: int) -> bool:
        """Return whether the queries of each full block of `size` surely see the same rows.

        T must be a multiple of `size`.
        """
        both = torch.stack([self.host_values.start, self.host_values.end]).view(2, -1, size)
        return size == 1 or (not self.changing and bool((both[..., :1] == both).all()))

    def causal_over(self, length: int) -> bool:
        """Return whether this is causal attention: the queries are the last of `length` rows, each seeing all up to its
        own.
        """
        return self.common[0] <= 0 and self.grows and self.extent[1] == length

    @cached_property
    def _masks(self) -> dict[tuple[int, int], Tensor | None]:
        return {}

    @cached_property
    def _parts(self) -> dict[tuple[int, int], VisibleRange]:
        return {}


@dataclass(frozen=True)
class BlockTable:
    """Lists of visible rows, one for each block of `block_size` queries.

    The last of the NB = ceil(T / block_size) blocks may be short.

    Attributes:
        rows: int64 [NB, N], rows of the slabs. A row past the end of every query of its block is padding.
        positions: int64 [NB, N], positions of the keys.
        cos, sin: [P, R/2], RoPE tables.
        head_mask: bool [H, NB, N], rows visible to each head; None for all.
    """

    rows: Tensor
    positions: Tensor
    block_size: int
    cos: Tensor
    sin: Tensor
    head_mask: Tensor | None = None

    @cached_property
    def rotated_keys(self) -> dict[tuple[object, ...], Tensor]:
        """Gathered and rotated keys of a single list, by slab address; `column_sums` uses them after `attend`.

        A table therefore serves one pass, and its rows must not be written during that pass.
        """
        return {}

    @cached_property
    def is_unrotated(self) -> bool:
        """True if all keys are known to have position 0 and rotation there is the identity."""
        if self.positions.device.type != "cpu":
            return False
        return not bool(self.positions.any()) and bool((self.cos[0] == 1).all())

    def part(self, begin: int, end: int) -> BlockTable:
        """Return the lists of blocks begin .. end - 1."""
        if begin <= 0 and end >= len(self.rows):
            return self
        head_mask = None if self.head_mask is None else self.head_mask[:, begin:end]
        return BlockTable(
            self.rows[begin:end], self.positions[begin:end], self.block_size, self.cos, self.sin, head_mask
        )

    def split_by_slab(self, slabs: Slabs) -> list[SlabRows]:
        """Return the listed rows split by slab; computed once, as keys and values are laid out alike."""
        lengths = tuple(length for _, length in slabs)
        if lengths not in self._splits:
            # Padding needs a row without NaN: row 0, as the last rows may not be written yet.
            index = torch.where(self.rows < sum(lengths), self.rows, 0)
            self._splits[lengths] = split_by_slab(slabs, index.flatten())
        return self._splits[lengths]

    @cached_property
    def _splits(self) -> dict[tuple[int, ...], list[SlabRows]]:
        return {}
