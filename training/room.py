"""Whether memory has room for what is to be trained."""

from __future__ import annotations

import torch

from engine import SettingsError, free_bytes

TRAINED_BYTES = 16  # of a weight in float32, its gradient, and two averages that an optimiser keeps


def check_room(weights: int, device: torch.device, what: str) -> None:
    """See that so many weights can be trained in the memory that is free, before any is made.

    Raises:
        SettingsError: with the numbers.
    """
    needed, free = weights * TRAINED_BYTES, free_bytes(device)
    if needed > free:
        raise SettingsError(
            f"{what} has {weights:,} weights, which take {needed / 1e9:,.1f} GB while they are trained, and "
            f"{free / 1e9:,.1f} GB are free: give a smaller one."
        )
