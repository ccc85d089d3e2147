"""What a host tier takes, counted before anything is read; tests compare it with the slabs of `host_tier.py`."""

from __future__ import annotations

import torch

from engine.models.spec import ModelSpec
from engine.parts.archive.slabs import group_size_of
from engine.parts.quantized_slots import channel_scale_bytes
from engine.records import DISK, HOST, Usage
from kernels import quantise

SLAB = 32768  # entries
FIRST_OF_CONVERSATION = 256  # entries of a conversation's first slab; the ones behind it double what there is


def host_bytes(spec: ModelSpec, dtype: torch.dtype, entries: int, expected: int) -> int:
    """Bytes of the slabs of a reading that puts `entries` there and announced `expected` of them.

    Slabs are allocated whole; only the last one is cut to what is still expected. Codes: whole pages are in slabs, the
    rest waits in the model's dtype.
    """
    group_size = group_size_of(dtype)
    grouped = entries // group_size * group_size
    capacity = min(-(-grouped // SLAB) * SLAB, max(expected // group_size * group_size, grouped))
    if group_size == 1:
        return capacity * (spec.entry_width * dtype.itemsize + 4)
    rows = [(layer.kv_heads + layer.value_heads, layer.head_size) for layer in spec.layers]
    coded = sum(count * quantise.width(dtype, size) for count, size in rows)
    scales = capacity // group_size * sum(count for count, _ in rows) * 4
    pending = (entries - grouped) * (spec.entry_bytes + 4)
    return capacity * (coded + 4) + scales + pending + (channel_scale_bytes(spec) if grouped else 0)


def full_entries(dtype: torch.dtype, entries: int, expected: int) -> int:
    """Of the entries of such a reading, those in full slabs."""
    group_size = group_size_of(dtype)
    grouped = entries // group_size * group_size
    return grouped if grouped and grouped == expected // group_size * group_size else grouped // SLAB * SLAB


def slab_bytes(spec: ModelSpec, dtype: torch.dtype, entries: int) -> int:
    """Bytes of slabs alone, with room for so many entries; of codes, for whole pages."""
    grouped = entries // group_size_of(dtype) * group_size_of(dtype)
    channel_scales = channel_scale_bytes(spec) if group_size_of(dtype) > 1 and grouped else 0
    return host_bytes(spec, dtype, grouped, grouped) - channel_scales


def mapped_entries(spec: ModelSpec, dtype: torch.dtype, entries: int) -> int:
    """Of so many entries that were saved, those that whoever goes on from them uses where they are mapped: full slabs;
    none for a GPU, for which slabs are copied into pinned memory.
    """
    return 0 if spec.device.type == "cuda" else entries // group_size_of(dtype) * group_size_of(dtype) // SLAB * SLAB


def host_usage(spec: ModelSpec, dtype: torch.dtype, entries: int, expected: int, mapped: int, leaving: bool) -> Usage:
    """What such a reading has in host memory and on disk in the end.

    mapped: entries of them in slabs of before (`mapped_entries`); leaving: whether full slabs leave memory.
    """
    rest, coming = entries - mapped, expected - mapped
    full = full_entries(dtype, rest, coming) if leaving else 0
    kept, away = host_bytes(spec, dtype, rest, coming) - slab_bytes(spec, dtype, full), mapped + full
    if not away:
        return Usage({HOST: entries}, {HOST: kept})
    return Usage({HOST: entries - away, DISK: away}, {HOST: kept, DISK: slab_bytes(spec, dtype, away)})


def pending_bytes(spec: ModelSpec, dtype: torch.dtype) -> int:
    """Bytes of what is beside the slabs at most: of codes, a page that is not full, and the levels."""
    group_size = group_size_of(dtype)
    return host_bytes(spec, dtype, 2 * group_size - 1, group_size) - slab_bytes(spec, dtype, group_size)
