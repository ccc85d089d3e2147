"""Read the configuration of a model, and refuse one that the engine cannot use before any weight is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig, PretrainedConfig

from engine.errors import ModelNotFound, UnsupportedModel
from engine.models import architectures
from engine.models.fp8 import FP8
from engine.models.gguf.header import is_gguf
from engine.models.gguf.model_file import config_of
from engine.models.hub import hub_is_silent
from engine.models.load_errors import cause_of, load_errors_as
from engine.models.quantised import Published
from engine.models.sizes import NO_MODEL

MOST_LAYERS = 1_000  # of a network; the largest known have 126
COUNTED = ("num_hidden_layers", "num_layers", "n_layers", "n_layer")  # names of their number in a config.json


def read_config(source: str | Path) -> PretrainedConfig:
    """Return the configuration of a model; for a vision model in `VISION`, that of its text part.

    It needs only config.json in a folder, or the header of a GGUF file.

    Raises:
        ModelNotFound: there is none, or its config.json cannot be read.
        UnsupportedModel: sizes that fit no model, another vision model, a model without a language-model head, or an
            architecture or quantisation that is not supported, or not in this combination.
    """
    if is_gguf(source):
        config = config_of(source)
        architectures.check(config)
        return config
    facts = _facts(source)
    if not facts.get("model_type"):
        raise ModelNotFound(f"There is no model at '{source}': there is no config.json that names its model_type.")
    for among in (facts, *(each for each in facts.values() if isinstance(each, dict))):
        for many in map(among.get, COUNTED):
            if isinstance(many, int) and many > MOST_LAYERS:
                raise UnsupportedModel(
                    f"The config.json of '{source}' says that it has {many:,} layers: fetch it anew."
                )
    kind = str(facts["model_type"])
    part = kind in architectures.VISION
    if ("vision_config" in facts or "audio_config" in facts) and not part:
        known = ", ".join(sorted(architectures.VISION))
        raise UnsupportedModel(
            f"'{kind}' is a model for pictures or sound as well as text, which cannot be used: choose a text model, or "
            f"one of these, whose part for text can: {known}."
        )
    heads = facts.get("architectures") or []
    if kind in architectures.ARCHITECTURES and heads and not any(str(head).endswith("ForCausalLM") for head in heads):
        raise UnsupportedModel(f"{heads[0]} does not generate text: choose a model that is a ...ForCausalLM.")
    if not part:
        architectures.check_kind(kind)
    with load_errors_as(UnsupportedModel, f"The config.json of '{source}' {NO_MODEL}"):
        whole = AutoConfig.from_pretrained(source, trust_remote_code=False)
        config = whole.get_text_config(decoder=True)
        assert isinstance(config, PretrainedConfig)
        architectures.check(config)
        if part and facts.get("tie_word_embeddings"):  # some files state it only for the whole model
            config.tie_word_embeddings = True
        config.name_or_path = str(source)
    if getattr(whole, "quantization_config", None) is None:  # it may be stated only for the text part
        whole = config
    published = Published.of(whole)
    if FP8.of(whole) is not None:
        config.quantization_config = whole.quantization_config
    if published is None:
        return config
    own = architectures.ARCHITECTURES.get(kind)  # None: a vision model
    if not (own and own.mxfp4) if published.experts else own is None or own.experts or own.latent:
        raise UnsupportedModel(
            f"Its weights were published quantised as '{published.method}', which is not supported of '{kind}': "
            f"choose a plain checkpoint, and --quantize nf4 or 8bit."
        )
    return config


def _facts(source: str | Path) -> dict[str, Any]:
    """Return the contents of config.json.

    Raises:
        ModelNotFound: there is none, or it cannot be read.
    """
    silent = not Path(source).is_dir() and hub_is_silent(str(source))
    path = Path(source) / "config.json"
    try:
        facts, _ = PretrainedConfig.get_config_dict(source)
    except Exception as error:
        if path.is_file():
            raise ModelNotFound(f"{path} cannot be read: fetch it anew ({cause_of(error)}).") from error
        if silent:
            raise ModelNotFound(
                f"'{source}' is not on this machine, and the hub does not answer: connect to the network and fetch it "
                f"with `stockpot models get {source}`, or give a folder with config.json."
            ) from error
        raise ModelNotFound(f"There is no model at '{source}': give a folder with config.json, or a hub id.") from error
    if not isinstance(facts, dict):
        raise ModelNotFound(f"{path} cannot be read: fetch it anew (it holds no object).")
    return facts
