"""The configuration of a model in a GGUF file, in transformers' words.

llama.cpp leaves out of a file whatever its own code knows of an architecture. The functions here add that. A test
writes a file of each architecture as llama.cpp's own conversion does and compares; `benchmarks/gguf.py` has llama.cpp
itself read such files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.errors import ModelNotFound, UnsupportedModel
from engine.models.architectures import ARCHITECTURES, REFUSED_IN_GGUF, Architecture, check_kind
from engine.models.gguf import gemma_facts, hybrid_facts, routed_facts
from engine.models.gguf.header import Header
from engine.models.gguf.rope_parameters import rope_of
from engine.models.gguf.values import Facts, count, experts, layers, number, size

EYES = "clip"  # what files with a part for pictures or sound alone are named
MIXTRAL = ARCHITECTURES["mixtral"]  # files name it llama
BY_NAME = {name: row for row in ARCHITECTURES.values() if row.gguf and row is not MIXTRAL for name in row.gguf.names}


def config_facts(header: Header) -> Facts:
    """Return the settings of a config.json of the same model.

    Raises:
        UnsupportedModel: an architecture that is not read from GGUF files.
        ModelNotFound: a header that lacks a size.
    """
    kind = architecture_in(header).kind
    if "token_embd.weight" not in header.tensors:
        raise ModelNotFound(f"{header.path} has no token embeddings (token_embd.weight): fetch it anew.")
    own = OWN[kind](header) if kind in OWN else {}
    facts = {"model_type": kind} | own
    return facts | {name: of(header) for name, of in COMMON.items() if name not in own} | _epsilons(header)


def architecture_in(header: Header) -> Architecture:
    """Return the row of a file's architecture.

    Raises:
        UnsupportedModel: it is not read from GGUF files.
    """
    name = header.architecture
    if name == "llama" and header.get("expert_count"):
        return MIXTRAL
    if name == EYES:
        raise UnsupportedModel(
            f"{header.path} is a part of a model, for pictures or sound: choose the file with its text, without "
            f"'mmproj' in its name."
        )
    if name in REFUSED_IN_GGUF:
        check_kind(REFUSED_IN_GGUF[name])
    if name not in BY_NAME:
        raise UnsupportedModel(
            f"The architecture '{name}' is not read from GGUF files: docs/models.md lists those that are. Choose one "
            f"of them, or a folder or hub id with safetensors."
        )
    return BY_NAME[name]


def _head(header: Header) -> int:
    if header.get("attention.key_length") is not None:
        return size(header, "attention.key_length")
    return size(header, "embedding_length") // size(header, "attention.head_count")


def _kv_heads(header: Header) -> int:
    key = "attention.head_count_kv"
    return size(header, key if header.get(key) is not None else "attention.head_count")


# Settings that all architectures have, where they have none of their own.
COMMON: dict[str, Callable[[Header], Any]] = {
    "vocab_size": lambda header: header.tensors["token_embd.weight"].shape[0],
    "hidden_size": lambda header: size(header, "embedding_length"),
    "num_hidden_layers": layers,
    "num_attention_heads": lambda header: size(header, "attention.head_count"),
    "num_key_value_heads": _kv_heads,
    "head_dim": _head,
    "max_position_embeddings": lambda header: size(header, "context_length"),
    "intermediate_size": lambda header: size(header, "feed_forward_length"),
    "tie_word_embeddings": lambda header: "output.weight" not in header.tensors,
    "rope_parameters": lambda header: rope_of(header, _head(header)),
    "bos_token_id": lambda header: header.facts.get("tokenizer.ggml.bos_token_id"),
    "eos_token_id": lambda header: header.facts.get("tokenizer.ggml.eos_token_id"),
    "pad_token_id": lambda header: header.facts.get("tokenizer.ggml.padding_token_id"),
}


def _epsilons(header: Header) -> Facts:
    """Return the numbers that norms add, by all names that they have in transformers."""
    names = {
        "layer_norm_rms_epsilon": ("rms_norm_eps", "norm_eps", "layer_norm_epsilon"),
        "layer_norm_epsilon": ("layer_norm_eps",),
    }
    there = [key for key in names if header.get(f"attention.{key}") is not None]
    return {to: number(header, f"attention.{key}") for key in there for to in names[key]}


def _without_windows(header: Header) -> Facts:
    """Return no facts, and refuse sliding windows: files of this architecture are not known to have them."""
    if header.get("attention.sliding_window"):
        raise UnsupportedModel(
            f"A '{header.architecture}' with sliding windows is not read from GGUF files: choose a folder or hub id "
            f"with safetensors."
        )
    return {}


def _llama(header: Header) -> Facts:
    return _without_windows(header) | {"attention_bias": "blk.0.attn_q.bias" in header.tensors}


def _mixtral(header: Header) -> Facts:
    return {
        "sliding_window": None,
        "num_local_experts": size(header, "expert_count"),
        "num_experts_per_tok": size(header, "expert_used_count"),
    }


def _qwen2_moe(header: Header) -> Facts:
    return experts(header) | {
        "moe_intermediate_size": size(header, "expert_feed_forward_length"),
        "shared_expert_intermediate_size": size(header, "expert_shared_feed_forward_length"),
        "norm_topk_prob": False,
    }


def _qwen3_moe(header: Header) -> Facts:
    width = size(header, "expert_feed_forward_length")
    return experts(header) | {"moe_intermediate_size": width, "norm_topk_prob": True}


def _granite(header: Header) -> Facts:
    return {
        "attention_bias": False,
        "logits_scaling": number(header, "logit_scale"),
        "attention_multiplier": number(header, "attention.scale"),
        "embedding_multiplier": number(header, "embedding_scale"),
        "residual_multiplier": number(header, "residual_scale"),
    }


def _gpt_oss(header: Header) -> Facts:
    rope = rope_of(header, size(header, "attention.key_length"))
    kinds = ["full_attention" if layer % 2 else "sliding_attention" for layer in range(layers(header))]
    return {
        "num_local_experts": size(header, "expert_count"),
        "num_experts_per_tok": size(header, "expert_used_count"),
        "intermediate_size": size(header, "expert_feed_forward_length"),
        "sliding_window": size(header, "attention.sliding_window"),
        "layer_types": kinds,
        "rope_parameters": rope | ({"truncate": False} if rope["rope_type"] == "yarn" else {}),
        "attention_bias": True,
    }


def _starcoder2(header: Header) -> Facts:
    """Return a window of 4,096, which all published models have and their files leave out."""
    return {
        "norm_epsilon": number(header, "attention.layer_norm_epsilon"),
        "sliding_window": 4096,
        "use_bias": True,
    }


def _phi3(header: Header) -> Facts:
    return {"sliding_window": count(header, "attention.sliding_window") or None}


def _cohere2(header: Header) -> Facts:
    kinds = ["sliding_attention" if (layer + 1) % 4 else "full_attention" for layer in range(layers(header))]
    return {
        "logit_scale": number(header, "logit_scale"),
        "sliding_window": size(header, "attention.sliding_window"),
        "layer_types": kinds,
    }


def _cohere(header: Header) -> Facts:
    return {"logit_scale": number(header, "logit_scale"), "use_qk_norm": "blk.0.attn_q_norm.weight" in header.tensors}


def _ministral3(header: Header) -> Facts:
    rope = rope_of(header, _head(header), mscale=1.0)
    return {
        "rope_parameters": rope | {"llama_4_scaling_beta": number(header, "attention.temperature_scale", 0.0)},
        "sliding_window": None,
    }


def _olmo(header: Header) -> Facts:
    return {"clip_qkv": number(header, "attention.clamp_kqv", 0.0) or None}


# Facts of single architectures, beside those that all have.
OWN: dict[str, Callable[[Header], Facts]] = {
    **gemma_facts.OWN,
    **hybrid_facts.OWN,
    **routed_facts.OWN,
    "cohere": _cohere,
    "cohere2": _cohere2,
    "gpt_oss": _gpt_oss,
    "granite": _granite,
    "granitemoe": lambda header: _granite(header) | _mixtral(header),
    "llama": _llama,
    "ministral3": _ministral3,
    "mixtral": _mixtral,
    "olmo": _olmo,
    "olmo2": _without_windows,
    "olmoe": lambda header: experts(header) | {"norm_topk_prob": False},
    "phi3": _phi3,
    "qwen2": _without_windows,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _without_windows,
    "qwen3_moe": _qwen3_moe,
    "seed_oss": lambda header: {"attention_bias": "blk.0.attn_q.bias" in header.tensors},
    "starcoder2": _starcoder2,
}
