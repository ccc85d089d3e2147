"""Buffers that gathered entries are written to."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class EntryBuffers:
    """Buffers that gathered entries are written to, [H, capacity, D] each with capacity >= M.

    Attributes:
        keys: keys before RoPE.
        rotated: the same keys after RoPE.
        values: values; 0 heads if keys are also the values.
    """

    keys: Tensor
    rotated: Tensor
    values: Tensor
