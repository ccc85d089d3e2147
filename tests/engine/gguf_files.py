"""Write GGUF files of tiny random networks, as llama.cpp's own conversion would."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, get_tensor_name_map, quants
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from tests.engine.conftest import TEMPLATE

SMALL = {
    "vocab_size": 300,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "pad_token_id": None,
    "bos_token_id": 0,
    "eos_token_id": 3,
    "initializer_range": 0.1,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
SCALED = {"logits_scaling": 2.0, "embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.5}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 32,
    "short_factor": [1.0 + 0.5 * i for i in range(16)],
    "long_factor": [1.0 + 0.5 * i for i in range(16)],
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}
GEMMA3 = {"sliding_attention": DEFAULT, "full_attention": DEFAULT | {"rope_theta": 1000000.0}}
LINEAR = {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0}
TURNS = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"] * 3}

# By name: llama.cpp's architecture, `model_type`, and further settings of its configuration.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("llama", "llama", {}),
    "llama-tied": ("llama", "llama", {"tie_word_embeddings": True}),
    "llama3": ("llama", "llama", {"rope_parameters": LLAMA3, "max_position_embeddings": 131072}),
    "llama-linear": ("llama", "llama", {"rope_parameters": {**LINEAR, "factor": 4.0}}),
    "mixtral": ("llama", "mixtral", LOCAL),
    "qwen2": ("qwen2", "qwen2", {}),
    "qwen2-yarn": ("qwen2", "qwen2", {"rope_parameters": YARN}),
    "qwen2moe": (
        "qwen2moe",
        "qwen2_moe",
        {**EXPERTS, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 96},
    ),
    "qwen3": ("qwen3", "qwen3", {}),
    "qwen3moe": ("qwen3moe", "qwen3_moe", {**EXPERTS, "moe_intermediate_size": 64, "norm_topk_prob": True}),
    "gemma": ("gemma", "gemma", {"tie_word_embeddings": True}),
    "gemma2": (
        "gemma2",
        "gemma2",
        {"sliding_window": 16, "query_pre_attn_scalar": 32, "tie_word_embeddings": True},
    ),
    "gemma3": (
        "gemma3",
        "gemma3_text",
        {
            "sliding_window": 16,
            "query_pre_attn_scalar": 32,
            "rope_parameters": GEMMA3,
            "tie_word_embeddings": True,
            "num_hidden_layers": 7,
        },
    ),
    "gemma3-linear": (
        "gemma3",
        "gemma3_text",
        {
            "sliding_window": 16,
            "query_pre_attn_scalar": 32,
            "rope_parameters": GEMMA3 | {"full_attention": LINEAR},
            "tie_word_embeddings": True,
        },
    ),
    "phi2": ("phi2", "phi", {"num_key_value_heads": 4, "partial_rotary_factor": 0.5}),
    "phi3": ("phi3", "phi3", {}),
    "phi3-window": ("phi3", "phi3", {"sliding_window": 16}),
    "phi3-longrope": ("phi3", "phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 32}),
    "granite": ("granite", "granite", SCALED),
    "granitemoe": ("granitemoe", "granitemoe", {**SCALED, **LOCAL}),
    "gpt-oss": ("gpt-oss", "gpt_oss", {**LOCAL, **TURNS, "rope_parameters": DEFAULT}),
    "gpt-oss-yarn": ("gpt-oss", "gpt_oss", {**LOCAL, **TURNS, "rope_parameters": {**YARN, "truncate": False}}),
    "starcoder2": ("starcoder2", "starcoder2", {"sliding_window": 4096, "use_bias": True}),
    "olmo": ("olmo", "olmo", {"clip_qkv": 0.3}),
    "olmo2": ("olmo2", "olmo2", {}),
    "olmoe": ("olmoe", "olmoe", {**EXPERTS, "num_key_value_heads": 4}),
    "smollm3": ("smollm3", "smollm3", {}),
    "command-r": ("command-r", "cohere", {"logit_scale": 0.25, "tie_word_embeddings": True}),
    "cohere2": (
        "cohere2",
        "cohere2",
        {"logit_scale": 0.25, "sliding_window": 16, "num_hidden_layers": 8, "tie_word_embeddings": True},
    ),
    "seed_oss": ("seed_oss", "seed_oss", {"attention_bias": True, "attention_out_bias": False}),
    "ernie4_5": ("ernie4_5", "ernie4_5", {}),
    "arcee": ("arcee", "arcee", {}),
}
PERMUTED = frozenset({"llama", "granite", "granitemoe", "olmo", "smollm3", "arcee"})
FACTS = {  # llama.cpp's name to transformers' name
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attention.clamp_kqv": "clip_qkv",
    "attention.scale": "attention_multiplier",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "expert_used_count": "num_experts_per_tok",
}
OTHERS = {  # further names of transformers
    "expert_count": ("num_experts", "num_local_experts"),
    "logit_scale": ("logits_scaling", "logit_scale"),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"),
}
NO_WINDOW = frozenset({"llama", "qwen2", "qwen3", "qwen2moe", "qwen3moe", "starcoder2", "olmo2", "smollm3"})


def merging_tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer of four special tokens, all bytes, and some 40 merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|bos|>", "<|user|>", "<|assistant|>", "<|end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=SMALL["vocab_size"], special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(["the men and the other men of 1984 it seems so indeed"] * 4, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|bos|>", eos_token="<|end|>", chat_template=TEMPLATE
    )


def tiny_network(name: str, seed: int = 0) -> PreTrainedModel:
    """Make a network of `MODELS` with random norms and biases."""
    _, kind, own = MODELS[name]
    config = AutoConfig.for_model(kind, **{**SMALL, "tie_word_embeddings": False, **own})
    torch.manual_seed(seed)
    network = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for each in network.parameters():
        if each.dim() == 1 or not each.any():
            torch.nn.init.normal_(each, mean=float(each.detach().mean()), std=0.1)
    return network


def write_gguf(
    path: Path,
    network: PreTrainedModel,
    architecture: str,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    parts: int = 0,
    **extra: Any,
) -> Path:
    """Write a network and `merging_tokenizer` to one or several files.

    kind: type of weights with two dimensions or more, if llama.cpp allows it; parts: tensors in each file, 0 for all in
    one; extra: further facts, None leaves one out.
    """
    writer = GGUFWriter(path, architecture, split_max_tensors=parts)
    facts = facts_of(network.config, architecture) | tokenizer_facts()
    for key, value in (facts | extra).items():
        if value is not None:
            add(writer, key, value)
    for name, numbers in tensors_of(network, architecture).items():
        own = kind if numbers.ndim > 1 and "norm" not in name and "_inp" not in name else GGMLQuantizationType.F32
        writer.add_tensor(name, quants.quantize(numbers, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add(writer: GGUFWriter, key: str, value: Any) -> None:
    """Add one fact, in the type that llama.cpp expects."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def facts_of(config: PretrainedConfig, architecture: str) -> dict[str, Any]:
    """Return the facts that llama.cpp's conversion writes about a configuration."""
    said = {name: getattr(config, own) for name, own in FACTS.items() if getattr(config, own, None) is not None}
    for name, names in OTHERS.items():
        found = [getattr(config, own) for own in names if getattr(config, own, None) is not None]
        if found:
            said[name] = found[0]
    if architecture in NO_WINDOW:
        said.pop("attention.sliding_window", None)
    if architecture == "phi2":
        said.pop("attention.layer_norm_rms_epsilon", None)
    if architecture == "gpt-oss":
        said["expert_feed_forward_length"] = said["feed_forward_length"]
    if architecture == "olmo":
        said["attention.layer_norm_epsilon"] = 1e-5
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    said |= {"attention.key_length": head, "attention.value_length": head, "vocab_size": config.vocab_size}
    rope: Any = config.rope_parameters
    rope = rope.get("full_attention", rope)
    said["rope.freq_base"] = float(rope["rope_theta"])
    said["rope.dimension_count"] = int(head * rope.get("partial_rotary_factor", 1.0))
    if rope["rope_type"] in ("linear", "yarn"):
        said |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": rope["factor"]}
    if rope["rope_type"] in ("yarn", "longrope"):
        said["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    if rope["rope_type"] == "longrope":
        scale = config.max_position_embeddings / rope["original_max_position_embeddings"]
        said["rope.scaling.attn_factor"] = float(np.sqrt(1 + np.log(scale) / np.log(scale and 32)))
    return {f"{architecture}.{name}": value for name, value in said.items()}


def tokenizer_facts() -> dict[str, Any]:
    """Return the facts that llama.cpp's conversion writes about `merging_tokenizer`."""
    own = merging_tokenizer()
    merges = json.loads(own.backend_tokenizer.to_str())["model"]["merges"]
    tokens = sorted(own.get_vocab(), key=own.get_vocab().get)  # type: ignore[arg-type]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token.startswith("<|") else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in merges],
        "tokenizer.ggml.bos_token_id": own.bos_token_id,
        "tokenizer.ggml.eos_token_id": own.eos_token_id,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": own.chat_template,
    }


def tensors_of(network: PreTrainedModel, architecture: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return a network's weights with llama.cpp's names, order and offsets, float32."""
    config: Any = network.config
    arch = next(number for number, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    found: dict[str, Tensor] = {}
    for name, weight in network.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        layer = re.match(r"model\.layers\.(\d+)\.(.+)", name)
        block = f"blk.{layer[1]}." if layer else ""
        if layer and ".experts." in name:
            found |= experts(block, name, weight, architecture == "gpt-oss")
        elif name.endswith("router.weight") and architecture == "granitemoe":
            found[f"{block}ffn_gate_inp.weight"] = weight
        elif name.endswith("sinks"):
            found[f"{block}attn_sinks.weight"] = weight
        else:
            path, _, end = name.rpartition(".")
            if architecture in PERMUTED and (which := re.search(r"(q|k)_proj$", path)):
                count = config.num_attention_heads if which[1] == "q" else config.num_key_value_heads
                turned = weight.reshape(count, 2, -1, *weight.shape[1:]).transpose(1, 2)
                weight = turned.reshape(weight.shape)
            if architecture.startswith("gemma") and path.endswith("norm"):
                weight = weight + 1
            found[f"{names.get_name(path) or 'output'}.{end}"] = (
                weight.squeeze() if "gate_inp_shexp" in name else weight
            )
    rope: Any = config.rope_parameters
    if rope.get("rope_type") == "longrope":
        for which in ("long", "short"):
            found[f"rope_factors_{which}.weight"] = torch.tensor(rope[f"{which}_factor"])
    if rope.get("rope_type") == "llama3":
        plain = rope["rope_theta"] ** (-torch.arange(0, config.head_dim, 2) / config.head_dim)
        found["rope_freqs.weight"] = plain / network.model.rotary_emb.inv_freq  # type: ignore[operator, union-attr]
    return {name: weight.detach().float().contiguous().numpy() for name, weight in found.items()}


def experts(block: str, name: str, weight: Tensor, interleaved: bool) -> dict[str, Tensor]:
    """Return the stacks of a layer's experts, with gates as a stack of their own."""
    end = "bias" if name.endswith("_bias") else "weight"
    if interleaved and end == "weight":
        weight = weight.transpose(1, 2)
    if "down_proj" in name:
        return {f"{block}ffn_down_exps.{end}": weight}
    gates, ups = (weight[:, ::2], weight[:, 1::2]) if interleaved else weight.chunk(2, dim=1)
    return {f"{block}ffn_gate_exps.{end}": gates, f"{block}ffn_up_exps.{end}": ups}
