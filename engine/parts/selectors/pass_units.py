"""Units that the blocks of queries of one pass choose, brought to the device once for all blocks.

Neighbouring blocks choose many of the same units, and each would read them over the link by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from engine.models.spec import LayerSpec, ModelSpec
from engine.parts.archive.slabs import group_size_of
from kernels.bank import UnitBank, bring, units_bytes
from kernels.rows import Slabs

MOST_BYTES = 640 << 20  # of a layer's units; if they are more, attention reads them where they are


def pass_units(chosen: int, entries: int, size: int) -> int:
    """Return how many different units of `size` entries there can be among `chosen` ones, in `entries` entries."""
    return min(chosen, -(-entries // size))


def pass_units_bytes(layer: LayerSpec, dtype: torch.dtype, units: int, size: int) -> int:
    """Return the bytes of units of a layer, 0 if they are too many. dtype: of the archive."""
    each = units_bytes(layer.kv_heads + layer.value_heads, layer.head_size, size, dtype, group_size_of(dtype))
    return units * each if units * each <= MOST_BYTES else 0


def chosen_bytes(
    spec: ModelSpec, dtype: torch.dtype, blocks: int, chosen: Iterable[int], entries: int, size: int
) -> int:
    """Return the most bytes of units that the blocks of a pass choose in one layer. Units that are too many count 0.

    Args:
        spec: the layers that choose.
        dtype: of the archive.
        blocks: how many blocks of queries choose.
        chosen: units that one block chooses; a number for each kind of layer.
        entries: entries of the archive.
        size: entries of a unit.
    """
    units = [pass_units(blocks * each, entries, size) for each in chosen]
    return max(pass_units_bytes(layer, dtype, most, size) for most in units for layer in spec.layers)


def gathered_units(
    slabs: tuple[Slabs, Slabs], starts: Tensor, limits: Tensor, units: int, size: int, first: int
) -> tuple[tuple[Slabs, Slabs], Tensor]:
    """Copy units to the device that computes, each once, as they are stored.

    Args:
        slabs: keys and values of a layer.
        starts: int64 [NB, U], the first entry of each unit that NB blocks choose.
        limits: int64 [NB]; a unit that begins at its block's limit or behind it is not copied.
        units: how many different units there can be (`pass_units`).
        size: entries of a unit.
        first: number of the first row.

    Returns:
        Slabs of keys and values with the copies, and the row of each entry, int64 [NB, U * size].
    """
    keys, values = slabs
    entries, place = sum(length for _, length in keys), starts.device
    like = keys[-1][0], values[-1][0]
    bank = UnitBank.empty(like, units, size, -(-entries // size), False, place)
    stored = torch.full((1,), entries, dtype=torch.int64, device=place)
    traffic = torch.zeros(2, dtype=torch.int64, device=place)
    rows = bring(bank, starts, limits, keys, values, stored, traffic, first)
    return ([(bank.keys, units * size)], [(bank.values, units * size)]), rows
