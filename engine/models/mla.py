"""Attention to latents, as models with multi-head latent attention have it (MLA, https://arxiv.org/abs/2405.04434).

A memory is given what the paper caches (section 2.1): of each token one vector, the key that all heads share before
RoPE and behind it the latent, which is the token's value as well. What would expand latents to keys and values of each
head is multiplied with queries and outputs instead. Which models have it is in `architectures.py`.

Sizes: HQ query heads, T queries, L latent, R what RoPE turns, N the rest of a head's keys, V its values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from engine.models.architectures import EXPANDING


def keep_latents(base: nn.Module) -> None:
    """From now on attention layers give latents as they are."""
    for module in base.modules():
        if hasattr(module, EXPANDING):
            module.expand_kv = _unexpanded  # type: ignore[assignment]


def _unexpanded(latent: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """In place of `expand_kv`, for latents [1, 1, T, L] and the key [1, 1, T, R] that all heads share: keys and values
    [1, 1, T, R + L], which are the same.
    """
    both = torch.cat([key, latent], dim=-1)
    return both, both


def _expansion(module: Any) -> tuple[Tensor, Tensor]:
    """What expands latents to the keys of heads [HQ, N, L], and to their values [HQ, V, L]."""
    weight = getattr(module, EXPANDING).weight
    by_head = weight.view(module.num_heads, -1, weight.shape[1])
    return by_head[:, : module.qk_nope_head_dim], by_head[:, module.qk_nope_head_dim :]


def absorb_query(module: Any, query: Tensor) -> Tensor:
    """Queries [1, HQ, T, R + L] to be compared with latents, of queries [1, HQ, T, N + R] that are for keys."""
    still, turned = torch.tensor_split(query, [module.qk_nope_head_dim], dim=-1)
    return torch.cat([turned, still @ _expansion(module)[0]], dim=-1)


def expand_output(module: Any, output: Tensor) -> Tensor:
    """Sums of values [HQ, T, V] for sums [HQ, T, R + L] of what stands for them."""
    return output[..., module.qk_rope_head_dim :] @ _expansion(module)[1].transpose(1, 2)
