"""The host tier: every key (before RoPE) and value ever read, in host memory, searchable.

Entries lie in slabs (`slabs.py`), so a million tokens are never copied to grow. A full slab is sealed: forks share it,
it is written to disk once, and can be used from its mapped file. In a quantised tier, entries that do not fill a group
stay pending beside the slabs in the model's dtype. Attention cannot see them there, so a memory with such a tier keeps
its window one group longer than its passes. Sizes: HQ query heads, H KV heads, T queries, N entries, D head size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.memory_usage import require_memory
from engine.models.spec import ModelSpec
from engine.parts.archive import tier_plan
from engine.parts.archive.search import Found, best_among, best_by_sketch, best_of_all
from engine.parts.archive.sketch import Sketch
from engine.parts.archive.slabs import Slab, group_size_of
from engine.parts.archive.tier_plan import FIRST_OF_CONVERSATION, host_bytes, slab_bytes
from engine.parts.archive.transfers import Staging, copy_to_host_async
from engine.pinned_memory import use_exact_pinned_sizes
from engine.records import LoadedParts, Part, Parts
from kernels import quantise, rows
from kernels.gathering import gather_rows
from kernels.rows import BANKS, Bank, ChannelScale, QuantizedSlab, Slabs, take

TAIL = "host-tail"  # the part with pending entries
MOVED = 2048  # entries of the largest slab that is moved to make room in it


class Arriving(NamedTuple):
    """A pass that is still being copied from the device.

    Attributes:
        wait: waits for the copy and returns the keys and values.
        source: its source positions.
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
        slabs: the slabs.
        shared: how many of them belong to the context.
        forked: whether this is a conversation's tier, even if its context has no slabs.
        length: entries in all, pending ones included.
        expected: entries that are to come in all, 0 if unknown.
        pending: entries of an open group: per layer keys and values [H, N, D], and source positions.
        channel_scales: per layer, of keys and values; empty without quantisation.
        mirror: source positions on the device, and how many of them are valid.
        arriving: the last pass, until its copy from the device was waited for.
        sketch: sketches of the keys, or None.
        staging: host memory that passes are copied to.
    """

    spec: ModelSpec
    dtype: torch.dtype
    slabs: list[Slab] = field(default_factory=list)
    shared: int = 0
    forked: bool = False
    length: int = 0
    expected: int = 0
    pending: tuple[list[Tensor], list[Tensor], Tensor] | None = None
    channel_scales: list[tuple[ChannelScale, ChannelScale]] = field(default_factory=list)
    mirror: tuple[Tensor | None, int] = (None, 0)
    arriving: Arriving | None = None
    sketch: Sketch | None = None
    staging: Staging = field(default_factory=Staging, init=False)

    def __post_init__(self) -> None:
        if self.pinned:
            use_exact_pinned_sizes()

    @property
    def group_size(self) -> int:
        """Entries that are quantised together; 1 without quantisation."""
        return group_size_of(self.dtype)

    @property
    def stored(self) -> int:
        """Entries in slabs, which can be searched and fetched."""
        pending = 0 if self.pending is None else len(self.pending[2])
        return self.length - pending - (0 if self.arriving is None else len(self.arriving.source))

    @property
    def together(self) -> int:
        """Entries that become visible together. Windows must be this much longer than passes."""
        return self.group_size if self.sketch is None else rows.GROUP_SIZE

    @property
    def _heads(self) -> tuple[list[int], list[int]]:
        """Heads of keys and heads of values, per layer."""
        return [layer.kv_heads for layer in self.spec.layers], [layer.value_heads for layer in self.spec.layers]

    @property
    def pinned(self) -> bool:
        """True if slabs are in pinned memory, where kernels on a GPU can read them."""
        return self.spec.device.type == "cuda"

    def _new_slab(self, stored: int, least: int = 0) -> Slab:
        """Return an empty slab. least: entries that fit into one of a conversation."""
        own = sum(slab.capacity for slab in self.slabs[self.shared :])
        capacity = min(tier_plan.SLAB, max(FIRST_OF_CONVERSATION, least, own)) if self.forked else tier_plan.SLAB
        if self.expected // self.group_size * self.group_size > stored:
            capacity = min(capacity, self.expected // self.group_size * self.group_size - stored)
        banks = [
            [
                self._new_bank(
                    heads,
                    layer.head_size,
                    capacity,
                    self.channel_scales[number][which] if self.channel_scales else None,
                )
                for which, heads in enumerate((layer.kv_heads, layer.value_heads))
            ]
            for number, layer in enumerate(self.spec.layers)
        ]
        source = torch.empty(capacity, dtype=torch.int32)
        return Slab([keys for keys, _ in banks], [values for _, values in banks], source)

    def _new_bank(self, heads: int, size: int, capacity: int, channel_scales: ChannelScale | None) -> Bank:
        pinned = self.pinned
        if channel_scales is None:
            return torch.empty(heads, capacity, size, dtype=self.dtype, pin_memory=pinned)
        width, stored = quantise.width(self.dtype, size), quantise.stored(self.dtype)
        return QuantizedSlab(
            torch.empty(heads, capacity, width, dtype=stored, pin_memory=pinned),
            torch.empty(heads, capacity // self.group_size, pin_memory=pinned),
            channel_scales,
            self.dtype,
            self.spec.dtype,
        )

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

    def check_host_room(self, leaving: bool) -> None:
        """Raise if host memory cannot hold the rest of the expected entries.

        Args:
            leaving: whether full slabs leave memory once they are saved.

        Raises:
            OutOfMemory: the rest does not fit.
        """
        rest = max(0, self.expected - self.length)
        # A slab exists twice while it is saved, or while the next one fills before it is on disk.
        held = min(rest, tier_plan.SLAB) if leaving else rest
        twice = slab_bytes(self.spec, self.dtype, min(rest, tier_plan.SLAB))
        needed = host_bytes(self.spec, self.dtype, held, held) + twice
        require_memory(needed, torch.device("cpu"), f"Keeping {held:,} tokens")

    def append(self, keys: list[Tensor], values: list[Tensor], source: Tensor) -> None:
        """Add all tokens of a pass, or none if memory runs out.

        Heads that the tier's spec does not have are dropped. Tensors of a GPU are copied while the GPU goes on. They
        are in slabs after the next pass, or after `flush`.

        Args:
            keys: per layer [H, T, D], before RoPE.
            values: per layer [H, T, D].
            source: int32 [T] on the host.

        Raises:
            OutOfMemory: nothing of the pass is added.
        """
        self.flush()  # the pass before; if this fails, it is still arriving
        before = self.length
        try:
            stored = self.dtype if self.group_size == 1 else self.spec.dtype
            coming = [
                x[:count].to(stored)
                for each, heads in zip((keys, values), self._heads, strict=True)
                for x, count in zip(each, heads, strict=True)
            ]
            self.arriving = Arriving(
                copy_to_host_async(coming, self.staging), source, source.nbytes + sum(x.nbytes for x in coming)
            )
            self.length += source.shape[0]
            if not coming[0].is_cuda:
                self.flush()
        except BaseException:
            self.length, self.arriving = before, None
            raise

    def flush(self, needed: int | None = None) -> None:
        """Put the last pass into slabs, waiting for its copy from the device.

        Args:
            needed: do nothing if this many entries are visible already. None always flushes.
        """
        there = self.stored if self.sketch is None else self.sketch.length
        if self.arriving is None or (needed is not None and needed <= there):
            return
        home, source, pending = self.arriving.wait(), self.arriving.source, self.pending
        keys, values = home[: len(home) // 2], home[len(home) // 2 :]
        if self.group_size > 1:
            keys, values, source, pending = self._whole_groups(keys, values, source)
        self._fill(keys, values, source)
        self.pending, self.arriving = pending, None  # only now, so that nothing is lost if memory runs out

    def _rest(self) -> None:
        """Flush the last pass and free the staging memory."""
        self.flush()
        self.staging = Staging()

    def _whole_groups(self, keys: list[Tensor], values: list[Tensor], source: Tensor) -> tuple[Any, ...]:
        """Split pending and new entries into whole groups for slabs and the rest, which is pending."""
        if self.pending is not None:
            before = self.pending
            keys = [torch.cat(pair, dim=1) for pair in zip(before[0], keys, strict=True)]
            values = [torch.cat(pair, dim=1) for pair in zip(before[1], values, strict=True)]
            source = torch.cat([before[2], source])
        whole = source.shape[0] // self.group_size * self.group_size
        if whole and not self.channel_scales:  # of the first group, so that the size of passes does not matter
            first = slice(0, self.group_size)
            self.channel_scales = [
                (ChannelScale.of(k[:, first]), ChannelScale.of(v[:, first])) for k, v in zip(keys, values, strict=True)
            ]
        full, rest = slice(0, whole), slice(whole, None)
        # Copies, because a view would keep the whole pass alive.
        pending = [x[:, rest].clone() for x in keys], [x[:, rest].clone() for x in values], source[rest].clone()
        return [x[:, full] for x in keys], [x[:, full] for x in values], source[full], pending

    def _fill(self, keys: list[Tensor], values: list[Tensor], source: Tensor) -> None:
        """Put entries into slabs, all or none. Quantised tiers get whole groups."""
        slabs, last = len(self.slabs), self.slabs[-1].length if self.slabs else 0
        try:
            self._filled(keys, values, source)
            self._sketch_rest()
        except BaseException:
            del self.slabs[slabs:]
            if slabs:
                self.slabs[-1].length = last
            raise

    def _filled(self, keys: list[Tensor], values: list[Tensor], source: Tensor) -> None:
        done, count, before = 0, source.shape[0], self.stored
        while done < count:
            if len(self.slabs) == self.shared or self.slabs[-1].full:
                self.slabs.append(self._new_slab(before + done))
            slab = self.slabs[-1]
            there = slice(done, min(count, done + slab.capacity - slab.length))
            slab.put([k[:, there] for k in keys], [v[:, there] for v in values], source[there])
            done = there.stop

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
        slabs = self.slabs[:-1] + [dataclasses.replace(last) for last in self.slabs[-1:]]
        return HostTier(
            self.spec,
            self.dtype,
            slabs,
            shared=len(slabs),
            forked=True,
            length=self.length,
            pending=self.pending,
            channel_scales=self.channel_scales,
            sketch=self.sketch and self.sketch.fork(),
        )

    def snapshot(self) -> HostTier:
        """Return the tier as it is now. Both copies append behind the entries that the other sees."""
        self.flush()
        slabs = self.slabs[:-1] + [dataclasses.replace(last) for last in self.slabs[-1:]]
        return dataclasses.replace(self, slabs=slabs, expected=0, sketch=self.sketch and self.sketch.snapshot())

    def search(self, layer: int, q: Tensor, limits: Tensor, top: int, among: Tensor | None = None) -> Found:
        """Find the `top` entries by dot product for each query; with a sketch, the best of its candidates.

        Keys in bfloat16 are compared less exactly; see `search.py`.

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

    def gather(self, layer: int, index: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return keys and values [HQ, T, K, D] on the device of entries [HQ, T, K], given on host or device."""
        rows = index.reshape(self.spec.layers[layer].kv_heads, -1)
        keys = gather_rows(self.keys(layer), rows, device, self.spec.dtype)
        latent = self.spec.layers[layer].latent
        values = keys if latent else gather_rows(self.values(layer), rows, device, self.spec.dtype)
        shape = (*index.shape, keys.shape[2])
        return keys.view(shape), values.view(shape)

    def gather_shared(self, layer: int, index: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return keys and values [H, NB, N, D] on the device of the same entries [NB, N] for all heads."""
        return self.gather(layer, index.expand(self.spec.layers[layer].kv_heads, *index.shape), device)

    def addresses(self) -> tuple[int, ...]:
        """Return the address of each slab. A slab keeps its address as long as it exists."""
        return tuple(slab.source.data_ptr() for slab in self.slabs)

    def whole(self, layer: int) -> tuple[Slabs, Slabs]:
        """Return keys and values of a layer, slab by slab; the last slab is whole, since entries come there."""
        lengths = [slab.length for slab in self.slabs[:-1]] + [slab.capacity for slab in self.slabs[-1:]]
        keys = [(slab.keys[layer], length) for slab, length in zip(self.slabs, lengths, strict=True)]
        if self.spec.layers[layer].latent:
            return keys, keys
        return keys, [(slab.values[layer], length) for slab, length in zip(self.slabs, lengths, strict=True)]

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
        slabs = [(slab.source.view(1, -1, 1), slab.length) for slab in self.slabs if slab.length]
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
        pending = torch.empty(0, dtype=torch.int32) if self.pending is None else self.pending[2]
        return torch.cat([*(slab.source[: slab.length] for slab in self.slabs), pending])

    def nbytes(self) -> int:
        """Return the bytes in host memory, shared slabs included, mapped slabs excluded."""
        keys, values, source = self.pending or ([], [], torch.empty(0))
        pending = sum(x.nbytes for x in [*keys, *values, source])
        channel_scales = sum(each.nbytes() for pair in self.channel_scales for each in pair)
        arriving = self.arriving  # read once: a panel asks while a pass flushes it
        sizes = [slab.nbytes() for slab in self.slabs if not slab.mapped] + [arriving.nbytes if arriving else 0]
        return sum(sizes) + pending + channel_scales

    def device_bytes(self) -> int:
        """Return the bytes on the device: sketches and source positions."""
        source_on_device = 0 if self.mirror[0] is None else self.mirror[0].nbytes
        return source_on_device + (0 if self.sketch is None else self.sketch.nbytes())

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
        """Return own slabs as one part each, full ones sealed, and the pending entries."""
        self._rest()
        parts: Parts = {}
        own = [slab for slab in self.slabs[self.shared :] if slab.length]
        for number, slab in enumerate(own):
            parts[f"host-{number:05d}"] = Part(slab.saved(), sealed=slab.full)
        if self.pending is not None:
            parts[TAIL] = Part(self._tail())
        return parts

    def _tail(self) -> dict[str, Tensor]:
        assert self.pending is not None
        keys, values, source = self.pending
        tensors = {"source": source}
        for layer in range(len(keys)):
            tensors |= {f"{layer}.keys": keys[layer], f"{layer}.values": values[layer]}
        for layer, pair in enumerate(self.channel_scales):
            for name, channel_scales in zip(BANKS, pair, strict=True):
                tensors |= channel_scales.saved(f"{layer}.{name}")
        return tensors

    def load(self, parts: LoadedParts, stay: bool = False) -> None:
        """Load saved slabs. Full ones are used from their mapped files.

        For a GPU they are copied into pinned memory, unless they are to stay on disk. If more entries may come, a last
        slab that was not full is copied and continued. Slabs then have the same borders as in an uninterrupted reading,
        so scores are computed in the same groups and have the same last bits.

        Args:
            parts: tensors by part.
            stay: whether full slabs stay on disk.

        Raises:
            OutOfMemory: the copies do not fit.
        """
        if TAIL in parts:
            tail = parts[TAIL]
            every = zip(BANKS, self._heads, strict=True)  # another spec may have saved more heads
            keys, values = (
                [tail[f"{layer}.{name}"][:count].clone() for layer, count in enumerate(heads)] for name, heads in every
            )
            self.length += tail["source"].shape[0] - (self.length - self.stored)  # the tail begins where the slabs end
            self.pending = keys, values, tail["source"].clone()
            if "0.keys.centre" in tail and not self.channel_scales:  # a conversation has those of its context

                def channel_scales(layer: int, which: int) -> ChannelScale:
                    heads = self._heads[which][layer]
                    return ChannelScale.loaded(tail, f"{layer}.{BANKS[which]}", heads, torch.device("cpu"))

                self.channel_scales = [
                    (channel_scales(layer, 0), channel_scales(layer, 1)) for layer in range(len(keys))
                ]
        names = sorted(name for name in parts if name.startswith("host-") and name != TAIL)
        copied = self.pinned and not stay
        if copied:
            sent = (tensor for name in names for tensor in parts[name].values())
            needed = sum(tensor.nbytes for tensor in sent if not tensor.is_pinned())
            require_memory(needed, torch.device("cpu"), "Opening this reading for a GPU")
        for name in names:
            tensors = parts[name]
            if copied:
                tensors = {key: tensor.pin_memory() for key, tensor in tensors.items()}
            self.slabs.append(self._loaded(tensors))
            self.length += self.slabs[-1].length
        if names and (self.forked or self.expected > self.length):
            last = self.slabs.pop()
            room = self._new_slab(self.stored - last.length)
            self.slabs.append(last.moved(room) if last.length < room.capacity else last)
        self._sketch_rest()

    def _loaded(self, tensors: dict[str, Tensor]) -> Slab:
        return Slab.loaded(tensors, self.spec, self.dtype, self.channel_scales)
