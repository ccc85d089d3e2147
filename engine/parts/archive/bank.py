"""The device's bank of archive units: a fixed number of them per layer, which a context shares with its conversations.

A unit is `size` entries of all KV heads of a layer: a memory unit of InfLLM or a last chunk of InfiniteHiP. Units that
blocks of queries select are looked up by `kernels/bank`. Missing ones are copied from the host tier as they are stored,
and replace the least recently used units, by a clock that tells ages of 64, 16 and 4 look-ups apart. InfLLM's replace
those with the lowest decayed sum of attention (its appendix, equation 1, d = 0.1), by the same clock.

Entries of the host tier never change, so answers are the same with and without a bank.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from engine.models.spec import LayerSpec, ModelSpec
from engine.parts.archive.host_tier import HostTier
from engine.parts.archive.slabs import group_size_of
from kernels.bank import UnitBank, unit_bytes, units_bytes
from kernels.rows import Bank

__all__ = ["DeviceBank", "Line", "Traffic", "bank_bytes"]

SLOT_BYTES = 5 * 4  # beside the unit in it
LAYER_BYTES = 5 * 4  # beside slots and table


def bank_bytes(spec: ModelSpec, units: int, size: int, dtype: torch.dtype, entries: int) -> int:
    """Return the bytes of a bank of `units` units in all layers, with a table for so many entries of the archive."""
    return sum(_layer_bytes(layer, units, size, dtype, entries) for layer in spec.layers)


def _layer_bytes(layer: LayerSpec, units: int, size: int, dtype: torch.dtype, entries: int) -> int:
    if not units or not layer.kv_heads:
        return 0
    each = units_bytes(layer.kv_heads + layer.value_heads, layer.head_size, size, dtype, group_size_of(dtype))
    return units * (each + SLOT_BYTES) + LAYER_BYTES + -(-entries // size) * 4


class Traffic:
    """Counts of hits and misses of a memory in each layer, on the device.

    `seen` is their copy on the host. It may lack those of a pass that a GPU is still running.
    """

    def __init__(self, spec: ModelSpec) -> None:
        """Start at zero."""
        self.counts = torch.zeros(len(spec.layers), 2, dtype=torch.int64, device=spec.device)
        on_gpu = spec.device.type == "cuda"
        self.seen = torch.zeros(len(spec.layers), 2, dtype=torch.int64, pin_memory=on_gpu)

    def send(self) -> None:
        """Start to copy the counts to the host."""
        self.seen.copy_(self.counts, non_blocking=True)


@dataclass(eq=False)
class Line:
    """One line of history that looks units up. shared: from this unit on, all units are its own."""

    shared: int = 1 << 60


@dataclass
class DeviceBank:
    """A bank with `units` units of `size` entries in each layer.

    Attributes:
        spec: sizes of the layers that look far.
        units: units that fit.
        size: entries of a unit.
        by_attention: whether units leave first that get the least attention; otherwise the least recently used.
        layers: tensors by layer, allocated when they are first needed.
        line: whose units are in the bank beyond those that all share.
        changes: how often slots have changed.
    """

    spec: ModelSpec
    units: int
    size: int
    by_attention: bool
    layers: dict[int, UnitBank] = field(default_factory=dict)
    line: Line | None = None
    changes: int = 0

    def nbytes(self, host: HostTier) -> int:
        """Return the bytes of its tensors once all layers have been looked up in."""
        found = 0
        for number, spec in enumerate(self.spec.layers):
            layer = self.layers.get(number)
            if layer is None:
                found += _layer_bytes(spec, self.units, self.size, host.dtype, host.expected)
            else:
                facts = (
                    layer.table,
                    layer.owner,
                    layer.used,
                    layer.importance,
                    layer.filled,
                    layer.missing,
                    layer.facts,
                )
                found += sum(x.nbytes for x in facts) + layer.slots * unit_bytes(layer)
        return found

    def moved_bytes(self, traffic: Traffic) -> int:
        """Return the bytes that the misses of a memory brought to the device."""
        misses = traffic.seen[:, 1].tolist()
        return sum(misses[number] * unit_bytes(layer) for number, layer in self.layers.items())

    def enter(self, line: Line) -> None:
        """Let a line of history use the bank. Units that may differ from those of the last line are given up."""
        if self.line is line:
            return
        if self.line is not None:
            self._forget(min(line.shared, self.line.shared))
        self.line, self.changes = line, self.changes + 1

    def forget(self, entries: int) -> None:
        """Give up all units that reach beyond the first `entries` entries."""
        self._forget(entries // self.size)
        self.changes += 1

    def _forget(self, first: int) -> None:
        for layer in self.layers.values():
            layer.forget(first)

    def prepare(self, number: int, like: tuple[Bank, Bank], room: int, expected: int) -> UnitBank:
        """Return the bank of one layer, with a table for `room` entries.

        Args:
            number: number of the layer.
            like: a slab of keys and one of values that units come from.
            room: entries that the archive has room for.
            expected: entries that the archive is to have in the end, 0 if unknown.

        Raises:
            torch.OutOfMemoryError: the bank stays as it was.
        """
        known = self.layers.get(number)
        if known is None:
            units, latent = -(-max(room, expected) // self.size), self.spec.layers[number].latent
            known = UnitBank.empty(like, self.units, self.size, units, self.by_attention, self.spec.device, latent)
        self.layers[number] = known.with_room(-(-room // self.size))
        return self.layers[number]

    def addresses(self) -> tuple[int, ...]:
        """Return the addresses that a recording depends on."""
        every = self.layers.values()
        return tuple(address for each in every for address in (each.table.data_ptr(), each.owner.data_ptr()))

    def slabs(self, number: int) -> tuple[Bank, Bank]:
        """Return keys and values of a layer's units."""
        held = self.layers[number]
        return held.keys, held.keys if self.spec.layers[number].latent else held.values
