"""The configuration of models with recurrent layers in GGUF files, as far as it is their own."""

from __future__ import annotations

from collections.abc import Callable

from engine.models.gguf.header import Header
from engine.models.gguf.values import Facts, by_layer, count, experts, has, layers, number, size

RECURRENT, FULL = "linear_attention", "full_attention"


def _qwen3_5(header: Header) -> Facts:
    """Return sizes of gated delta networks; every n-th layer attends."""
    turns = size(header, "full_attention_interval")
    heads = size(header, "ssm.time_step_rank")
    return {
        "layer_types": [RECURRENT if (layer + 1) % turns else FULL for layer in range(layers(header))],
        "linear_conv_kernel_dim": size(header, "ssm.conv_kernel"),
        "linear_key_head_dim": size(header, "ssm.state_size"),
        "linear_value_head_dim": size(header, "ssm.inner_size") // heads,
        "linear_num_key_heads": size(header, "ssm.group_count"),
        "linear_num_value_heads": heads,
    }


def _qwen3_5_moe(header: Header) -> Facts:
    return {
        **_qwen3_5(header),
        **experts(header),
        "intermediate_size": size(header, "expert_feed_forward_length"),
        "moe_intermediate_size": size(header, "expert_feed_forward_length"),
        "shared_expert_intermediate_size": size(header, "expert_shared_feed_forward_length"),
    }


def _attending(header: Header, others: str) -> list[str]:
    """Return the kind of each layer: one without heads of keys and values is one of the others."""
    return [FULL if heads else others for heads in by_layer(header, "attention.head_count_kv")]


def _lfm2(header: Header) -> Facts:
    return {
        "layer_types": _attending(header, "conv"),
        "conv_L_cache": size(header, "shortconv.l_cache"),
        "conv_bias": has(header, "shortconv.conv.bias"),
        "block_auto_adjust_ff_dim": False,
    }


def _lfm2_moe(header: Header) -> Facts:
    return {
        **_lfm2(header),
        **experts(header),
        "num_dense_layers": count(header, "leading_dense_block_count"),
        "moe_intermediate_size": size(header, "expert_feed_forward_length"),
        "use_expert_bias": has(header, "exp_probs_b.bias"),
    }


def _mamba(header: Header) -> Facts:
    """Return the sizes of Mamba 2 by the names that two architectures share."""
    inner, heads = size(header, "ssm.inner_size"), size(header, "ssm.time_step_rank")
    return {
        "mamba_n_heads": heads,
        "mamba_d_head": inner // heads,
        "mamba_d_state": size(header, "ssm.state_size"),
        "mamba_n_groups": size(header, "ssm.group_count"),
        "mamba_d_conv": size(header, "ssm.conv_kernel"),
        "mamba_conv_bias": has(header, "ssm_conv1d.bias"),
        "mamba_proj_bias": has(header, "ssm_in.bias"),
    }


def _granite(header: Header) -> Facts:
    """Return the settings of Granite 4, which has no RoPE in most sizes."""
    experts = count(header, "expert_count")
    turned = header.get("rope.scaling.finetuned", True)
    width = "expert_shared_feed_forward_length" if experts else "feed_forward_length"
    return _mamba(header) | {
        "layer_types": _attending(header, RECURRENT),
        "mamba_expand": size(header, "ssm.inner_size") // size(header, "embedding_length"),
        "position_embedding_type": "rope" if turned else None,
        "shared_intermediate_size": size(header, width),
        "num_local_experts": experts,
        "num_experts_per_tok": count(header, "expert_used_count"),
        "attention_bias": has(header, "attn_q.bias"),
        "logits_scaling": number(header, "logit_scale", 1.0),
        "attention_multiplier": number(header, "attention.scale", 1.0),
        "embedding_multiplier": number(header, "embedding_scale", 1.0),
        "residual_multiplier": number(header, "residual_scale", 1.0),
    }


def _nemotron(header: Header) -> Facts:
    """Return the settings of Nemotron H, where a layer attends, is recurrent, or is an MLP or mixture of experts."""
    heads, widths = by_layer(header, "attention.head_count_kv"), by_layer(header, "feed_forward_length")
    kinds = []
    for layer, (attends, width) in enumerate(zip(heads, widths, strict=True)):
        wide = "moe" if f"blk.{layer}.ffn_gate_inp.weight" in header.tensors else "mlp"
        kinds.append(FULL if attends else wide if width else RECURRENT)
    inner, rank = size(header, "ssm.inner_size"), size(header, "ssm.time_step_rank")
    own: Facts = {
        "layers_block_type": kinds,
        "intermediate_size": max(widths) or 1,
        "mamba_num_heads": rank,
        "mamba_head_dim": inner // rank,
        "ssm_state_size": size(header, "ssm.state_size"),
        "n_groups": size(header, "ssm.group_count"),
        "conv_kernel": size(header, "ssm.conv_kernel"),
        "use_conv_bias": has(header, "ssm_conv1d.bias"),
        "use_bias": has(header, "ssm_in.bias"),
        "mlp_bias": has(header, "ffn_up.bias"),
        "attention_bias": has(header, "attn_q.bias"),
    }
    if "moe" in kinds:
        own |= {
            "n_routed_experts": size(header, "expert_count"),
            "num_experts_per_tok": size(header, "expert_used_count"),
            "n_shared_experts": count(header, "expert_shared_count", 1),
            "moe_intermediate_size": size(header, "expert_feed_forward_length"),
            "moe_shared_expert_intermediate_size": size(header, "expert_shared_feed_forward_length"),
            "moe_latent_size": count(header, "moe_latent_size") or None,
            "routed_scaling_factor": number(header, "expert_weights_scale", 1.0),
            "norm_topk_prob": bool(header.get("expert_weights_norm", True)),
            "n_group": count(header, "expert_group_count") or 1,
            "topk_group": count(header, "expert_group_used_count") or 1,
        }
    return own


def _falcon(header: Header) -> Facts:
    """Return the settings of Falcon H1, whose multipliers are part of a file's weights."""
    return _mamba(header) | {
        "mamba_d_ssm": size(header, "ssm.inner_size"),
        "mamba_rms_norm": has(header, "ssm_norm.weight"),
        "mamba_norm_before_gate": False,
        "attention_bias": has(header, "attn_q.bias"),
        "mlp_bias": has(header, "ffn_up.bias"),
        "projectors_bias": has(header, "ssm_out.bias"),
    }


OWN: dict[str, Callable[[Header], Facts]] = {
    "falcon_h1": _falcon,
    "granitemoehybrid": _granite,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2_moe,
    "nemotron_h": _nemotron,
    "qwen3_5_moe_text": _qwen3_5_moe,
    "qwen3_5_text": _qwen3_5,
}
