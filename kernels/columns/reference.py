"""Column sums of attention probabilities, in float32: the reference for the other implementations.

Sizes: HQ query heads, H KV heads, T queries, NB blocks of queries, N rows listed or in all slabs, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.attention.reference import visible_logits
from kernels.attention.visible import BlockTable, VisibleRange
from kernels.rows import Slabs
from kernels.softmax import finite


def column_sums(
    q: Tensor,
    keys: Slabs,
    span: VisibleRange,
    lists: BlockTable | None,
    total: Tensor,
    scaling: float,
    softcap: float | None = None,
) -> Tensor:
    """Return the attention probabilities of each key, summed over the queries that share a list.

    Args:
        q: as in `attention.attend`, and so are keys, span and lists.
        keys: slabs [H, capacity, D].
        span: visible rows of each query.
        lists: rows listed for each block of queries; None for all rows.
        total: [HQ, T], log-sum-exp of each query's whole softmax, including keys that are not in these slabs.
        scaling: factor of the dot products.
        softcap: limit of the logits, by tanh; None for no limit.

    Returns:
        float32 [HQ, NB, N]. Without lists NB is 1 and N is the number of rows.
    """
    logits, _ = visible_logits(q, keys, span, lists, scaling, softcap)  # [H, G, T, N]
    probability = (logits.flatten(0, 1) - finite(total)[..., None]).exp()
    blocks, size = (1, q.shape[1]) if lists is None else (len(lists.rows), lists.block_size)
    block = torch.arange(q.shape[1], device=q.device) // size
    member = block == torch.arange(blocks, device=q.device)[:, None]  # [NB, T]
    return torch.einsum("bt,htn->hbn", member.to(probability), probability).float()
