"""One pruning stage of InfiniteHiP: a representative of each chunk, and the chunk's score.

Not here: choosing the best chunks, and running stage after stage; that is the engine's.
"""

from kernels.pruning.reference import BRANCH, CHUNK, CONSTANT, TOKEN, Places, chunk_scores

__all__ = ["BRANCH", "CHUNK", "CONSTANT", "TOKEN", "Places", "chunk_scores"]
