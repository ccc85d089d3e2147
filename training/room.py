"""A check that memory is large enough for the weights to be trained."""

from __future__ import annotations

import torch

from engine import SettingsError, free_bytes

TRAINED_BYTES = 16  # a float32 weight, its gradient and two optimiser averages


def check_room(weights: int, device: torch.device, what: str) -> None:
    """Check that the free memory holds this many weights during training, before they are made.

    Raises:
        SettingsError: gives needed and free memory.
    """
    needed, free = weights * TRAINED_BYTES, free_bytes(device)
    if needed > free:
        raise SettingsError(
            f"{what} has {weights:,} weights, which take {needed / 1e9:,.1f} GB while they are trained, and "
            f"{free / 1e9:,.1f} GB are free: give a smaller one."
        )
