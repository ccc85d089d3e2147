"""Settings that all methods with an archive share: store, tier, how often a question is asked, the bank."""

from __future__ import annotations

import torch

from engine.errors import require
from engine.models.spec import ModelSpec
from engine.parts.archive.slabs import group_size_of
from engine.parts.quantized_slots import QUANTIZED_TYPES
from engine.records import DISK, HOST
from kernels.rows import GROUP_SIZE

DTYPES = {
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float16": torch.float16,
    **QUANTIZED_TYPES,
}
TIERS = (HOST, DISK)
"""Where full slabs may go."""
QUESTION_PASSES = (1, 2, 3)
"""1: a question is asked once; 2: again, of the passages that stood out; 3: where none did, of more of them closely in
between. None of the papers asks twice.
"""


def cache_units(spec: ModelSpec, wanted: int | None, needed: int, tier: str) -> int:
    """Units that the device's cache holds: as wanted, else none where attention reads the host tier in place, and twice
    what a block of queries needs where a GPU cannot, because full slabs are on disk.
    """
    in_place = spec.device.type != "cuda" or tier == HOST
    return wanted if wanted is not None else 0 if in_place else 2 * needed


def check_cache(wanted: int | None, needed: int) -> None:
    """Refuse a cache that a block of queries would not fit.

    Raises:
        SettingsError: with the numbers.
    """
    require(
        wanted is None or wanted == 0 or wanted >= needed,
        f"A cache of {wanted} units cannot hold the {needed} that one block of queries looks up: give at least "
        f"{needed}, or 0 for no cache.",
    )


def least_window(store: str, query_block: int, sketched: bool = False) -> int:
    """Entries that the window needs at least: a block of queries, and where keys are coded or sketched, a page that is
    not whole.
    """
    return max(query_block, 16) + (GROUP_SIZE if sketched else group_size_of(DTYPES[store])) - 1
