"""Which implementation runs: chosen once, logged, and forced by STOCKPOT_KERNELS=reference or =triton."""

from __future__ import annotations

import functools
import importlib.util
import logging
import os

import torch

log = logging.getLogger(__name__)
CHOICES = ("auto", "reference", "triton")


@functools.cache
def implementation() -> str:
    """Either "triton" or "reference"; without a word from outside, Triton where there are a GPU and the package.

    Raises:
        ValueError: STOCKPOT_KERNELS is neither, or asks for Triton where it is not installed.
    """
    wanted = os.environ.get("STOCKPOT_KERNELS", "auto")
    if wanted not in CHOICES:
        raise ValueError(f"STOCKPOT_KERNELS is one of {', '.join(CHOICES)}, not '{wanted}'.")
    found, gpu = importlib.util.find_spec("triton") is not None, torch.cuda.is_available()
    if wanted == "triton" and not found:
        raise ValueError("STOCKPOT_KERNELS=triton needs the package triton: install it, or unset the variable.")
    chosen = wanted if wanted != "auto" else "triton" if found and gpu else "reference"
    log.info("kernels: %s (asked for %s; triton %s, GPU %s)", chosen, wanted, found, gpu)
    return chosen


def by_triton(device: torch.device) -> bool:
    """Whether Triton is the choice for tensors there: beside a GPU, those of the host are the reference's."""
    return implementation() == "triton" and (device.type != "cpu" or not torch.cuda.is_available())
