"""How much memory this process uses, in bytes."""

from __future__ import annotations

import resource
import sys

import psutil
import torch


def memory_report() -> dict[str, int]:
    """Resident and peak resident bytes of the process, allocated and peak allocated bytes of the GPU (0 without)."""
    gpu = torch.cuda.is_available()
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "process_bytes": psutil.Process().memory_info().rss,
        "peak_process_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
        "gpu_bytes": torch.cuda.memory_allocated() if gpu else 0,
        "peak_gpu_bytes": torch.cuda.max_memory_allocated() if gpu else 0,
    }
