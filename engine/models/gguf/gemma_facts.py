"""The configuration of Gemma models in GGUF files, as far as it is their own."""

from __future__ import annotations

from collections.abc import Callable

from engine.models.gguf.header import Header
from engine.models.gguf.rope_parameters import FACTORS, numbers_of, rope_of
from engine.models.gguf.values import Facts, by_layer, count, layers, number, size

SLIDING, FULL = "sliding_attention", "full_attention"


def _scale(header: Header, layers_of_27b: int) -> Facts:
    """Return the scale of Gemma's queries, from the size of a head; for 27B it is hidden size over heads."""
    heads, hidden = size(header, "attention.head_count"), size(header, "embedding_length")
    own = hidden // heads if header.get("block_count") == layers_of_27b else size(header, "attention.key_length")
    return {"query_pre_attn_scalar": own, "sliding_window": size(header, "attention.sliding_window")}


def _gemma2(header: Header) -> Facts:
    return _scale(header, 46) | {
        "attn_logit_softcapping": number(header, "attn_logit_softcapping"),
        "final_logit_softcapping": number(header, "final_logit_softcapping"),
    }


def _gemma3(header: Header) -> Facts:
    full = rope_of(header, size(header, "attention.key_length"))
    local = {"rope_type": "default", "rope_theta": number(header, "rope.freq_base_swa", 10000.0)}
    kinds = ["sliding_attention" if (layer + 1) % 6 else "full_attention" for layer in range(layers(header))]
    ropes = {"sliding_attention": local, "full_attention": full}
    return _scale(header, 62) | {"layer_types": kinds, "rope_parameters": ropes}


def _gemma4(header: Header) -> Facts:
    """Return sizes that differ between layers with a sliding window and the others."""
    kinds = [SLIDING if window else FULL for window in by_layer(header, "attention.sliding_window_pattern")]
    heads, widths = by_layer(header, "attention.head_count_kv"), by_layer(header, "feed_forward_length")
    of_kind = dict(zip(kinds, heads, strict=True))  # all layers of a kind have the same
    shared = count(header, "attention.shared_kv_layers")
    apart = f"blk.{kinds.index(FULL)}.attn_v.weight" in header.tensors if FULL in kinds else True
    turned = numbers_of(header, FACTORS) if FACTORS in header.tensors else []
    full = {"rope_type": "proportional", "rope_theta": number(header, "rope.freq_base", 1e6)}
    full["partial_rotary_factor"] = turned.count(1.0) / len(turned) if turned else 1.0
    local = {"rope_type": "default", "rope_theta": number(header, "rope.freq_base_swa", 1e4)}
    own: Facts = {
        "layer_types": kinds,
        "num_key_value_heads": of_kind.get(SLIDING, heads[0]),
        "num_global_key_value_heads": None if apart else of_kind[FULL],
        "attention_k_eq_v": not apart,
        "head_dim": size(header, "attention.key_length_swa"),
        "global_head_dim": size(header, "attention.key_length"),
        "intermediate_size": widths[0],
        "use_double_wide_mlp": bool(shared) and widths[-1] == 2 * widths[0],
        "num_kv_shared_layers": shared,
        "sliding_window": size(header, "attention.sliding_window"),
        "rope_parameters": {SLIDING: local, FULL: full},
        "final_logit_softcapping": header.get("final_logit_softcapping") and number(header, "final_logit_softcapping"),
        "hidden_size_per_layer_input": count(header, "embedding_length_per_layer_input"),
        "enable_moe_block": bool(count(header, "expert_count")),
    }
    if own["hidden_size_per_layer_input"]:
        own["vocab_size_per_layer_input"] = header.tensors["token_embd.weight"].shape[0]
    if own["enable_moe_block"]:
        own["num_experts"] = size(header, "expert_count")
        own["top_k_experts"] = size(header, "expert_used_count")
        own["moe_intermediate_size"] = size(header, "expert_feed_forward_length")
    return own


OWN: dict[str, Callable[[Header], Facts]] = {
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gemma4_text": _gemma4,
}
