"""The device's cache of units of the host tier: a fixed number of them per layer, found through a page table.

A unit is `size` entries of all KV heads of a layer, the memory unit of InfLLM or the last chunk of InfiniteHiP. What a
block of queries has chosen is looked up in the table; what is missing is gathered from the host tier in one go and
takes the place of what the policy gives up: the least recently used (`lru`), the lowest decayed sum of attention
(`frequency`, InfLLM's appendix, equation 1, d = 0.1; what was looked up since the last pass was over, and so has no sum
yet, is given up last), the first that came (`fifo`), or any (`random`). Entries of the host tier never change, so an
answer is the same with and without a cache. Sizes: H KV heads, NB blocks of queries, N entries chosen for a block, D
head size.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.spec import ModelSpec
from engine.parts.archive.host_tier import HostTier

POLICIES = ("lru", "frequency", "fifo", "random")
DECAY = 0.1


@dataclass
class Traffic:
    """Units that were there, units that were not, and the bytes that came to the device for them."""

    hits: int = 0
    misses: int = 0
    moved_bytes: int = 0


def bank_bytes(spec: ModelSpec, units: int, size: int) -> int:
    """Bytes of the keys and values of so many units in all layers."""
    return units * size * spec.entry_bytes


class BankLayer:
    """Keys and values [units, size, H, D] of one layer (values for `value_heads`), the table, and what each place is
    worth keeping.
    """

    def __init__(self, spec: ModelSpec, number: int, units: int, size: int) -> None:
        layer = spec.layers[number]
        shape = (units, size, layer.kv_heads, layer.head_size)
        self.keys = torch.empty(shape, dtype=spec.dtype, device=spec.device)
        self.values = self.keys.new_empty(units, size, layer.value_heads, layer.head_size)
        self.place: dict[int, int] = {}  # unit -> place, the first that came first
        self.free = list(range(units))
        self.importance: dict[int, float] = {}  # unit -> when it was used last, or how much it was attended to
        self.waiting: dict[int, int] = {}  # unit -> its last look-up, if what that was given is not known yet


class DeviceBank:
    """`units` units of `size` entries in each layer."""

    def __init__(self, spec: ModelSpec, units: int, size: int, policy: str, traffic: Traffic | None = None) -> None:
        """Empty; its tensors are allocated when they are first needed."""
        self.spec, self.units, self.size, self.policy = spec, units, size, policy
        self.traffic = traffic or Traffic()
        self._layers: dict[int, BankLayer] = {}
        self._lookups = 0
        self._random = random.Random(0)

    def fresh(self, traffic: Traffic | None = None) -> DeviceBank:
        """Another, empty: for a memory that goes its own way from here, in which a unit may hold something else."""
        return DeviceBank(self.spec, self.units, self.size, self.policy, traffic)

    def nbytes(self) -> int:
        """Bytes that its tensors take when all layers have looked something up."""
        return bank_bytes(self.spec, self.units, self.size)

    def layer(self, number: int) -> BankLayer:
        """What is held of one layer."""
        if number not in self._layers:
            self._layers[number] = BankLayer(self.spec, number, self.units, self.size)
        return self._layers[number]

    def gather(self, layer: int, host: HostTier, index: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [H, NB, N, D] of entries int64 [NB, N], an index on the host; zero where that is -1."""
        held = self.layer(layer)
        keys, values = (each.new_zeros(*index.shape, *each.shape[2:]) for each in (held.keys, held.values))
        for block, chosen in enumerate(index):
            seen = chosen >= 0
            units = torch.unique(chosen[seen] // self.size)
            if not len(units):
                continue
            passing = self.bring(layer, held, host, units.tolist())
            # From number of unit to place, for this block: both lists are ascending
            places = torch.tensor([held.place[unit] for unit in units.tolist()])
            at = places[torch.searchsorted(units, chosen // self.size)] * self.size + chosen % self.size
            rows = at.masked_fill(~seen, -1).to(keys.device, non_blocking=True)
            for found, kept in ((keys, held.keys), (values, held.values)):
                picked = kept.flatten(0, 1).index_select(0, rows.clamp_min(0))
                found[block] = torch.where(rows[:, None, None] >= 0, picked, 0)
            self.let_go(held, passing)
        keys, values = keys.permute(2, 0, 1, 3), values.permute(2, 0, 1, 3)
        return keys, keys if self.spec.layers[layer].latent else values

    def bring(self, layer: int, held: BankLayer, host: HostTier, units: list[int]) -> list[int]:
        """Make sure that units are there; those that are not full in the host tier yet are returned, to be let go."""
        self._lookups += 1
        missing = [unit for unit in units if unit not in held.place]
        self.traffic.hits += len(units) - len(missing)
        self.traffic.misses += len(missing)
        if missing:
            self._make_room(held, len(missing), set(units))
            places = held.free[-len(missing) :]
            self.move(layer, held, host, missing, places)  # memory may run out: until then the places stay free
            del held.free[-len(missing) :]
            for unit, place in zip(missing, places, strict=True):
                held.place[unit] = place
                held.importance[unit] = 0.0
        if self.policy == "lru":
            held.importance.update(dict.fromkeys(units, float(self._lookups)))
        elif self.policy == "frequency":
            held.waiting.update(dict.fromkeys(units, self._lookups))
        return [unit for unit in missing if (unit + 1) * self.size > host.stored]

    def _make_room(self, held: BankLayer, count: int, needed: set[int]) -> None:
        """Give up as many units as `count` new ones need, none of those that are needed now."""
        short = count - len(held.free)
        if short <= 0:
            return
        others = [unit for unit in held.place if unit not in needed]
        assert short <= len(others), "a block of queries chooses more units than there are places"
        if self.policy == "random":
            self._random.shuffle(others)
        elif self.policy != "fifo":  # the table itself is in the order of arrival
            others.sort(key=lambda unit: (held.waiting.get(unit, 0), held.importance[unit]))
        self.let_go(held, others[:short])

    def let_go(self, held: BankLayer, units: list[int]) -> None:
        """Their places are free."""
        for unit in units:
            held.free.append(held.place.pop(unit))
            held.importance.pop(unit)
            held.waiting.pop(unit, None)

    def move(self, layer: int, held: BankLayer, host: HostTier, units: list[int], places: list[int]) -> None:
        """Bring units to their places, all of them in one gather."""
        entries = torch.tensor(units)[:, None] * self.size + torch.arange(self.size)
        keys, values = host.gather_shared(layer, entries.clamp_max(host.stored - 1), self.spec.device)
        to = torch.tensor(places).to(self.spec.device, non_blocking=True)
        values = values[: self.spec.layers[layer].value_heads]
        held.keys[to], held.values[to] = keys.permute(1, 2, 0, 3), values.permute(1, 2, 0, 3)
        self.traffic.moved_bytes += keys.nbytes + values.nbytes

    def attended(self, layer: int, index: Tensor, probability: Tensor) -> None:
        """Count what each unit was given, for every look-up of the pass: s = s * d + its sum of attention there.

        index: [NB, N], as given to `gather`; probability: float32 [NB, N] on the host, summed over heads and queries.
        """
        if self.policy != "frequency" or layer not in self._layers:
            return
        held = self._layers[layer]
        held.waiting.clear()
        for chosen, given in zip(index, probability, strict=True):
            seen = chosen >= 0
            units, number = torch.unique(chosen[seen] // self.size, return_inverse=True)
            sums = torch.zeros(len(units)).index_add_(0, number, given[seen])
            for unit in held.importance:
                held.importance[unit] *= DECAY
            for unit, total in zip(units.tolist(), sums.tolist(), strict=True):
                if unit in held.importance:
                    held.importance[unit] += total
