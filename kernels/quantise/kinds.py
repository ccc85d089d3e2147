"""Quantised types: their largest number, how many share a byte, and the bytes of a row."""

from __future__ import annotations

import torch

LARGEST = {torch.int8: 127.0, torch.quint4x2: 7.0, torch.float8_e4m3fn: 448.0, torch.quint2x4: 1.5}
KINDS = tuple(LARGEST)
SHARING = {torch.quint4x2: 2, torch.quint2x4: 4}  # codes per byte, first in the lowest bits
LOWEST = {torch.quint4x2: 8.0, torch.quint2x4: 1.5}  # offset of stored codes: 0 stands for -LOWEST
BELL = 0.9957  # step of four levels, in standard deviations of a normal distribution (Max 1960, table II)


def width(kind: torch.dtype, size: int) -> int:
    """Return W, the bytes of a quantised row of `size` channels.

    Raises:
        ValueError: `size` is not a multiple of the codes per byte.
    """
    share = SHARING.get(kind, 1)
    if size % share:
        raise ValueError(f"{share} codes of {8 // share} bits share a byte, and a head size of {size} is no multiple.")
    return size // share


def stored(kind: torch.dtype) -> torch.dtype:
    """Return the dtype that holds codes of this kind: uint8 if a byte holds several, else the kind itself."""
    return torch.uint8 if kind in SHARING else kind
