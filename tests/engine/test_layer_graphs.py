"""Graphs between attentions compute what the layers of a network compute, for every method."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType
from torch import Tensor, nn

from engine import Method, Model, load_model
from engine.models import products
from engine.models.layer_graphs import FEW, KINDS, LayerGraphs
from engine.trained import retaining
from engine.trained.retaining import RetainingHeads
from engine.trained.sidecar_weights import save_weights
from tests.engine import test_methods as promises
from tests.engine.gguf_files import LONGROPE, MODELS, tiny_network, write_gguf
from tests.engine.matrix import CLOSE, QUESTION, TIGHT
from tests.engine.reading import next_logits, read
from tests.engine.test_file_layers import logits

KNOWN = [name for name, (_, kind, _) in MODELS.items() if kind in KINDS]


def tiny(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """Return a tiny model of `MODELS` in blocks with offsets, whose products do not round activations."""
    monkeypatch.setattr(products, "INTEGERS", 1)  # accuracy_level: float32
    file = write_gguf(folder / "model.gguf", tiny_network(name), MODELS[name][0], GGMLQuantizationType.Q4_1)
    return load_model(file, "cpu", torch.float32, "blocks")


@pytest.mark.parametrize("name", KNOWN)
def test_graphs_compute_what_layers_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(name, tmp_path, monkeypatch)
    found = [logits(model, tokens) for tokens in (1, 40)]
    assert model.network.layer_graphs is not None
    plain = load_model(tmp_path / "model.gguf", "cpu", torch.float32, "none")
    assert [each.sliding_window for each in model.spec.layers] == [each.sliding_window for each in plain.spec.layers]
    model.network.layer_graphs = None
    for each, tokens in zip(found, (1, 40), strict=True):
        torch.testing.assert_close(each, logits(model, tokens), **CLOSE)


def test_positions_of_long_texts_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LongRoPE computes them when it is called, and graphs never call it."""
    monkeypatch.setitem(LONGROPE, "short_factor", [1.0] * 16)
    model = tiny("phi3-longrope", tmp_path, monkeypatch)
    plain = load_model(tmp_path / "model.gguf", "cpu", torch.float32, "none")
    assert model.network.layer_graphs is not None
    for each in (model, plain):
        wanted = 1.0 / (torch.tensor(LONGROPE["long_factor"]) * 10000.0 ** (torch.arange(16) / 16))
        torch.testing.assert_close(each.spec.layers[0].rope.inv_freq, wanted)


@pytest.mark.parametrize("name", ["olmo2", "starcoder2"])
def test_other_models_compute_layer_by_layer(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tiny(name, tmp_path, monkeypatch).network.layer_graphs is None


def test_attention_of_few_tokens_takes_one_thread_of_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pools of threads waited for each other: answers of two threads took three times as long as of one."""
    model = tiny("qwen2", tmp_path, monkeypatch)
    graphs, layers = model.network.layer_graphs, len(model.spec.layers)
    assert isinstance(graphs, LayerGraphs)
    threads = list[int]()

    def attention(module: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        threads.append(torch.get_num_threads())
        return q

    usual = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for tokens in (1, FEW):
            graphs.run(torch.zeros(tokens, dtype=torch.long), attention)
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(usual)
    assert threads == [1] * layers + [2] * layers


@pytest.mark.parametrize("method", [TIGHT[each] for each in ("full", "exact", "locret", "recall")])
def test_methods_keep_their_promises(
    method: Method, ids: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("qwen2", tmp_path, monkeypatch)
    model.spec = dataclasses.replace(model.spec, folder=tmp_path)
    save_weights(RetainingHeads(model.spec, [24] * len(model.spec.layers)), tmp_path / retaining.FILE, model.spec, {})
    promises.test_chunk_size_does_not_change_the_answer(model, ids, method)
    promises.test_save_load_and_continue_equals_uninterrupted(model, ids, method, 6)
    promises.test_a_saved_context_answers_as_the_live_one(model, ids, method)
    promises.test_a_fork_never_changes_its_base(model, ids, method)
    found = next_logits(model, method, read(model, method, ids).memory, QUESTION)
    model.network.layer_graphs = None
    torch.testing.assert_close(next_logits(model, method, read(model, method, ids).memory, QUESTION), found, **CLOSE)
