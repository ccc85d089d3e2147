"""Models of real shapes with random weights, without a download and without a second copy in memory.

The network is built on PyTorch's meta device, without storage, and filled one layer at a time on its final device,
packed to NF4 as it is made. A model of eight billion weights needs its packed size and one more layer, and no host
memory.
"""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from engine import Model
from engine.models.quantizers import quieten_bitsandbytes, unpack_as_computed

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPREAD = 0.02  # standard deviation of all weights except norms, which are ones
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]

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
}
SEAM_ONLY: dict[str, dict[str, Any]] = {  # compared only, not used for reading
    "Qwen3.5-9B": {
        "model_type": "qwen3_5_text",
        "vocab_size": 248320,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 32,
        "layer_types": ["linear_attention", "full_attention"],  # of four layers, the last two
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "max_position_embeddings": 262144,
    },
    "gpt-oss-20b": {  # with four of its 32 experts
        "model_type": "gpt_oss",
        "vocab_size": 201088,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 24,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "sliding_window": 128,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 131072,
    },
}
TINY = {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}


def config_of(name: str, tiny: bool = False, layers: int | None = None) -> PretrainedConfig:
    """Return the configuration of one of SHAPES or SEAM_ONLY.

    Args:
        name: a key of SHAPES or SEAM_ONLY.
        tiny: a model of the same kind with few weights.
        layers: number of layers; None for the shape's own.
    """
    facts = dict((SHAPES | SEAM_ONLY)[name])
    if tiny:
        heads = 4 * facts["num_key_value_heads"] // facts["num_attention_heads"] or 1
        facts |= {**TINY, "num_attention_heads": 4, "num_key_value_heads": heads}
    if layers is not None:
        facts["num_hidden_layers"] = layers
    kind = facts.pop("model_type")
    config = AutoConfig.for_model(kind, **facts, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)
    assert isinstance(config, PretrainedConfig)
    return config


def random_network(config: PretrainedConfig, place: torch.device, dtype: torch.dtype, nf4: bool) -> PreTrainedModel:
    """Return a network with random weights from a fixed seed, made on its final device.

    nf4: pack its linear layers except the head.
    """
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]
    assert isinstance(network, PreTrainedModel)
    generator = torch.Generator(place).manual_seed(0)
    head = network.get_output_embeddings()  # type: ignore[no-untyped-call]
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                packed = nf4 and child is not head
                setattr(parent, name, _linear(child, place, dtype, packed, generator))
        if not isinstance(parent, nn.Linear):
            _fill(parent, place, generator)
    base: Any = network.base_model
    with place:
        base.rotary_emb = type(base.rotary_emb)(config=config)  # its frequencies are not weights
    network.train(False)
    network.requires_grad_(False)
    unpack_as_computed(network)
    return network


def _random(shape: torch.Size, place: torch.device, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, device=place, generator=generator).mul_(SPREAD)


def _linear(
    layer: nn.Linear, place: torch.device, dtype: torch.dtype, packed: bool, generator: torch.Generator
) -> nn.Module:
    weight = _random(layer.weight.shape, place, dtype, generator)
    bias = None if layer.bias is None else nn.Parameter(torch.zeros(layer.bias.shape, dtype=dtype, device=place))
    if not packed:
        layer.weight, layer.bias = nn.Parameter(weight), bias
        return layer
    quieten_bitsandbytes()
    nn4: Any = importlib.import_module("bitsandbytes.nn")  # untyped; needed only here
    with torch.device("meta"):
        made = nn4.Linear4bit(
            layer.in_features, layer.out_features, bias is not None, compute_dtype=dtype, quant_type="nf4"
        )
    made.weight = nn4.Params4bit(weight, requires_grad=False, compress_statistics=True, quant_type="nf4").to(place)
    made.bias = bias
    assert isinstance(made, nn.Module)
    return made


def _fill(module: nn.Module, place: torch.device, generator: torch.Generator) -> None:
    """Fill a module's own weights with noise; vectors (one number per channel or head) with ones."""
    for name, parameter in list(module.named_parameters(recurse=False)):
        noise = parameter.dim() > 1
        value = (
            _random(parameter.shape, place, parameter.dtype, generator)
            if noise
            else torch.ones(parameter.shape, dtype=parameter.dtype, device=place)
        )
        setattr(module, name, nn.Parameter(value))


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per byte and a chat template, for models that have learned nothing."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=260, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([""], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=SPECIAL[0], chat_template=TEMPLATE)  # type: ignore[no-untyped-call]


def random_model(
    name: str, config: PretrainedConfig, place: torch.device, dtype: torch.dtype, nf4: bool, folder: Path
) -> Model:
    """Return a random model for the engine, whose answers never end by themselves.

    folder: place of trained weights beside the model.
    """
    network = random_network(config, place, dtype, nf4)
    digest = hashlib.sha256(f"{name} {config.to_json_string()}".encode()).hexdigest()
    model = Model(network, byte_tokenizer(), name, digest, folder)
    model.stop_ids = frozenset()
    return model
