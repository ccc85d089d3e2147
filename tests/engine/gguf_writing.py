"""Write tiny random networks to GGUF files whose weights are rearranged, as llama.cpp's converter does.

What is said here of a file is said apart from the engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from tests.engine.gguf_files import add, tokenizer_facts

BASE = {
    "vocab_size": 288,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "initializer_range": 0.1,
    "bos_token_id": 0,
    "eos_token_id": 3,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 64}
ROUTED = {"num_experts_per_tok": 2, "moe_intermediate_size": 64}
Written = dict[str, Tensor]
Rewrite = Callable[[str, int, str, Tensor], Written | Tensor | None]


@dataclass
class Layout:
    """A tiny network, and what its file says and holds."""

    architecture: str  # in llama.cpp
    network: PreTrainedModel
    facts: dict[str, Any]  # beside those that all have; None takes one of those away
    # Takes the beginning of a block's names, its number, a weight's name in it and the weight. Returns tensors by name,
    # a tensor for the name in the map of the package gguf, or None for the weight as it is.
    rewrite: Rewrite = lambda block, number, rest, weight: None
    kind: str = ""  # as which it is read, if not as it was made
    more: Written = field(default_factory=dict)  # tensors that belong to no weight
    folded: bool = False  # weights are multiplied with settings that the file does not say


def network_of(kind: str, **own: Any) -> PreTrainedModel:
    """Make a network whose every weight is random: a norm of 1 or a bias of 0 would hide what is missing."""
    config = AutoConfig.for_model(kind, **{**BASE, **own})
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() == 1 or not weight.any():
                torch.nn.init.normal_(weight, mean=float(weight.mean()), std=0.1)
        for name, buffer in network.named_buffers():
            if "bias" in name and buffer.dtype.is_floating_point:
                buffer.normal_(0, 0.1)
            if name.endswith("layer_scalar"):
                buffer.normal_(1, 0.1)
    return network


def write_layout(path: Path, layout: Layout) -> Path:
    """Write a file."""
    writer = GGUFWriter(path, layout.architecture)
    facts = {f"{layout.architecture}.{key}": value for key, value in (shared_facts(layout) | layout.facts).items()}
    for key, value in (facts | tokenizer_facts()).items():
        if value is not None:
            add(writer, key, value)
    for name, tensor in (tensors_of(layout) | layout.more).items():
        writer.add_tensor(name, tensor.detach().float().contiguous().numpy(), raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def shared_facts(layout: Layout) -> dict[str, Any]:
    """Return the facts that all architectures have."""
    said: dict[str, Any] = layout.network.config.to_dict()
    epsilon = next(said[key] for key in ("rms_norm_eps", "norm_eps", "layer_norm_epsilon") if key in said)
    rope = said.get("rope_parameters") or {}
    size = said.get("head_dim") or 32
    return {
        "context_length": said["max_position_embeddings"],
        "embedding_length": said["hidden_size"],
        "block_count": said.get("num_hidden_layers"),
        "feed_forward_length": said.get("intermediate_size", 256),
        "attention.head_count": said["num_attention_heads"],
        "attention.head_count_kv": said["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": float(epsilon),
        "attention.key_length": size,
        "attention.value_length": size,
        "rope.dimension_count": size,
        "rope.freq_base": float(rope.get("rope_theta", 1e4)),
        "vocab_size": said["vocab_size"],
    }


def tensors_of(layout: Layout) -> Written:
    """Return the weights as the file holds them, by name."""
    config: Any = layout.network.config
    arch = next(number for number, name in MODEL_ARCH_NAMES.items() if name == layout.architecture)
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    found: Written = {}
    for name, weight in layout.network.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        layer = re.match(r"model\.layers\.(\d+)\.(.*)", name)
        block, number, rest = (f"blk.{layer[1]}.", int(layer[1]), layer[2]) if layer else ("", -1, name)
        special = layout.rewrite(block, number, rest, weight)
        if isinstance(special, dict):
            found |= special
        elif name == "lm_head.weight":
            found["output.weight"] = weight
        elif rest.endswith("experts.gate_up_proj"):
            gate, up = weight.chunk(2, 1)
            found |= {f"{block}ffn_gate_exps.weight": gate, f"{block}ffn_up_exps.weight": up}
        elif rest.endswith("experts.down_proj"):
            found[f"{block}ffn_down_exps.weight"] = weight
        else:
            path, _, end = name.rpartition(".")
            stored = names.get_name(path)
            assert stored, f"no name for {name}"
            weight = weight.squeeze(0) if rest.endswith("shared_expert_gate.weight") else weight
            found[f"{stored}.{end}"] = weight if special is None else special
    return found


def paired(block: str, number: int, rest: str, weight: Tensor) -> Written | None:
    """Return rows of queries and keys so that the pairs which RoPE rotates are neighbours; None for other weights."""
    match = re.fullmatch(r"self_attn\.([qk])_proj\.weight", rest)
    if match is None:
        return None
    turned = weight.reshape(-1, 2, 16, weight.shape[1]).transpose(1, 2)  # heads of 32
    return {f"{block}attn_{match[1]}.weight": turned.reshape(weight.shape)}
