"""The bank of units: Triton and PyTorch against the model in plain Python, to the bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from kernels.bank import UnitBank, reference, torch_impl
from kernels.bank.state import NOWHERE
from kernels.rows import Bank, ChannelScale, Slabs, dense
from kernels.slab_facts import tensors_of
from tests.kernels.banks import DEVICE, Coding, slab_of

pytest.importorskip("triton")
ROWS, SINKS = 106, 5  # of both slabs, and rows that are counted before the bank's
STATE = ("table", "owner", "used", "importance", "filled", "facts")


def slabs_of(coding: Coding | None) -> tuple[Slabs, Slabs]:
    """Return slabs of keys and values whose rows are random; with codes, the first holds whole groups."""
    generator, first = torch.Generator().manual_seed(0), 59 if coding is None else 64
    found = []
    for _ in range(2):
        parts = [torch.randn(2, count, 16, generator=generator).to(DEVICE) for count in (first, ROWS - first)]
        scale = ChannelScale.of(torch.cat(parts, dim=1))
        found.append([(slab_of(x, 7, coding, scale), x.shape[1]) for x in parts])
    return found[0], found[1]


def copied(bank: UnitBank) -> UnitBank:
    """Return a bank with tensors of its own."""

    def copy(rows: Bank) -> Bank:
        if isinstance(rows, Tensor):
            return rows.clone()
        return dataclasses.replace(rows, quantized=rows.quantized.clone(), scale=rows.scale.clone())

    tensors = {name: getattr(bank, name).clone() for name in (*STATE, "missing")}
    return dataclasses.replace(bank, keys=copy(bank.keys), values=copy(bank.values), **tensors)


def lists(size: int, per_list: int, rounds: int) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Yield random lists, near those before, with their limits, while more and more rows are there."""
    generator = torch.Generator().manual_seed(0)
    units = torch.randperm(ROWS // size, generator=generator)
    for number in range(rounds):
        stored = min(ROWS, 40 + number * 66 // max(1, rounds // 2))
        blocks = 1 + number % 2
        swapped = torch.randint(len(units), (2, 2), generator=generator)
        units[swapped[0]] = units[swapped[1]]
        units = torch.unique(units)[torch.randperm(len(units.unique()), generator=generator)]
        if len(units) < per_list:
            units = torch.randperm(ROWS // size, generator=generator)
        found = [units[torch.randperm(min(len(units), per_list + 1), generator=generator)][:per_list]] * blocks
        starts = torch.stack(found) * size
        starts[0, 0] = 1 << 60  # a list may end early
        yield starts, torch.full((blocks,), stored), stored


@pytest.mark.parametrize(
    ("by_attention", "size", "per_list", "slots", "coding"),
    [
        (False, 8, 3, 6, Coding(torch.quint4x2)),
        (False, 6, 4, 40, Coding(torch.int8)),
        (False, 70, 1, 2, None),
        (False, 8, 3, 8, None),
        (True, 8, 3, 8, None),
    ],
)
def test_hits_misses_and_rows_are_those_of_the_model(
    by_attention: bool, size: int, per_list: int, slots: int, coding: Coding | None
) -> None:
    from kernels.bank import kernel

    slabs = slabs_of(coding)
    rows = [dense(each, torch.float32) for each in slabs]
    first = UnitBank.empty((slabs[0][0][0], slabs[1][0][0]), slots, size, 20, by_attention, torch.device(DEVICE))
    banks, modules = [copied(first) for _ in range(3)], (reference, torch_impl, kernel)
    counts = [torch.zeros(2, dtype=torch.int64, device=DEVICE) for _ in banks]
    for starts, limits, stored in lists(size, per_list, 24):
        held = torch.tensor([stored], device=DEVICE)
        starts, limits = starts.to(DEVICE), limits.to(DEVICE)
        found = [
            module.bring(bank, starts, limits, *slabs, held, count, SINKS)  # type: ignore[attr-defined]
            for module, bank, count in zip(modules, banks, counts, strict=True)
        ]
        attention = torch.rand(found[0].shape, generator=torch.Generator().manual_seed(stored)).to(DEVICE)
        wanted = (starts[..., None] + torch.arange(size, device=DEVICE)).flatten(1)
        for bank, at in zip(banks, found, strict=True):
            if by_attention:
                bank.attended(at - SINKS, wanted, attention)
            seen = at < NOWHERE
            assert torch.equal(seen, (starts < limits[:, None]).repeat_interleave(size, dim=1))
            seen &= wanted < stored
            for kept, true in zip((bank.keys, bank.values), rows, strict=True):
                numbers = dense([(kept, kept.shape[1])], torch.float32)
                assert torch.equal(numbers[:, at[seen] - SINKS], true[:, wanted[seen]])
        for bank, count, at in zip(banks[1:], counts[1:], found[1:], strict=True):
            assert torch.equal(count, counts[0])
            if DEVICE == "cpu":  # on a GPU, which missing unit gets which slot is left open
                assert torch.equal(at, found[0])
                assert all(torch.equal(getattr(bank, name), getattr(banks[0], name)) for name in STATE[:4])
    hits, misses = counts[0].tolist()
    assert misses > 0
    assert hits > 0


def test_a_unit_is_given_up_from_where_it_may_differ() -> None:
    keys, values = slabs_of(None)
    bank = UnitBank.empty((keys[0][0], values[0][0]), 6, 8, 20, False, torch.device(DEVICE))
    held, count = torch.tensor([ROWS], device=DEVICE), torch.zeros(2, dtype=torch.int64, device=DEVICE)
    starts, limits = torch.tensor([[0, 16, 40, 80]], device=DEVICE), torch.tensor([ROWS], device=DEVICE)
    torch_impl.bring(bank, starts, limits, keys, values, held, count, 0)
    bank.forget(5)
    assert bank.owner.sort().values.tolist() == [-1, -1, -1, -1, 0, 2]
    torch_impl.bring(bank, starts, limits, keys, values, held, count, 0)
    assert count.tolist() == [2, 6]
    assert sum(part.nbytes for part in tensors_of(bank.keys)) == 2 * 6 * 8 * 16 * 4
