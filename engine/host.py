"""The host tier of the retrieving methods: every key (before RoPE) and value ever read, in host memory, searchable.

Entries lie in slabs that are allocated whole and filled in place, so a million tokens are never copied to make room.
A full slab is sealed: it is shared by forks and written to disk once. Sizes: HQ query heads, H KV heads, T queries,
N entries, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.records import LoadedParts, Part, Parts
from engine.seam import ModelSpec
from kernels.rows import Slabs, take

SLAB = 32768  # entries
BLOCK = 64  # entries whose best score stands for them in the first step of a search
SCORE_BYTES = 256 << 20  # room that the scores of one search may take


@dataclass
class Slab:
    """Keys and values of all layers for up to `SLAB` tokens: per layer [H, capacity, D]; source int32 [capacity]."""

    keys: list[Tensor]
    values: list[Tensor]
    source: Tensor
    length: int = 0

    @property
    def capacity(self) -> int:
        """Entries that fit."""
        return self.source.shape[0]

    def nbytes(self) -> int:
        """Bytes of all its tensors."""
        return sum(t.nbytes for t in [*self.keys, *self.values, self.source])


def host_bytes(spec: ModelSpec, dtype: torch.dtype, entries: int, expected: int) -> int:
    """Bytes of the slabs of a reading that puts `entries` there and announced `expected` of them.

    Slabs are allocated whole; only the last one is cut to what is still expected.
    """
    capacity = min(-(-entries // SLAB) * SLAB, max(expected, entries))
    width = sum(2 * layer.kv_heads * layer.head_size for layer in spec.layers)
    return capacity * (width * dtype.itemsize + 4)


@dataclass
class HostTier:
    """All slabs of one memory, oldest first; a fork shares those of its context (`shared` of them)."""

    spec: ModelSpec
    dtype: torch.dtype
    slabs: list[Slab] = field(default_factory=list)
    shared: int = 0
    length: int = 0
    expected: int = 0  # entries that are to come in all, where that is known

    def _new_slab(self) -> Slab:
        capacity = SLAB if self.shared == 0 else SLAB // 16
        if self.expected > self.length:
            capacity = min(capacity, self.expected - self.length)
        sizes = [(layer.kv_heads, capacity, layer.head_size) for layer in self.spec.layers]
        pinned = self.spec.device.type == "cuda"  # so that kernels can read it where it is
        return Slab(
            [torch.empty(size, dtype=self.dtype, pin_memory=pinned) for size in sizes],
            [torch.empty(size, dtype=self.dtype, pin_memory=pinned) for size in sizes],
            torch.empty(capacity, dtype=torch.int32),
        )

    def append(self, keys: list[Tensor], values: list[Tensor], source: Tensor) -> None:
        """Remember T tokens: per layer keys and values [H, T, D], source positions [T]."""
        done, count = 0, source.shape[0]
        while done < count:
            if len(self.slabs) == self.shared or self.slabs[-1].length == self.slabs[-1].capacity:
                self.slabs.append(self._new_slab())
            slab = self.slabs[-1]
            step = min(count - done, slab.capacity - slab.length)
            here, there = slice(slab.length, slab.length + step), slice(done, done + step)
            for layer in range(len(keys)):
                slab.keys[layer][:, here] = keys[layer][:, there].to("cpu", self.dtype)
                slab.values[layer][:, here] = values[layer][:, there].to("cpu", self.dtype)
            slab.source[here] = source[there].cpu()
            slab.length += step
            self.length += step
            done += step

    def fork(self) -> HostTier:
        """Sees all entries so far; appends into slabs of its own."""
        assert self.shared == 0, "a conversation is a fork of a context, not of another conversation"
        slabs = list(self.slabs)
        if slabs:
            last = slabs[-1]
            slabs[-1] = Slab(last.keys, last.values, last.source, last.length)
        return HostTier(self.spec, self.dtype, slabs, len(slabs), self.length)

    def snapshot(self) -> HostTier:
        """As it is now; appending to either writes behind what the other sees."""
        slabs = self.slabs[:-1] + [Slab(s.keys, s.values, s.source, s.length) for s in self.slabs[-1:]]
        return HostTier(self.spec, self.dtype, slabs, self.shared, self.length)

    def search(self, layer: int, q: Tensor, limits: Tensor, top: int) -> tuple[Tensor, Tensor]:
        """The exact `top` entries by dot product for each query.

        Args:
            q: [HQ, T, D], as the keys are kept: rotated to what their position is.
            limits: int64 [T], ascending: query t may see the first limits[t] entries.
            top: entries wanted.

        Returns:
            Entry numbers int64 [HQ, T, K], and whether they hold anything bool [HQ, T, K]; K = min(top, entries).
        """
        visible = int(limits[-1])
        step = max(1, SCORE_BYTES // (4 * q.shape[0] * max(visible, 1)))
        found = [
            self._search(layer, q[:, at : at + step], limits[at : at + step], top, visible)
            for at in range(0, q.shape[1], step)
        ]
        return torch.cat([index for index, _ in found], dim=1), torch.cat([held for _, held in found], dim=1)

    def _search(self, layer: int, q: Tensor, limits: Tensor, top: int, visible: int) -> tuple[Tensor, Tensor]:
        heads, queries, size = q.shape
        blocks = -(-visible // BLOCK)
        scores = torch.full((heads, queries, blocks * BLOCK), float("-inf"))
        kv_heads = self.spec.layers[layer].kv_heads
        grouped = q.to("cpu", self.dtype).reshape(kv_heads, -1, size)
        at = 0
        for slab in self.slabs:
            end = min(at + slab.length, visible)
            if end > at:
                part = grouped @ slab.keys[layer][:, : end - at].transpose(1, 2)
                scores[..., at:end] = part.view(heads, queries, -1)
            at += slab.length
        first = int(limits[0])
        if first < visible:
            late = torch.arange(first, visible) >= limits[:, None]
            scores[..., first:visible].masked_fill_(late, float("-inf"))
        # The best `top` entries lie in the `top` blocks with the best maxima, so only those are sorted.
        grid = scores.view(heads, queries, blocks, BLOCK)
        chosen = grid.amax(dim=-1).topk(min(top, blocks), dim=-1).indices
        candidates = grid.gather(2, chosen[..., None].expand(-1, -1, -1, BLOCK)).flatten(2)
        best, place = candidates.topk(min(top, visible), dim=-1)
        index = chosen.gather(2, place // BLOCK) * BLOCK + place % BLOCK
        held = best > float("-inf")
        return index.masked_fill_(~held, 0), held

    def gather(self, layer: int, index: Tensor, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values [HQ, T, K, D] on the device and source positions [HQ, T, K] of entries [HQ, T, K]."""
        shape = (*index.shape, self.spec.layers[layer].head_size)
        flat = index.reshape(self.spec.layers[layer].kv_heads, -1)
        keys, values = (
            take(slabs, flat).to(device, self.spec.dtype).view(shape)
            for slabs in (self.keys(layer), self.values(layer))
        )
        return keys, values, self.source_of(index)

    def keys(self, layer: int) -> Slabs:
        """The keys of a layer, slab by slab."""
        return [(slab.keys[layer], slab.length) for slab in self.slabs if slab.length]

    def values(self, layer: int) -> Slabs:
        """The values of a layer, slab by slab."""
        return [(slab.values[layer], slab.length) for slab in self.slabs if slab.length]

    def source_of(self, index: Tensor) -> Tensor:
        """Source positions int32 [...] of entries int64 [...]."""
        slabs = [(slab.source.view(1, -1, 1), slab.length) for slab in self.slabs if slab.length]
        return take(slabs, index.reshape(1, -1)).view(index.shape)

    def source(self) -> Tensor:
        """Source position of every entry, int32 [N]."""
        return torch.cat([s.source[: s.length] for s in self.slabs] or [torch.empty(0, dtype=torch.int32)])

    def nbytes(self) -> int:
        """Bytes of all slabs, shared ones included."""
        return sum(slab.nbytes() for slab in self.slabs)

    def state(self) -> Parts:
        """Own slabs, one part each; full ones sealed."""
        parts: Parts = {}
        for number, slab in enumerate(self.slabs[self.shared :]):
            full = slab.length == slab.capacity
            tensors = {"source": slab.source[: slab.length]}
            for layer in range(len(slab.keys)):
                tensors[f"{layer}.keys"] = slab.keys[layer][:, : slab.length].contiguous()
                tensors[f"{layer}.values"] = slab.values[layer][:, : slab.length].contiguous()
            parts[f"host-{number:05d}"] = Part(tensors, sealed=full)
        return parts

    def restore(self, parts: LoadedParts) -> None:
        """Slabs from disk are used where they are mapped, as full ones: what comes next goes into new slabs."""
        for name in sorted(name for name in parts if name.startswith("host-")):
            tensors = parts[name]
            length = tensors["source"].shape[0]
            layers = range(len(self.spec.layers))
            keys = [tensors[f"{layer}.keys"] for layer in layers]
            values = [tensors[f"{layer}.values"] for layer in layers]
            self.slabs.append(Slab(keys, values, tensors["source"], length))
            self.length += length
