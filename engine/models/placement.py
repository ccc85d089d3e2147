"""The device and the dtype that a model computes on and in."""

from __future__ import annotations

import os

import torch
from transformers import PretrainedConfig

from engine.errors import SettingsError
from kernels.choice import fast_in_bfloat16 as fast_in_bfloat16  # rooms above read it here

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}  # the values of STOCKPOT_DTYPE, beside auto
WIDE = 512  # least hidden size whose gain from bfloat16 on a CPU exceeds the cost of conversions


def device_named(name: str) -> torch.device:
    """Return the device of that name; auto is the GPU if there is one.

    Raises:
        SettingsError: this machine does not have it.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise SettingsError(f"There is no device '{name}': choose auto, cpu or cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingsError("No CUDA device is available on this machine: choose cpu, or auto.")
    return torch.device(name)


def dtype_on(place: torch.device, config: PretrainedConfig) -> torch.dtype:
    """Return the dtype that a model computes in, unless STOCKPOT_DTYPE names it.

    On a GPU it is that of the published weights, bfloat16 for weights in float32. On a CPU it is bfloat16 where the
    processor multiplies it fast and the model is wide enough to gain from that, else float32.

    Raises:
        SettingsError: STOCKPOT_DTYPE names no dtype that models compute in.
    """
    wanted = os.environ.get("STOCKPOT_DTYPE", "auto")
    if wanted not in ("auto", *DTYPES):
        raise SettingsError(f"STOCKPOT_DTYPE is one of auto, {', '.join(DTYPES)}, not '{wanted}'.")
    if wanted != "auto":
        return DTYPES[wanted]
    if place.type == "cpu":
        wide = int(getattr(config, "hidden_size", 0)) >= WIDE
        return torch.bfloat16 if wide and fast_in_bfloat16(place) else torch.float32
    own = config.dtype if isinstance(config.dtype, torch.dtype) else None
    return own if own in (torch.bfloat16, torch.float16) else torch.bfloat16
