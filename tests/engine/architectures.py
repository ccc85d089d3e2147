"""Small random models of every supported architecture, and the comparison with eager attention."""

from __future__ import annotations

import copy

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from engine.memory import Memory
from engine.model import Model
from engine.models.architectures import ARCHITECTURES
from engine.parts.mass import NOT_IN_SOURCE
from engine.parts.slots import SlotStore
from tests.engine.conftest import byte_tokenizer

SMALL = {
    "vocab_size": 260,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
TURNS = ["sliding_attention", "full_attention"] * 2
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
DELTA = {
    "head_dim": 16,
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
SHARED = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
}
ROUTED = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_chunk_size": 32}
EXTRA: dict[str, dict[str, object]] = {
    "mistral": {"sliding_window": 40, "head_dim": 16},
    "ministral": {"sliding_window": 40, "head_dim": 16},
    "ministral3": {
        "head_dim": 16,
        "rope_parameters": {**YARN, "original_max_position_embeddings": 32, "llama_4_scaling_beta": 0.5},
    },
    "qwen2": {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 2},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "phi": {"partial_rotary_factor": 0.5},
    "gemma2": {"head_dim": 16, "sliding_window": 40, "query_pre_attn_scalar": 16},
    "gemma3_text": {"head_dim": 16, "sliding_window": 40, "query_pre_attn_scalar": 16, "sliding_window_pattern": 2},
    "gemma3n_text": {
        "num_hidden_layers": 6,
        "head_dim": 16,
        "sliding_window": 40,
        "layer_types": [*TURNS, *TURNS[:2]],
        "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 260,
        "laurel_rank": 8,
        "activation_sparsity_pattern": [0.9, 0.9, 0.0, 0.0, 0.0, 0.0],
    },
    "gemma4_text": {
        "head_dim": 16,
        "global_head_dim": 32,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "sliding_window": 40,
        "layer_types": TURNS,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 260,
        "enable_moe_block": True,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
        "final_logit_softcapping": 30.0,
    },
    "gemma4_unified_text": {"head_dim": 16, "global_head_dim": 32, "sliding_window": 40, "layer_types": TURNS},
    "smollm3": {"no_rope_layers": [1, 1, 1, 0]},
    "gpt_oss": {
        "head_dim": 16,
        "sliding_window": 40,
        "layer_types": TURNS,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": {**YARN, "truncate": False},
    },
    "granite": {"logits_scaling": 2.0, "embedding_multiplier": 3.0, "attention_multiplier": 0.3},
    "granitemoe": {"logits_scaling": 2.0, "num_local_experts": 4, "num_experts_per_tok": 2},
    "olmo": {"clip_qkv": 0.3},
    "olmo3": {
        "sliding_window": 40,
        "layer_types": TURNS,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": YARN,
        },
    },
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 40},
    "qwen2_moe": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
    },
    "gemma": {"head_dim": 32},
    "glm": {"head_dim": 16},
    "glm4": {"head_dim": 16},
    "cohere": {"logit_scale": 0.25, "use_qk_norm": True},
    "cohere2": {"logit_scale": 0.25, "sliding_window": 40, "layer_types": TURNS},
    "exaone4": {"sliding_window": 40, "layer_types": TURNS},
    "ernie4_5": {"head_dim": 16},
    "ernie4_5_moe": {
        "head_dim": 16,
        "moe_num_experts": 4,
        "moe_k": 2,
        "moe_intermediate_size": 32,
        "moe_num_shared_experts": 1,
        "moe_layer_start_index": 1,
    },
    "flex_olmo": {"num_experts": 4, "num_experts_per_tok": 2},
    "glm4_moe": {
        "head_dim": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
    },
    "iquestcoder": {"head_dim": 16},
    "mellum": {
        "head_dim": 16,
        "sliding_window": 40,
        "layer_types": TURNS,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": YARN,
        },
    },
    "helium": {"head_dim": 16},
    "vaultgemma": {"head_dim": 16, "sliding_window": 40, "query_pre_attn_scalar": 16},
    "seed_oss": {"head_dim": 32},
    "starcoder2": {"sliding_window": 40},
    "qwen3_next": {**DELTA, **SHARED},
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": {**DELTA, **SHARED},
    "olmo_hybrid": {name: value for name, value in DELTA.items() if name != "head_dim"},
    "cwm": {"head_dim": 16, "sliding_window": 40, "layer_types": TURNS},
    "hyperclovax": {"logits_scaling": 0.5, "embedding_multiplier": 3.0, "attention_multiplier": 0.3},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm3": {
        "head_dim": 16,
        "sliding_window": 40,
        "layer_types": ["conv", "sliding_attention", "conv", "full_attention"],
    },
    "lfm2_moe": {
        "layer_types": ["conv", "full_attention"] * 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "num_dense_layers": 1,
    },
    "granitemoehybrid": {
        **MAMBA,
        "layer_types": ["mamba", "attention"] * 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 48,
        "logits_scaling": 2.0,
    },
    "falcon_h1": {**MAMBA, "mamba_d_ssm": 128, "lm_head_multiplier": 0.5, "key_multiplier": 0.7},
    "nemotron_h": {
        "layers_block_type": ["mamba", "moe", "attention", "moe", "mlp", "moe", "attention"],
        "head_dim": 16,
        "ssm_state_size": 16,
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "chunk_size": 32,
    },
    "bamba": {**MAMBA, "attn_layer_indices": [1, 3]},
    "deepseek_v2": {
        **LATENT,
        **ROUTED,
        "q_lora_rank": None,
        "topk_method": "group_limited_greedy",
        "n_group": 2,
        "topk_group": 1,
        "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.7},
    },
    "deepseek_v3": {
        **LATENT,
        **ROUTED,
        "n_group": 2,
        "topk_group": 1,
        "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5},
    },
    "glm4_moe_lite": {**LATENT, **ROUTED},
    "minicpm3": {**LATENT, "dim_model_base": 16},
    "youtu": {**LATENT, "initializer_range": 0.02},
}


def kinds_with(feature: str) -> list[str]:
    """Return the `model_type` of each architecture that has a feature, named by its field."""
    return [kind for kind, row in ARCHITECTURES.items() if getattr(row, feature)]


def small_config(kind: str) -> PretrainedConfig:
    return AutoConfig.for_model(kind, **{**SMALL, **EXTRA.get(kind, {})})


def compare(config: PretrainedConfig, kind: str) -> Model:
    """Read 150 tokens in odd passes, the last of one token, and compare with eager attention over all of them.

    Biases, norms and routers get random weights, since a new model has only zeros and ones there.
    """
    torch.manual_seed(0)
    reference = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for each in reference.parameters():
        if each.dim() == 1 or not each.any():
            torch.nn.init.normal_(each, mean=float(each.detach().mean()), std=0.1)
    model = Model(copy.deepcopy(reference), byte_tokenizer(), kind, "-")
    ids = torch.randint(4, 260, (150,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference(input_ids=ids[None]).logits[0]
    memory = Memory(model.spec, SlotStore(model.spec))
    hidden = []
    for chunk in ids.split([37, 37, 1, 37, 36, 1, 1]):
        hidden.append(model.forward(chunk, memory, torch.full((len(chunk),), NOT_IN_SOURCE, dtype=torch.int32)))
        memory.end_pass()
    assert expected.std() > 1e-3
    torch.testing.assert_close(model.logits(torch.cat(hidden)), expected, atol=1e-5, rtol=2e-5)
    return model
