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
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from engine import Model
from engine.models.architectures import architecture_of
from engine.models.expert_packing import PACKINGS, InRows
from engine.models.experts import PackedExperts, pack_experts
from engine.models.quantizers import quieten_bitsandbytes, unpack_as_computed

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPREAD = 0.02  # standard deviation of all weights except norms, which are ones
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]


def random_network(config: PretrainedConfig, place: torch.device, dtype: torch.dtype, nf4: bool) -> PreTrainedModel:
    """Return a network with random weights from a fixed seed, made on its final device.

    nf4: pack its linear layers and experts, except the head and what no quantisation reaches.
    """
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]
    assert isinstance(network, PreTrainedModel)
    if nf4:
        pack_experts(network, PACKINGS["nf4"])
    generator, architecture = torch.Generator(place).manual_seed(0), architecture_of(config)
    head = network.get_output_embeddings()  # type: ignore[no-untyped-call]
    for path, parent in list(network.named_modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                packed = nf4 and child is not head and not f"{path}.{name}".endswith(architecture.unquantised or ("?",))
                setattr(parent, name, _linear(child, place, dtype, packed, generator))
        if isinstance(parent, PackedExperts):
            _fill_experts(parent, place, dtype, generator)
        if not isinstance(parent, nn.Linear):
            _fill(parent, place, generator)
    base: Any = network.base_model
    with place:  # its frequencies are not weights
        setattr(base, architecture.rotary, type(getattr(base, architecture.rotary))(config=config))
    if config.tie_word_embeddings:
        network.tie_weights()
    network.train(False)
    network.requires_grad_(False)
    unpack_as_computed(network)
    return network


def _fill_experts(experts: PackedExperts, place: torch.device, dtype: torch.dtype, generator: torch.Generator) -> None:
    """Fill the stacks of a layer's experts with packed noise, expert by expert."""
    for name, packing in experts.packings.items():
        assert isinstance(packing, InRows)
        count, rows, columns = experts.shape(name)
        noise = (_random(torch.Size((rows, columns)), place, dtype, generator) for _ in range(count))
        setattr(experts, name, torch.stack([packing.pack(each) for each in noise]))


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
    """Fill a module's own weights with noise; vectors (one number per channel or head) and buffers with ones."""
    for name, buffer in list(module.named_buffers(recurse=False)):
        if buffer.is_meta:
            module.register_buffer(name, torch.ones(buffer.shape, dtype=buffer.dtype, device=place))
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
