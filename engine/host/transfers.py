"""From a device to the host: in few copies, into pinned memory that is as large as it must be."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

PACKED_BYTES = 64 << 20  # room on the device that what goes to the host together may take


@cache
def pin_exactly() -> None:
    """Pinned memory takes what it is asked for and goes back when it is freed: by itself PyTorch rounds it up to a
    power of two, which may be twice as much, and keeps it. What a person has set beside that stays.
    """
    ours = "pinned_max_round_threshold_mb:1,pinned_max_cached_size_mb:64"
    theirs = torch._C._accelerator_getAllocatorSettings()
    torch._C._accelerator_setAllocatorSettings(f"{theirs},{ours}" if theirs else ours)


def on_host(tensors: list[Tensor]) -> list[Tensor]:
    """The same tensors on the host, to which those of a device come in few copies."""
    return homeward(tensors)()


def homeward(tensors: list[Tensor]) -> Callable[[], list[Tensor]]:
    """Send tensors of a GPU to the host, in few copies into pinned memory; what this returns waits for them."""
    if not tensors[0].is_cuda:
        return lambda: tensors
    coming: list[Tensor] = []
    while len(coming) < len(tensors):
        first = len(coming)
        sizes = itertools.accumulate(x.nbytes for x in tensors[first:])
        several = tensors[first : first + max(1, sum(size <= PACKED_BYTES for size in sizes))]
        packed = torch.cat([x.reshape(-1) for x in several]).to("cpu", non_blocking=True)
        parts = torch.split(packed, [x.numel() for x in several])
        coming += [part.view(x.shape) for part, x in zip(parts, several, strict=True)]
    gone = torch.cuda.current_stream(tensors[0].device).record_event()

    def wait() -> list[Tensor]:
        gone.synchronize()
        return coming

    return wait
