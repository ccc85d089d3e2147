"""Settings that all methods with an archive share: store, tier, how often a question is asked, and the bank."""

from __future__ import annotations

import torch

from engine.errors import require
from engine.models.spec import ModelSpec
from engine.parts.archive.slabs import group_size_of
from engine.parts.quantized_slots import QUANTIZED_TYPES
from engine.records import DEVICE, DISK, HOST
from kernels.rows import GROUP_SIZE

DTYPES = {
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float16": torch.float16,
    **QUANTIZED_TYPES,
}
AUTO = "auto"
TIERS = (AUTO, HOST, DEVICE, DISK)
"""Where an archive lies; on disk are full slabs alone. Without a GPU, the device's memory is the host's.

`auto` becomes the first of device, host and disk where a plan fits. A memory that is made without a plan lies on the
host.
"""
QUESTION_PASSES = (1, 2, 3)
"""Values of the setting `looks`: 1 asks a question once, 2 asks again over the passages that stood out, 3 adds a pass
over more passages if none did. None of the papers asks twice.
"""


def cache_units(spec: ModelSpec, wanted: int | None, needed: int, tier: str) -> int:
    """Return the units of the device bank: the wanted number, or a default.

    The default is 0 if attention reads the archive in place. On a GPU with full slabs on disk it is twice the need of
    a block of queries.
    """
    in_place = spec.device.type != "cuda" or tier != DISK
    return wanted if wanted is not None else 0 if in_place else 2 * needed


def check_cache(wanted: int | None, needed: int) -> None:
    """Raise if a bank is too small for a block of queries.

    Raises:
        SettingsError: the message names both numbers.
    """
    require(
        wanted is None or wanted == 0 or wanted >= needed,
        f"A cache of {wanted} units cannot hold the {needed} that one block of queries looks up: give at least "
        f"{needed}, or 0 for no cache.",
    )


def least_window(store: str, query_block: int, sketched: bool = False) -> int:
    """Return the least size of a window: a block of queries, and an open group of quantised or sketched keys."""
    return max(query_block, 16) + (GROUP_SIZE if sketched else group_size_of(DTYPES[store])) - 1
