"""Checks that the settings of all trainings share."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

MOST_SEED = 2**32 - 1
"""The largest that all generators of random numbers take."""


def check_numbers(settings: Any) -> None:
    """Check that every number in a dataclass of settings is finite, and that its seed suits all generators.

    Raises:
        ValueError: names the setting.
    """
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{field.name} must be a finite number, not {value}")
    if not 0 <= settings.seed <= MOST_SEED:
        raise ValueError(f"seed must lie between 0 and {MOST_SEED:,}, not {settings.seed}")


def check_least(settings: Any, least: int, *names: str) -> None:
    """Check that these settings are at least `least`.

    Raises:
        ValueError: names the first one below.
    """
    for name in names:
        if getattr(settings, name) < least:
            raise ValueError(f"{name} must be {least} or more, not {getattr(settings, name)}")


def check_positive(settings: Any, *names: str) -> None:
    """Check that these settings are above zero.

    Raises:
        ValueError: names the first one that is not.
    """
    for name in names:
        if getattr(settings, name) <= 0:
            raise ValueError(f"{name} must be positive, not {getattr(settings, name)}")
