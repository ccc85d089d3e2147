"""The archive: keys and values behind the sinks, whole, and the part of them that a question searches."""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor

from engine.models.spec import ModelSpec
from engine.parts.archive.focus import WIDEST, FocusedEntries, SecondLook
from engine.parts.archive.host_tier import HostTier
from engine.parts.archive.pass_rows import PassRows
from engine.parts.archive.probes import Probes
from engine.parts.archive.sketch import Sketch
from engine.parts.quantized_slots import check_quantization
from engine.records import DEVICE, DISK, HOST, LoadedParts, Parts, Usage
from kernels import choice
from kernels.rows import Slabs


class Archive:
    """Entries kept whole outside the device's store.

    Attributes:
        host: the entries.
        tier: where entries lie (`options.TIERS`).
        question_passes: how often a question is asked at most.
        answering: whether this is a conversation's archive, so that its queries come from a question or an answer.
        probes: keys on the device for pruning, or None.
        lookup: entries that this pass may look up, int64 [N] on the host; None for all.
        passing: entries of this pass that it may look up itself, and that each layer has to show; None for none.
    """

    def __init__(
        self,
        spec: ModelSpec,
        dtype: torch.dtype,
        tier: str = HOST,
        question_passes: int = 1,
        sketch: torch.dtype | None = None,
        probes: int = 0,
    ) -> None:
        """Start without any entries.

        Args:
            spec: sizes of the model.
            dtype: type of the entries.
            tier: where entries lie (`options.TIERS`).
            question_passes: how often a question is asked at most.
            sketch: type of the keys' sketches, or None.
            probes: n keeps every n-th key on the device as well, for pruning, if entries are in host memory; 0 for
                none.

        Raises:
            SettingsError: the model or its device does not support the quantisation.
        """
        check_quantization(spec, dtype)
        looking = spec.looking_far
        self.device = spec.device
        on_device = tier == DEVICE and spec.device.type != "cpu"
        self.host = HostTier(looking, dtype, on_device, sketch=None if sketch is None else Sketch(looking, sketch))
        self.tier = tier
        self.probes = Probes(looking, probes) if probes and tier == HOST else None
        self.question_passes = question_passes
        self.answering = False
        self.lookup: Tensor | None = None
        self.second_look = SecondLook(question_passes - 1)  # replaced after each pass over a question
        self.passing: PassRows | None = None

    def probed(self) -> bool:
        """Make `probes` ready if the token of this pass may compare itself with them, and return whether it may."""
        if self.probes is None or not self.answering or not self.host.slabs[: self.host.shared]:
            return False
        self.probes.prepare(self.host)
        return True

    def readable_in_place(self) -> bool:
        """Return whether attention reads the archive in place, without waiting for the host."""
        return self.device.type == "cpu" or (choice.implementation() == "triton" and self.tier != DISK)

    def reserve(self, tokens: int) -> None:
        """Announce how many tokens come, so that the last slab is no larger than needed."""
        self.host.expected = tokens

    def check_room(self) -> None:
        """Raise if there is no room for the rest of the reserved tokens.

        Raises:
            OutOfMemory: the message names the size of the rest.
        """
        self.host.check_room(leaving=self.tier == DISK)

    def prepare_lookup(self, entries: int) -> None:
        """Make the first `entries` entries readable for a pass, and set which of them it may look up."""
        self.host.flush(needed=entries)
        self.passing = None
        focus = self.focused
        self.lookup = None if focus is None else focus.behind(entries)

    def look_ahead(self, source: Tensor) -> None:
        """Let queries of the pass look up its own entries, behind all that are stored. Each layer shows its own.

        source: int32 [T] on the host, source positions of the entries that will be appended.
        """
        self.host.flush()
        place = self.device if self.readable_in_place() else self.host.place
        self.passing = PassRows(self.host, source, place)

    def show(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Show entries of the pass, keys (before RoPE) and values [H, T, D], to the queries of the same layer."""
        if self.passing is not None and self.host.spec.layers[layer].kv_heads:
            self.passing.show(layer, keys, values)

    @property
    def readable(self) -> int:
        """Entries that this pass can look up: those in slabs, and those of the pass that layers show."""
        return self.host.stored + (0 if self.passing is None else self.passing.count)

    @property
    def focused(self) -> FocusedEntries | None:
        """Entries that the next pass may look up, or None for all."""
        return self.second_look.focus

    def looks_again(self, far: int) -> bool:
        """Return whether a question that comes now is asked once more, with `focus` in between. far: see there."""
        return self.second_look.again > 0 and self.answering and far > WIDEST

    def focus(self, mass: Tensor | None, far: int) -> None:
        """Restrict look-ups to the passages with most of a question's attention.

        Args:
            mass: float32 [source tokens], or None after the answer, when everything may be looked up again.
            far: entries that the next token sees only if they are looked up.
        """
        if mass is None:
            self.second_look = SecondLook(self.question_passes - 1)
        else:
            self.second_look = self.second_look.after(mass, self.host.source(), far)

    def append(self, keys: list[Tensor], values: list[Tensor], source: Tensor) -> None:
        """Add the tokens of a pass.

        Args:
            keys: per layer [H, T, D], before RoPE.
            values: per layer [H, T, D].
            source: int32 [T] on the host.

        Raises:
            OutOfMemory: nothing of the pass is added.
        """
        self.passing = None
        self.host.append(keys, values, source)

    def slabs(self, layer: int) -> tuple[Slabs, Slabs]:
        """Return the keys (before RoPE) and values of a layer, slab by slab; entries that the pass shows come last."""
        kept, shown = (self.host.keys(layer), self.host.values(layer)), self.pass_slabs(layer)
        return [*kept[0], *shown[0]], [*kept[1], *shown[1]]

    def pass_slabs(self, layer: int) -> tuple[Slabs, Slabs]:
        """Return the keys and values of a layer that the pass shows, without those in slabs."""
        return ([], []) if self.passing is None or not self.passing.count else self.passing.slabs(layer)

    def source_of(self, index: Tensor) -> Tensor:
        """Return source positions int32 [...] of readable entries int64 [...], on the index's device."""
        if self.passing is None:
            return self.host.source_of(index)
        stored, shown = self.host.stored, self.passing.source.to(index.device, non_blocking=True)
        own = shown[(index - stored).clamp_min(0)]
        return torch.where(index < stored, self.host.source_of(index.clamp_max(stored - 1)), own) if stored else own

    @property
    def room(self) -> int:
        """Entries that slabs have room for."""
        slabs = self.host.slabs
        return sum(slab.length for slab in slabs[:-1]) + sum(slab.capacity for slab in slabs[-1:])

    def fork(self) -> Self:
        """Return a conversation's archive that shares all entries so far."""
        child = copy.copy(self)
        child.host, child.answering = self.host.fork(), True
        return child

    def snapshot(self) -> Self:
        """Return the archive as it is now. Slabs are only appended to, so they are not copied."""
        child = copy.copy(self)
        child.host = self.host.snapshot()
        if self.probes is not None and not self.answering:  # two contexts may go on differently
            child.probes = Probes(self.probes.spec, self.probes.every)
        return child

    def remembered(self, tokens: int) -> Tensor:
        """Return 1 for each of the first `tokens` source tokens that is kept, else 0, float32 on the host."""
        held, source = torch.zeros(tokens), self.host.source()
        held[source[source >= 0].long()] = 1.0
        return held

    def usage(self, device: Usage) -> Usage:
        """Return the device's usage with the archive's entries and bytes added. Mapped slabs count as disk."""
        entries, size = self.host.on_disk()
        (name, on_device), *_ = device.bytes.items()
        on_device += 0 if self.probes is None else self.probes.nbytes(self.host)
        rest = self.host.length - entries
        if self.host.on_device:
            held = {**device.entries, name: device.entries[name] + rest}
        else:
            held = {**device.entries, HOST: rest}
        kept = {name: on_device + self.host.device_bytes(), HOST: self.host.nbytes()}
        if entries:
            held, kept = {**held, DISK: entries}, {**kept, DISK: size}
        return Usage(held, kept)

    def reclaimable_bytes(self) -> int:
        """Return the bytes that `use_mapped_files` would free after the memory is saved."""
        return self.host.reclaimable_bytes() if self.tier == DISK else 0

    def use_mapped_files(self, parts: LoadedParts) -> None:
        """Use full slabs from mapped files after they were saved or loaded, unless a GPU reads them in place."""
        if self.tier == DISK or self.device.type == "cpu":
            self.host.use_mapped_files(parts)

    def state(self) -> Parts:
        """Return the slabs that are not shared with a context."""
        return self.host.state()

    def load(self, parts: LoadedParts) -> None:
        """Load the parts that `state` returned."""
        self.host.load(parts, stay=self.tier == DISK)
