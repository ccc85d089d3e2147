"""Tiny random networks of all architectures whose GGUF files rearrange weights, by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.engine.gguf_hybrids import falcon, granite_hybrid, lfm2, nemotron, qwen35
from tests.engine.gguf_writing import EXPERTS, ROUTED, Layout, Written, network_of, paired

SIGMOID = {
    "expert_shared_count": 1,
    "leading_dense_block_count": 1,
    "expert_gating_func": 2,
    "expert_weights_norm": True,
}
LATENT, TURNED, KEPT, VALUE = 32, 16, 24, 32  # sizes of latent attention
MLA = {
    "attention.kv_lora_rank": LATENT,
    "attention.q_lora_rank": 48,
    "attention.head_count_kv": 1,
    "attention.key_length": LATENT + TURNED,
    "attention.value_length": LATENT,
    "attention.key_length_mla": KEPT + TURNED,
    "attention.value_length_mla": VALUE,
    "rope.dimension_count": TURNED,
}


def gemma4(form: str) -> Layout:
    layers, shared = (6, 3) if form == "small" else (3, 0)
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * (layers // 3)
    sizes: dict[str, Any] = {
        "num_hidden_layers": layers,
        "num_kv_shared_layers": shared,
        "layer_types": kinds,
        "global_head_dim": 64,
        "sliding_window": 16,
        "final_logit_softcapping": 30.0,
        "tie_word_embeddings": True,
    }
    if form == "small":
        sizes |= {"hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 288, "use_double_wide_mlp": True}
    else:
        sizes |= {"hidden_size_per_layer_input": 0, "attention_k_eq_v": True, "num_global_key_value_heads": 1}
    if form == "experts":
        sizes |= {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}
    names = {
        "layer_scalar": "layer_output_scale.weight",
        "router.proj.weight": "ffn_gate_inp.weight",
        "router.scale": "ffn_gate_inp.scale",
        "router.per_expert_scale": "ffn_down_exps.scale",
        "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    }
    windows = [kind == "sliding_attention" for kind in kinds]
    facts: dict[str, Any] = {
        "attention.key_length": 64,
        "attention.value_length": 64,
        "attention.key_length_swa": 32,
        "attention.value_length_swa": 32,
        "rope.dimension_count": 64,
        "rope.dimension_count_swa": 32,
        "rope.freq_base": 1e6,
        "rope.freq_base_swa": 1e4,
        "attention.sliding_window": 16,
        "attention.sliding_window_pattern": windows,
        "attention.shared_kv_layers": shared,
        "final_logit_softcapping": 30.0,
        "embedding_length_per_layer_input": 16 if form == "small" else 0,
    }
    if form == "small":
        facts["feed_forward_length"] = [256] * (layers - shared) + [512] * shared
    else:
        facts["attention.head_count_kv"] = [2 if window else 1 for window in windows]
    facts |= {**EXPERTS, "expert_feed_forward_length": 32} if form == "experts" else {}
    return Layout(
        "gemma4",
        network_of("gemma4_text", **sizes),
        facts,
        lambda block, number, rest, weight: {block + names[rest]: weight} if rest in names else None,
        more={"rope_freqs.weight": torch.tensor([1.0] * 8 + [1e30] * 24)},  # a quarter of each wide head is rotated
    )


def mistral3() -> Layout:
    yarn = {
        "rope_type": "yarn",
        "rope_theta": 1e6,
        "factor": 16.0,
        "original_max_position_embeddings": 32,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.1,
    }
    facts = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 16.0,
        "rope.scaling.original_context_length": 32,
        "rope.scaling.yarn_log_multiplier": 1.0,
        "rope.scaling.yarn_beta_fast": 32.0,
        "rope.scaling.yarn_beta_slow": 1.0,
        "attention.temperature_scale": 0.1,
    }
    return Layout("mistral3", network_of("ministral3", rope_parameters=yarn), facts, paired)


def latent(block: str, number: int, rest: str, weight: Tensor) -> Written | None:
    """Return the expansion of latents as a half for keys, transposed, and one for values; and a router's correction."""
    if rest == "self_attn.kv_b_proj.weight":
        keys, values = weight.view(4, KEPT + VALUE, LATENT).split([KEPT, VALUE], 1)
        return {f"{block}attn_k_b.weight": keys.transpose(1, 2), f"{block}attn_v_b.weight": values}
    return {f"{block}exp_probs_b.bias": weight} if rest == "mlp.gate.e_score_correction_bias" else None


def glm4moe() -> Layout:
    network = network_of(
        "glm4_moe",
        n_routed_experts=4,
        n_shared_experts=1,
        first_k_dense_replace=1,
        use_qk_norm=True,
        attention_bias=True,
        routed_scaling_factor=1.5,
        **ROUTED,
    )

    def rewrite(block: str, number: int, rest: str, weight: Tensor) -> Written | None:
        if rest == "post_attention_layernorm.weight":
            return {f"{block}post_attention_norm.weight": weight}
        return latent(block, number, rest, weight)

    facts = {**EXPERTS, **SIGMOID, "expert_weights_scale": 1.5, "rope.dimension_count": 16}
    facts |= {"block_count": 5, "nextn_predict_layers": 1}
    more = {"blk.4.nextn.eh_proj.weight": torch.ones(32), "blk.4.attn_norm.weight": torch.ones(32)}
    return Layout("glm4moe", network, facts, rewrite, more=more)


def deepseek2(kind: str, halves: bool = True) -> Layout:
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
    network = network_of(
        kind,
        n_group=1,
        topk_group=1,
        n_routed_experts=4,
        n_shared_experts=1,
        q_lora_rank=48,
        num_key_value_heads=4,
        head_dim=TURNED,
        kv_lora_rank=LATENT,
        qk_rope_head_dim=TURNED,
        qk_nope_head_dim=KEPT,
        v_head_dim=VALUE,
        **ROUTED,
        **({} if kind == "glm4_moe_lite" else {"first_k_dense_replace": 1}),
        **({} if halves else {"rope_parameters": yarn | {"mscale": 0.7, "mscale_all_dim": 0.7}}),
    )
    scale = float(network.config.routed_scaling_factor)  # type: ignore[arg-type]
    facts: dict[str, Any] = {**EXPERTS, **SIGMOID, **MLA, "expert_weights_scale": scale}
    if halves:
        return Layout("deepseek2", network, facts, latent, kind="deepseek_v3")
    # As older files have it.
    facts |= {"attention.key_length": KEPT + TURNED, "attention.value_length": VALUE, "attention.head_count_kv": 4}
    facts |= {"attention.key_length_mla": None, "attention.value_length_mla": None}
    facts |= {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32}
    facts["rope.scaling.yarn_log_multiplier"] = 0.07

    def rewrite(block: str, number: int, rest: str, weight: Tensor) -> Written | None:
        whole = rest == "self_attn.kv_b_proj.weight"
        return {f"{block}attn_kv_b.weight": weight} if whole else latent(block, number, rest, weight)

    return Layout("deepseek2", network, facts, rewrite, kind="deepseek_v3")


LAYOUTS: dict[str, Callable[[], Layout]] = {
    "qwen35": lambda: qwen35(False),
    "qwen35-ollama": lambda: qwen35(False, of_ollama=True),
    "qwen35moe": lambda: qwen35(True),
    "gemma4-small": lambda: gemma4("small"),
    "gemma4-dense": lambda: gemma4("dense"),
    "gemma4-experts": lambda: gemma4("experts"),
    "lfm2": lambda: lfm2(False),
    "lfm2moe": lambda: lfm2(True),
    "granitehybrid": lambda: granite_hybrid(False),
    "granitehybrid-experts": lambda: granite_hybrid(True),
    "nemotron_h": lambda: nemotron(False),
    "nemotron_h_moe": lambda: nemotron(True),
    "mistral3": mistral3,
    "glm4moe": glm4moe,
    "deepseek2-glm": lambda: deepseek2("glm4_moe_lite"),
    "deepseek2": lambda: deepseek2("deepseek_v3"),
    "deepseek2-older": lambda: deepseek2("deepseek_v3", halves=False),
    "falcon-h1": lambda: falcon(False),
    "falcon-h1-norm": lambda: falcon(True),
}


@functools.cache
def layout_of(name: str) -> Layout:
    """Make a layout once."""
    return LAYOUTS[name]()
