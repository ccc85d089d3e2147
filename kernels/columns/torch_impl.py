"""Column sums of attention probabilities in PyTorch, for CPUs.

Signature and meaning are those of `reference.column_sums`.

Sizes: HQ query heads, H KV heads, T queries, NB blocks of queries, N rows listed or in all slabs, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import softmax
from kernels.attention.torch_impl import gather_rotated
from kernels.attention.visible import BlockTable, VisibleRange
from kernels.rows import Slabs, require_unquantized

STEP_BYTES = 32 << 20  # memory for the probabilities of one step


def column_sums(
    q: Tensor,
    keys: Slabs,
    span: VisibleRange,
    lists: BlockTable | None,
    total: Tensor,
    scaling: float,
    softcap: float | None = None,
) -> Tensor:
    """Compute `reference.column_sums` in steps."""
    total = softmax.finite(total)
    if lists is None:
        at, pieces = 0, []
        (low, high), step = span.common, max(1, STEP_BYTES // (4 * q.shape[0] * q.shape[1]))
        for slab, length in require_unquantized(keys):
            for begin in range(at, at + length, step):
                end = min(begin + step, at + length)
                mask = None if low <= begin and end <= high else span.mask_between(begin, end)
                pieces.append(_sums(q, slab[:, begin - at : end - at], total, scaling, softcap, mask))
            at += length
        return (pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-1))[:, None]
    blocks, size = len(lists.rows), lists.block_size
    pieces = []
    for block in range(blocks):  # mostly one: passes that need these sums are short
        own = slice(block * size, (block + 1) * size)
        part = lists.part(block, block + 1)
        k = gather_rotated(keys, part, q)[:, 0]
        mask = span.part(own.start, own.stop).mask(part.rows[0])
        sums = _sums(q[:, own], k, total[:, own], scaling, softcap, mask)
        if part.head_mask is not None:
            sums.view(len(k), -1, sums.shape[1]).masked_fill_(~part.head_mask[:, 0, None], 0.0)
        pieces.append(sums)
    return torch.stack(pieces, dim=1)


def _sums(q: Tensor, k: Tensor, total: Tensor, scaling: float, softcap: float | None, mask: Tensor | None) -> Tensor:
    """Return column sums [HQ, N] for q [HQ, T, D], k [H, N, D] and mask [T, N]."""
    heads, (query_heads, count, size) = k.shape[0], q.shape
    logits = softmax.scores(q.reshape(heads, -1, size), k, scaling, softcap).view(query_heads, count, -1)
    if mask is not None:
        logits = logits.add_(mask)
    given = logits.sub_(total[..., None]).exp_()
    return (given[:, 0] if count == 1 else given.sum(dim=1)).float()
