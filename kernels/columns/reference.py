"""Column sums of attention probabilities in plain PyTorch; also what the engine runs on a CPU.

Sizes: HQ query heads, H KV heads, T queries, NB blocks of them, N rows listed or in the bank, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import softmax
from kernels.attention.reference import Lists, Span, rotated
from kernels.rows import Slabs, plain

STEP_BYTES = 32 << 20  # room that the probabilities of one step may take


def column_sums(
    q: Tensor,
    keys: Slabs,
    span: Span,
    lists: Lists | None,
    total: Tensor,
    scaling: float,
    softcap: float | None = None,
) -> Tensor:
    """Probabilities that queries give to keys, summed over the queries that are shown the same keys.

    Args:
        q, keys, span, lists, scaling, softcap: as in `attention.reference.attend`.
        total: [HQ, T], the log-sum-exp of each query's whole softmax, over whatever else it sees as well.

    Returns:
        float32 [HQ, NB, N]; without lists NB is 1 and N counts all rows of the bank.
    """
    total = softmax.finite(total)
    if lists is None:
        at, pieces = 0, []
        (low, high), step = span.common, max(1, STEP_BYTES // (4 * q.shape[0] * q.shape[1]))
        for slab, length in plain(keys):
            for begin in range(at, at + length, step):
                end = min(begin + step, at + length)
                mask = None if low <= begin and end <= high else span.mask_of(begin, end)
                pieces.append(_sums(q, slab[:, begin - at : end - at], total, scaling, softcap, mask))
            at += length
        return (pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-1))[:, None]
    blocks, size = len(lists.index), lists.size
    pieces = []
    for block in range(blocks):  # a pass that is watched seldom has more than one
        own = slice(block * size, (block + 1) * size)
        part = lists.part(block, block + 1)
        k = rotated(keys, part, q)[:, 0]
        mask = span.part(own.start, own.stop).mask(part.index[0])
        sums = _sums(q[:, own], k, total[:, own], scaling, softcap, mask)
        if part.seen is not None:
            sums.view(len(k), -1, sums.shape[1]).masked_fill_(~part.seen[:, 0, None], 0.0)
        pieces.append(sums)
    return torch.stack(pieces, dim=1)


def _sums(q: Tensor, k: Tensor, total: Tensor, scaling: float, softcap: float | None, mask: Tensor | None) -> Tensor:
    """[HQ, N] for q [HQ, T, D], k [H, N, D], mask [T, N]."""
    heads, (query_heads, count, size) = k.shape[0], q.shape
    logits = softmax.scores(q.reshape(heads, -1, size), k, scaling, softcap).view(query_heads, count, -1)
    if mask is not None:
        logits = logits.add_(mask)
    given = logits.sub_(total[..., None]).exp_()
    return (given[:, 0] if count == 1 else given.sum(dim=1)).float()
