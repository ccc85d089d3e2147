"""A bank of units in PyTorch, for CPUs. Signature and meaning are those of `reference.bring`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.bank.state import AGES, FETCHED, FREE, HAND, LOOKUP, NEVER, NOWHERE, UnitBank
from kernels.rows import Bank, Slabs, split_by_slab, to_device
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
    """Run `reference.bring` over all units at once. The host waits once, to learn which units are missing."""
    size, lookup, device = bank.size, bank.facts[LOOKUP].clone(), starts.device
    inside = starts < limits[:, None]
    units = torch.where(inside, starts, 0) // size
    slot = bank.table[units]
    there = inside & (slot != FREE)
    whole = bank.filled[slot.clamp_min(0)] >= (stored - units * size).clamp_max(size)
    _write(bank.used, slot, there & whole, lookup)
    for tensor, nothing in ((bank.owner, FREE), (bank.used, NEVER), (bank.importance, float(NEVER))):
        _write(tensor, slot, there & ~whole, tensor.new_full((), nothing))
    asked = torch.where(inside & ~(there & whole), units, FREE).flatten().tolist()
    missing = torch.tensor([unit for unit in dict.fromkeys(asked) if unit != FREE], dtype=torch.int64)
    if len(missing):
        numbers = to_device(missing, device)
        _admit(bank, numbers, lookup, stored)
        places = bank.table[numbers]
        for slabs, buffer in ((keys, bank.keys), (values, bank.values)):
            if buffer.shape[0]:
                _fetch(slabs, buffer, missing, places, size)
    bank.facts[FETCHED] = len(missing)
    bank.facts[LOOKUP] += 1
    traffic[0] += inside.sum() - len(missing)
    traffic[1] += len(missing)
    rows = first + bank.table[units].long()[..., None] * size + torch.arange(size, device=device)
    return torch.where(inside[..., None], rows, NOWHERE).flatten(1)


def _write(to: Tensor, places: Tensor, where: Tensor, number: Tensor) -> None:
    """Write a number to those places whose `where` is True, in shapes that do not depend on it."""
    spare = F.pad(to, (0, 1))
    spare[torch.where(where, places, len(to)).flatten()] = number
    to.copy_(spare[:-1])


def _admit(bank: UnitBank, missing: Tensor, lookup: Tensor, stored: Tensor) -> None:
    """Give each missing unit the slot of another one, or a free one."""
    slots = (bank.facts[HAND] + torch.arange(bank.slots, device=missing.device)) % bank.slots
    rank, used = bank.rank[slots], bank.used[slots] == lookup
    ages = torch.stack([rank < lookup - age for age in AGES])
    order = ages.int().argmax(dim=0).masked_fill(used, len(AGES)).argsort(stable=True)
    taken = slots[order[: len(missing)]]
    before = bank.owner[taken]
    _write(bank.table, before, before != FREE, before.new_full((), FREE))
    bank.table[missing], bank.owner[taken] = taken.int(), missing.int()
    bank.used[taken], bank.importance[taken] = lookup, lookup.float()
    bank.filled[taken] = (stored - missing * bank.size).clamp_max(bank.size).int()
    bank.facts[HAND] = (taken[-1] + 1) % bank.slots


def _fetch(slabs: Slabs, buffer: Bank, missing: Tensor, places: Tensor, size: int) -> None:
    """Copy the rows of units into their slots, as they are. missing: on the host."""
    inside, last = torch.arange(size), sum(length for _, length in slabs) - 1
    rows = (missing[:, None] * size + inside).clamp_max(last).flatten()  # those behind the last one are not seen
    to = (places[:, None] * size + to_device(inside, places.device)).flatten()
    for number, here, row in split_by_slab(slabs, rows):
        slab, at = slabs[number][0], to if here is None else to[to_device(here, to.device)]
        for mine, theirs in zip(tensors_of(buffer), tensors_of(slab), strict=True):
            same = torch.uint8 if mine.itemsize == 1 else mine.dtype  # some devices gather no 8-bit floats
            found = theirs.view(same)[: len(mine)].index_select(1, row * theirs.shape[1] // slab.shape[1])
            mine.view(same)[:, at * mine.shape[1] // buffer.shape[1]] = to_device(found, mine.device)
