"""Attention over part of the keys, and parts put together by their log-sum-exp.

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
    """Softmax attention and its log-sum-exp.

    Args:
        q: [B, H, T, D]; k and v: [B, H, N, D], N >= 1.
        scaling: of the dot products; softcap: logits are bent to stay within it.
        mask: added to the logits, broadcastable to [B, H, T, N]: 0 or -inf; None if all is visible.
        causal: instead of a mask, and only for T = N: query t sees keys 0 .. t.

    Returns:
        Output [B, H, T, D], and log-sum-exp [B, H, T] in float32 (float64 for float64); 0 and -inf for a query that
        sees nothing.
    """
    if q.device.type == "cpu" and softcap is None:
        # What F.scaled_dot_product_attention runs on a CPU; it throws away the log-sum-exp.
        mask = None if mask is None else mask.to(q.dtype)
        output, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, causal, attn_mask=mask, scale=scaling
        )
        if mask is not None and bool((blind := total == 0).any()):  # what it gives for a query that sees nothing
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
    """Logits [..., T, N] of q [..., T, D] with k [..., N, D], at least float32.

    Worked out so, not widened when they have been rounded: near 20 numbers of bfloat16 are an eighth apart.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    logits = (q.to(wide) * scaling) @ k.to(wide).transpose(-2, -1)
    return logits if softcap is None else torch.tanh(logits / softcap) * softcap


def merge(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """One softmax over all parts: outputs [..., T, D] and log-sum-exps [..., T] of each."""
    if len(parts) == 1:
        return parts[0]
    totals = torch.stack([total for _, total in parts])
    weights = totals.softmax(dim=0).nan_to_num_(0.0)  # no numbers where no part sees anything
    (first, _), *others = parts
    output = first * weights[0][..., None]
    for (out, _), weight in zip(others, weights[1:], strict=True):
        output.addcmul_(out, weight[..., None])  # one after the other: all at once would take twice as much and more
    return output.to(parts[0][0].dtype), totals.logsumexp(dim=0)


def finite(total: Tensor) -> Tensor:
    """A log-sum-exp [...] that can be taken from logits, also where nothing was seen."""
    return total.clamp_min(-1e30)
