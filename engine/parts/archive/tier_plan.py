"""Predict the bytes of an archive and its bank; tests compare them with the slabs of `host_tier.py`."""

from __future__ import annotations

import dataclasses

import torch

from engine.models.spec import ModelSpec
from engine.parts.archive.slabs import group_size_of
from engine.parts.footprint import Footprint, ReadingTask, Work
from engine.parts.quantized_slots import channel_scale_bytes
from engine.parts.slot_plan import first_room
from engine.records import DEVICE, DISK, HOST, Usage
from kernels import quantise

SLAB = 32768  # entries
LARGEST_SLAB = SLAB  # bounds what is saved at a time, also where slabs are made smaller
FIRST_OF_CONVERSATION = 256  # entries of a conversation's first slab; later slabs double the total


def host_bytes(spec: ModelSpec, dtype: torch.dtype, entries: int, expected: int) -> int:
    """Return the bytes in host memory of a reading that appends `entries` and announced `expected` of them.

    Slabs are allocated whole; only the last one is cut to what is still expected. Quantised entries are in slabs in
    whole groups, and the rest waits in the model's dtype, on a GPU there.
    """
    group_size = group_size_of(dtype)
    grouped = entries // group_size * group_size
    waiting = 4 * (entries - grouped)  # their source positions
    if spec.device.type == "cpu":
        waiting += open_group_bytes(spec, dtype, entries)
    slabs = slab_bytes(spec, dtype, _capacity(dtype, entries, expected))
    return slabs + waiting + (_scale_bytes(spec, dtype) if grouped else 0)


def _capacity(dtype: torch.dtype, entries: int, expected: int) -> int:
    """Return the entries that slabs have room for."""
    group_size = group_size_of(dtype)
    grouped = entries // group_size * group_size
    return min(-(-grouped // SLAB) * SLAB, max(expected // group_size * group_size, grouped))


def row_bytes(spec: ModelSpec, dtype: torch.dtype, entries: int) -> int:
    """Return the bytes of keys and values in slabs with room for so many entries, without source positions."""
    return slab_bytes(spec, dtype, entries) - 4 * (entries // group_size_of(dtype) * group_size_of(dtype))


def open_group_bytes(spec: ModelSpec, dtype: torch.dtype, entries: int) -> int:
    """Return the bytes of entries that wait on the model's device for their group to fill."""
    return group_size_of(dtype) * spec.entry_bytes if group_size_of(dtype) > 1 and entries else 0


def _scale_bytes(spec: ModelSpec, dtype: torch.dtype) -> int:
    return channel_scale_bytes(spec) if group_size_of(dtype) > 1 else 0


def full_entries(dtype: torch.dtype, entries: int, expected: int) -> int:
    """Return how many entries of such a reading are in full slabs."""
    group_size = group_size_of(dtype)
    grouped = entries // group_size * group_size
    return grouped if grouped and grouped == expected // group_size * group_size else grouped // SLAB * SLAB


def slab_bytes(spec: ModelSpec, dtype: torch.dtype, entries: int) -> int:
    """Return the bytes of slabs alone, with room for so many entries; if quantised, for whole groups of them."""
    group_size = group_size_of(dtype)
    if group_size == 1:
        return entries * (spec.entry_width * dtype.itemsize + 4)
    rows = [(layer.kv_heads + layer.value_heads, layer.head_size) for layer in spec.layers]
    row_bytes = sum(count * quantise.width(dtype, size) for count, size in rows)
    groups = entries // group_size
    return groups * group_size * (row_bytes + 4) + groups * sum(count for count, _ in rows) * 4


def mapped_entries(spec: ModelSpec, dtype: torch.dtype, entries: int) -> int:
    """Return how many of `entries` that were saved are used from their mapped files: those in full slabs.

    For a GPU there are none, since slabs are copied into pinned memory.
    """
    return 0 if spec.device.type == "cuda" else entries // group_size_of(dtype) * group_size_of(dtype) // SLAB * SLAB


def host_usage(spec: ModelSpec, dtype: torch.dtype, entries: int, expected: int, mapped: int, leaving: bool) -> Usage:
    """Return what such a reading has in host memory and on disk when it is finished.

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


def waiting_bytes(spec: ModelSpec, dtype: torch.dtype) -> int:
    """Return the most bytes beside the slabs: of quantised entries a group that is not full, and the channel scales."""
    return (group_size_of(dtype) - 1) * (spec.entry_bytes + 4) + _scale_bytes(spec, dtype)


def archive_footprint(
    spec: ModelSpec, task: ReadingTask, first: int, dtype: torch.dtype, tier: str, grows: bool
) -> Footprint:
    """Return the bytes of an archive of everything behind the `first` tokens.

    tier: where entries lie; grows: whether conversations are archived too.
    """
    looking, far = spec.looking_far, max(0, task.total - first)
    mapped = mapped_entries(looking, dtype, max(0, task.prefix + task.read - first)) if task.read else 0
    on_gpu = spec.device.type == "cuda"
    sources = 4 * far if on_gpu and grows else 0
    waiting = open_group_bytes(looking, dtype, far) if on_gpu else 0
    usage = host_usage(looking, dtype, far, task.total, mapped, leaving=tier == DISK)
    begun, held, there = _first_bytes(looking, dtype), 0, 0
    if on_gpu and tier == DEVICE:
        held, there = row_bytes(looking, dtype, _capacity(dtype, far, task.total)), begun
        usage, begun = Usage({DEVICE: far}, {HOST: usage.bytes[HOST] - held}), 0
    return Footprint(
        usage=dataclasses.replace(usage, bytes={DEVICE: waiting + held, **usage.bytes}),
        resident=far if held else 0,
        resident_bytes=held,
        arriving_bytes=task.chunk * looking.entry_bytes if on_gpu else 0,
        conversation_bytes=2 * (sources + (waiting + there if grows else 0)),
        saved_bytes=waiting_bytes(looking, dtype),
        host_saving_bytes=slab_bytes(looking, dtype, min(LARGEST_SLAB, far - mapped)),  # on its way to disk, or copied
        host_conversation_bytes=2 * begun if grows else 0,
    )


def _first_bytes(spec: ModelSpec, dtype: torch.dtype) -> int:
    """Return the bytes of a conversation's first slab, and of its open group on a CPU."""
    waiting = open_group_bytes(spec, dtype, 1) if spec.device.type == "cpu" else 0
    return waiting + slab_bytes(spec, dtype, first_room(spec, FIRST_OF_CONVERSATION))


def bank_footprint(size: int) -> Footprint:
    """Return the footprint of a bank of so many bytes, which conversations share. A pass may gather keys from it."""
    return Footprint(Usage({}, {DEVICE: size}), work=Work(explicit=size > 0))
