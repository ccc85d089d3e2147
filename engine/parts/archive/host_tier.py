"""The host tier: every key (before RoPE) and value ever read, searchable, in host memory or on the model's device.

Entries lie in slabs (`slabs.py`), so a million tokens are never copied to grow. A full slab is sealed: forks share it,
it is written to disk once, and can be used from its mapped file. In a quantised tier, entries that do not fill a group
wait beside the slabs in the model's dtype (`open_group.py`). Attention cannot see them there, so a memory with such a
tier keeps its window one group longer than its passes. Sizes: HQ query heads, H KV heads, T queries, N entries, D head
size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from engine.memory_usage import require_memory
from engine.models.spec import ModelSpec
from engine.parts.archive import tier_plan
from engine.parts.archive.open_group import OpenGroup, coded, loaded_group, loaded_scales, saved_group
from engine.parts.archive.search import Found, best_among, best_by_sketch, best_of_all
from engine.parts.archive.sketch import Sketch
from engine.parts.archive.slabs import Slab, group_size_of
from engine.parts.archive.stacks import Stacks
from engine.parts.archive.tier_plan import FIRST_OF_CONVERSATION, host_bytes, slab_bytes
from engine.parts.archive.transfers import Staging, copy_to_host_async
from engine.pinned_memory import use_exact_pinned_sizes
from engine.records import LoadedParts, Part, Parts
from kernels import rows
from kernels.gathering import gather_rows
from kernels.rows import ChannelScale, Slabs, take

TAIL = "host-tail"  # the part with the open group
MOVED = 2048  # entries of the largest slab that is moved to make room in it


class Arriving(NamedTuple):
    """A pass that is still being copied from the device.

    Attributes:
        wait: waits for the copy and returns the rows for each of `Slab.stacks`.
        source: their source positions.
        nbytes: bytes of all its tensors.
    """

    wait: Callable[[], list[Tensor]]
    source: Tensor
    nbytes: int


@dataclass
class HostTier:
    """All slabs of one memory, oldest first. A fork shares those of its context.

    Attributes:
        spec: sizes of the model.
        dtype: type of the entries: a float type, or one of `quantise.KINDS`.
        on_device: whether slabs lie on the model's device, else in host memory.
        slabs: the slabs.
        shared: how many of them belong to the context.
        forked: whether this is a conversation's tier, even if its context has no slabs.
        length: entries in all, pending ones included.
        expected: entries that are to come in all, 0 if unknown.
        group: the open group; None without quantisation, and before the first entry.
        channel_scales: per layer, of keys and values; empty without quantisation.
        mirror: source positions on the device, and how many of them are valid.
        arriving: the last pass, until its copy from the device was waited for.
        sketch: sketches of the keys, or None.
        staging: host memory that passes are copied to.
    """

    spec: ModelSpec
    dtype: torch.dtype
    on_device: bool = False
    slabs: list[Slab] = field(default_factory=list)
    shared: int = 0
    forked: bool = False
    length: int = 0
    expected: int = 0
    group: OpenGroup | None = None
    channel_scales: list[tuple[ChannelScale, ChannelScale]] = field(default_factory=list)
    mirror: tuple[Tensor | None, int] = (None, 0)
    arriving: Arriving | None = None
    sketch: Sketch | None = None
    staging: Staging = field(default_factory=Staging, init=False)
    stacks: Stacks = field(init=False)
    _stacked_scales: list[ChannelScale] = field(default_factory=list)  # of each stack, once they are needed

    def __post_init__(self) -> None:
        self.stacks = Stacks(self.spec)
        if self.pinned:
            use_exact_pinned_sizes()

    @property
    def group_size(self) -> int:
        """Entries that are quantised together; 1 without quantisation."""
        return group_size_of(self.dtype)

    @property
    def stored(self) -> int:
        """Entries in slabs, which can be searched and fetched."""
        arriving = 0 if self.arriving is None else len(self.arriving.source)
        return self.length - len(self._pending_source) - arriving

    @property
    def _pending_source(self) -> Tensor:
        """Source positions of the entries in the open group, int32 [N]."""
        return torch.empty(0, dtype=torch.int32) if self.group is None else self.group.source

    @property
    def together(self) -> int:
        """Entries that become visible together. Windows must be this much longer than passes."""
        return self.group_size if self.sketch is None else rows.GROUP_SIZE

    @property
    def pinned(self) -> bool:
        """True if slabs are in pinned memory, where kernels on a GPU can read them."""
        return self.spec.device.type == "cuda" and not self.on_device

    @property
    def place(self) -> torch.device:
        """Device of the slabs."""
        return self.spec.device if self.on_device else torch.device("cpu")

    @property
    def local(self) -> bool:
        """True if slabs lie where the model computes."""
        return self.on_device or self.spec.device.type == "cpu"

    def _new_slab(self, stored: int, least: int = 0) -> Slab:
        """Return an empty slab. least: entries that fit into one of a conversation."""
        own = sum(slab.capacity for slab in self.slabs[self.shared :])
        capacity = min(tier_plan.SLAB, max(FIRST_OF_CONVERSATION, least, own)) if self.forked else tier_plan.SLAB
        if self.expected // self.group_size * self.group_size > stored:
            capacity = min(capacity, self.expected // self.group_size * self.group_size - stored)
        return Slab.empty(self.spec, self.stacks, self.dtype, capacity, self.channel_scales, self.place, self.pinned)

    def make_room(self, tokens: int) -> None:
        """Let the last slab of a conversation have room for so many more tokens, unless it is too large to be moved."""
        self.flush()
        if self.group_size > 1 and not self.channel_scales:
            return  # nothing is quantised yet
        own, most = self.slabs[self.shared :], -(-tokens // rows.GROUP_SIZE) * rows.GROUP_SIZE
        if not own or own[-1].full:
            self.slabs.append(self._new_slab(self.stored, most))
        elif own[-1].capacity - own[-1].length < most and own[-1].capacity <= MOVED:
            room = self._new_slab(self.stored - own[-1].length, own[-1].length + most)
            self.slabs[-1] = own[-1].moved(room)
        mirror, _ = self.mirror
        if mirror is not None and len(mirror) < self.stored + tokens:
            self.mirror = None, 0
        self._sketch_rest()

    def check_room(self, leaving: bool) -> None:
        """Raise if there is no room for the rest of the expected entries.

        Args:
            leaving: whether full slabs leave memory once they are saved.

        Raises:
            OutOfMemory: the rest does not fit.
        """
        rest = max(0, self.expected - self.length)
        if self._elsewhere:
            needed = slab_bytes(self.spec, self.dtype, rest)
            require_memory(needed, self.place, f"Keeping {rest:,} tokens on the device")
            return
        # A slab exists twice while it is saved, or while the next one fills before it is on disk.
        held = min(rest, tier_plan.SLAB) if leaving else rest
        twice = slab_bytes(self.spec, self.dtype, min(rest, tier_plan.SLAB))
        needed = host_bytes(self.spec, self.dtype, held, held) + twice
        require_memory(needed, torch.device("cpu"), f"Keeping {held:,} tokens")

    def append(self, keys: list[Tensor], values: list[Tensor], source: Tensor) -> None:
        """Add all tokens of a pass, or none if memory runs out.

        Heads that the tier's spec does not have are dropped. On a GPU, entries are quantised there. They are copied
        while the GPU goes on, quantised ones in whole groups, and are in slabs after the next pass, or after `flush`.

        Args:
            keys: per layer [H, T, D], before RoPE.
            values: per layer [H, T, D].
            source: int32 [T] on the host.

        Raises:
            OutOfMemory: nothing of the pass is added.
        """
        self.flush()  # the pass before; if this fails, it is still arriving
        before = self.length, self.group
        try:
            coming, tokens = self.stacks.stacked(keys, values), len(source)
            if self.group_size > 1:
                coming, source = self._whole_groups(coming, source)
            else:
                coming = [x.to(self.dtype) for x in coming]
            if len(source):
                wait = (lambda: coming) if self.local else self._sent_home(coming)
                self.arriving = Arriving(wait, source, source.nbytes + sum(x.nbytes for x in coming))
            self.length += tokens
            if self.local:
                self.flush()
        except BaseException:
            (self.length, self.group), self.arriving = before, None
            raise

    def _sent_home(self, coming: list[Tensor]) -> Callable[[], list[Tensor]]:
        """Start copying tensors to the host, and return a function that waits for them."""
        order = sorted(range(len(coming)), key=lambda number: -coming[number].itemsize)
        wait = copy_to_host_async([coming[number] for number in order], self.staging)
        return lambda: [x for _, x in sorted(zip(order, wait(), strict=True), key=lambda pair: pair[0])]

    def flush(self, needed: int | None = None) -> None:
        """Put the last pass into slabs, waiting for its copy from the device.

        Args:
            needed: do nothing if this many entries are visible already. None always flushes.
        """
        there = self.stored if self.sketch is None else self.sketch.length
        if self.arriving is None or (needed is not None and needed <= there):
            return
        self._fill(self.arriving.wait(), self.arriving.source)
        self.arriving = None  # only now, so that nothing is lost if memory runs out

    def _rest(self) -> None:
        """Flush the last pass and free the staging memory."""
        self.flush()
        self.staging = Staging()

    def _whole_groups(self, new: list[Tensor], source: Tensor) -> tuple[list[Tensor], Tensor]:
        """Add stacks of entries to the open group, and return the codes and scales of the groups that are whole."""
        group = self.group or OpenGroup.empty(self.spec, self.stacks)
        full, whole, self.group = group.joined(new, source)
        if not len(whole):
            return [], whole
        if not self.channel_scales:  # of the first group, so that the size of passes does not matter
            self._use_scales([ChannelScale.of(x[:, : self.group_size]).on_host() for x in full])
        each = zip(full, self._stacked_scales, strict=True)
        return [x for rows, scale in each for x in coded(rows, scale, self.dtype)], whole

    def _use_scales(self, stacked: list[ChannelScale]) -> None:
        """Normalise channels by these scales of each stack."""
        for scale in stacked:
            scale.on(self.spec.device)  # copied there before a pass needs it
        parts = [scale.parted(heads) for scale, heads in zip(stacked, self.stacks.heads, strict=True)]
        keys, values = self.stacks.of_layers(parts)
        self._stacked_scales, self.channel_scales = stacked, list(zip(keys, values, strict=True))

    def _fill(self, new: list[Tensor], source: Tensor) -> None:
        """Put entries, one tensor for each of `Slab.stacks`, into slabs, all or none."""
        slabs, last = len(self.slabs), self.slabs[-1].length if self.slabs else 0
        try:
            self._filled(new, source)
            self._sketch_rest()
        except BaseException:
            del self.slabs[slabs:]
            if slabs:
                self.slabs[-1].length = last
            raise

    def _filled(self, new: list[Tensor], source: Tensor) -> None:
        done, count, before = 0, source.shape[0], self.stored
        while done < count:
            if len(self.slabs) == self.shared or self.slabs[-1].full:
                self.slabs.append(self._new_slab(before + done))
            slab = self.slabs[-1]
            end = min(count, done + slab.capacity - slab.length)
            there = (slice(*(rows.used(x, at, count) for at in (done, end))) for x in new)
            slab.put([x[:, some] for x, some in zip(new, there, strict=True)], source[done:end])
            done = end

    def _sketch_rest(self) -> None:
        """Sketch all entries in slabs, with capacity for full slabs.

        So sketches only move when a slab is added, which `addresses` shows to recordings over both.
        """
        if self.sketch is None:
            return
        stored = sum(slab.length for slab in self.slabs)
        room = stored + sum(slab.capacity - slab.length for slab in self.slabs[self.shared :])
        self.sketch.extend(self.keys, stored, max(room, self.expected))

    def fork(self) -> HostTier:
        """Return a tier that shares all entries so far and appends to its own slabs. Its first group starts with the
        pending entries.
        """
        assert not self.forked, "a conversation is a fork of a context, not of another conversation"
        self._rest()
        self.group = self.group and self.group.forked()
        slabs = self.slabs[:-1] + [dataclasses.replace(last) for last in self.slabs[-1:]]
        return HostTier(
            self.spec,
            self.dtype,
            self.on_device,
            slabs,
            shared=len(slabs),
            forked=True,
            length=self.length,
            group=self.group,
            channel_scales=self.channel_scales,
            _stacked_scales=self._stacked_scales,
            sketch=self.sketch and self.sketch.fork(),
        )

    def snapshot(self) -> HostTier:
        """Return the tier as it is now. Both copies append behind the entries that the other sees."""
        self.flush()
        slabs = self.slabs[:-1] + [dataclasses.replace(last) for last in self.slabs[-1:]]
        return dataclasses.replace(self, slabs=slabs, expected=0, sketch=self.sketch and self.sketch.snapshot())

    def search(self, layer: int, q: Tensor, limits: Tensor, top: int, among: Tensor | None = None) -> Found:
        """Find the `top` entries by dot product for each query; with a sketch, the best of its candidates.

        Keys in bfloat16 may be compared less exactly; see `search.py`.

        Args:
            layer: number of the layer.
            q: [HQ, T, D], rotated to the position of the keys. The search runs on its device.
            limits: int64 [T], ascending, on the host: query t may see the first limits[t] entries.
            top: entries wanted.
            among: int64 [N], ascending, on the host: the entries to choose from; None for all.

        Returns:
            K = min(top, entries) entries of each query.
        """
        slabs = self.keys(layer)
        if among is not None:
            keys = gather_rows(slabs, among.expand(self.spec.layers[layer].kv_heads, -1), q.device, torch.float32)
            return best_among(among, keys, q, limits, top)
        if self.sketch is not None:
            return best_by_sketch(self.sketch, layer, slabs, q, limits, top)
        return best_of_all(slabs, q, limits, top, int(limits[-1]))

    def addresses(self) -> tuple[int, ...]:
        """Return the address of each slab. A slab keeps its address as long as it exists."""
        return tuple(slab.source.data_ptr() for slab in self.slabs)

    def whole(self, layer: int) -> tuple[Slabs, Slabs]:
        """Return keys and values of a layer, slab by slab; the last slab is whole, since entries come there."""
        keys = [(slab.keys[layer], length) for slab, length in self._whole_slabs]
        if self.spec.layers[layer].latent:
            return keys, keys
        return keys, [(slab.values[layer], length) for slab, length in self._whole_slabs]

    @property
    def _whole_slabs(self) -> list[tuple[Slab, int]]:
        """All slabs, and the entries to show of each: those that are there, and of the last one all that fit."""
        lengths = [slab.length for slab in self.slabs[:-1]] + [slab.capacity for slab in self.slabs[-1:]]
        return list(zip(self.slabs, lengths, strict=True))

    def keys(self, layer: int) -> Slabs:
        """Return the keys of a layer, slab by slab."""
        return [(slab.keys[layer], slab.length) for slab in self.slabs if slab.length]

    def values(self, layer: int) -> Slabs:
        """Return the values of a layer, slab by slab. For latent layers these are the keys."""
        if self.spec.layers[layer].latent:
            return self.keys(layer)
        return [(slab.values[layer], slab.length) for slab in self.slabs if slab.length]

    def source_of(self, index: Tensor) -> Tensor:
        """Return source positions int32 [...] of entries int64 [...], on the index's device."""
        if index.device.type != "cpu":
            return self.source_on_device(index.device)[index]
        slabs = [(slab.source.view(1, -1, 1), length) for slab, length in self._whole_slabs]
        return take(slabs, index.reshape(1, -1)).view(index.shape)

    def source_on_device(self, device: torch.device) -> Tensor:
        """Return the source positions of all entries on a device, copied there once."""
        known, start = self.mirror
        if known is None or self.stored > len(known):
            grown = torch.empty(self.stored + tier_plan.SLAB // 16, dtype=torch.int32, device=device)
            if known is not None:
                grown[:start] = known[:start]
            known = grown
        if start < self.stored:
            known[start : self.stored] = self.source_of(torch.arange(start, self.stored)).to(device, non_blocking=True)
        self.mirror = known, self.stored
        return known

    def source(self) -> Tensor:
        """Return the source position of every entry, int32 [N]."""
        self.flush()
        return torch.cat([*(slab.source[: slab.length] for slab in self.slabs), self._pending_source])

    def nbytes(self) -> int:
        """Return the bytes in host memory, shared slabs included, mapped slabs excluded."""
        arriving = self.arriving  # read once: a panel asks while a pass flushes it
        coming = 0 if arriving is None or self.on_device else arriving.nbytes
        held = sum(slab.source.nbytes + (0 if self._elsewhere else slab.row_bytes()) for slab in self._unmapped)
        scales = sum(each.nbytes() for pair in self.channel_scales for each in pair)
        waiting = self._pending_source.nbytes + (self._waiting_bytes if self.spec.device.type == "cpu" else 0)
        return held + coming + waiting + scales

    def device_bytes(self) -> int:
        """Return the bytes on the device: sketches, source positions, and what of the entries lies there."""
        source_on_device = 0 if self.mirror[0] is None else self.mirror[0].nbytes
        held = sum(slab.row_bytes() for slab in self._unmapped) if self._elsewhere else 0
        held += 0 if self.spec.device.type == "cpu" else self._waiting_bytes
        return held + source_on_device + (0 if self.sketch is None else self.sketch.nbytes())

    @property
    def _unmapped(self) -> list[Slab]:
        return [slab for slab in self.slabs if not slab.mapped]

    @property
    def _elsewhere(self) -> bool:
        """True if slabs are not in host memory."""
        return self.place.type != "cpu"

    @property
    def _waiting_bytes(self) -> int:
        return 0 if self.group is None else self.group.nbytes()

    def on_disk(self) -> tuple[int, int]:
        """Return entries and bytes of the mapped slabs."""
        mapped = [slab for slab in self.slabs if slab.mapped]
        return sum(slab.length for slab in mapped), sum(slab.nbytes() for slab in mapped)

    def reclaimable_bytes(self) -> int:
        """Return the bytes of own full slabs that are not mapped yet."""
        return sum(slab.nbytes() for slab in self.slabs[self.shared :] if slab.full and not slab.mapped)

    def use_mapped_files(self, parts: LoadedParts) -> None:
        """Replace own full slabs by their mapped files, which frees their memory."""
        for number, slab in enumerate(self.slabs[self.shared :]):
            saved = parts.get(f"host-{number:05d}")
            if slab.full and not slab.mapped and saved and len(saved["source"]) == slab.length:
                self.slabs[self.shared + number] = dataclasses.replace(self._loaded(saved), mapped=True)

    def state(self) -> Parts:
        """Return own slabs as one part each, full ones sealed, and the open group."""
        self._rest()
        parts: Parts = {}
        own = [slab for slab in self.slabs[self.shared :] if slab.length]
        for number, slab in enumerate(own):
            parts[f"host-{number:05d}"] = Part(slab.saved(), sealed=slab.full)
        if self.group is not None:
            parts[TAIL] = Part(saved_group(self.group, self.stacks, self.channel_scales))
        return parts

    def load(self, parts: LoadedParts, stay: bool = False) -> None:
        """Load saved slabs. Full ones are used from their mapped files.

        For a GPU they are copied to the device or into pinned memory, unless they are to stay on disk. If more entries
        may come, a last slab that was not full is copied and continued. Slabs then have the same borders as in an
        uninterrupted reading, so scores are computed in the same groups and have the same last bits.

        Args:
            parts: tensors by part.
            stay: whether full slabs stay on disk.

        Raises:
            OutOfMemory: the copies do not fit.
        """
        if TAIL in parts:
            tail = parts[TAIL]
            self.length += tail["source"].shape[0] - (self.length - self.stored)  # the tail begins where the slabs end
            self.group = loaded_group(tail, self.spec, self.stacks)
            if "0.keys.centre" in tail and not self.channel_scales:  # a conversation has those of its context
                self._use_scales(loaded_scales(tail, self.stacks))
        names = sorted(name for name in parts if name.startswith("host-") and name != TAIL)
        copied = (self.pinned and not stay) or self._elsewhere
        if copied:
            sent = (tensor for name in names for tensor in parts[name].values())
            needed = sum(tensor.nbytes for tensor in sent if self._elsewhere or not tensor.is_pinned())
            require_memory(needed, self.place, "Opening this reading for a GPU")
        for name in names:
            tensors = parts[name]
            if copied:
                tensors = {key: self._copied(key, tensor) for key, tensor in tensors.items()}
            self.slabs.append(self._loaded(tensors))
            self.length += self.slabs[-1].length
        if names and (self.forked or self.expected > self.length):
            last = self.slabs.pop()
            room = self._new_slab(self.stored - last.length)
            self.slabs.append(last.moved(room) if last.length < room.capacity else last)
        self._sketch_rest()

    def _copied(self, name: str, tensor: Tensor) -> Tensor:
        """Return a copy of a saved tensor where slabs lie. Source positions stay in host memory."""
        if not self._elsewhere:
            return tensor.pin_memory()
        return tensor.clone() if name == "source" else tensor.to(self.place)

    def _loaded(self, tensors: dict[str, Tensor]) -> Slab:
        return Slab.loaded(tensors, self.spec, self.dtype, self.channel_scales)
