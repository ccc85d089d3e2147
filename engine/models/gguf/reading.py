"""A GGUF file as the engine reads a checkpoint: configuration, weights, tokenizer and how to generate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

from engine.errors import ModelNotFound, UnsupportedModel
from engine.models.gguf.architectures import config_facts, known_of
from engine.models.gguf.header import Header, read_header
from engine.models.gguf.weights import Place, Weight
from engine.models.refusing import ANEW, refusing

SAMPLING = {  # general.sampling.*, and what transformers calls it
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
NOT_WEIGHTS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")  # of which a config tells
TOKENIZER = "tokenizer.ggml."
SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}


def config_of(source: str | Path) -> PretrainedConfig:
    """The configuration of the model in a file.

    Raises:
        ModelNotFound, UnsupportedModel: see `read_header` and `config_facts`; sizes that go with no model.
    """
    header = read_header(source)
    with refusing(UnsupportedModel, f"What '{source}' says of itself describes no model that can be used"):
        facts = config_facts(header)
        config = AutoConfig.for_model(facts.pop("model_type"), **facts)
        assert isinstance(config, PretrainedConfig)
        config.name_or_path = str(source)
        return config


def weights_of(source: str | Path, config: PretrainedConfig, dtype: torch.dtype) -> dict[str, Any]:
    """The weights by their names in the network, each read when it is indexed, in dtype."""
    header = read_header(source)
    return {name: Weight(place, header.tensors, dtype) for name, place in _places(header, config).items()}


def check_weights(source: str | Path, config: PretrainedConfig) -> None:
    """Refuse weights that are missing, or not those of the configuration; only headers are read.

    Raises:
        ModelNotFound: naming the first.
    """
    _places(read_header(source), config)


def _places(header: Header, config: PretrainedConfig) -> dict[str, Place]:
    """How each weight of the network is made of the file's tensors."""
    known = known_of(header)
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    arch = next(number for number, name in MODEL_ARCH_NAMES.items() if name == header.architecture)
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    tied = getattr(network, "_tied_weights_keys", None) or {}
    places: dict[str, Place] = {}
    for name, weight in network.state_dict().items():
        if config.tie_word_embeddings and name in tied:
            continue
        path, _, end = name.rpartition(".")
        stored = f"{names.get_name(path)}.{end}"
        shape = tuple(weight.shape)
        heads = 0
        if known.permuted and path.endswith(("q_proj", "k_proj")):
            heads = config.num_attention_heads if path.endswith("q_proj") else config.num_key_value_heads
        places[name] = Place((stored,), shape, heads, known.offset if path.endswith("norm") else 0.0)
    _check(header, config, places)
    return places


def _check(header: Header, config: PretrainedConfig, places: dict[str, Place]) -> None:
    wanted = {source for place in places.values() for source in place.sources}
    if missing := sorted(wanted - header.tensors.keys()):
        raise ModelNotFound(f"{header.path} lacks {missing[0]}: {ANEW}.")
    if strange := sorted(header.tensors.keys() - wanted - set(NOT_WEIGHTS)):
        raise ModelNotFound(
            f"{header.path} holds {strange[0]}, for which a {config.model_type} has no place: choose another file."
        )
    for name, place in places.items():
        shapes = [header.tensors[source].shape for source in place.sources]
        if len(shapes) == 1 and shapes[0] != place.shape:
            raise ModelNotFound(
                f"{place.sources[0]} in {header.path} has the shape {list(shapes[0])}, and {name} of this "
                f"{config.model_type} has {list(place.shape)}: fetch it anew."
            )


def generation_of(source: str | Path) -> GenerationConfig:
    """How to generate, of what the file says of it."""
    facts = read_header(source).facts
    ends = [facts[f"{TOKENIZER}{name}_token_id"] for name in ("eos", "eot") if f"{TOKENIZER}{name}_token_id" in facts]
    said = {to: facts.get(f"general.sampling.{name}") for name, to in SAMPLING.items()}
    said = {name: value for name, value in said.items() if value is not None}
    if said:
        said["do_sample"] = True
    return GenerationConfig(eos_token_id=list(dict.fromkeys(ends)) or None, **said)  # type: ignore[no-untyped-call]


def tokenizer_of(source: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of the model in a file, with its chat template.

    Raises:
        ModelNotFound: there is none.
        UnsupportedModel: one of a kind that is not known.
    """
    header = read_header(source)
    own = {key.removeprefix(TOKENIZER): value for key, value in header.facts.items() if key.startswith(TOKENIZER)}
    if not own.get("tokens"):
        raise ModelNotFound(f"{header.path} has no tokenizer: choose another file.")
    names = {"model": "tokenizer_type", "pre": "pre_tokenizer_type"}
    backend, _ = convert_gguf_tokenizer(header.architecture, {names.get(key, key): own[key] for key in own})
    tokens = own["tokens"]
    special = {
        f"{name}_token": tokens[own[f"{theirs}_token_id"]]
        for name, theirs in SPECIAL.items()
        if f"{theirs}_token_id" in own
    }
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        name_or_path=str(source),
        add_bos_token=bool(own.get("add_bos_token", own.get("model") == "llama")),
        chat_template=header.facts.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
        **special,
    )
    assert isinstance(tokenizer, PreTrainedTokenizerBase)
    return tokenizer
