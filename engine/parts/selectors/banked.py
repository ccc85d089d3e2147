"""A selector's use of the bank that its context shares with all conversations."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor

from engine.parts.archive.archive import Archive
from engine.parts.archive.bank import DeviceBank, Line, Traffic
from engine.records import DEVICE, Usage
from kernels.bank import NOWHERE, bring
from kernels.gathering import gather_rows
from kernels.rows import Slabs


class BankUse:
    """Looks units of an archive up in a bank, and counts hits and misses of one memory."""

    def __init__(self, bank: DeviceBank, archive: Archive, sinks: int) -> None:
        """Use this bank; rows are counted behind so many sinks."""
        self.bank, self.archive, self.sinks = bank, archive, sinks
        self.line, self.traffic = Line(), Traffic(bank.spec)
        self._stored = torch.zeros(1, dtype=torch.int64, device=bank.spec.device)
        self._evicted = 0  # of the pass
        self._noted = False  # whether slots have changed in this pass
        self._shown = False  # whether this pass shows entries that are not kept yet
        # Of the last pass of this memory that changed slots: the number of that change, entries in slabs, and the end
        # of the last unit that it could look up
        self._brought = (0, 0, 0)

    @property
    def rows(self) -> int:
        """Rows of sinks and bank."""
        return self.sinks + self.bank.units * self.bank.size

    def begin_pass(self, evicted: int) -> None:
        """Begin a pass whose last query may look up so many entries."""
        self.bank.enter(self.line)
        if self._shown:  # the pass before was not kept, and entries that it showed may come again with other last bits
            self.bank.forget(self.archive.host.stored)
        self._stored.fill_(self.archive.readable)
        self._evicted, self._noted, self._shown = evicted, False, self.archive.passing is not None

    def note(self) -> None:
        """Learn that this pass changes slots."""
        if not self._noted:
            size = self.bank.size
            self.bank.changes += 1
            self._noted = True
            self._brought = self.bank.changes, self.archive.readable, -(-self._evicted // size) * size

    def end_pass(self) -> None:
        """Learn that the pass is kept, and with it what it showed."""
        self._shown = False

    @property
    def stale(self) -> bool:
        """True if units that were brought before may have left, or have more rows now that queries see."""
        changes, stored, end = self._brought
        return changes != self.bank.changes or stored < min(end, self._evicted)

    def prepare(self, layer: int) -> None:
        """Make room for the tables of a layer."""
        keys, values = self.archive.slabs(layer)
        room = max(self.archive.room, self.archive.readable)
        self.bank.prepare(layer, (keys[-1][0], values[-1][0]), room, self.archive.host.expected)

    def bring(self, layer: int, slabs: tuple[Slabs, Slabs], starts: Tensor, limits: Tensor) -> Tensor:
        """Return where the units that begin at `starts` [NB, U] are, as rows behind the sinks, int64 [NB, U * size].

        The bank has room for all of them. limits: int64 [NB], see `kernels.bank`.
        """
        self.note()
        held, counts = self.bank.layers[layer], self.traffic.counts[layer]
        return bring(held, starts, limits, *slabs, self._stored, counts, self.sinks)

    def slabs(self, layer: int, sinks: tuple[Tensor, Tensor]) -> tuple[Slabs, Slabs]:
        """Return keys and values of a layer, sinks first."""
        banks = zip(sinks, self.bank.slabs(layer), strict=True)
        keys, values = ([(sink, self.sinks), (bank, bank.shape[1])] for sink, bank in banks)
        return keys, values

    def gathered(
        self, layer: int, slabs: tuple[Slabs, Slabs], starts: Tensor, limits: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Bring units that are too many for the bank, few blocks at a time, and copy their rows out of it.

        Returns:
            Rows as `bring` returns them, which may hold other units by now, and keys and values [H, NB * U * size, D].
        """
        together = self.bank.units // starts.shape[1]
        places, copies = [], []
        spec, latent = self.bank.spec, self.bank.spec.layers[layer].latent
        for begin in range(0, len(starts), together):
            few = slice(begin, begin + together)
            places.append(self.bring(layer, slabs, starts[few], limits[few]))
            rows = torch.where(places[-1] < NOWHERE, places[-1] - self.sinks, 0).view(1, -1)
            banks = self.bank.slabs(layer)[: 1 if latent else 2]
            copies.append(
                [
                    gather_rows([(bank, bank.shape[1])], rows.expand(bank.shape[0], -1), spec.device, spec.dtype)
                    for bank in banks
                ]
            )
        keys, *others = (torch.cat(parts, dim=1) for parts in zip(*copies, strict=True))
        return torch.cat(places), keys, others[0] if others else keys

    def attended(self, layer: int, rows: Tensor, entries: Tensor, attention: Tensor) -> None:
        """Count attention float32 [NB, N] to entries [NB, N], which were brought to `rows` [NB, N]."""
        self.bank.layers[layer].attended(rows - self.sinks, entries, attention)

    @contextmanager
    def tried(self) -> Iterator[None]:
        """Count nothing that is looked up inside the block."""
        before = self.traffic.counts.clone()
        try:
            yield
        finally:
            self.traffic.counts.copy_(before)

    def fork(self, archive: Archive) -> Self:
        """Return a conversation's use of the same bank, with counts of its own."""
        child = copy.copy(self)
        child.archive, child.line = archive, Line(archive.host.stored // self.bank.size)
        child.traffic, child._stored = Traffic(self.bank.spec), torch.zeros_like(self._stored)
        return child

    def snapshot(self, archive: Archive) -> Self:
        """Return the use of the same bank by another line of history, which counts together with this one."""
        child, shared = copy.copy(self), self.line.shared
        own = archive.host.stored // self.bank.size
        child.archive, child.line = archive, Line(shared if archive.answering else min(shared, own))
        return child

    def usage(self, usage: Usage) -> Usage:
        """Add the bank's bytes, and this memory's traffic."""
        hits, misses = self.traffic.seen.sum(dim=0).tolist()
        traffic = {"hits": hits, "misses": misses, "moved_bytes": self.bank.moved_bytes(self.traffic)}
        on_device = usage.bytes[DEVICE] + self.bank.nbytes(self.archive.host)
        return dataclasses.replace(usage, bytes={**usage.bytes, DEVICE: on_device}, traffic=traffic)
