"""The device's bank of archive units: a fixed number of them per layer, found through a table.

A unit is `size` entries of all KV heads of a layer: a memory unit of InfLLM or a last chunk of InfiniteHiP. Units that
a block of queries selects are looked up in the table. Missing ones are gathered from the host tier at once, and replace
units by one of these policies:

| policy | evicts first |
|---|---|
| lru | the least recently used |
| frequency | the lowest decayed sum of attention (InfLLM, appendix, equation 1, d = 0.1); units of this pass go last |
| fifo | the first that came |
| random | any |

Entries of the host tier never change, so answers are the same with and without a bank. Sizes: H KV heads, NB blocks of
queries, N entries selected for a block, D head size.
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
    """Counts of a bank's look-ups.

    Attributes:
        hits: units that were in the bank.
        misses: units that were not.
        moved_bytes: bytes copied to the device for misses.
    """

    hits: int = 0
    misses: int = 0
    moved_bytes: int = 0


def bank_bytes(spec: ModelSpec, units: int, size: int) -> int:
    """Return the bytes of the keys and values of `units` units in all layers."""
    return units * size * spec.entry_bytes


class BankLayer:
    """The bank of one layer.

    Attributes:
        keys: [units, size, H, D].
        values: the same for `value_heads`.
        place: the place of each unit in the bank, in order of arrival.
        free: places without a unit.
        importance: per unit, the time of its last use or its attention sum, by policy.
        waiting: per unit, its last look-up, until the attention of that look-up is counted.
    """

    def __init__(self, spec: ModelSpec, number: int, units: int, size: int) -> None:
        """Allocate the bank of layer `number`, without units."""
        layer = spec.layers[number]
        shape = (units, size, layer.kv_heads, layer.head_size)
        self.keys = torch.empty(shape, dtype=spec.dtype, device=spec.device)
        self.values = self.keys.new_empty(units, size, layer.value_heads, layer.head_size)
        self.place: dict[int, int] = {}
        self.free = list(range(units))
        self.importance: dict[int, float] = {}
        self.waiting: dict[int, int] = {}


class DeviceBank:
    """A bank with `units` units of `size` entries in each layer."""

    def __init__(self, spec: ModelSpec, units: int, size: int, policy: str, traffic: Traffic | None = None) -> None:
        """Start without units. Tensors are allocated when they are first needed."""
        self.spec, self.units, self.size, self.policy = spec, units, size, policy
        self.traffic = traffic or Traffic()
        self._layers: dict[int, BankLayer] = {}
        self._lookups = 0
        self._random = random.Random(0)

    def fresh(self, traffic: Traffic | None = None) -> DeviceBank:
        """Return another empty bank, for a memory whose units may differ from here on."""
        return DeviceBank(self.spec, self.units, self.size, self.policy, traffic)

    def nbytes(self) -> int:
        """Return the bytes of its tensors once all layers have been looked up."""
        return bank_bytes(self.spec, self.units, self.size)

    def layer(self, number: int) -> BankLayer:
        """Return the bank of one layer."""
        if number not in self._layers:
            self._layers[number] = BankLayer(self.spec, number, self.units, self.size)
        return self._layers[number]

    def gather(self, layer: int, host: HostTier, index: Tensor) -> tuple[Tensor, Tensor]:
        """Gather entries through the bank.

        Args:
            layer: number of the layer.
            host: the tier that holds all entries.
            index: int64 [NB, N] on the host, -1 for no entry.

        Returns:
            Keys and values [H, NB, N, D], zero for no entry.
        """
        held = self.layer(layer)
        keys, values = (each.new_zeros(*index.shape, *each.shape[2:]) for each in (held.keys, held.values))
        for block, chosen in enumerate(index):
            seen = chosen >= 0
            units = torch.unique(chosen[seen] // self.size)
            if not len(units):
                continue
            passing = self.bring(layer, held, host, units.tolist())
            # Both lists are ascending, so a search finds each unit's place.
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
        """Fetch the missing ones of these units.

        Returns:
            Units that are not full in the host tier yet, to be evicted after use.
        """
        self._lookups += 1
        missing = [unit for unit in units if unit not in held.place]
        self.traffic.hits += len(units) - len(missing)
        self.traffic.misses += len(missing)
        if missing:
            self._make_room(held, len(missing), set(units))
            places = held.free[-len(missing) :]
            self.move(layer, held, host, missing, places)  # may run out of memory: until then places stay free
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
        """Evict units until `count` new ones fit. Needed units stay."""
        short = count - len(held.free)
        if short <= 0:
            return
        others = [unit for unit in held.place if unit not in needed]
        assert short <= len(others), "a block of queries selects more units than the bank holds"
        if self.policy == "random":
            self._random.shuffle(others)
        elif self.policy != "fifo":  # the table itself is in order of arrival
            others.sort(key=lambda unit: (held.waiting.get(unit, 0), held.importance[unit]))
        self.let_go(held, others[:short])

    def let_go(self, held: BankLayer, units: list[int]) -> None:
        """Evict units from the bank."""
        for unit in units:
            held.free.append(held.place.pop(unit))
            held.importance.pop(unit)
            held.waiting.pop(unit, None)

    def move(self, layer: int, held: BankLayer, host: HostTier, units: list[int], places: list[int]) -> None:
        """Copy units into their places, in one gather."""
        entries = torch.tensor(units)[:, None] * self.size + torch.arange(self.size)
        keys, values = host.gather_shared(layer, entries.clamp_max(host.stored - 1), self.spec.device)
        to = torch.tensor(places).to(self.spec.device, non_blocking=True)
        values = values[: self.spec.layers[layer].value_heads]
        held.keys[to], held.values[to] = keys.permute(1, 2, 0, 3), values.permute(1, 2, 0, 3)
        self.traffic.moved_bytes += keys.nbytes + values.nbytes

    def attended(self, layer: int, index: Tensor, probability: Tensor) -> None:
        """Update each unit's decayed attention sum (InfLLM, appendix, equation 1).

        Args:
            layer: number of the layer.
            index: int64 [NB, N], as given to `gather`.
            probability: float32 [NB, N] on the host, summed over heads and queries.
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
