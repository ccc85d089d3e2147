"""Miss rate of the device's cache by policy and size: InfLLM's Figure 4.

    python -m benchmarks.cache --tokens 8K --units 24,32,48,64

InfLLM reads one text without a cache, while the look-ups of its query blocks and their attention are recorded. Every
policy and size then replays the same record, block by block. Tokens that do not fill a unit yet are left out: they are
looked up too, but are no unit.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks import options as shared
from benchmarks.haystack import Haystack
from benchmarks.report import named, publish
from engine import Reader, make_method
from engine.methods.infllm import InfLLM
from engine.parts.archive.archive import Archive
from engine.parts.archive.bank import DeviceBank
from engine.parts.selectors.banked import BankUse
from engine.parts.selectors.units import UnitSelector
from kernels.bank import POLICIES, UnitBank, bring
from kernels.rows import Slabs

UNITS = 16  # units that each block of queries looks up


class Call(NamedTuple):
    """A look-up of one block of queries.

    Attributes:
        layer: number of the layer.
        starts, limits: int64 [1, U] and [1], see `kernels.bank`.
        stored: int64 [1], entries that the host tier held.
        entries, attention: int64 and float32 [1, N], entries of the units and attention to them.
    """

    layer: int
    starts: Tensor
    limits: Tensor
    stored: Tensor
    entries: Tensor
    attention: Tensor


class Recorder(BankUse):
    """The use of a bank that holds everything; it records each look-up."""

    def __init__(self, bank: DeviceBank, archive: Archive, sinks: int) -> None:
        """Use this bank; see `BankUse`."""
        super().__init__(bank, archive, sinks)
        self.calls: list[Call] = []
        self._latest: tuple[Tensor, Tensor] | None = None

    def bring(self, layer: int, slabs: tuple[Slabs, Slabs], starts: Tensor, limits: Tensor) -> Tensor:
        """Look units up, and note which."""
        self._latest = starts, limits
        return super().bring(layer, slabs, starts, limits)

    def attended(self, layer: int, rows: Tensor, entries: Tensor, attention: Tensor) -> None:
        """Record the look-up with its attention, without entries that do not fill a unit."""
        assert self._latest is not None
        starts, limits = (x.clone() for x in self._latest)
        stored, whole = torch.tensor([self.archive.host.stored]), slice(0, 1 - self.bank.size)
        for row in range(len(starts)):
            one = slice(row, row + 1)
            self.calls.append(
                Call(layer, starts[one, :-1], limits[one], stored, entries[one, whole], attention[one, whole])
            )
        super().attended(layer, rows, entries, attention)


def replayed(calls: list[Call], policy: str, units: int, size: int, length: int) -> tuple[int, int]:
    """Return hits and misses of a bank of so many units that all look-ups go through, with rows of one number."""
    rows = torch.zeros(1, length, 1)
    slabs, counts = [(rows, length)], torch.zeros(2, dtype=torch.int64)
    banks: dict[int, UnitBank] = {}
    for call in calls:
        if call.layer not in banks:
            table, place = -(-length // size), rows.device
            banks[call.layer] = UnitBank.empty((rows, rows[:0]), units, size, table, policy, place)
        held = banks[call.layer]
        at = bring(held, call.starts, call.limits, slabs, slabs, call.stored, counts, 0)
        if policy == "frequency":
            held.attended(at, call.entries, call.attention)
    hits, misses = counts.tolist()
    return hits, misses


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser("Miss rate of the device's cache by policy and number of units (InfLLM's Figure 4).")
    parser.add_argument("--tokens", type=shared.length, default=8192, help="length of the text (default: 8K)")
    parser.add_argument("--units", type=shared.sizes, default=[16, 24, 32, 48, 64], help="sizes of the cache")
    parser.add_argument("--policies", type=shared.words, default=list(POLICIES), help=f"of {', '.join(POLICIES)}")
    chosen = parser.parse_args(argv)
    if unknown := set(chosen.policies) - set(POLICIES):
        parser.error(f"unknown policy {', '.join(sorted(unknown))}: choose of {', '.join(POLICIES)}")
    if (least := min(chosen.units)) < UNITS:
        parser.error(f"a block of queries looks up {UNITS} units, which a cache of {least} cannot hold")
    model = shared.open_model(chosen)
    ids = Haystack(model, chosen.data).trial("prose", chosen.tokens, 0.5, chosen.seed).ids
    # Units as large as the paper's in proportion to the text; the default ones are for single sentences.
    method = make_method("infllm", block=32, representatives=4, units=UNITS, cache=chosen.tokens // 16)
    assert isinstance(method, InfLLM)
    reader = Reader(model, method, ids)
    archive, selector = reader.memory.archive, reader.memory.selector
    assert archive is not None
    assert isinstance(selector, UnitSelector)
    assert selector.bank is not None
    recorder = selector.bank = Recorder(selector.bank.bank, archive, method.sinks)
    for _ in reader.run():
        pass
    rows: list[dict[str, Any]] = []
    for policy in chosen.policies:
        for units in chosen.units:
            with torch.no_grad():
                hits, misses = replayed(recorder.calls, policy, units, method.block, chosen.tokens)
            rows.append({"policy": policy, "units": units, "tokens": chosen.tokens, "lookups": len(recorder.calls)})
            rows[-1] |= {"hits": hits, "misses": misses, "miss_rate": misses / (hits + misses)}
            print(rows[-1], file=sys.stderr, flush=True)
    publish("cache", rows, chosen.out, chosen.json, **named(model), looked_up=method.units, block=method.block)
    return 0


if __name__ == "__main__":
    shared.run(main)
