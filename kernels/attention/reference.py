"""Softmax attention over gathered rows, in float32: the reference for the other implementations.

Sizes: HQ query heads, H KV heads, G query heads of a group, T queries, N rows listed or in all slabs, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.attention.visible import BlockTable, VisibleRange
from kernels.rotation import rotate
from kernels.rows import Slabs, dense
from kernels.softmax import finite


def attend(
    q: Tensor,
    keys: Slabs,
    values: Slabs,
    span: VisibleRange,
    lists: BlockTable | None,
    scaling: float,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return softmax attention over the visible rows of each query.

    Args:
        q: [HQ, T, D], rotated.
        keys: slabs [H, capacity, D], before RoPE with lists, already rotated (and unquantised) without.
        values: slabs of the same shape.
        span: visible rows of each query.
        lists: rows listed for each block of queries; None for all rows.
        scaling: factor of the dot products.
        softcap: limit of the logits, by tanh; None for no limit.

    Returns:
        Output [HQ, T, D] and log-sum-exp float32 [HQ, T]. A query that sees no row gets 0 and -inf.
    """
    logits, rows = visible_logits(q, keys, span, lists, scaling, softcap)
    v = dense(values, logits.dtype)[:, rows]  # [H, T, N, D]
    total = logits.logsumexp(dim=-1)
    weights = (logits - finite(total)[..., None]).exp()
    output = torch.einsum("hgtn,htnd->hgtd", weights, v)
    return output.flatten(0, 1).to(q.dtype), total.flatten(0, 1)


def visible_logits(
    q: Tensor, keys: Slabs, span: VisibleRange, lists: BlockTable | None, scaling: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """Return logits [H, G, T, N], -inf for rows that a query does not see, and the rows [T, N] they belong to."""
    wide = torch.promote_types(q.dtype, torch.float32)
    k = dense(keys, wide)  # [H, R, D]
    query = torch.arange(q.shape[1], device=q.device)
    block = query * 0 if lists is None else query // lists.block_size
    rows = torch.arange(k.shape[1], device=q.device).expand(len(query), -1) if lists is None else lists.rows[block]
    seen = (rows >= span.start[:, None]) & (rows < span.end[:, None]) & (rows < k.shape[1])
    rows = rows.where(seen, 0)
    k, seen = k[:, rows], seen.expand(len(k), -1, -1)  # [H, T, N, D], [H, T, N]
    if lists is not None:
        position = lists.positions[block]
        k = rotate(k, lists.cos[position], lists.sin[position])
        seen = seen if lists.head_mask is None else seen & lists.head_mask[:, block]
    logits = torch.einsum("hgtd,htnd->hgtn", q.to(wide).reshape(len(k), -1, *q.shape[1:]), k) * scaling
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    return logits.masked_fill(~seen[:, None], float("-inf")), rows
