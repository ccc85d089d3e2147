"""Copies between a device and the host.

Tensors go to the host in few copies, into pinned memory of exactly the needed size. Slabs go to the device one by one,
each while the one before it is used.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import Tensor

from kernels.rows import Bank, Slabs, empty_copy

STREAMED = 3  # slabs on a GPU at once: one in use, the next, and the last until it is freed
PACKED_BYTES = 64 << 20  # device memory for tensors that are packed into one copy


class Staging:
    """Pinned host memory for tensors that come from a GPU. It is kept, since allocating takes longer than the copy."""

    def __init__(self) -> None:
        """Start without any memory."""
        self._bytes = torch.empty(0, dtype=torch.uint8)

    def buffer(self, needed: int, device: torch.device) -> Tensor:
        """Return so many bytes for data of a device. They overwrite the data of the last call."""
        if needed > len(self._bytes):
            self._bytes = torch.empty(0, dtype=torch.uint8)  # frees its memory before the larger one is allocated
            self._bytes = torch.empty(needed, dtype=torch.uint8, pin_memory=device.type == "cuda")
        return self._bytes[:needed]


@cache
def _copy_stream(device: torch.device, to_host: bool) -> torch.cuda.Stream:
    """Return the stream for copies to the host (`to_host`) or from it.

    On the stream of the passes, a copy would delay the next pass.
    """
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def copy_to_host_async(tensors: list[Tensor], staging: Staging) -> Callable[[], list[Tensor]]:
    """Start copying tensors from a GPU to the host, in few copies.

    Args:
        tensors: on one device, those of wider numbers first.
        staging: memory for the copies, which are valid until it is used again.

    Returns:
        A function that waits for the copies and returns them.
    """
    if not tensors[0].is_cuda:
        return lambda: tensors
    sizes, device = [x.nbytes for x in tensors], tensors[0].device
    buffer = staging.buffer(sum(sizes), device)
    parts = zip(torch.split(buffer, sizes), tensors, strict=True)
    coming = [there.view(x.dtype).view(x.shape) for there, x in parts]
    here, way = torch.cuda.current_stream(device), _copy_stream(device, to_host=True)
    begin = 0
    while begin < len(tensors):
        end = begin + max(1, sum(size <= PACKED_BYTES for size in itertools.accumulate(sizes[begin:])))
        flat = [x.reshape(-1).view(torch.uint8) for x in tensors[begin:end]]
        packed = torch.cat(flat) if len(flat) > 1 else flat[0]
        first = sum(sizes[:begin])
        way.wait_stream(here)
        with torch.cuda.stream(way):
            buffer[first : first + len(packed)].copy_(packed, non_blocking=True)
        packed.record_stream(way)  # keeps its memory until the copy is done
        begin = end
    gone = way.record_event()

    def wait() -> list[Tensor]:
        gone.synchronize()
        return coming

    return wait


def streamed(slabs: Slabs, device: torch.device) -> Iterator[tuple[Bank, int]]:
    """Yield slabs on the device that computes. On a GPU, at most `STREAMED` copies exist at once.

    A slab is copied while the one before it is used. The copy starts after the slab before that one was used, so that
    memory can be freed in the order of the passes' stream.
    """
    if all(bank.device == device for bank, _ in slabs):
        yield from slabs
        return
    here, way = torch.cuda.current_stream(device), _copy_stream(device, to_host=False)
    try:
        coming = [_send(*first, device) for first in slabs[:1]]
        for number, (_, length) in enumerate(slabs):
            bank, arrived = coming.pop()
            coming = [_send(*following, device) for following in slabs[number + 1 : number + 2]]
            here.wait_event(arrived)
            yield bank, length
    finally:  # a copy may still be writing to memory that is freed here
        here.wait_stream(way)


def _send(bank: Bank, length: int, device: torch.device) -> tuple[Bank, torch.cuda.Event]:
    """Start to copy a slab to a device that computes. Return the copy, and what to wait for before it is read."""
    here, way = torch.cuda.current_stream(device), _copy_stream(device, to_host=False)
    there, pairs = empty_copy(bank, length, device)
    way.wait_stream(here)
    with torch.cuda.stream(way):
        for to, x in pairs:
            to.copy_(x, non_blocking=True)
    return there, way.record_event()


def copy_to_device_async(slabs: Slabs, device: torch.device) -> Callable[[], Slabs]:
    """Start to copy slabs to a device that computes.

    Returns:
        A function that lets the passes' stream wait for the copies, and returns them. It must be called, because memory
        may not be freed while a copy writes to it.
    """
    coming = [(_send(bank, length, device), length) for bank, length in slabs]

    def arrived() -> Slabs:
        here = torch.cuda.current_stream(device)
        for (_, event), _ in coming:
            here.wait_event(event)
        return [(bank, length) for (bank, _), length in coming]

    return arrived
