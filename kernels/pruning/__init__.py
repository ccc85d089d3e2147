"""One pruning stage of InfiniteHiP: find a representative key in each chunk and return its score.

Not here: the top-k choice of chunks and the sequence of stages; that is the engine's.
"""

from __future__ import annotations

from torch import Tensor

from kernels import choice
from kernels.pruning import reference
from kernels.pruning.reference import BRANCH, CHUNK, CONSTANT, TOKEN, KeyPositions
from kernels.rows import Slabs, reachable

__all__ = ["BRANCH", "CHUNK", "CONSTANT", "TOKEN", "KeyPositions", "chunk_scores"]


def chunk_scores(q: Tensor, slabs: Slabs, starts: Tensor, limits: Tensor, size: int, places: KeyPositions) -> Tensor:
    """Compute `reference.chunk_scores`, in Triton if it is chosen and can read the slabs."""
    if choice.uses_triton(q.device) and reachable(slabs, q):
        from kernels.pruning import kernel  # Triton is optional

        return kernel.chunk_scores(q, slabs, starts, limits, size, places)
    return reference.chunk_scores(q, slabs, starts, limits, size, places)
