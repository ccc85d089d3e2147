"""The archive: every key and value behind the sinks, in host memory or on disk, and where in it a question looks."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor

from engine.models.spec import ModelSpec
from engine.parts.archive.focus import WIDEST, FocusedEntries, SecondLook
from engine.parts.archive.host_tier import HostTier
from engine.parts.archive.sketch import Sketch
from engine.parts.quantized_slots import check_quantization
from engine.records import DISK, HOST, LoadedParts, Parts, Usage
from kernels import choice
from kernels.rows import Slabs, StableSlabs


class Archive:
    """What has been read, kept whole outside the device's store.

    Attributes:
        host: the entries.
        answering: whether this is a conversation's.
        num_evicted: entries that the next token does not see without looking them up.
        lookup: of this pass, the entries that may be looked up, int64 [N] on the host; None for all.
    """

    def __init__(
        self,
        spec: ModelSpec,
        dtype: torch.dtype,
        tier: str = HOST,
        question_passes: int = 1,
        sketch: torch.dtype | None = None,
    ) -> None:
        """Start empty.

        Args:
            spec: of the model.
            dtype: of the entries.
            tier: where full slabs go, host or disk.
            looks: how often a question is asked at most.
            sketch: kind of the keys' sketches, or None.

        Raises:
            SettingsError: a quantisation that this model or its device cannot have.
        """
        check_quantization(spec, dtype)
        looking = spec.looking_far
        self.device = spec.device
        self.host = HostTier(looking, dtype, sketch=None if sketch is None else Sketch(looking, sketch))
        self.tier = tier
        self.question_passes = question_passes
        self.answering = False
        self.reads_text = False  # whether the passes of a conversation are text that is read
        self.num_evicted = 0
        self.lookup: Tensor | None = None
        self._second_look = SecondLook(question_passes - 1)
        self._restricted: FocusedEntries | None = None  # to the passages that a person named
        self._stable: tuple[tuple[int, ...], dict[int, tuple[StableSlabs, StableSlabs]]] = ((), {})

    @property
    def searched_by_queries(self) -> bool:
        """Whether queries of the pass come from a question or an answer."""
        return self.answering and not self.reads_text

    def readable_in_place(self) -> bool:
        """Tell whether attention reads the archive where it is, and waits for nothing that the host does there."""
        return self.device.type == "cpu" or (choice.implementation() == "triton" and self.tier != DISK)

    def reserve(self, tokens: int) -> None:
        """Let the last slab be no larger than the text needs."""
        self.host.expected = tokens

    def check_host_room(self) -> None:
        """Refuse a text of which the host's memory cannot hold what is still to come.

        Raises:
            OutOfMemory: naming how much that is.
        """
        self.host.check_host_room(leaving=self.tier == DISK)

    def prepare_lookup(self, entries: int) -> None:
        """Make the first `entries` entries readable for a pass, and find those of them that it may look up."""
        self.host.flush(needed=entries)
        focus = self.focused
        self.lookup = None if focus is None else focus.behind(entries)

    @property
    def focused(self) -> FocusedEntries | None:
        """The entries that the next pass may look up, or None for all."""
        return self._second_look.focus or self._restricted

    def restrict_to(self, tokens: Tensor) -> None:
        """Look up only these tokens of the text, int64 [N], and what is not in the text, until `focus(None)`."""
        self._restricted = FocusedEntries.named(tokens, self.host.source(), self.num_evicted)

    def looks_again(self) -> bool:
        """Tell whether a question that comes now is to be asked once more, with `focus` in between."""
        evicted = self.num_evicted
        entries = evicted if self._restricted is None else len(self._restricted.behind(evicted))
        return self._second_look.again > 0 and self.answering and entries > WIDEST

    def focus(self, mass: Tensor | None) -> None:
        """Look up only what a question gave its attention to, float32 [source tokens].

        None: the question has been answered, and the next one may look up everything.
        """
        if mass is None:
            self._second_look, self._restricted = SecondLook(self.question_passes - 1), None
        else:
            self._second_look = self._second_look.after(mass, self.host.source(), self.num_evicted)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Treat the passes inside as text that is read, also in a conversation."""
        before, self.reads_text = self.reads_text, True
        try:
            yield
        finally:
            self.reads_text = before

    def append(self, keys: list[Tensor], values: list[Tensor], source: Tensor) -> None:
        """Keep the tokens of a pass: per layer [H, T, D], before RoPE; source: int32 [T] on the host.

        Raises:
            OutOfMemory: nothing of the pass is kept.
        """
        self.host.append(keys, values, source)

    def slabs(self, layer: int) -> tuple[Slabs, Slabs]:
        """Return the keys (before RoPE) and values of a layer, slab by slab."""
        return self.host.keys(layer), self.host.values(layer)

    def stable_slabs(self, layer: int) -> tuple[StableSlabs, StableSlabs]:
        """Return the same, the last slab whole, as objects that stay the same while no slab comes or goes."""
        addresses = self.host.addresses()
        if self._stable[0] != addresses:
            self._stable = addresses, {}
        known = self._stable[1]
        if layer not in known:
            keys, values = self.slabs(layer)
            known[layer] = _whole(keys), _whole(values)
        return known[layer]

    def fork(self) -> Self:
        """Return a conversation's archive, which shares all entries so far."""
        child = copy.copy(self)
        child.host, child.answering, child._stable = self.host.fork(), True, ((), {})
        return child

    def snapshot(self) -> Self:
        """Return the archive as it is now; its slabs are only ever appended to."""
        child = copy.copy(self)
        child.host = self.host.snapshot()
        return child

    def remembered(self, tokens: int) -> Tensor:
        """Return 1 for each of the first `tokens` source tokens that is kept, else 0, float32 on the host."""
        held, source = torch.zeros(tokens), self.host.source()
        held[source[source >= 0].long()] = 1.0
        return held

    def usage(self, device: Usage) -> Usage:
        """Add the archive's entries and bytes to what is on the device; mapped slabs are on disk."""
        entries, size = self.host.on_disk()
        (name, on_device), *_ = device.bytes.items()
        held = {**device.entries, HOST: self.host.length - entries}
        gather_rows = {name: on_device + self.host.device_bytes(), HOST: self.host.nbytes()}
        if entries:
            held, gather_rows = {**held, DISK: entries}, {**gather_rows, DISK: size}
        return Usage(held, gather_rows)

    def reclaimable_bytes(self) -> int:
        """Return the bytes that `use_mapped_files` would free if the memory were saved now."""
        return self.host.reclaimable_bytes() if self.tier == DISK else 0

    def use_mapped_files(self, parts: LoadedParts) -> None:
        """Use full slabs that were just saved or loaded where they are mapped, unless a GPU needs them pinned."""
        if self.tier == DISK or not self.host.pinned:
            self.host.use_mapped_files(parts)

    def state(self) -> Parts:
        """Return the slabs that are not a context's."""
        return self.host.state()

    def load(self, parts: LoadedParts) -> None:
        """Take back what `state` returned."""
        self.host.load(parts, stay=self.tier == DISK)


def _whole(slabs: Slabs) -> StableSlabs:
    """Return slabs of which the last counts whole, because what comes next goes there."""
    *others, (last, _) = slabs
    return StableSlabs([*others, (last, last.shape[1])])
