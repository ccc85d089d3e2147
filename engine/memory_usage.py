"""How much memory there is and how much of it this process uses, in bytes."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import torch

from engine.errors import OutOfMemory

# On Windows; on Linux and macOS; where pinned memory is asked for; by Triton, which loads kernels late; by cuBLAS
RAN_OUT = (
    *("not enough memory", "can't allocate memory"),
    *("CUDA error: out of memory", "Triton Error [CUDA]: out of memory", "CUBLAS_STATUS_ALLOC_FAILED"),
)
CONTAINER = Path("/sys/fs/cgroup")  # where Linux says how much memory a container may take
LIMITS = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))


def free_bytes(device: torch.device) -> int:
    """Memory that is free on a device now, what PyTorch holds there for later included."""
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
    if torch.cuda.is_available():
        torch.accelerator.empty_host_cache()  # pinned memory that nobody uses any more
    return min(int(psutil.virtual_memory().available), _left_in_container())


def _left_in_container() -> int:
    """Of its limit, which the machine's free memory says nothing of; what files are cached in does not count as used.
    The process would be killed where it takes more. Without a limit, more than there is.
    """
    for limit, used in LIMITS:
        with suppress(OSError, ValueError, StopIteration):
            most = int((CONTAINER / limit).read_text())  # a number, or the word max
            lines = (CONTAINER / used).with_name("memory.stat").read_text().splitlines()
            cached = next(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
            return max(0, most - int((CONTAINER / used).read_text()) + cached)
    return sys.maxsize


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out; PyTorch has a class for it on a GPU and a sentence elsewhere."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(each in str(error) for each in RAN_OUT)


@contextmanager
def oom_as_engine_error(device: torch.device, when: str) -> Iterator[None]:
    """While in it, memory that runs out is told in a sentence: "Memory ran out on cpu <when>; ...".

    Raises:
        OutOfMemory: it ran out.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(
            f"Memory ran out on {device} {when}; nothing read so far is lost. Choose a smaller budget, or close other "
            f"programs."
        ) from error


def release(device: torch.device) -> None:
    """Give back to a GPU what PyTorch keeps for later, so that pieces of another size fit."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def require_memory(needed: int, device: torch.device, what: str) -> None:
    """Refuse what cannot fit, before it is begun.

    Raises:
        OutOfMemory: with what is needed and what is free.
    """
    free = free_bytes(device)
    if needed > free:
        raise OutOfMemory(
            f"{what} needs {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free: choose a condensing "
            f"method such as infinipot, read a shorter text, or close other programs."
        )


def memory_report() -> dict[str, int]:
    """Resident and peak resident bytes of the process, allocated and peak allocated bytes of the GPU (0 without).

    Of the resident ones, those of files that are mapped are given up when others need the room.
    """
    gpu = torch.cuda.is_available()
    unit = 1 if sys.platform == "darwin" else 1024
    held = psutil.Process().memory_info()
    return {
        "process_bytes": held.rss,
        "mapped_bytes": getattr(held, "shared", 0),
        "peak_process_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
        "gpu_bytes": torch.cuda.memory_allocated() if gpu else 0,
        "peak_gpu_bytes": torch.cuda.max_memory_allocated() if gpu else 0,
    }
