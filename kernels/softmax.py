"""Attention over part of the keys, and the merge of partial results by their log-sum-exp.

Sizes: B batch, H heads, T queries, N keys, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scaling: float,
    softcap: float | None = None,
    mask: Tensor | None = None,
    causal: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return softmax attention and its log-sum-exp.

    Args:
        q: [B, H, T, D].
        k: [B, H, N, D], N >= 1.
        v: [B, H, N, D].
        scaling: factor of the dot products.
        softcap: limit of the logits, by tanh; None for no limit.
        mask: added to the logits, broadcastable to [B, H, T, N], 0 or -inf; None if every key is visible.
        causal: query t sees keys 0 .. t. Only for T = N and without a mask.

    Returns:
        Output [B, H, T, D] and log-sum-exp [B, H, T], float32 (float64 for float64). A query that sees no key gets 0
        and -inf.
    """
    if q.device.type == "cpu" and softcap is None:
        # F.scaled_dot_product_attention runs this on a CPU, but drops the log-sum-exp.
        mask = None if mask is None else mask.to(q.dtype)
        output, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, causal, attn_mask=mask, scale=scaling
        )
        if mask is not None and bool((blind := total == 0).any()):  # its result for a query that sees no key
            blind &= (mask == float("-inf")).all(dim=-1).expand_as(blind)
            total = total.masked_fill(blind, float("-inf"))
        return output, total
    logits = scores(q, k, scaling, softcap)
    if causal:
        mask = logits.new_full(logits.shape[-2:], float("-inf")).triu(1)
    if mask is not None:
        logits = logits.add_(mask)
    total = logits.logsumexp(dim=-1)
    weights = logits.sub_(finite(total)[..., None]).exp_()
    return weights.to(v.dtype) @ v, total


def scores(q: Tensor, k: Tensor, scaling: float, softcap: float | None) -> Tensor:
    """Return logits [..., T, N] of q [..., T, D] with k [..., N, D], at least float32.

    The product is computed in float32, not widened afterwards: near 20, neighbouring bfloat16 numbers are 1/8 apart.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k = q.to(wide), k.to(wide).transpose(-2, -1)
    scaled = torch.baddbmm(q.new_empty(1, 1, 1), q, k, beta=0, alpha=scaling) if q.dim() == 3 else (q * scaling) @ k
    return scaled if softcap is None else torch.tanh(scaled / softcap) * softcap


def merge(parts: Sequence[tuple[Tensor, Tensor]], always_seen: bool = False) -> tuple[Tensor, Tensor]:
    """Merge partial attention results into one softmax over all their keys.

    Args:
        parts: output [..., T, D] and log-sum-exp [..., T] of each part.
        always_seen: whether every query surely sees a key in some part.
    """
    if len(parts) == 1:
        return parts[0]
    totals = torch.stack([total for _, total in parts])
    weights = totals.softmax(dim=0)
    if not always_seen:
        weights.nan_to_num_(0.0)  # NaN where no part sees a key
    (first, _), *others = parts
    output = first * weights[0][..., None]
    for (out, _), weight in zip(others, weights[1:], strict=True):
        output.addcmul_(out, weight[..., None])  # in turn: all at once would take more than twice the memory
    return output.to(parts[0][0].dtype), totals.logsumexp(dim=0)


def finite(total: Tensor) -> Tensor:
    """Return a log-sum-exp [...] with -inf replaced by -1e30, so that subtracting it from logits gives no NaN."""
    return total.clamp_min(-1e30)
