"""Sizes of a host tier, computed before anything is read. Tests compare them with the slabs of `host_tier.py`."""

from __future__ import annotations

import torch

from engine.models.spec import ModelSpec
from engine.parts.archive.slabs import group_size_of
from engine.parts.quantized_slots import channel_scale_bytes
from engine.records import DISK, HOST, Usage
from kernels import quantise

SLAB = 32768  # entries
FIRST_OF_CONVERSATION = 256  # entries of a conversation's first slab; later slabs double the total


def host_bytes(spec: ModelSpec, dtype: torch.dtype, entries: int, expected: int) -> int:
    """Return the bytes of a reading's slabs.

    Slabs are allocated whole; only the last one is cut to the expected entries. With quantisation, slabs hold whole
    groups and
    the rest is pending in the model's dtype.

    Args:
        spec: sizes of the model.
        dtype: type of the entries.
        entries: entries that are added.
        expected: entries that were announced.
    """
    group_size = group_size_of(dtype)
    grouped = entries // group_size * group_size
    capacity = min(-(-grouped // SLAB) * SLAB, max(expected // group_size * group_size, grouped))
    if group_size == 1:
        return capacity * (spec.entry_width * dtype.itemsize + 4)
    rows = [(layer.kv_heads + layer.value_heads, layer.head_size) for layer in spec.layers]
    row_bytes = sum(count * quantise.width(dtype, size) for count, size in rows)
    scales = capacity // group_size * sum(count for count, _ in rows) * 4
    pending = (entries - grouped) * (spec.entry_bytes + 4)
    return capacity * (row_bytes + 4) + scales + pending + (channel_scale_bytes(spec) if grouped else 0)


def full_entries(dtype: torch.dtype, entries: int, expected: int) -> int:
    """Return how many entries of such a reading are in full slabs."""
    group_size = group_size_of(dtype)
    grouped = entries // group_size * group_size
    return grouped if grouped and grouped == expected // group_size * group_size else grouped // SLAB * SLAB


def slab_bytes(spec: ModelSpec, dtype: torch.dtype, entries: int) -> int:
    """Return the bytes of slabs alone with capacity for `entries` entries, whole groups if quantised."""
    grouped = entries // group_size_of(dtype) * group_size_of(dtype)
    channel_scales = channel_scale_bytes(spec) if group_size_of(dtype) > 1 and grouped else 0
    return host_bytes(spec, dtype, grouped, grouped) - channel_scales


def mapped_entries(spec: ModelSpec, dtype: torch.dtype, entries: int) -> int:
    """Return how many of the saved entries are used from mapped files later: those in full slabs.

    For a GPU there are none, since slabs are copied into pinned memory.
    """
    return 0 if spec.device.type == "cuda" else entries // group_size_of(dtype) * group_size_of(dtype) // SLAB * SLAB


def host_usage(spec: ModelSpec, dtype: torch.dtype, entries: int, expected: int, mapped: int, leaving: bool) -> Usage:
    """Return the usage of host memory and disk at the end of a reading.

    Args:
        spec: sizes of the model.
        dtype: type of the entries.
        entries: entries that are added.
        expected: entries that were announced.
        mapped: entries among them in mapped slabs of an earlier reading (`mapped_entries`).
        leaving: whether full slabs leave memory.
    """
    rest, coming = entries - mapped, expected - mapped
    full = full_entries(dtype, rest, coming) if leaving else 0
    kept, away = host_bytes(spec, dtype, rest, coming) - slab_bytes(spec, dtype, full), mapped + full
    if not away:
        return Usage({HOST: entries}, {HOST: kept})
    return Usage({HOST: entries - away, DISK: away}, {HOST: kept, DISK: slab_bytes(spec, dtype, away)})


def pending_bytes(spec: ModelSpec, dtype: torch.dtype) -> int:
    """Return the most bytes beside the slabs: an open group and the channel scales."""
    group_size = group_size_of(dtype)
    return host_bytes(spec, dtype, 2 * group_size - 1, group_size) - slab_bytes(spec, dtype, group_size)
