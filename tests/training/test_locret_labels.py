"""Labels of retaining heads: attention of answers and of a repetition of the text."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from engine import Model
from tests.engine.architectures import small_config
from tests.engine.conftest import byte_tokenizer
from tests.training.conftest import example
from training.locret.examples import Example, repeated
from training.locret.labels import watch


def test_layers_with_a_sliding_window_are_watched_from_the_first_token_to_the_last() -> None:
    network = AutoModelForCausalLM.from_config(small_config("gemma2")).eval()
    memory = watch(Model(network, byte_tokenizer(), "gemma2", "-"), example(900, 100), 50)
    for layer, labels in enumerate(memory.labels):
        assert labels.isfinite().all()
        for x in memory.inputs(layer, 0, 900):
            assert x.shape[1] == 900
            assert x.isfinite().all()


def test_labels_are_the_largest_scores_of_the_answer(model: Model) -> None:
    """Compare labels with queries and keys of the first layer, computed by hand."""
    this = example()
    seen = watch(model, this, chunk=1000)
    layer = model.network.base_model.layers[0]  # type: ignore[union-attr,index]
    with torch.no_grad():
        hidden = layer.input_layernorm(model.network.base_model.embed_tokens(this.ids))  # type: ignore[operator]
        rope = model.spec.layers[0].rope
        q = rope.rotate(layer.self_attn.q_proj(hidden).view(69, 6, 8).transpose(0, 1), 0)
        k = rope.rotate(layer.self_attn.k_proj(hidden).view(69, 2, 8).transpose(0, 1), 0)
    for head in range(2):
        scores = torch.stack([q[each, 59:] @ k[head, :60].T * 8**-0.5 for each in range(3 * head, 3 * head + 3)])
        torch.testing.assert_close(seen.labels[0][head], scores.amax(dim=(0, 1)), atol=1e-5, rtol=1e-4)


def test_labels_of_a_reconstruction_are_the_most_attention_of_the_repetition(model: Model) -> None:
    """Compare labels of the first layer with a softmax written out, window by window."""
    this = repeated(model, example(140).ids[:140])
    prefix, window, asked = this.prefix, 25, len(this.request)
    seen = watch(model, this, 1000, window)
    layer, rope = model.network.base_model.layers[0], model.spec.layers[0].rope  # type: ignore[union-attr,index]
    wanted = torch.full((2, 140), float("-inf"))
    for begin in range(prefix, 140, window):
        inside = [*range(prefix), *range(begin, min(begin + window, 140))]
        ids = torch.cat([this.ids, this.request, this.ids[inside[prefix:]]])
        with torch.no_grad():
            hidden = layer.input_layernorm(model.network.base_model.embed_tokens(ids))  # type: ignore[operator]
            q = rope.rotate(layer.self_attn.q_proj(hidden).view(len(ids), 6, 8).transpose(0, 1), 0)
            k = rope.rotate(layer.self_attn.k_proj(hidden).view(len(ids), 2, 8).transpose(0, 1), 0)
        for head, at in itertools.product(range(6), range(140 + asked - 1, len(ids))):
            logits = k[head // 3, [*inside, *range(140, at + 1)]] @ q[head, at] * 8**-0.5
            given = logits.log_softmax(0)[: len(inside)]
            wanted[head // 3, inside] = torch.maximum(wanted[head // 3, inside], given)
    torch.testing.assert_close(seen.labels[0], wanted, atol=1e-5, rtol=1e-4)
    assert all(labels.isfinite().all() for labels in seen.labels)
    assert seen.store.length == 140  # no repetition is remembered


def test_a_reconstruction_labels_highest_where_only_one_token_can_be_looked_up(model: Model) -> None:
    """Plant a token in a text of another one; queries look for tokens like their own."""
    network = copy.deepcopy(model.network)
    base: Any = network.base_model
    embeddings, attention = base.embed_tokens.weight, base.layers[0].self_attn
    with torch.no_grad():
        for weight in (embeddings, attention.k_proj.weight, attention.q_proj.weight):
            weight.zero_()
        embeddings[:, 2] = embeddings[70, 0] = embeddings[90, 1] = 1.0
        embeddings[[70, 90], 2] = 0.0
        for projection in (attention.k_proj, attention.q_proj):
            projection.weight.view(-1, 8, 48)[:, [2, 3], [0, 1]] = 1.0  # dimensions that rotate slowly
    ids = torch.full((60,), 70)
    ids[:4], ids[41] = torch.arange(4, 8), 90
    this = Example(ids, 60, torch.zeros(60, dtype=torch.bool), torch.arange(4, 8), prefix=4)
    labels = watch(Model(network, model.tokenizer, "tiny", "-"), this, 1000, 56).labels[0]
    assert labels[:, 4:].argmax(dim=1).tolist() == [37, 37]
