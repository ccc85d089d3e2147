"""Keys of an archive that come to the device for a pass of many queries, layer after layer."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engine.models.spec import ModelSpec
from engine.parts.archive.archive import Archive
from engine.parts.archive.slabs import group_size_of
from engine.parts.archive.transfers import copy_to_device_async, streamed
from kernels.bank import units_bytes
from kernels.rows import Slabs

MOST_BYTES = 1280 << 20  # of a layer's keys; two layers are on the device at once


class KeyStream:
    """Brings all keys of a layer to the device once, while the layer before it computes.

    Queries of many blocks, each with its own chunks and heads, would read more keys over the link than there are.
    """

    def __init__(self, archive: Archive, layers: list[int]) -> None:
        """Bring the keys of these layers, which ask in this order."""
        self.archive, self.layers = archive, layers
        self._coming: dict[int, Callable[[], Slabs]] = {}

    def keys(self, layer: int) -> Slabs:
        """Return the keys of a layer on the device, those of the pass included, and start with the next one."""
        found = self._send(layer)()
        for following in self.layers[self.layers.index(layer) + 1 :][:1]:
            self._coming[following] = self._send(following)
        return [*found, *streamed(self.archive.pass_slabs(layer)[0], self.archive.device)]

    def _send(self, layer: int) -> Callable[[], Slabs]:
        coming = self._coming.pop(layer, None)
        return coming or copy_to_device_async(self.archive.host.keys(layer), self.archive.device)

    def stop(self) -> None:
        """Give up keys that nobody has asked for."""
        for arrived in self._coming.values():
            arrived()
        self._coming = {}


def streamed_bytes(spec: ModelSpec, dtype: torch.dtype, entries: int) -> int:
    """Return the bytes of the largest layer's keys, 0 if there is no room for two layers of them.

    dtype: of the archive.
    """
    group = group_size_of(dtype)
    most = max(
        (units_bytes(layer.kv_heads, layer.head_size, entries, dtype, group) for layer in spec.layers), default=0
    )
    return most if most <= MOST_BYTES else 0
