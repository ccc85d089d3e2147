"""PyTorch's rule for pinned host memory, in every version of PyTorch that runs this engine.

Newer versions have settings for it; older ones (2.11) have none, and keep their default: sizes are rounded up to a
power of two, and freed blocks are kept. Only this module asks which version is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

EXACT, DEFAULT = "exact sizes, freed after use", "PyTorch's default: rounded up, kept for reuse"
LIMIT_MB = 1
UNLIMITED_MB = 1 << 20
SETTINGS = ("_accelerator_getAllocatorSettings", "_accelerator_setAllocatorSettings")


def has_settings() -> bool:
    """Return whether this PyTorch lets a program choose the rule."""
    return all(hasattr(torch._C, name) for name in SETTINGS)


def rule() -> str:
    """Return the rule in force, in words."""
    return EXACT if has_settings() and f"pinned_max_cached_size_mb:{LIMIT_MB}" in _settings() else DEFAULT


@cache
def use_exact_pinned_sizes() -> None:
    """Make PyTorch allocate pinned blocks over 1 MiB in their exact size and free them after use, where it can.

    By default it rounds sizes up to a power of two, up to twice the need, and keeps the blocks. Settings that a person
    made beside that stay.

    Both limits must be equal. A block between them would be kept without rounding, and might later be handed out for a
    larger request than it holds (pytorch/pytorch#192722).
    """
    if has_settings():
        _set(_joined(_settings(), _limits(LIMIT_MB)))


@contextmanager
def default_pinned_sizes() -> Iterator[None]:
    """Use PyTorch's default inside the block: round sizes up, and keep freed buffers for reuse."""
    if not has_settings():
        yield
        return
    before = _settings()
    _switch(_joined(before, _limits(UNLIMITED_MB)))
    try:
        yield
    finally:
        _switch(before or _limits(UNLIMITED_MB))


def free_unused_pinned() -> None:
    """Free pinned memory that nothing uses. Without a GPU there is none."""
    if torch.cuda.is_available():
        if hasattr(torch.accelerator, "empty_host_cache"):
            torch.accelerator.empty_host_cache()
        else:
            torch._C._host_emptyCache()


def _switch(settings: str) -> None:
    free_unused_pinned()  # so that no buffer of one rule is reused under the other
    _set(settings)


def _settings() -> str:
    return str(getattr(torch._C, SETTINGS[0])())


def _set(settings: str) -> None:
    getattr(torch._C, SETTINGS[1])(settings)


def _limits(megabytes: int) -> str:
    return f"pinned_max_round_threshold_mb:{megabytes},pinned_max_cached_size_mb:{megabytes}"


def _joined(theirs: str, ours: str) -> str:
    return f"{theirs},{ours}" if theirs else ours
