"""Shapes of published models, by their configurations, for models with random weights.

Weights of experts count as linear layers do. The sizes are the publishers'; a test compares the number of weights.
"""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, PretrainedConfig

SHAPES: dict[str, dict[str, Any]] = {
    "Llama-3.1-8B": {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "Qwen2.5-7B": {
        "model_type": "qwen2",
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    },
    "Phi-3-mini": {
        "model_type": "phi3",
        "vocab_size": 32064,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 4096,
        "sliding_window": 2047,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "pad_token_id": 0,
    },
    "Qwen3-8B": {
        "model_type": "qwen3",
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss",
        "vocab_size": 201088,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 24,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "sliding_window": 128,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "max_position_embeddings": 131072,
    },
    "Qwen3.5-27B": {  # the text part; Qwen3.6-27B has the same shape
        "model_type": "qwen3_5_text",
        "vocab_size": 248320,
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "max_position_embeddings": 262144,
    },
    "Qwen3.5-35B-A3B": {  # the text part; Qwen3.6-35B-A3B has the same shape
        "model_type": "qwen3_5_moe_text",
        "vocab_size": 248320,
        "hidden_size": 2048,
        "num_hidden_layers": 40,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "max_position_embeddings": 262144,
    },
    "Gemma-4-26B-A4B": {
        "model_type": "gemma4_text",
        "vocab_size": 262144,
        "hidden_size": 2816,
        "intermediate_size": 2112,
        "num_hidden_layers": 30,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_global_key_value_heads": 2,
        "attention_k_eq_v": True,
        "sliding_window": 1024,
        "hidden_size_per_layer_input": 0,
        "enable_moe_block": True,
        "num_experts": 128,
        "top_k_experts": 8,
        "moe_intermediate_size": 704,
        "max_position_embeddings": 262144,
        "final_logit_softcapping": 30.0,
        "tie_word_embeddings": True,
    },
    "GLM-4.7-Flash": {
        "model_type": "glm4_moe_lite",
        "vocab_size": 154880,
        "hidden_size": 2048,
        "intermediate_size": 10240,
        "moe_intermediate_size": 1536,
        "num_hidden_layers": 47,
        "num_attention_heads": 20,
        "num_key_value_heads": 20,
        "n_routed_experts": 64,
        "n_shared_experts": 1,
        "num_experts_per_tok": 4,
        "kv_lora_rank": 512,
        "q_lora_rank": 768,
        "qk_nope_head_dim": 192,
        "qk_rope_head_dim": 64,
        "v_head_dim": 256,
        "max_position_embeddings": 202752,
    },
}
TINY = {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
FEW_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
SMALL_DELTA = {"head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16}
TINY_OF: dict[str, dict[str, Any]] = {  # what makes a shape of one architecture tiny beside TINY
    "qwen3": {"head_dim": 32},
    "gpt_oss": {"head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_5_text": {**SMALL_DELTA, "linear_value_head_dim": 16},
    "qwen3_5_moe_text": {
        **{**SMALL_DELTA, "linear_value_head_dim": 16},
        **{**FEW_EXPERTS, "shared_expert_intermediate_size": 64},
    },
    "gemma4_text": {
        **{"head_dim": 32, "global_head_dim": 64, "num_global_key_value_heads": 1, "sliding_window": 64},
        **{"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 64, "vocab_size_per_layer_input": 512},
    },
    "glm4_moe_lite": {
        **{"moe_intermediate_size": 64, "n_routed_experts": 4, "num_experts_per_tok": 2, "kv_lora_rank": 32},
        **{"q_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "v_head_dim": 32},
    },
}
LAST_LAYERS = {  # kinds of the last two layers, where a shape cut to two must have both
    "qwen3_5_text": ["linear_attention", "full_attention"],
    "qwen3_5_moe_text": ["linear_attention", "full_attention"],
    "gemma4_text": ["sliding_attention", "full_attention"],
}


def config_of(name: str, tiny: bool = False, layers: int | None = None) -> PretrainedConfig:
    """Return the configuration of one of SHAPES.

    Args:
        name: a key of SHAPES.
        tiny: a model of the same kind with few weights.
        layers: number of layers, two; None for the shape's own.
    """
    facts = dict(SHAPES[name])
    kind = facts.pop("model_type")
    if tiny:
        heads = 4 * facts["num_key_value_heads"] // facts["num_attention_heads"] or 1
        facts |= {**TINY, "num_attention_heads": 4, "num_key_value_heads": heads, **TINY_OF.get(kind, {})}
    if layers is not None:
        facts["num_hidden_layers"] = layers
    if facts["num_hidden_layers"] == 2 and kind in LAST_LAYERS:
        facts["layer_types"] = LAST_LAYERS[kind]
    facts = {"tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": None, **facts}
    config = AutoConfig.for_model(kind, **facts)
    assert isinstance(config, PretrainedConfig)
    return config
