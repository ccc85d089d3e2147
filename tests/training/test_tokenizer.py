"""The tokenizer: lossless, digits alone, the agreed chat template, loadable by transformers."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from engine.models.chat import INSTRUCTION
from training.pocket.prepare import Materials
from training.pocket.tokenizer import load_tokenizer


@pytest.mark.parametrize(
    "text",
    [
        " Plain words.",
        "\n\nA “quoted” line — with dashes… and é, ü, 漢字 🐟.",
        " 71432 and 3.14",
        "\ttabs\n \n  spaces  ",
        " a-b_c/d's",
    ],
)
def test_round_trip(materials: Materials, text: str) -> None:
    ids = materials.tokenizer(text)["input_ids"]
    assert materials.tokenizer.decode(ids) == text


def test_a_space_is_put_before_bare_text(materials: Materials) -> None:
    tokenizer = materials.tokenizer
    assert tokenizer("river")["input_ids"] == tokenizer(" river")["input_ids"]
    assert tokenizer("<|assistant|>river")["input_ids"][1:] == tokenizer(" river")["input_ids"]


def test_digits_stand_alone(materials: Materials) -> None:
    tokens = materials.tokenizer.tokenize(" The key is 71432, room 12b.")
    assert [t for t in tokens if any(c.isdigit() for c in t)] == list("7143212")


def test_chat_template(materials: Materials) -> None:
    messages = [
        {"role": "system", "content": INSTRUCTION + "Text."},
        {"role": "user", "content": "q1"},
        {"role": "assistant", "content": "a1"},
    ]
    rendered = materials.tokenizer.apply_chat_template(messages, tokenize=False)
    assert rendered == f"<|bos|>{INSTRUCTION}Text.<|user|>q1<|assistant|>a1<|end|>"
    messages.append({"role": "user", "content": "q2"})
    rendered = materials.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert rendered.endswith("a1<|end|><|user|>q2<|assistant|>")


def test_loads_with_auto_tokenizer(materials: Materials, tmp_path: Path) -> None:
    materials.tokenizer.save_pretrained(tmp_path, save_jinja_files=False)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.eos_token == "<|end|>"
    assert loaded.bos_token == "<|bos|>"
    assert loaded.chat_template == materials.tokenizer.chat_template
    assert loaded("The river.")["input_ids"] == materials.tokenizer("The river.")["input_ids"]


def test_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
