"""Tokens of GGUF files, as llama.cpp has them where transformers' conversion differs, and RoPE likewise."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import load_chat, read_config
from engine.models.gguf.tokens import ENDS
from tests.engine.conftest import TEMPLATE
from tests.engine.gguf_files import tiny_network, tokenizer_facts, write_gguf

CHAT = "tokenizer.chat_template"


def test_a_marker_in_a_text_is_text(tmp_path: Path) -> None:
    """Check a token that is no special one, such as </think>, in a document, a question and an answer."""
    tokens = list(tokenizer_facts()["tokenizer.ggml.tokens"])
    tokens[2] = "</think>"
    facts = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [3, 3, 4, 3] + [1] * (len(tokens) - 4)}
    template = TEMPLATE.replace("<|assistant|>", "<|user|>")
    path = write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", **facts, **{CHAT: template})
    chat = load_chat(path, read_config(path))
    text = "men </think></think> of <|user|>\n" * 3
    encoding = chat.encode(text)
    assert not {1, 2} & set(encoding.ids.tolist())
    assert chat.tokenizer.decode(encoding.ids) == text
    assert [text[start] for start in encoding.starts.tolist()][:2] == ["m", " "]
    assert encoding.starts.tolist() == sorted(set(encoding.starts.tolist()))
    assert 2 not in chat.question(text)
    assert chat.tokenizer("</think>")["input_ids"] == [2]


@pytest.mark.parametrize("end", sorted(ENDS))
def test_a_token_that_ends_a_turn_is_known_by_its_name(end: str, tmp_path: Path) -> None:
    tokens = list(tokenizer_facts()["tokenizer.ggml.tokens"])
    tokens[3] = end
    kinds = [3, 3, 3, 1] + [1] * (len(tokens) - 4)
    facts = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        CHAT: TEMPLATE.replace("<|end|>", end),
    }
    path = write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", **facts)
    chat = load_chat(path, read_config(path))
    assert chat.end == 3
    assert 3 not in chat.encode(f"a{end}b").ids


@pytest.mark.parametrize("before", [True, False, None])
def test_a_space_stands_before_a_text_unless_the_file_forbids_it(before: bool | None, tmp_path: Path) -> None:
    words = ["▁", *"Helo", "He", "lo", "llo", "Hello", "▁Hello"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    facts = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.pre": None,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * len(words)],
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(9 - len(word)) for word in words],
        "tokenizer.ggml.add_space_prefix": before,
        "tokenizer.ggml.add_bos_token": False,
        CHAT: TEMPLATE.replace("<|bos|>", "<s>").replace("<|end|>", "</s>"),
    }
    path = write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", **facts)
    tokenizer = load_chat(path, read_config(path)).tokenizer
    ids = tokenizer("Hello Hello")["input_ids"]
    assert [tokens[number] for number in ids] == ["Hello" if before is False else "▁Hello", "▁Hello"]
    assert tokenizer.decode(ids) == "Hello Hello"


@pytest.mark.parametrize("key", ["rope.scaling.factor", "rope.scale_linear"])
def test_a_rope_factor_without_a_type_scales_linearly(key: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", **{f"llama.{key}": 4.0})
    rope = read_config(path).rope_parameters
    assert (rope["rope_type"], rope["factor"]) == ("linear", 4.0)


def test_a_rope_factor_of_0_scales_nothing(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", tiny_network("llama"), "llama", **{"llama.rope.scaling.factor": 0.0})
    assert read_config(path).rope_parameters["rope_type"] == "default"
