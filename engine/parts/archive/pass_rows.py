"""Entries of a pass of text that leave the window before the pass ends, so that later queries of it look them up.

They are in no slab yet. Each layer makes a slab of the pass and of the entries that wait in the open group: whole
groups, with the numbers or codes that slabs will hold. Sizes: H KV heads, T tokens, N entries, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.parts.archive.host_tier import HostTier
from engine.parts.archive.open_group import coded
from kernels.rows import Bank, ChannelScale, QuantizedSlab, Slabs


class PassRows:
    """A slab behind those of a tier, for one layer at a time."""

    def __init__(self, host: HostTier, source: Tensor, place: torch.device) -> None:
        """Show a pass behind all entries of a tier, whose last pass has arrived.

        Args:
            host: the tier.
            source: int32 [T] on the host, the source positions of the pass.
            place: device of the slab.
        """
        self.host, self.place = host, place
        held = 0 if host.group is None else len(host.group.source)
        self.count = (held + len(source)) // host.group_size * host.group_size
        self.source = (source if host.group is None else torch.cat([host.group.source, source]))[: self.count]
        self._pending = None if host.group is None else host.stacks.parted(host.group.pending)
        self._layer: int | None = None
        self._banks: list[Bank] = []

    def show(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Show keys (before RoPE) and values [H, T, D] of a layer, in place of those of the layer before it."""
        spec = self.host.spec.layers[layer]
        pairs = enumerate((keys[: spec.kv_heads], values[: spec.value_heads]))
        self._banks = []  # frees the memory of the layer before
        self._banks = [self._bank(layer, which, rows) for which, rows in pairs if len(rows)]
        self._layer = layer

    def slabs(self, layer: int) -> tuple[Slabs, Slabs]:
        """Return keys and values of the layer that is shown; for latent layers the values are the keys."""
        assert layer == self._layer, f"the pass shows layer {self._layer}, not {layer}"
        return [(self._banks[0], self.count)], [(self._banks[-1], self.count)]

    def _bank(self, layer: int, which: int, rows: Tensor) -> Bank:
        """Return a slab of rows [H, T, D] of a layer. which: 0 for keys, 1 for values."""
        host = self.host
        if self._pending is None and host.group_size == 1:
            return rows.to(self.place, host.dtype).contiguous()
        parts = [rows] if self._pending is None else [self._pending[which][layer], rows]
        whole = torch.cat(parts, dim=1)[:, : self.count]
        if host.channel_scales:
            scale = host.channel_scales[layer][which]
        else:  # those of the first group, as when it is kept
            scale = ChannelScale.of(whole[:, : host.group_size])
        codes, scales = coded(whole, scale, host.dtype)
        return QuantizedSlab(codes.to(self.place), scales.to(self.place), scale, host.dtype, host.spec.dtype)
