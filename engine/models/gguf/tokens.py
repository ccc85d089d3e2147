"""Make the tokenizer of a GGUF file, with its chat template."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS, convert_gguf_tokenizer

from engine.errors import ModelNotFound, UnsupportedModel
from engine.models.gguf.header import SHOWN, Header, read_header

OWN = "tokenizer.ggml."
SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
NAMES = {"model": "tokenizer_type", "pre": "pre_tokenizer_type"}  # to transformers' names
SENTENCEPIECE = "llama"
BYTE_LEVEL = "gpt2"
GEMMA4 = "gemma4"  # merges of a byte-level vocabulary, words and spaces of SentencePiece
NORMAL, CONTROL, CHOSEN = 1, 3, 4  # types of tokens; the latter two are never cut
MARKER = re.compile(r"<.+>", re.DOTALL)

# Tokens that end a turn. Some files type them as normal, so llama.cpp knows them by name.
ENDS = frozenset({"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|end_of_text|>", "<|eom_id|>", "<turn|>"})

# Pre-tokenizers that transformers' table lacks: they split text as GPT-2 does, or also split digits.
AS_GPT2 = frozenset({"gpt-2", "phi-2", "olmo", "mpt", "jais", "mellum", "exaone4", "gigachat"})
DIGITS_ALONE = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"})

# Names for ways that the table has by another name.
ALIKE = {"glm4": "llama-bpe", "chatglm-bpe": "llama-bpe", "hunyuan": "qwen2"}

# Ways to split one after another: numbers, then Chinese and Japanese, then words, symbols and spaces.
DEEPSEEK = (
    r"\p{N}{1,3}",
    r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
IN_TURN: dict[str, tuple[str, ...]] = {"deepseek-v3": DEEPSEEK, "hunyuan-dense": DEEPSEEK}

KNOWN = AS_GPT2 | DIGITS_ALONE | ALIKE.keys() | IN_TURN.keys() | GGUF_PRE_TOKENIZER_SPLITS.keys()
"""Names of ways to cut text that a byte-level vocabulary may have."""


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
        add_bos_token=own["model"] != GEMMA4 and bool(own.get("add_bos_token", own["model"] == SENTENCEPIECE)),
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
    if kinds := own.get("token_type"):
        typed = zip(own["tokens"], kinds, strict=False)
        own["token_type"] = [CONTROL if kind == NORMAL and token in ENDS else kind for token, kind in typed]
    return own


@functools.lru_cache(maxsize=2)  # making one takes seconds, and each tokenizer copies it
def _backend(header: Header) -> Tokenizer:
    own = _facts(header)
    model, cuts = own.get("model"), str(own.get("pre"))
    if model not in (SENTENCEPIECE, BYTE_LEVEL, GEMMA4):
        raise UnsupportedModel(
            f"{header.path} has a tokenizer of the kind '{model!s:.{SHOWN}}', which is not read from GGUF files: "
            f"choose a folder or hub id with safetensors."
        )
    if model == BYTE_LEVEL and cuts not in KNOWN:
        raise UnsupportedModel(
            f"{header.path} has a tokenizer that cuts text as '{cuts:.{SHOWN}}', which is not known: choose a newer "
            f"file, or a folder or hub id with safetensors."
        )
    cuts = ALIKE.get(cuts, cuts)
    facts = {NAMES.get(key, key): value for key, value in own.items()} | {NAMES["pre"]: cuts}
    backend: Tokenizer
    backend, _ = convert_gguf_tokenizer(header.architecture, facts)
    if model == SENTENCEPIECE and own.get("add_space_prefix") is False:
        backend = _without_space_before(backend)
    if model != BYTE_LEVEL:
        return backend
    backend = _with_markers(backend, own)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cuts in DIGITS_ALONE)
    before: list[Any] = [pre_tokenizers.Split(Regex(each), "isolated") for each in IN_TURN.get(cuts, ())]
    if cuts in DIGITS_ALONE:
        before = [pre_tokenizers.Digits(individual_digits=True)]
    if before:
        backend.pre_tokenizer = pre_tokenizers.Sequence([*before, level])
    return backend


def _without_space_before(backend: Tokenizer) -> Tokenizer:
    """Return a SentencePiece tokenizer without the space that transformers' conversion puts before a text."""
    parts = json.loads(backend.to_str())
    rules = parts["normalizer"].get("normalizers", [parts["normalizer"]]) if parts["normalizer"] else []
    kept = [each for each in rules if each["type"] != "Prepend"]
    parts["normalizer"] = {"type": "Sequence", "normalizers": kept} if kept else None
    if parts["pre_tokenizer"] and parts["pre_tokenizer"]["type"] == "Metaspace":
        parts["pre_tokenizer"]["prepend_scheme"] = "never"
    decoders = (parts["decoder"] or {}).get("decoders", [])
    if decoders:  # one of them strips the space that was put before
        parts["decoder"]["decoders"] = [each for each in decoders if each["type"] != "Strip"]
    if parts["decoder"] and parts["decoder"]["type"] == "Metaspace":
        parts["decoder"]["prepend_scheme"] = "never"
    return Tokenizer.from_str(json.dumps(parts))


def _with_markers(backend: Tokenizer, own: dict[str, Any]) -> Tokenizer:
    """Return a byte-level tokenizer that keeps each marker whole: <｜User｜> too, whose letters are no bytes.

    transformers takes such tokens for ordinary ones, and spells them byte by byte.
    """
    missing = {
        token: number
        for number, (token, kind) in enumerate(zip(own["tokens"], own.get("token_type") or (), strict=False))
        if kind in (CONTROL, CHOSEN) and MARKER.fullmatch(token) and backend.token_to_id(token) is None
    }
    if not missing:
        return backend
    parts = json.loads(backend.to_str())
    spelled = {number: token for token, number in parts["model"]["vocab"].items()}
    for token, number in missing.items():
        parts["model"]["vocab"].pop(spelled.get(number), None)
        parts["model"]["vocab"][token] = number
    whole = Tokenizer.from_str(json.dumps(parts))
    for kind, add in ((CONTROL, whole.add_special_tokens), (CHOSEN, whole.add_tokens)):
        add(
            [
                AddedToken(token, normalized=False)
                for token, number in missing.items()
                if own["token_type"][number] == kind
            ]
        )
    return whole
