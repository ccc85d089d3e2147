"""One pruning stage of InfiniteHiP: a representative of each chunk, and the chunk's score.

Not here: choosing the best chunks, and running stage after stage; that is the engine's.
"""

from __future__ import annotations

from torch import Tensor

from kernels import choice
from kernels.pruning import reference
from kernels.pruning.reference import BRANCH, CHUNK, CONSTANT, TOKEN, Places
from kernels.rows import Slabs, reachable

__all__ = ["BRANCH", "CHUNK", "CONSTANT", "TOKEN", "Places", "chunk_scores"]


def chunk_scores(q: Tensor, slabs: Slabs, starts: Tensor, limits: Tensor, size: int, places: Places) -> Tensor:
    """See `reference.chunk_scores`; by Triton where that is the choice and it can reach the slabs."""
    if choice.by_triton(q.device) and reachable(slabs, q):
        from kernels.pruning import kernel  # Triton is optional

        return kernel.chunk_scores(q, slabs, starts, limits, size, places)
    return reference.chunk_scores(q, slabs, starts, limits, size, places)
