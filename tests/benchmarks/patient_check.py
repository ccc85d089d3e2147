"""A check of a GPU that runs on the processor, with ample time."""

import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import torch

from benchmarks.gpu_check.check import Check


def patient_check(folder: Path, lengths: Sequence[int], methods: Sequence[str] = ()) -> Check:
    """Return a check of some lengths and methods that never runs out of time, as no test is about speed."""
    memory = psutil.virtual_memory().available
    return Check(
        torch.device("cpu"), True, memory, memory, time.monotonic() + 1e6, folder, tuple(lengths), tuple(methods)
    )
