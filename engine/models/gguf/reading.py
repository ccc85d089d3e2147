"""A GGUF file as the engine reads a checkpoint: configuration, weights and how to generate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    GenerationConfig,
    PretrainedConfig,
)

from engine.errors import UnsupportedModel
from engine.models.gguf.architectures import config_facts
from engine.models.gguf.header import read_header
from engine.models.gguf.names import places_of
from engine.models.gguf.weights import Weight
from engine.models.load_errors import load_errors_as

SAMPLING = {  # general.sampling.*, and what transformers calls it
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
TOKENIZER = "tokenizer.ggml."


def config_of(source: str | Path) -> PretrainedConfig:
    """The configuration of the model in a file.

    Raises:
        ModelNotFound, UnsupportedModel: see `read_header` and `config_facts`; sizes that go with no model.
    """
    header = read_header(source)
    with load_errors_as(UnsupportedModel, f"What '{source}' says of itself describes no model that can be used"):
        facts = config_facts(header)
        config = AutoConfig.for_model(facts.pop("model_type"), **facts)
        assert isinstance(config, PretrainedConfig)
        config.name_or_path = str(source)
        return config


def weights_of(source: str | Path, config: PretrainedConfig, dtype: torch.dtype) -> dict[str, Any]:
    """The weights by their names in the network, each read when it is indexed, in dtype."""
    header = read_header(source)
    return {name: Weight(place, header.tensors, dtype) for name, place in places_of(header, config).items()}


def check_weights(source: str | Path, config: PretrainedConfig) -> None:
    """Refuse weights that are missing, or not those of the configuration; only headers are read.

    Raises:
        ModelNotFound: naming the first.
    """
    places_of(read_header(source), config)


def generation_of(source: str | Path) -> GenerationConfig:
    """How to generate, of what the file says of it."""
    facts = read_header(source).facts
    ends = [facts[f"{TOKENIZER}{name}_token_id"] for name in ("eos", "eot") if f"{TOKENIZER}{name}_token_id" in facts]
    said = {to: facts.get(f"general.sampling.{name}") for name, to in SAMPLING.items()}
    said = {name: value for name, value in said.items() if value is not None}
    if said:
        said["do_sample"] = True
    return GenerationConfig(eos_token_id=list(dict.fromkeys(ends)) or None, **said)  # type: ignore[no-untyped-call]


def description_of(source: str | Path) -> bytes:
    """All that a file says beside its weights, for a hash."""
    return json.dumps(read_header(source).facts, sort_keys=True).encode()
