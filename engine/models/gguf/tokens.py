"""Make the tokenizer of a GGUF file, with its chat template."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS, convert_gguf_tokenizer

from engine.errors import ModelNotFound, UnsupportedModel
from engine.models.gguf.header import Header, read_header

OWN = "tokenizer.ggml."
SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
NAMES = {"model": "tokenizer_type", "pre": "pre_tokenizer_type"}  # to transformers' names
SENTENCEPIECE = "llama"
BYTE_LEVEL = "gpt2"

# Pre-tokenizers that transformers' table lacks: they split text as GPT-2 does, or also split digits.
AS_GPT2 = frozenset({"gpt-2", "phi-2", "olmo", "mpt", "jais", "mellum", "exaone4", "gigachat"})
DIGITS_ALONE = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"})


def tokenizer_of(source: str | Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the model in a file.

    Raises:
        ModelNotFound: there is none.
        UnsupportedModel: its kind, or its way to split text, is unknown.
    """
    header = read_header(source)
    own = _facts(header)
    ids = {name: own.get(f"{theirs}_token_id") for name, theirs in SPECIAL.items()}
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=_backend(header),
        add_bos_token=bool(own.get("add_bos_token", own["model"] == SENTENCEPIECE)),
        chat_template=header.facts.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
        **{f"{name}_token": own["tokens"][number] for name, number in ids.items() if number is not None},
    )
    assert isinstance(tokenizer, PreTrainedTokenizerBase)
    tokenizer.name_or_path = str(source)  # set last: transformers would look for it on the hub
    return tokenizer


def _facts(header: Header) -> dict[str, Any]:
    own = {key.removeprefix(OWN): value for key, value in header.facts.items() if key.startswith(OWN)}
    if not own.get("tokens"):
        raise ModelNotFound(f"{header.path} has no tokenizer: choose another file.")
    return own


@functools.lru_cache(maxsize=2)  # making one takes seconds, and each tokenizer copies it
def _backend(header: Header) -> Tokenizer:
    own = _facts(header)
    model, cuts = own.get("model"), own.get("pre")
    if model not in (SENTENCEPIECE, BYTE_LEVEL):
        raise UnsupportedModel(
            f"{header.path} has a tokenizer of the kind '{model}', which is not read from GGUF files: choose a folder "
            f"or hub id with safetensors."
        )
    if model == BYTE_LEVEL and cuts not in AS_GPT2 | DIGITS_ALONE | GGUF_PRE_TOKENIZER_SPLITS.keys():
        raise UnsupportedModel(
            f"{header.path} has a tokenizer that cuts text as '{cuts}', which is not known: choose a newer file, or a "
            f"folder or hub id with safetensors."
        )
    facts = {NAMES.get(key, key): value for key, value in own.items()}
    backend: Tokenizer
    backend, _ = convert_gguf_tokenizer(header.architecture, facts)
    if model == BYTE_LEVEL and cuts in DIGITS_ALONE:
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return backend
