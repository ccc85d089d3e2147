"""Weights that lie otherwise in a GGUF file than in the network: their names there, and what was done to them.

Sources: https://github.com/ggml-org/llama.cpp/blob/master/convert_hf_to_gguf.py, and for the models of Ollama
https://github.com/ollama/ollama/blob/main/convert/convert_qwen3next.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engine.models.gguf.header import Header

Views = tuple[Tensor, ...]


@dataclass(frozen=True)
class Rule:
    """The tensors of a file that hold a weight, and what was done to it."""

    sources: tuple[str, ...]  # tensors of the file, without their layer; see `Place`
    views: Callable[[Tensor, Any], Views] = lambda weight, config: (weight,)  # the part that each source fills
    undo: Callable[[Tensor], Tensor] | None = None  # see `Place`


def _plain(names: dict[str, str]) -> dict[str, Rule]:
    """Return rules for weights that only have another name."""
    return {own: Rule((stored,)) for own, stored in names.items()}


def _within(path: str, rules: dict[str, Rule]) -> dict[str, Rule]:
    """Return rules for the weights of a module at a path."""
    return {f"{path}.{own}": rule for own, rule in rules.items()}


def _logarithm(numbers: Tensor) -> Tensor:
    """Take back that a file has -exp(A_log)."""
    return (-numbers).log()


def _halves(weight: Tensor, config: Any) -> Views:
    return weight.chunk(2)


def _groups(weight: Tensor, config: Any) -> Views:
    groups = getattr(config, "mamba_n_groups", None) or config.n_groups
    return (weight.view(groups, -1),)


# Mamba 2. The bias of the steps has no `.bias` in the network.
MAMBA = {
    "A_log": Rule(("ssm_a",), undo=_logarithm),
    "norm.weight": Rule(("ssm_norm.weight",), _groups),
} | _plain(
    {
        "D": "ssm_d",
        "dt_bias": "ssm_dt.bias",
        "conv1d.weight": "ssm_conv1d.weight",
        "conv1d.bias": "ssm_conv1d.bias",
        "in_proj.weight": "ssm_in.weight",
        "in_proj.bias": "ssm_in.bias",
        "out_proj.weight": "ssm_out.weight",
        "out_proj.bias": "ssm_out.bias",
    }
)


def _by_turns(weight: Tensor, config: Any) -> Tensor:
    """Return rows of value heads [keys * ratio * size, ...] as in the file: [ratio, keys, size, ...].

    transformers puts all value heads of a key head together, the file the first of each key head, then the second.
    """
    keys = config.linear_num_key_heads
    ratio = config.linear_num_value_heads // keys
    return weight.view(keys, ratio, -1, *weight.shape[1:]).transpose(0, 1)


def _value_heads(weight: Tensor, config: Any) -> Views:
    return (_by_turns(weight, config),)


def _values_last(weight: Tensor, config: Any) -> Views:
    """Return rows of queries and keys as they are, and those of values by turns."""
    before = 2 * config.linear_num_key_heads * config.linear_key_head_dim
    return weight[:before], _by_turns(weight[before:], config)


def _value_columns(weight: Tensor, config: Any) -> Views:
    keys = config.linear_num_key_heads
    columns = weight.view(len(weight), keys, config.linear_num_value_heads // keys, -1)
    return (columns.transpose(1, 2),)


# Gated delta networks.
DELTA = {
    "in_proj_qkv.weight": Rule(("attn_qkv.weight",) * 2, _values_last),
    "conv1d.weight": Rule(("ssm_conv1d.weight",) * 2, _values_last),
    "in_proj_z.weight": Rule(("attn_gate.weight",), _value_heads),
    "in_proj_a.weight": Rule(("ssm_alpha.weight",), _value_heads),
    "in_proj_b.weight": Rule(("ssm_beta.weight",), _value_heads),
    "A_log": Rule(("ssm_a",), _value_heads, _logarithm),
    "dt_bias": Rule(("ssm_dt.bias",), _value_heads),
    "norm.weight": Rule(("ssm_norm.weight",)),
    "out_proj.weight": Rule(("ssm_out.weight",), _value_columns),
}


def _latent_halves(weight: Tensor, config: Any) -> Views:
    """Return the expansions of latents, by heads, to keys [H, latent, nope] and to values [H, values, latent]."""
    heads = weight.view(config.num_attention_heads, -1, weight.shape[-1])
    keys = config.qk_nope_head_dim
    return heads[:, :keys].transpose(1, 2), heads[:, keys:]


ROUTER_BIAS = "exp_probs_b.bias"
DEEPSEEK = {
    "self_attn.kv_b_proj.weight": Rule(("attn_k_b.weight", "attn_v_b.weight"), _latent_halves),
    "mlp.gate.e_score_correction_bias": Rule((ROUTER_BIAS,)),
}
WHOLE_LATENTS = {"self_attn.kv_b_proj.weight": Rule(("attn_kv_b.weight",))}  # older files

GRANITE = {"block_sparse_moe.router.weight": Rule(("ffn_gate_inp.weight",))}
GRANITE_HYBRID = (
    GRANITE
    | _within("mamba", MAMBA)
    | {
        "shared_mlp.input_linear.weight": Rule(("ffn_gate.weight", "ffn_up.weight"), _halves),
        "shared_mlp.output_linear.weight": Rule(("ffn_down.weight",)),
    }
)
BESIDE_EXPERTS = {
    "shared_mlp.input_linear.weight": Rule(("ffn_gate_shexp.weight", "ffn_up_shexp.weight"), _halves),
    "shared_mlp.output_linear.weight": Rule(("ffn_down_shexp.weight",)),
}

NEMOTRON = _within("mixer", MAMBA) | _plain(
    {
        "norm.weight": "attn_norm.weight",
        "mixer.gate.weight": "ffn_gate_inp.weight",
        "mixer.gate.e_score_correction_bias": ROUTER_BIAS,
        "mixer.experts.up_proj": "ffn_up_exps.weight",
        "mixer.experts.down_proj": "ffn_down_exps.weight",
        "mixer.shared_experts.up_proj.weight": "ffn_up_shexp.weight",
        "mixer.shared_experts.down_proj.weight": "ffn_down_shexp.weight",
        "mixer.fc1_latent_proj.weight": "ffn_latent_down.weight",
        "mixer.fc2_latent_proj.weight": "ffn_latent_up.weight",
        **{
            f"mixer.{own}.{end}": f"{stored}.{end}"
            for own, stored in {
                "q_proj": "attn_q",
                "k_proj": "attn_k",
                "v_proj": "attn_v",
                "o_proj": "attn_output",
                "up_proj": "ffn_up",
                "down_proj": "ffn_down",
            }.items()
            for end in ("weight", "bias")
        },
        "model.embeddings.weight": "token_embd.weight",
        "model.norm_f.weight": "output_norm.weight",
    }
)

GEMMA4 = _plain(
    {
        "layer_scalar": "layer_output_scale.weight",
        "router.proj.weight": "ffn_gate_inp.weight",
        "router.scale": "ffn_gate_inp.scale",
        "router.per_expert_scale": "ffn_down_exps.scale",
    }
)

LFM2 = {
    "feed_forward.expert_bias": Rule((ROUTER_BIAS,)),
    "conv.conv.weight": Rule(("shortconv.conv.weight",)),
    "conv.conv.bias": Rule(("shortconv.conv.bias",)),
    "model.embedding_norm.weight": Rule(("token_embd_norm.weight",)),  # the last norm, by another name
}

# By `model_type`. Names of weights in layers lack their beginning, `model.layers.3.`.
LAYOUTS: dict[str, dict[str, Rule]] = {
    "deepseek_v3": DEEPSEEK,
    "falcon_h1": _within("mamba", MAMBA) | {"pre_ff_layernorm.weight": Rule(("ffn_norm.weight",))},
    "gemma4_text": GEMMA4,
    "glm4_moe": _plain(
        {
            "post_attention_layernorm.weight": "post_attention_norm.weight",
            "mlp.gate.e_score_correction_bias": ROUTER_BIAS,
        }
    ),
    "gpt_oss": _plain({"self_attn.sinks": "attn_sinks.weight"}),
    "granitemoe": GRANITE,
    "granitemoehybrid": GRANITE_HYBRID,
    "lfm2": LFM2,
    "lfm2_moe": LFM2,
    "nemotron_h": NEMOTRON,
    "qwen3_5_moe_text": _within("linear_attn", DELTA),
    "qwen3_5_text": _within("linear_attn", DELTA),
}


def rules_of(config: Any, header: Header) -> dict[str, Rule]:
    """Return the rules for a network's weights, by their names in layers or outside of them."""
    rules = LAYOUTS.get(config.model_type, {})
    if "blk.0.attn_kv_b.weight" in header.tensors:
        rules = rules | WHOLE_LATENTS
    if config.model_type == "granitemoehybrid" and config.num_local_experts:
        rules = rules | BESIDE_EXPERTS
    if header.get("ssm.v_head_reordered") is False:  # Ollama's own key
        rules = {own: Rule(rule.sources[:1], undo=rule.undo) for own, rule in rules.items()}
    return rules
