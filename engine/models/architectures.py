"""The architectures that the engine is known to match, each proven in `tests/engine/test_architectures.py`.

A model that is not in this table is refused by name: a wrong rotation or a missing mask gives fluent nonsense, and
nobody would see it. To add one, add it here and run that test: it compares logits with transformers' own eager
attention, in float32, read in chunks of odd lengths.
"""

from __future__ import annotations

import difflib
from typing import Any

from transformers import PretrainedConfig

from engine.errors import UnsupportedModel

SUPPORTED: dict[str, str] = {
    "llama": "Llama, and the pocket model",
    "mistral": "Mistral",
    "ministral": "Ministral",
    "ministral3": "Ministral 3",
    "qwen2": "Qwen 2 and 2.5",
    "qwen3": "Qwen 3",
    "qwen3_moe": "Qwen 3 mixture of experts",
    "phi": "Phi 1 and 2",
    "phi3": "Phi 3 and 4 mini",
    "gemma2": "Gemma 2",
    "gemma3_text": "Gemma 3 (text)",
    "gemma4_text": "Gemma 4 (text)",
    "gemma4_unified_text": "Gemma 4 of 12B (text)",
    "smollm3": "SmolLM 3",
    "olmo2": "OLMo 2",
    "olmo3": "OLMo 3",
    "olmo": "OLMo",
    "olmoe": "OLMoE",
    "gpt_oss": "gpt-oss",
    "granite": "Granite",
    "granitemoe": "Granite mixture of experts",
    "mixtral": "Mixtral",
    "qwen2_moe": "Qwen 1.5 and 2 mixture of experts",
    "gemma": "Gemma",
    "glm": "GLM 4 of 2024",
    "glm4": "GLM 4 of 2025",
    "cohere": "Command R",
    "cohere2": "Command R7B and A",
    "exaone4": "EXAONE 4",
    "ernie4_5": "ERNIE 4.5",
    "ernie4_5_moe": "ERNIE 4.5 mixture of experts",
    "flex_olmo": "FlexOlmo",
    "glm4_moe": "GLM 4.5 and 4.6 mixture of experts",
    "helium": "Helium",
    "iquestcoder": "IQuest Coder",
    "jais2": "Jais 2",
    "mellum": "Mellum 2",
    "vaultgemma": "VaultGemma",
    "seed_oss": "Seed-OSS",
    "apertus": "Apertus",
    "arcee": "Arcee AFM",
    "starcoder2": "StarCoder 2",
    "qwen3_next": "Qwen 3 Next",
    "qwen3_5_text": "Qwen 3.5",
    "qwen3_5_moe_text": "Qwen 3.5 mixture of experts",
    "olmo_hybrid": "OLMo Hybrid",
    "cwm": "Code World Model",
    "hyperclovax": "HyperCLOVA X SEED",
    "lfm2": "LFM 2",
    "lfm2_moe": "LFM 2 mixture of experts",
    "lfm3": "LFM 3",
    "granitemoehybrid": "Granite 4",
    "falcon_h1": "Falcon H1",
    "nemotron_h": "Nemotron H, Nano and 3",
    "bamba": "Bamba",
    "deepseek_v2": "DeepSeek V2",
    "deepseek_v3": "DeepSeek V3",
    "glm4_moe_lite": "GLM 4.7 Flash",
    "minicpm3": "MiniCPM 3",
    "youtu": "Youtu",
}

# Those of which some layers carry states of a fixed size from token to token, instead of keys and values or beside.
RECURRENT = frozenset(
    {
        *("bamba", "falcon_h1", "granitemoehybrid", "lfm2", "lfm2_moe", "lfm3", "nemotron_h", "olmo_hybrid"),
        *("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"),
    }
)

# Those with multi-head latent attention (MLA): whether RoPE turns neighbouring dimensions together, None where the
# configuration says so.
LATENT = {
    **{"deepseek_v2": True, "minicpm3": False},
    **dict.fromkeys(("deepseek_v3", "glm4_moe_lite", "youtu")),
}

# Those of which a layer has experts, of which each token goes through a few.
MIXTURES = frozenset(
    {
        *("deepseek_v2", "deepseek_v3", "glm4_moe_lite"),
        *("ernie4_5_moe", "flex_olmo", "gemma4_text", "glm4_moe", "gpt_oss", "granitemoe", "granitemoehybrid"),
        *("lfm2_moe", "mellum", "mixtral", "nemotron_h", "olmoe"),
        *("qwen2_moe", "qwen3_5_moe_text", "qwen3_moe", "qwen3_next"),
    }
)

# Models for pictures as well, of which the part for text is one of these architectures, and is used alone.
WITH_PICTURES = frozenset({"gemma3", "gemma4", "gemma4_unified", "internvl", "mistral3", "qwen3_5", "qwen3_5_moe"})

# Those that are published with their experts in MXFP4.
MXFP4 = frozenset({"gpt_oss"})

# Linear layers that quantising leaves as they are, by the ends of their names: what chooses among experts, because a
# wrong choice costs more than a rounded weight, and what latents are multiplied with, which `mla.py` takes apart.
EXPANDING = "kv_b_proj"
KEPT = {"gemma4_text": ("router.proj",), **dict.fromkeys(LATENT, (EXPANDING,))}

# RoPE turns neighbouring dimensions together, and not each with the one half the rotated width away; whether it turns
# the part of them alone that the configuration says.
INTERLEAVED = {
    **{"cohere": False, "cohere2": False, "ernie4_5": False, "ernie4_5_moe": False, "helium": False},
    **{"glm": True, "glm4": True},
}

# Where a model has its rotary embedding, if not in `rotary_emb`.
ROTARY = {"lfm2_moe": "pos_emb"}

# Queries are scaled by where they stand (`Memory.places`).
SCALED_BY_PLACE = frozenset({"ministral3"})

# Of models that have layers with a sliding window, only these layers have RoPE.
ROPE_WITHIN_WINDOWS = frozenset({"cohere2", "exaone4"})

# What the configuration calls the factor of logits, and what it calls their divisor.
LOGIT_FACTORS = {
    **{"cohere": "logit_scale", "cohere2": "logit_scale"},
    **{"falcon_h1": "lm_head_multiplier", "hyperclovax": "logits_scaling"},
}
LOGIT_DIVISORS = dict.fromkeys(("granite", "granitemoe", "granitemoehybrid", "minicpm3"), "logits_scaling")

# Frequencies that stay what they are at every length. Of the two sets of "longrope" the one for long texts is taken.
ROPE_TYPES = frozenset({"default", "linear", "llama3", "yarn", "longrope", "proportional"})

# Those of which an indexer of their own chooses the tokens that each attends to.
INDEXED = frozenset({"axk2", "deepseek_v32", "glm_moe_dsa"})

REFUSED_ROPES = {"dynamic": "its frequencies change with the length"}


def check_kind(kind: str) -> None:
    """Refuse an architecture by its `model_type`.

    Raises:
        UnsupportedModel: naming it, and what is supported.
    """
    if kind in INDEXED:
        raise UnsupportedModel(
            f"'{kind}' chooses the tokens that each attends to by an indexer of its own, which Stockpot does not have: "
            f"choose another model. docs/models.md lists those that can be used."
        )
    if kind not in SUPPORTED:
        alike = ", ".join(difflib.get_close_matches(kind, SUPPORTED, 3))
        raise UnsupportedModel(
            f"The architecture '{kind}' has not been shown to match transformers in Stockpot. docs/models.md lists "
            f"those that have{f'; names like it are {alike}' if alike else ''}."
        )


def check(config: PretrainedConfig) -> None:
    """Refuse what has not been shown to match.

    Raises:
        UnsupportedModel: naming the architecture or the kind of RoPE, and what is supported; a window of no position;
            heads that cannot share keys evenly.
    """
    kind = config.model_type
    check_kind(kind)
    for rope_type in _rope_types(getattr(config, "rope_parameters", None)):
        if rope_type not in ROPE_TYPES:
            reason = REFUSED_ROPES.get(rope_type, "it has not been shown to match transformers in Stockpot")
            raise UnsupportedModel(
                f"'{kind}' with RoPE of type '{rope_type}' is not supported: {reason}. "
                f"Supported types: {', '.join(sorted(ROPE_TYPES))}."
            )
    window = getattr(config, "max_position_embeddings", None)
    if not isinstance(window, int) or window < 1:
        raise UnsupportedModel(
            f"The config.json of this '{kind}' says max_position_embeddings: {window}, and a model is trained for 1 "
            f"position or more: correct it, or fetch it anew."
        )
    heads = int(getattr(config, "num_attention_heads", 0))
    for layer in range(int(getattr(config, "num_hidden_layers", 0))):
        kv_heads = int(getattr(of_layer(config, layer), "num_key_value_heads", None) or heads)
        if kv_heads and heads % kv_heads:
            raise UnsupportedModel(
                f"The config.json of this '{kind}' says that {heads} attention heads share {kv_heads} heads of keys "
                f"and values, and they cannot evenly: correct it, or fetch it anew."
            )


def of_layer(config: PretrainedConfig, layer: int) -> Any:
    """What a configuration says of one layer: in some models heads differ in number and size."""
    each: Any = config.per_layer_config
    return each[layer]


def _rope_types(parameters: object) -> list[str]:
    """The RoPE types of a config: one, or one per kind of layer."""
    if not isinstance(parameters, dict):
        return []
    if "rope_type" in parameters:
        return [str(parameters["rope_type"])]
    return [kind for value in parameters.values() for kind in _rope_types(value)]
