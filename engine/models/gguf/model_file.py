"""Read a GGUF file as a checkpoint: configuration, weights and generation settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from engine.errors import UnsupportedModel
from engine.models.architectures import architecture_of
from engine.models.building import outline
from engine.models.file_layers import kept_in
from engine.models.gguf.config_facts import config_facts
from engine.models.gguf.header import read_header
from engine.models.gguf.kept import Kept
from engine.models.gguf.names import places_of
from engine.models.gguf.weights import Weight
from engine.models.load_errors import load_errors_as

SAMPLING = {  # general.sampling.* to transformers' names
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
TOKENIZER = "tokenizer.ggml."


def config_of(source: str | Path) -> PretrainedConfig:
    """Return the configuration of the model in a file.

    Raises:
        ModelNotFound, UnsupportedModel: see `read_header` and `config_facts`; or the sizes fit no model.
    """
    header = read_header(source)
    with load_errors_as(UnsupportedModel, f"What '{source}' says of itself describes no model that can be used"):
        facts = config_facts(header)
        config = AutoConfig.for_model(facts.pop("model_type"), **facts)
        assert isinstance(config, PretrainedConfig)
        config.name_or_path = str(source)
        return config


def weights_of(
    source: str | Path, config: PretrainedConfig, dtype: torch.dtype, network: PreTrainedModel
) -> dict[str, Any]:
    """Return the weights by their names in the network; each is read when it is indexed, in dtype.

    network: the outline of the configuration.

    Raises:
        ModelNotFound: see `check_weights`.
    """
    header = read_header(source)
    places = places_of(header, config, network)
    return {name: Weight(place, header.tensors, dtype) for name, place in places.items()}


def kept_weights(source: str | Path, config: PretrainedConfig, network: PreTrainedModel) -> dict[str, Kept]:
    """Return the weights that may stay in the file, by the names of their layers (`file_layers.py`).

    network: the outline of the configuration.
    """
    header = read_header(source)
    places = places_of(header, config, network)
    return kept_in(network, places, header.tensors, architecture_of(config).unquantised)


def check_weights(source: str | Path, config: PretrainedConfig) -> None:
    """Refuse weights that are missing, or do not fit the configuration; only headers are read.

    Raises:
        ModelNotFound: naming the first.
    """
    places_of(read_header(source), config, outline(config))


def generation_of(source: str | Path) -> GenerationConfig:
    """Return the file's generation settings."""
    facts = read_header(source).facts
    ends = [facts[f"{TOKENIZER}{name}_token_id"] for name in ("eos", "eot") if f"{TOKENIZER}{name}_token_id" in facts]
    said = {to: facts.get(f"general.sampling.{name}") for name, to in SAMPLING.items()}
    said = {name: value for name, value in said.items() if value is not None}
    if said:
        said["do_sample"] = True
    return GenerationConfig(eos_token_id=list(dict.fromkeys(ends)) or None, **said)  # type: ignore[no-untyped-call]


def description_of(source: str | Path) -> bytes:
    """Return everything in a file but its weights, for a hash."""
    return json.dumps(read_header(source).facts, sort_keys=True).encode()
