"""The architectures that are read from GGUF files: what their headers say of them, in transformers' words.

llama.cpp leaves out of a file whatever its own code knows of an architecture. Where that is so it is said here, and a
test compares each with transformers' network of the same weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.errors import ModelNotFound, UnsupportedModel
from engine.models.gguf.header import Header

Facts = dict[str, Any]


@dataclass(frozen=True)
class Known:
    """kind: its `model_type`; own: what only this architecture has. permuted: whether the rows of queries and keys are
    in another order; offset: what is added to weights of norms in the file.
    """

    kind: str
    own: Callable[[Header], Facts]
    permuted: bool = False
    offset: float = 0.0


def config_facts(header: Header) -> Facts:
    """What a config.json of the same model would say.

    Raises:
        UnsupportedModel: an architecture that is not read from GGUF files.
        ModelNotFound: a header that lacks a size.
    """
    known = known_of(header)
    need = _needed(header)
    hidden, heads = need("embedding_length"), need("attention.head_count")
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelNotFound(f"{header.path} has no token embeddings (token_embd.weight): fetch it anew.")
    facts: Facts = {
        "model_type": known.kind,
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden,
        "num_hidden_layers": need("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": header.get("attention.head_count_kv", heads),
        "max_position_embeddings": need("context_length"),
        "intermediate_size": need("feed_forward_length"),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "rope_parameters": _rope(header),
        "bos_token_id": header.facts.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": header.facts.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": header.facts.get("tokenizer.ggml.padding_token_id"),
    }
    return facts | known.own(header)


def known_of(header: Header) -> Known:
    """What is known of a file's architecture.

    Raises:
        UnsupportedModel: it is not read from GGUF files.
    """
    if header.architecture not in KNOWN:
        raise UnsupportedModel(
            f"The architecture '{header.architecture}' is not read from GGUF files: choose one of "
            f"{', '.join(sorted(KNOWN))}, or a folder or hub id with safetensors."
        )
    return KNOWN[header.architecture]


def _needed(header: Header) -> Callable[[str], int]:
    """Reads sizes that a header must have."""

    def need(key: str) -> int:
        value = header.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelNotFound(
                f"{header.path} says {header.architecture}.{key}: {value}, and it must be a number above 0: "
                f"fetch it anew."
            )
        return value

    return need


def short(number: float) -> float:
    """A float32 as it was most likely written down: 1e-05, and not 9.999999747378752e-06."""
    return float(str(np.float32(number)))


def _rope(header: Header) -> Facts:
    scaling = header.get("rope.scaling.type", "none")
    rope: Facts = {"rope_type": "default", "rope_theta": short(header.get("rope.freq_base", 10000.0))}
    if scaling == "linear" and header.get("rope.scaling.factor", 0.0):
        rope |= {"rope_type": "linear", "factor": short(header.get("rope.scaling.factor"))}
    elif scaling not in ("none", "linear"):
        raise UnsupportedModel(
            f"{header.path} scales RoPE by '{scaling}', which is not read from GGUF files of '{header.architecture}': "
            f"choose a folder or hub id with safetensors."
        )
    return rope


def _rms(header: Header) -> Facts:
    return {"rms_norm_eps": short(header.get("attention.layer_norm_rms_epsilon", 1e-6))}


def _head(header: Header) -> Facts:
    size = header.get("attention.key_length") or header.get("rope.dimension_count")
    return {"head_dim": size} if size else {}


def _llama(header: Header) -> Facts:
    return _rms(header) | _head(header) | {"attention_bias": "blk.0.attn_q.bias" in header.tensors}


KNOWN: dict[str, Known] = {
    "llama": Known("llama", _llama, permuted=True),
    "qwen2": Known("qwen2", lambda header: {**_rms(header), "use_sliding_window": False}),
}
