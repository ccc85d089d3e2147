"""A bank of units in plain Python: the reference for the other implementations.

Sizes: NB lists of U units, H KV heads, D head size.
"""

from __future__ import annotations

from torch import Tensor

from kernels.bank.state import AGES, FETCHED, FREE, HAND, LOOKED, LOOKUP, MISSES, NEVER, NOWHERE, UnitBank
from kernels.rows import Bank, Slabs
from kernels.slab_facts import tensors_of


def bring(
    bank: UnitBank,
    starts: Tensor,
    limits: Tensor,
    keys: Slabs,
    values: Slabs,
    stored: Tensor,
    traffic: Tensor,
    first: int,
) -> Tensor:
    """Look units up, fetch missing ones, and return where their rows are.

    Missing units take the slots of others. A clock chooses them: it goes round the slots, and in each round takes those
    that rank as older than the round's age. Units of the lists never leave. A unit that had not all of its rows
    when it was fetched is missing if it has more now.

    Args:
        bank: with at least as many slots as the lists have units together. It is changed.
        starts: int64 [NB, U], first row of each unit of NB lists.
        limits: int64 [NB]; a unit that begins at its list's limit or behind it is not looked up.
        keys: slabs of keys that units come from.
        values: slabs of values; those of the keys if keys are also the values.
        stored: int64 [1], rows in the slabs that hold numbers.
        traffic: int64 [2], numbers of hits and misses, to which those of this look-up are added.
        first: number to begin counting the bank's rows from.

    Returns:
        The rows of the bank, int64 [NB, U * size], NOWHERE for units that are not looked up.
    """
    lookup, hand = int(bank.facts[LOOKUP]), int(bank.facts[HAND])
    table, owner, filled, rank = (x.tolist() for x in (bank.table, bank.owner, bank.filled, bank.rank))
    used, importance, there = bank.used.tolist(), bank.importance.tolist(), int(stored)
    wanted = [start // bank.size if start < limit else None for each, limit in _pairs(starts, limits) for start in each]
    missing = []
    for unit in wanted:
        if unit is None or unit in missing:
            continue
        slot = table[unit]
        if slot != FREE and filled[slot] >= min(bank.size, there - unit * bank.size):
            used[slot] = lookup
            continue
        missing.append(unit)
        if slot != FREE:
            table[unit] = owner[slot] = FREE
            used[slot] = importance[slot] = rank[slot] = NEVER
    slots, taken = [(hand + number) % bank.slots for number in range(bank.slots)], 0
    for age in AGES:
        for slot in slots:
            if taken < len(missing) and used[slot] != lookup and rank[slot] < lookup - age:
                if owner[slot] != FREE:
                    table[owner[slot]] = FREE
                unit, taken = missing[taken], taken + 1
                table[unit], owner[slot] = slot, unit
                used[slot] = importance[slot] = rank[slot] = lookup
                filled[slot] = min(bank.size, there - unit * bank.size)
                hand = (slot + 1) % bank.slots
                _fetch(keys, bank.keys, unit, slot, bank.size, there)
                _fetch(values, bank.values, unit, slot, bank.size, there)
    looked = sum(unit is not None for unit in wanted)
    for tensor, now in ((bank.table, table), (bank.owner, owner), (bank.used, used), (bank.filled, filled)):
        tensor.copy_(tensor.new_tensor(now))
    bank.importance.copy_(bank.importance.new_tensor(importance))
    facts = {LOOKUP: lookup + 1, HAND: hand, MISSES: 0, LOOKED: 0, FETCHED: len(missing)}
    bank.facts.copy_(bank.facts.new_tensor([facts[number] for number in sorted(facts)]))
    traffic += traffic.new_tensor([looked - len(missing), len(missing)])
    rows = [
        NOWHERE if unit is None else first + table[unit] * bank.size + row
        for unit in wanted
        for row in range(bank.size)
    ]
    return starts.new_tensor(rows).view(len(starts), -1)


def _pairs(starts: Tensor, limits: Tensor) -> list[tuple[list[int], int]]:
    return list(zip(starts.tolist(), limits.tolist(), strict=True))


def _fetch(slabs: Slabs, to: Bank, unit: int, slot: int, size: int, stored: int) -> None:
    """Copy a unit's rows into its slot, row by row; those of values that are keys have no heads to go to."""
    for number in range(size):
        row, at = unit * size + number, slot * size + number
        slab, row = _slab_of(slabs, row)
        if unit * size + number >= stored or slab is None:
            break
        for mine, theirs in zip(tensors_of(to), tensors_of(slab), strict=True):
            here = at * mine.shape[1] // to.shape[1]
            mine[:, here] = theirs[: len(mine), row * theirs.shape[1] // slab.shape[1]]


def _slab_of(slabs: Slabs, row: int) -> tuple[Bank | None, int]:
    for slab, length in slabs:
        if row < length:
            return slab, row
        row -= length
    return None, row
