"""Between a device and the host: to the host in few copies, into pinned memory that is as large as it must be; to the
device slab by slab, each while the one before it is used.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import Tensor

from kernels.rows import Bank, Slabs, empty_copy

STREAMED = 3  # slabs on a GPU at once: one in use, the one after it, and the one before until that is noticed
PACKED_BYTES = 64 << 20  # room on the device that what goes to the host together may take


@cache
def use_exact_pinned_sizes() -> None:
    """Pinned memory takes what it is asked for and goes back when it is freed, if it is more than a MiB: by itself
    PyTorch rounds it up to a power of two, which may be twice as much, and keeps it. What a person has set beside that
    stays.

    Both limits must be the same: a block between them is kept without having been rounded, and may then be handed out
    to whoever asks for more than it holds (pytorch/pytorch#192722).
    """
    ours = "pinned_max_round_threshold_mb:1,pinned_max_cached_size_mb:1"
    theirs = torch._C._accelerator_getAllocatorSettings()
    torch._C._accelerator_setAllocatorSettings(f"{theirs},{ours}" if theirs else ours)


class Staging:
    """Where tensors of a GPU come to on the host: pinned memory that is kept, since new takes longer than the way."""

    def __init__(self) -> None:
        """Nothing is taken yet."""
        self._bytes = torch.empty(0, dtype=torch.uint8)

    def room(self, count: int, like: Tensor) -> Tensor:
        """For so many numbers like those of a tensor on the device; what came before it is overwritten."""
        needed = count * like.itemsize
        if needed > len(self._bytes):
            self._bytes = torch.empty(0, dtype=torch.uint8)  # its memory may be what the larger one takes
            self._bytes = torch.empty(needed, dtype=torch.uint8, pin_memory=like.device.type == "cuda")
        return self._bytes[:needed].view(like.dtype)


@cache
def _copy_stream(device: torch.device, home: bool) -> torch.cuda.Stream:
    """Where copies to the host run, or from it: on the stream of the passes, the next one would begin when they are
    over.
    """
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def copy_to_host(tensors: list[Tensor]) -> list[Tensor]:
    """The same tensors on the host, to which those of a device come in few copies."""
    return copy_to_host_async(tensors, Staging())()


def copy_to_host_async(tensors: list[Tensor], staging: Staging) -> Callable[[], list[Tensor]]:
    """Send tensors of one dtype from a GPU to the host, in few copies; what this returns waits for them.

    They come to lie in `staging`, and are there until it is used again.
    """
    if not tensors[0].is_cuda:
        return lambda: tensors
    counts = [x.numel() for x in tensors]
    room = staging.room(sum(counts), tensors[0])
    coming = [there.view(x.shape) for there, x in zip(torch.split(room, counts), tensors, strict=True)]
    here, way = torch.cuda.current_stream(tensors[0].device), _copy_stream(tensors[0].device, home=True)
    begin = 0
    while begin < len(tensors):
        sizes = itertools.accumulate(x.nbytes for x in tensors[begin:])
        end = begin + max(1, sum(size <= PACKED_BYTES for size in sizes))
        packed = torch.cat([x.reshape(-1) for x in tensors[begin:end]])
        first = sum(counts[:begin])
        way.wait_stream(here)
        with torch.cuda.stream(way):
            room[first : first + len(packed)].copy_(packed, non_blocking=True)
        packed.record_stream(way)  # until then its memory is given to nobody
        begin = end
    gone = way.record_event()

    def wait() -> list[Tensor]:
        gone.synchronize()
        return coming

    return wait


def streamed(slabs: Slabs, device: torch.device) -> Iterator[tuple[Bank, int]]:
    """The slabs where a device computes, one after the other; on a GPU copies, STREAMED of them at most.

    A copy is on its way while the slab before it is used, and begins when that before the last has been: so what copies
    lie in can be given back in the order of the passes' stream.
    """
    if all(bank.device == device for bank, _ in slabs):
        yield from slabs
        return
    here, way = torch.cuda.current_stream(device), _copy_stream(device, home=False)

    def send(bank: Bank, length: int) -> tuple[Bank, torch.cuda.Event]:
        there, pairs = empty_copy(bank, length, device)
        way.wait_stream(here)
        with torch.cuda.stream(way):
            for to, x in pairs:
                to.copy_(x, non_blocking=True)
        return there, way.record_event()

    try:
        coming = [send(*first) for first in slabs[:1]]
        for number, (_, length) in enumerate(slabs):
            bank, arrived = coming.pop()
            coming = [send(*following) for following in slabs[number + 1 : number + 2]]
            here.wait_event(arrived)
            yield bank, length
    finally:  # whoever goes on without the rest may be given the memory to which it is still coming
        here.wait_stream(way)
