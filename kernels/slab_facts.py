"""Facts about slabs that do not depend on their rows: whether a kernel can read them, and its tables of them.

Slabs are those of `kernels/rows.py`, which imports the entry points that ask here.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

PINNED_FLAG = "known_to_be_pinned"  # a tensor's attribute
AnySlabs = Sequence[tuple[Any, int]]


class Facts:
    """Facts about slabs that kernels ask for again and again; they do not depend on the length of the last slab.

    Attributes:
        tables: the kernels' tables, by device and copies.
        reachable: see the function of that name, by device.
    """

    def __init__(self) -> None:
        """Start without any tables."""
        self.tables: dict[tuple[Any, ...], Any] = {}
        self.reachable: dict[torch.device, bool] = {}
        self.banks: list[weakref.ref[Any]] = []


_facts: dict[tuple[int, ...], Facts] = {}  # of slabs that exist, by their banks and the lengths of all but the last


def facts_of(slabs: AnySlabs) -> Facts:
    """Return what is known about slabs. It is forgotten when one of their banks is."""
    key = (*[id(bank) for bank, _ in slabs], *[length for _, length in slabs[:-1]])
    found = _facts.get(key)
    if found is None:
        found = _facts[key] = Facts()
        found.banks = [weakref.ref(bank, lambda _: _facts.pop(key, None)) for bank, _ in slabs]
    return found


def reachable(slabs: AnySlabs, device: torch.device) -> bool:
    """Return whether a kernel on this device can read the slabs: they are there, or in host memory pinned for it."""
    known = facts_of(slabs).reachable
    if device not in known:
        parts = (part for slab, _ in slabs for part in tensors_of(slab))
        known[device] = all(_lies_on(part, device) or (device.type == "cuda" and _pinned(part)) for part in parts)
    return known[device]


def _lies_on(part: Tensor, device: torch.device) -> bool:
    return part.device == device or (device.index is None and part.device.type == device.type)


def _pinned(part: Tensor) -> bool:
    """Return whether a tensor is pinned. The answer is kept on the tensor, since the driver is slow."""
    known = vars(part)
    if PINNED_FLAG not in known:
        known[PINNED_FLAG] = part.is_pinned()
    return bool(known[PINNED_FLAG])


def tensors_of(bank: Any) -> tuple[Tensor, ...]:
    """Return the tensors that hold a slab's rows: the slab, or its codes and scales."""
    return (bank,) if isinstance(bank, Tensor) else (bank.quantized, bank.scale)
