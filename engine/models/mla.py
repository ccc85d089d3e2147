"""Multi-head latent attention (MLA, https://arxiv.org/abs/2405.04434), with its up-projections absorbed.

A memory gets the vector that the paper caches for each token (section 2.1): the key that all heads share, before RoPE,
followed by the latent, which is the token's value as well. The up-projection from latents to each head's keys and
values is multiplied with queries and outputs instead. `architectures.py` says which models have it.

Sizes: HQ query heads, T queries, L latent, R the rotated part of a key, N the rest of it, V a head's values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from engine.models.architectures import EXPANSION


def keep_latents(base: nn.Module) -> None:
    """Make the attention layers of a model return latents instead of expanding them."""
    for module in base.modules():
        if hasattr(module, EXPANSION):
            module.expand_kv = _unexpanded  # type: ignore[assignment]


def _unexpanded(latent: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys and values [1, 1, T, R + L], which are the same tensor: takes the place of `expand_kv`.

    latent: [1, 1, T, L]; key: [1, 1, T, R], shared by all heads.
    """
    both = torch.cat([key, latent], dim=-1)
    return both, both


def _expansion(module: Any) -> tuple[Tensor, Tensor]:
    """Return the up-projections of latents to keys [HQ, N, L] and to values [HQ, V, L]."""
    weight = getattr(module, EXPANSION).weight
    by_head = weight.view(module.num_heads, -1, weight.shape[1])
    return by_head[:, : module.qk_nope_head_dim], by_head[:, module.qk_nope_head_dim :]


def absorb_query(module: Any, query: Tensor) -> Tensor:
    """Turn queries for keys [1, HQ, T, N + R] into queries for latents [1, HQ, T, R + L]."""
    still, turned = torch.tensor_split(query, [module.qk_nope_head_dim], dim=-1)
    return torch.cat([turned, still @ _expansion(module)[0]], dim=-1)


def expand_output(module: Any, output: Tensor) -> Tensor:
    """Turn weighted sums of latents [HQ, T, R + L] into weighted sums of values [HQ, T, V]."""
    return output[..., module.qk_rope_head_dim :] @ _expansion(module)[1].transpose(1, 2)
