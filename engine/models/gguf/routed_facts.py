"""The configuration of models in GGUF files whose routers choose experts by sigmoid, or whose attention is latent."""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import UnsupportedModel
from engine.models.gguf.header import Header
from engine.models.gguf.rope_parameters import rope_of
from engine.models.gguf.values import Facts, count, has, number, size

SIGMOID = 2  # llama.cpp's number of that function


def _routed(header: Header) -> Facts:
    """Return the settings of the experts.

    Raises:
        UnsupportedModel: the router does not choose by sigmoid.
    """
    if header.get("expert_gating_func", SIGMOID) != SIGMOID:
        raise UnsupportedModel(
            f"A '{header.architecture}' whose experts are not chosen by sigmoid is not read from GGUF files: choose a "
            f"folder or hub id with safetensors."
        )
    return {
        "n_routed_experts": size(header, "expert_count"),
        "num_experts_per_tok": size(header, "expert_used_count"),
        "moe_intermediate_size": size(header, "expert_feed_forward_length"),
        "n_shared_experts": count(header, "expert_shared_count", 1),
        "first_k_dense_replace": count(header, "leading_dense_block_count"),
        "routed_scaling_factor": number(header, "expert_weights_scale", 1.0),
        "norm_topk_prob": bool(header.get("expert_weights_norm", False)),
        "n_group": count(header, "expert_group_count") or 1,
        "topk_group": count(header, "expert_group_used_count") or 1,
        "num_mtp_layers": 0,
    }


def _glm4_moe(header: Header) -> Facts:
    return _routed(header) | {
        "attention_bias": has(header, "attn_q.bias"),
        "use_qk_norm": has(header, "attn_q_norm.weight"),
    }


def _deepseek(header: Header) -> Facts:
    """Return the sizes of latent attention; newer files say those of an expanded head apart."""
    turned = size(header, "rope.dimension_count")
    end = "_mla" if header.get("attention.key_length_mla") is not None else ""
    return _routed(header) | {
        "num_key_value_heads": size(header, "attention.head_count"),
        "q_lora_rank": count(header, "attention.q_lora_rank") or None,
        "kv_lora_rank": size(header, "attention.kv_lora_rank"),
        "qk_rope_head_dim": turned,
        "qk_nope_head_dim": size(header, f"attention.key_length{end}") - turned,
        "v_head_dim": size(header, f"attention.value_length{end}"),
        "head_dim": turned,
        "rope_parameters": rope_of(header, turned, mscale=10.0),
    }


OWN: dict[str, Callable[[Header], Facts]] = {"deepseek_v3": _deepseek, "glm4_moe": _glm4_moe}
