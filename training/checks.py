"""What all settings of trainings are checked for."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

MOST_SEED = 2**32 - 1
"""The largest that all generators of random numbers take."""


def check_numbers(settings: Any) -> None:
    """See that every number of a dataclass of settings is one that can be computed with, and its seed that of any draw.

    Raises:
        ValueError: naming the setting.
    """
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{field.name} must be a finite number, not {value}")
    if not 0 <= settings.seed <= MOST_SEED:
        raise ValueError(f"seed must lie between 0 and {MOST_SEED:,}, not {settings.seed}")


def check_least(settings: Any, least: int, *names: str) -> None:
    """See that these settings are at least so large.

    Raises:
        ValueError: naming the first that is not.
    """
    for name in names:
        if getattr(settings, name) < least:
            raise ValueError(f"{name} must be {least} or more, not {getattr(settings, name)}")


def check_positive(settings: Any, *names: str) -> None:
    """See that these settings are above zero.

    Raises:
        ValueError: naming the first that is not.
    """
    for name in names:
        if getattr(settings, name) <= 0:
            raise ValueError(f"{name} must be positive, not {getattr(settings, name)}")
