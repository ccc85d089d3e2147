"""A tiny random model with a real tokenizer, to test the engine without trained weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engine import Model
from engine.decode import recorder
from engine.decode.recorder import Recorder, Recording
from engine.trained import beacons, retaining
from engine.trained.beacons import Beacons
from engine.trained.retaining import RetainingHeads
from engine.trained.sidecar_weights import save_weights

TEMPLATE = (
    "<|bos|>{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}"
    "{% elif m['role'] == 'user' %}<|user|>{{ m['content'] }}"
    "{% else %}<|assistant|>{{ m['content'] }}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer with one token per byte, four special tokens, and the template above."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|bos|>", "<|user|>", "<|assistant|>", "<|end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=260, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([""], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|bos|>", eos_token="<|end|>", chat_template=TEMPLATE
    )


def tiny_config() -> LlamaConfig:
    """Make a configuration with three layers and grouped heads."""
    return LlamaConfig(
        vocab_size=260,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=512,
        initializer_range=0.2,
        eos_token_id=3,
        bos_token_id=0,
    )


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    """Fill new tensors with NaN, so that unwritten entries cannot pass for zero."""
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Make the tiny model, float32 on the CPU, with random retaining heads and beacons beside it."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("tiny")
    model = Model(LlamaForCausalLM(tiny_config()), byte_tokenizer(), "tiny", "tiny-digest", folder)
    save_weights(RetainingHeads(model.spec, [24] * len(model.spec.layers)), folder / retaining.FILE, model.spec, {})
    save_weights(Beacons(model.spec), folder / beacons.FILE, model.spec, {})
    return model


@pytest.fixture
def ids() -> torch.Tensor:
    """Make 301 random tokens."""
    return torch.randint(4, 260, (301,), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch, model: Model) -> list[int]:
    """Enable static passes for this model and return the lengths at which they ran."""
    monkeypatch.setattr(recorder, "choice", lambda: "static")
    monkeypatch.setattr(model, "recorder", Recorder(model.network))
    lengths: list[int] = []
    replay = Recording.replay

    def noted(self: Recording, ids: Tensor, memory: Any) -> Tensor:
        lengths.append(memory.store.length)
        return replay(self, ids, memory)

    monkeypatch.setattr(Recording, "replay", noted)
    return lengths


@pytest.fixture
def small_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use slabs of 64 entries, so that a few hundred fill several."""
    monkeypatch.setattr("engine.parts.archive.tier_plan.SLAB", 64)
