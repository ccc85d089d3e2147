"""Tiny random networks with recurrent layers, and how their GGUF files hold them."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from tests.engine.gguf_writing import EXPERTS, ROUTED, Layout, Written, network_of, paired

MAMBA = {"ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.inner_size": 256, "ssm.time_step_rank": 8}


def tiled(weight: Tensor, size: int, dim: int = 0) -> Tensor:
    """Reorder value heads [2 key heads, 2 of each, size] so that the first of each key head come first."""
    before, after = weight.shape[:dim], weight.shape[dim + 1 :]
    return weight.reshape(*before, 2, 2, size, *after).transpose(dim, dim + 1).reshape(weight.shape)


def qwen35(experts: bool, of_ollama: bool = False) -> Layout:
    sizes: dict[str, Any] = {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "head_dim": 64,
    }
    if experts:
        sizes |= {"num_experts": 4, "shared_expert_intermediate_size": 96, **ROUTED}
    names = {"in_proj_z": "attn_gate", "in_proj_a": "ssm_alpha", "in_proj_b": "ssm_beta", "norm": "ssm_norm"}

    def rewrite(block: str, number: int, rest: str, weight: Tensor) -> Written | Tensor | None:
        if not rest.startswith("linear_attn."):
            return weight + 1 if rest.endswith("norm.weight") else None
        match rest.removeprefix("linear_attn.").removesuffix(".weight"):
            case "A_log":
                return {f"{block}ssm_a": tiled(-weight.exp(), 1)}
            case "dt_bias":
                return {f"{block}ssm_dt{'' if of_ollama else '.bias'}": tiled(weight, 1)}
            case "in_proj_qkv":
                return {f"{block}attn_qkv.weight": torch.cat([weight[:128], tiled(weight[128:], 32)])}
            case "conv1d":
                flat = weight.squeeze(1)
                return {f"{block}ssm_conv1d.weight": torch.cat([flat[:128], tiled(flat[128:], 32)])}
            case "out_proj":
                return {f"{block}ssm_out.weight": tiled(weight, 32, dim=1)}
            case part:
                turned = weight if part == "norm" else tiled(weight, 32 if part == "in_proj_z" else 1)
                return {f"{block}{names[part]}.weight": turned}

    facts: dict[str, Any] = {"rope.dimension_count": 16, "rope.dimension_sections": [11, 11, 10, 0]}
    facts |= {"ssm.conv_kernel": 4, "ssm.state_size": 32, "ssm.group_count": 2, "ssm.time_step_rank": 4}
    facts |= {"ssm.inner_size": 128, "full_attention_interval": 4}
    facts |= {**EXPERTS, "expert_shared_feed_forward_length": 96} if experts else {}
    more = {}
    if of_ollama:  # with eyes, and a layer that looks ahead
        facts |= {"ssm.v_head_reordered": True, "attention.head_count_kv": [0, 0, 0, 2]}
        more = {name: torch.ones(32) for name in ("v.patch_embed.weight", "mtp.norm.weight")}
    else:
        facts |= {"block_count": 5, "nextn_predict_layers": 1}
        more = {"blk.4.nextn.eh_proj.weight": torch.ones(32)}
    kind = "qwen3_5_moe_text" if experts else "qwen3_5_text"
    return Layout("qwen35moe" if experts else "qwen35", network_of(kind, **sizes), facts, rewrite, more=more)


def lfm2(experts: bool) -> Layout:
    kinds = ["conv", "conv", "full_attention", "conv"]
    sizes: dict[str, Any] = {"layer_types": kinds, "tie_word_embeddings": True}
    sizes |= {"num_experts": 4, "num_dense_layers": 2, **ROUTED} if experts else {"block_auto_adjust_ff_dim": False}
    network = network_of("lfm2_moe" if experts else "lfm2", **sizes)

    def rewrite(block: str, number: int, rest: str, weight: Tensor) -> Written | None:
        if rest.startswith("model.embedding_norm"):
            return {"token_embd_norm.weight": weight}
        if rest == "conv.conv.weight":
            return {f"{block}shortconv.conv.weight": weight.squeeze(1)}
        return {f"{block}exp_probs_b.bias": weight} if rest == "feed_forward.expert_bias" else None

    facts: dict[str, Any] = dict.fromkeys(("attention.key_length", "attention.value_length", "rope.dimension_count"))
    facts |= {"attention.head_count_kv": [2 * (kind != "conv") for kind in kinds], "shortconv.l_cache": 3}
    facts |= {**EXPERTS, "leading_dense_block_count": 2, "expert_gating_func": 2} if experts else {}
    return Layout("lfm2moe" if experts else "lfm2", network, facts, rewrite)


def mamba2(block: str, rest: str, weight: Tensor, groups: int) -> Written:
    """Return a weight of Mamba 2 as files hold it."""
    match rest:
        case "A_log":
            return {f"{block}ssm_a": -weight.exp().reshape(-1, 1)}
        case "D":
            return {f"{block}ssm_d": weight.reshape(-1, 1)}
        case "dt_bias":
            return {f"{block}ssm_dt.bias": weight}
        case "conv1d.weight":
            return {f"{block}ssm_conv1d.weight": weight.squeeze(1)}
        case "norm.weight":
            return {f"{block}ssm_norm.weight": weight.reshape(groups, -1)}
    stored = {"conv1d.bias": "ssm_conv1d.bias", "in_proj.weight": "ssm_in.weight", "out_proj.weight": "ssm_out.weight"}
    return {block + stored[rest]: weight}


def granite_hybrid(experts: bool) -> Layout:
    kinds = ["mamba", "mamba", "attention", "mamba"]
    network = network_of(
        "granitemoehybrid",
        mamba_n_heads=8,
        mamba_d_head=32,
        mamba_d_state=16,
        mamba_n_groups=1,
        layer_types=kinds,
        shared_intermediate_size=96,
        position_embedding_type=None if experts else "rope",
        num_local_experts=4 * experts,
        num_experts_per_tok=2 * experts,
        tie_word_embeddings=True,
        embedding_multiplier=3.0,
        logits_scaling=2.0,
        residual_multiplier=0.5,
        attention_multiplier=0.3,
    )
    end = "_shexp" if experts else ""

    def rewrite(block: str, number: int, rest: str, weight: Tensor) -> Written | None:
        if rest.startswith("mamba."):
            return mamba2(block, rest.removeprefix("mamba."), weight, groups=1)
        if rest.endswith("router.weight"):
            return {f"{block}ffn_gate_inp.weight": weight}
        if rest == "shared_mlp.input_linear.weight":
            gate, up = weight.chunk(2)
            return {f"{block}ffn_gate{end}.weight": gate, f"{block}ffn_up{end}.weight": up}
        if rest == "shared_mlp.output_linear.weight":
            return {f"{block}ffn_down{end}.weight": weight}
        return paired(block, number, rest, weight)

    facts: dict[str, Any] = dict.fromkeys(("attention.key_length", "attention.value_length"))
    facts |= {"attention.head_count_kv": [2 * (kind == "attention") for kind in kinds], **MAMBA, "ssm.group_count": 1}
    facts |= {"attention.scale": 0.3, "embedding_scale": 3.0, "residual_scale": 0.5, "logit_scale": 2.0}
    facts |= {"expert_shared_feed_forward_length": 96, "feed_forward_length": 256 if experts else 96}
    facts |= {"rope.scaling.finetuned": False, "expert_count": 4, "expert_used_count": 2} if experts else {}
    return Layout("granitehybrid", network, facts, rewrite)


def nemotron(experts: bool) -> Layout:
    wide = "moe" if experts else "mlp"
    kinds = ["mamba", wide, "attention", "mamba", wide]
    network = network_of(
        "nemotron_h",
        layers_block_type=kinds,
        mamba_num_heads=8,
        mamba_head_dim=32,
        ssm_state_size=16,
        n_groups=2,
        n_routed_experts=4,
        moe_shared_expert_intermediate_size=96,
        routed_scaling_factor=2.5,
        **ROUTED,
    )
    names = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
    names |= {"gate": "ffn_gate_inp", "up_proj": "ffn_up", "down_proj": "ffn_down"}
    names |= {f"shared_experts.{way}_proj": f"ffn_{way}_shexp" for way in ("up", "down")}

    def rewrite(block: str, number: int, rest: str, weight: Tensor) -> Written:
        if number < 0:
            ends = {"model.embeddings": "token_embd", "model.norm_f": "output_norm", "lm_head": "output"}
            return {f"{ends[rest.removesuffix('.weight')]}.weight": weight}
        if rest == "norm.weight":
            return {f"{block}attn_norm.weight": weight}
        rest = rest.removeprefix("mixer.")
        if kinds[number] == "mamba":
            return mamba2(block, rest, weight, groups=2)
        if rest == "gate.e_score_correction_bias":
            return {f"{block}exp_probs_b.bias": weight}
        if expert := re.fullmatch(r"experts\.(up|down)_proj", rest):
            return {f"{block}ffn_{expert[1]}_exps.weight": weight}
        return {f"{block}{names[rest.removesuffix('.weight')]}.weight": weight}

    facts: dict[str, Any] = {"attention.head_count_kv": [2 * (kind == "attention") for kind in kinds], **MAMBA}
    facts |= {"ssm.group_count": 2, "rope.scaling.finetuned": False, "block_count": 5}
    facts |= {"feed_forward_length": [(64 if experts else 256) * (kind == wide) for kind in kinds]}
    if experts:
        facts |= {**EXPERTS, "expert_shared_feed_forward_length": 96, "expert_shared_count": 1}
        facts |= {"expert_weights_norm": True, "expert_weights_scale": 2.5, "expert_group_count": 1}
    return Layout("nemotron_h_moe" if experts else "nemotron_h", network, facts, rewrite)


def falcon(norm: bool) -> Layout:
    parts = [0.5, 0.6, 0.7, 0.8, 0.9]  # of the input: gate, x, B, C, steps
    network = network_of(
        "falcon_h1",
        mamba_d_ssm=256,
        mamba_n_heads=8,
        mamba_d_head=32,
        mamba_d_state=16,
        mamba_n_groups=2,
        mamba_rms_norm=norm,
        mamba_norm_before_gate=False,
        lm_head_multiplier=0.5,
        embedding_multiplier=2.0,
        mlp_multipliers=[0.8, 0.7],
        key_multiplier=0.6,
        attention_out_multiplier=0.9,
        attention_in_multiplier=0.7,
        ssm_multipliers=parts,
        ssm_in_multiplier=1.2,
        ssm_out_multiplier=0.4,
    )
    scales = {
        "self_attn.q_proj": ("attn_q", 0.7),
        "self_attn.k_proj": ("attn_k", 0.7 * 0.6),
        "self_attn.v_proj": ("attn_v", 0.7),
        "self_attn.o_proj": ("attn_output", 0.9),
        "feed_forward.gate_proj": ("ffn_gate", 0.8),
        "feed_forward.down_proj": ("ffn_down", 0.7),
    }

    def rewrite(block: str, number: int, rest: str, weight: Tensor) -> Written | Tensor | None:
        match rest:
            case "lm_head.weight":
                return {"output.weight": weight * 0.5}
            case "model.embed_tokens.weight":
                return weight * 2.0
            case "pre_ff_layernorm.weight":
                return {f"{block}ffn_norm": weight}  # as the converter names it
            case "mamba.in_proj.weight":
                rows = torch.repeat_interleave(torch.tensor(parts), torch.tensor([256, 256, 32, 32, 8]))
                weight = weight * 1.2 * rows[:, None]
            case "mamba.out_proj.weight":
                weight = weight * 0.4
        if rest.startswith("mamba."):
            return mamba2(block, rest.removeprefix("mamba."), weight, groups=2)
        if found := scales.get(rest.removesuffix(".weight")):
            return {f"{block}{found[0]}.weight": weight * found[1]}
        return None

    return Layout("falcon-h1", network, {**MAMBA, "ssm.group_count": 2}, rewrite, folded=True)
