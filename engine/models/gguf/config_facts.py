"""The configuration of a model in a GGUF file, in transformers' words.

llama.cpp leaves out of a file whatever its own code knows of an architecture. The functions here add that. A test
writes a file of each architecture as llama.cpp's own conversion does and compares; `benchmarks/gguf.py` has llama.cpp
itself read such files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.errors import ModelNotFound, UnsupportedModel
from engine.models.architectures import ARCHITECTURES, Architecture
from engine.models.gguf.header import Header
from engine.models.gguf.rope_parameters import rope_of, short

Facts = dict[str, Any]

MIXTRAL = ARCHITECTURES["mixtral"]  # files name it llama
BY_NAME = {row.gguf.name: row for row in ARCHITECTURES.values() if row.gguf and row is not MIXTRAL}


def config_facts(header: Header) -> Facts:
    """Return the settings of a config.json of the same model.

    Raises:
        UnsupportedModel: an architecture that is not read from GGUF files.
        ModelNotFound: a header that lacks a size.
    """
    kind = architecture_in(header).kind
    hidden, heads = _size(header, "embedding_length"), _size(header, "attention.head_count")
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelNotFound(f"{header.path} has no token embeddings (token_embd.weight): fetch it anew.")
    kv_heads = "attention.head_count_kv"
    head = header.get("attention.key_length") or hidden // heads
    facts: Facts = {
        "model_type": kind,
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden,
        "num_hidden_layers": _size(header, "block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": _size(header, kv_heads) if header.get(kv_heads) is not None else heads,
        "head_dim": head,
        "max_position_embeddings": _size(header, "context_length"),
        "intermediate_size": _size(header, "feed_forward_length"),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "rope_parameters": rope_of(header, head),
        "bos_token_id": header.facts.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": header.facts.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": header.facts.get("tokenizer.ggml.padding_token_id"),
    }
    for to, key in (("rms_norm_eps", "layer_norm_rms_epsilon"), ("layer_norm_eps", "layer_norm_epsilon")):
        if (eps := header.get(f"attention.{key}")) is not None:
            facts[to] = short(eps)
    return facts | (OWN[kind](header) if kind in OWN else {})


def architecture_in(header: Header) -> Architecture:
    """Return the row of a file's architecture.

    Raises:
        UnsupportedModel: it is not read from GGUF files.
    """
    name = header.architecture
    if name == "llama" and header.get("expert_count"):
        return MIXTRAL
    if name not in BY_NAME:
        raise UnsupportedModel(
            f"The architecture '{name}' is not read from GGUF files: docs/models.md lists those that are. Choose one "
            f"of them, or a folder or hub id with safetensors."
        )
    return BY_NAME[name]


def _size(header: Header, key: str) -> int:
    """Return a size that a header must have."""
    value = header.get(key)
    if isinstance(value, list) and len(set(value)) == 1:  # the same for each layer
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        name = f"{header.architecture}.{key}"
        raise ModelNotFound(f"{header.path} says {name}: {value}, and it must be a number above 0: fetch it anew.")
    return value


def _number(header: Header, key: str) -> float:
    """Return a number that a header must have."""
    value = header.get(key)
    if not isinstance(value, float):
        name = f"{header.architecture}.{key}"
        raise ModelNotFound(f"{header.path} says {name}: {value}, and it must be a number: fetch it anew.")
    return short(value)


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
        "num_local_experts": _size(header, "expert_count"),
        "num_experts_per_tok": _size(header, "expert_used_count"),
    }


def _experts(header: Header) -> Facts:
    return {
        "num_experts": _size(header, "expert_count"),
        "num_experts_per_tok": _size(header, "expert_used_count"),
    }


def _qwen2_moe(header: Header) -> Facts:
    return _experts(header) | {
        "moe_intermediate_size": _size(header, "expert_feed_forward_length"),
        "shared_expert_intermediate_size": _size(header, "expert_shared_feed_forward_length"),
        "norm_topk_prob": False,
    }


def _qwen3_moe(header: Header) -> Facts:
    width = _size(header, "expert_feed_forward_length")
    return _experts(header) | {"moe_intermediate_size": width, "norm_topk_prob": True}


def _scale(header: Header, layers_of_27b: int) -> Facts:
    """Return the scale of Gemma's queries, from the size of a head; for 27B it is hidden size over heads."""
    heads, hidden = _size(header, "attention.head_count"), _size(header, "embedding_length")
    own = hidden // heads if header.get("block_count") == layers_of_27b else _size(header, "attention.key_length")
    return {"query_pre_attn_scalar": own, "sliding_window": _size(header, "attention.sliding_window")}


def _gemma2(header: Header) -> Facts:
    return _scale(header, 46) | {
        "attn_logit_softcapping": _number(header, "attn_logit_softcapping"),
        "final_logit_softcapping": _number(header, "final_logit_softcapping"),
    }


def _gemma3(header: Header) -> Facts:
    full = rope_of(header, _size(header, "attention.key_length"))
    local = {"rope_type": "default", "rope_theta": short(header.get("rope.freq_base_swa", 10000.0))}
    kinds = ["sliding_attention" if (layer + 1) % 6 else "full_attention" for layer in range(header.get("block_count"))]
    ropes = {"sliding_attention": local, "full_attention": full}
    return _scale(header, 62) | {"layer_types": kinds, "rope_parameters": ropes}


def _granite(header: Header) -> Facts:
    return {
        "attention_bias": False,
        "logits_scaling": _number(header, "logit_scale"),
        "attention_multiplier": _number(header, "attention.scale"),
        "embedding_multiplier": _number(header, "embedding_scale"),
        "residual_multiplier": _number(header, "residual_scale"),
    }


def _gpt_oss(header: Header) -> Facts:
    rope = rope_of(header, _size(header, "attention.key_length"))
    kinds = ["full_attention" if layer % 2 else "sliding_attention" for layer in range(header.get("block_count"))]
    return {
        "num_local_experts": _size(header, "expert_count"),
        "num_experts_per_tok": _size(header, "expert_used_count"),
        "intermediate_size": _size(header, "expert_feed_forward_length"),
        "sliding_window": _size(header, "attention.sliding_window"),
        "layer_types": kinds,
        "rope_parameters": rope | ({"truncate": False} if rope["rope_type"] == "yarn" else {}),
        "attention_bias": True,
    }


def _starcoder2(header: Header) -> Facts:
    """Return a window of 4,096, which all published models have and their files leave out."""
    return {
        "norm_epsilon": _number(header, "attention.layer_norm_epsilon"),
        "sliding_window": 4096,
        "use_bias": True,
    }


def _phi3(header: Header) -> Facts:
    return {"sliding_window": header.get("attention.sliding_window") or None}


def _cohere2(header: Header) -> Facts:
    kinds = ["sliding_attention" if (layer + 1) % 4 else "full_attention" for layer in range(header.get("block_count"))]
    return {
        "logit_scale": _number(header, "logit_scale"),
        "sliding_window": _size(header, "attention.sliding_window"),
        "layer_types": kinds,
    }


def _cohere(header: Header) -> Facts:
    return {"logit_scale": _number(header, "logit_scale"), "use_qk_norm": "blk.0.attn_q_norm.weight" in header.tensors}


def _olmo(header: Header) -> Facts:
    return {"clip_qkv": short(header.get("attention.clamp_kqv", 0.0)) or None}


# Facts of single architectures, beside those that all have.
OWN: dict[str, Callable[[Header], Facts]] = {
    "cohere": _cohere,
    "cohere2": _cohere2,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt_oss": _gpt_oss,
    "granite": _granite,
    "granitemoe": lambda header: _granite(header) | _mixtral(header),
    "llama": _llama,
    "mixtral": _mixtral,
    "olmo": _olmo,
    "olmo2": _without_windows,
    "olmoe": lambda header: _experts(header) | {"norm_topk_prob": False},
    "phi3": _phi3,
    "qwen2": _without_windows,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _without_windows,
    "qwen3_moe": _qwen3_moe,
    "seed_oss": lambda header: {"attention_bias": "blk.0.attn_q.bias" in header.tensors},
    "starcoder2": _starcoder2,
}
