"""Memory of the machine and of this process, in bytes."""

from __future__ import annotations

import ctypes
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import torch

from engine.errors import OutOfMemory
from engine.pinned_memory import free_unused_pinned

# Messages of Windows; Linux and macOS; pinned memory; Triton, which loads kernels late; cuBLAS
RAN_OUT = (
    *("not enough memory", "can't allocate memory"),
    *("CUDA error: out of memory", "Triton Error [CUDA]: out of memory", "CUBLAS_STATUS_ALLOC_FAILED"),
)
CONTAINER = Path("/sys/fs/cgroup")  # Linux's limits of a container
LIMITS = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))


def free_bytes(device: torch.device) -> int:
    """Return the free memory of a device, PyTorch's unused blocks included."""
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
    free_unused_pinned()
    return min(int(psutil.virtual_memory().available), _left_in_container())


def _left_in_container() -> int:
    """Return the bytes left below the container's limit; without a limit, more than any machine has.

    The machine's free memory does not show this limit, and the process is killed when it exceeds it. Cached files do
    not count as used.
    """
    for limit, used in LIMITS:
        with suppress(OSError, ValueError, StopIteration):
            most = int((CONTAINER / limit).read_text())  # a number, or the word max
            lines = (CONTAINER / used).with_name("memory.stat").read_text().splitlines()
            cached = next(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
            return max(0, most - int((CONTAINER / used).read_text()) + cached)
    return sys.maxsize


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out. PyTorch has a class for it on GPUs only."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(each in str(error) for each in RAN_OUT)


@contextmanager
def oom_as_engine_error(device: torch.device, when: str) -> Iterator[None]:
    """Turn a lack of memory inside the block into an OutOfMemory with a sentence for people.

    Args:
        device: the device of the work.
        when: continues the sentence "Memory ran out on cpu ...".

    Raises:
        OutOfMemory: memory ran out.
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
    """Free the unused blocks that PyTorch keeps on a GPU, so that blocks of other sizes fit."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def give_back() -> None:
    """Give memory that this process has freed back to the system, which takes some ten milliseconds.

    glibc keeps freed memory between blocks that are in use, for later. A server that reads and answers for hours then
    holds about 100 MB more than it uses, and more with every hour. Without glibc, nothing happens.
    """
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def require_memory(needed: int, device: torch.device, what: str) -> None:
    """Raise if a device has too little free memory for a task that has not begun.

    Args:
        needed: bytes.
        device: the device of the task.
        what: subject of the message, "... needs 1.2 GB of memory".

    Raises:
        OutOfMemory: the message names the needed and the free memory.
    """
    free = free_bytes(device)
    if needed > free:
        raise OutOfMemory(
            f"{what} needs {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free: choose a condensing "
            f"method such as infinipot, read a shorter text, or close other programs."
        )


def memory_report() -> dict[str, int]:
    """Return resident and peak bytes of the process, and allocated and peak bytes of the GPU (0 without one).

    Resident bytes of mapped files can be reclaimed by the system.
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
