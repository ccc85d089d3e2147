"""Miss rate of the device's cache by policy and size: InfLLM's Figure 4.

    python -m benchmarks.cache --tokens 8K --units 24,32,48,64

InfLLM reads one text without a cache, while the look-ups of its query blocks and their attention are recorded. Every
policy and size then replays the same record. Tokens that do not fill a unit yet are left out: they are looked up too,
but are no unit.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from benchmarks import options as shared
from benchmarks.haystack import Haystack
from benchmarks.report import named, publish
from engine import Reader, make_method
from engine.methods.infllm import InfLLM
from engine.models.spec import ModelSpec
from engine.parts.archive.bank import POLICIES, BankLayer, DeviceBank
from engine.parts.archive.host_tier import HostTier
from engine.parts.selectors.units import UnitSelector

UNITS = 16  # units that each block of queries looks up


class Recorder(DeviceBank):
    """A cache that holds everything and records each look-up."""

    def __init__(self, spec: ModelSpec, units: int, size: int) -> None:
        """Create the cache; `units` is the number of units in the text."""
        super().__init__(spec, units, size, "frequency")
        self.remainder = size - 1  # last entries of a look-up, outside the units
        self.calls: list[tuple[int, int, Tensor, Tensor]] = []
        self.latest: dict[int, int] = {}  # layer -> entries that the host tier held at its look-up

    def gather(self, layer: int, host: HostTier, index: Tensor) -> tuple[Tensor, Tensor]:
        """Gather the entries, and record the length of the host tier."""
        self.latest[layer] = host.stored
        return super().gather(layer, host, index)

    def attended(self, layer: int, index: Tensor, probability: Tensor) -> None:
        """Record the look-up with its attention."""
        whole = slice(0, index.shape[1] - self.remainder)
        self.calls.append((layer, self.latest[layer], index[:, whole], probability[:, whole]))


class Table(DeviceBank):
    """A cache that keeps only its table of units and moves no data."""

    def replay(self, call: tuple[int, int, Tensor, Tensor], host: HostTier) -> None:
        """Replay one look-up with its attention."""
        layer, stored, index, probability = call
        host.length = stored
        held = self.layer(layer)
        for row in index:
            self.let_go(held, self.bring(layer, held, host, torch.unique(row[row >= 0] // self.size).tolist()))
        self.attended(layer, index, probability)

    def move(self, layer: int, held: BankLayer, host: HostTier, units: list[int], places: list[int]) -> None:
        """Do nothing; there is no data to move."""


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
    recorder = Recorder(model.spec, chosen.tokens // method.block + 1, method.block)
    archive, selector = reader.memory.archive, reader.memory.selector
    assert archive is not None
    assert isinstance(selector, UnitSelector)
    selector.bank = recorder
    for _ in reader.run():
        pass
    rows: list[dict[str, Any]] = []
    host = archive.host
    whole = host.length
    for policy in chosen.policies:
        for units in chosen.units:
            cache = Table(model.spec, units, method.block, policy)
            with torch.no_grad():
                for call in recorder.calls:
                    cache.replay(call, host)
            host.length = whole
            traffic = cache.traffic
            rate = traffic.misses / (traffic.hits + traffic.misses)
            lookups = sum(len(index) for _, _, index, _ in recorder.calls)
            rows.append({"policy": policy, "units": units, "tokens": chosen.tokens, "lookups": lookups})
            rows[-1] |= {"hits": traffic.hits, "misses": traffic.misses}
            rows[-1] |= {"miss_rate": rate}
            print(rows[-1], file=sys.stderr, flush=True)
    publish("cache", rows, chosen.out, chosen.json, **named(model), looked_up=method.units, block=method.block)
    return 0


if __name__ == "__main__":
    shared.run(main)
