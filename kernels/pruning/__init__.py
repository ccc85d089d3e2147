"""One pruning stage of InfiniteHiP: find a representative key in each chunk and return its score.

Not here: the top-k choice of chunks and the sequence of stages; that is the engine's.
"""

from kernels.choice import dispatched
from kernels.pruning import reference
from kernels.pruning.copies import Copies
from kernels.pruning.positions import BRANCH, CHUNK, CONSTANT, TOKEN, KeyPositions

__all__ = ["BRANCH", "CHUNK", "CONSTANT", "TOKEN", "Copies", "KeyPositions", "chunk_scores"]

chunk_scores = dispatched(reference.chunk_scores, device="q", slabs=("slabs",))
