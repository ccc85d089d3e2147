"""Weights that stay in the blocks of a GGUF file give what they give when they are unpacked."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch
from gguf import GGMLQuantizationType, quants

from engine import Model, ModelNotFound, SettingsError, load_model, make_method, model_sizes, read_config, weights_form
from engine.models import products
from engine.models.file_layers import FileEmbedding, FileLinear
from engine.models.gguf.blocks import DECODERS, bits_of, decode, unpacked
from engine.models.integers import IntegerLinear
from engine.models.products import Packed, Product, rounded
from engine.models.sizes import sizes_of
from tests.engine.gguf_files import MODELS, tiny_network, write_gguf

Type = GGMLQuantizationType


def rows_of(kind: Type, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random rows in a type, and the numbers that the package gguf finds in them."""
    random = np.random.default_rng(int(kind))
    weights, size = 256 if kind.name.endswith("K") else 32, DECODERS[kind][1]
    raw = random.integers(0, 256, (rows, columns // weights, size), dtype=np.uint8)
    for at in (209,) if kind is Type.Q6_K else (1, 3):  # high bytes of float16 numbers: neither huge nor NaN
        raw[..., at] = random.integers(0x28, 0x30, raw.shape[:2])
    flat = raw.reshape(rows, -1)
    return torch.from_numpy(flat), torch.from_numpy(quants.dequantize(flat, kind))


@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.name)
def test_blocks_are_decoded_as_the_package_gguf_does(kind: Type) -> None:
    raw, wanted = rows_of(kind, 6, 512)
    assert torch.allclose(unpacked(raw, kind), wanted, rtol=1e-6, atol=1e-6 * float(wanted.abs().max()))


@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("columns", [256, 768])
def test_products_round_activations_only(kind: Type, columns: int) -> None:
    raw, wanted = rows_of(kind, 37, columns)
    x = torch.randn(5, columns, generator=torch.Generator().manual_seed(0)) + 0.5  # sums that offsets meet
    bits = bits_of(kind)
    product = Product(columns, [Packed.of(decode(raw, kind), bits) if bits else Packed.of(rounded(wanted), 8)])
    right = x @ wanted.T
    assert float((product(x) - right).norm() / right.norm()) < 0.02


def test_a_large_layer_takes_several_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    raw, wanted = rows_of(Type.Q8_0, 48, 64)
    pieces = [Packed.of(decode(raw[begin : begin + 16], Type.Q8_0), 8) for begin in (0, 16, 32)]
    together = Product(64, pieces)
    monkeypatch.setattr(products, "AT_ONCE", 2 * 16 * 64)
    apart = Product(64, pieces)
    assert (len(together.sessions), len(apart.sessions)) == (1, 2)
    x = torch.eye(64)[:7]
    assert torch.equal(apart(x), together(x))
    assert torch.allclose(apart(x), x @ wanted.T, atol=0.02 * float(wanted.abs().max()))


class Unpacked(onnxruntime.SessionOptions):  # type: ignore[misc]
    """Options of a session that multiplies with codes and scales as they were given to it."""

    def __init__(self) -> None:
        super().__init__()
        self.add_session_config_entry("session.disable_prepacking", "1")


def test_codes_and_scales_stay_as_long_as_products_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    raw, wanted = rows_of(Type.Q4_1, 48, 512)
    pieces = [Packed.of(decode(raw, Type.Q4_1), 4)]
    packed = Product(512, pieces)
    monkeypatch.setattr(onnxruntime, "SessionOptions", Unpacked)
    unpacked = Product(512, pieces)
    (pages,) = (each._pages for each in unpacked.sessions)
    assert any(pages[:])
    x = torch.randn(3, 512, generator=torch.Generator().manual_seed(0))
    for product in (packed, unpacked):
        assert float((product(x) - x @ wanted.T).norm() / (x @ wanted.T).norm()) < 0.02


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="others keep them")
def test_packed_codes_and_scales_are_not_held_twice() -> None:
    raw, _ = rows_of(Type.Q4_1, 48, 512)
    product = Product(512, [Packed.of(decode(raw, Type.Q4_1), 4)])
    assert not any(byte for each in product.sessions for byte in each._pages[:])


def logits(model: Model, tokens: int) -> torch.Tensor:
    """Return logits [T, vocabulary] of fixed tokens, read in one pass."""
    method = make_method("full")
    memory = method.new_memory(model.spec, model.turn_length)
    ids = torch.randint(0, 250, (tokens,), generator=torch.Generator().manual_seed(1))
    return model.logits(model.forward(ids, memory, torch.arange(tokens, dtype=torch.int32)))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("llama", Type.Q8_0), ("llama-tied", Type.Q4_1), ("qwen2", Type.Q5_1), ("gemma3", Type.Q8_0), ("phi3", Type.Q4_0)],
)
def test_a_model_computes_as_with_plain_weights(name: str, kind: Type, tmp_path: Path) -> None:
    architecture, *_ = MODELS[name]
    path = write_gguf(tmp_path / "model.gguf", tiny_network(name), architecture, kind)
    plain, model = load_model(path, "cpu"), load_model(path, "cpu", quantize="blocks")
    held = [each for each in model.network.modules() if isinstance(each, FileLinear | FileEmbedding)]
    assert len(held) == sum(hasattr(each, "in_features") for each in plain.network.modules()) + 1
    right, found = logits(plain, 40), logits(model, 40)
    assert float((found - right).norm() / right.norm()) < 0.08  # activations in 8 bits, in six layers of random weights
    assert torch.equal(
        model.network.get_input_embeddings()(torch.tensor([5])), plain.network.get_input_embeddings()(torch.tensor([5]))
    )
    assert (model.fingerprint, model.spec.embedding) == (plain.fingerprint, plain.spec.embedding)
    sizes = model_sizes(read_config(path), torch.float32)
    for each in (sizes, sizes_of(model.network, model.spec)):
        assert each.weight_bytes("blocks") == sizes.weight_bytes("blocks")
        assert each.linear_bytes("blocks") == sizes.linear_bytes("blocks") < sizes.linear_bytes("none")
        assert each.parameters == sizes.parameters


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_four_bits_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    """llama's rows lie in another order in the file. Rounded anew, weights would err five times as much."""
    path = write_gguf(tmp_path / "model.gguf", tiny_network(name), MODELS[name][0], Type.Q4_0)
    plain, model = load_model(path, "cpu", quantize="none"), load_model(path, "cpu", quantize="int4")
    weights = dict(plain.network.named_parameters())
    layers = {path: each for path, each in model.network.named_modules() if isinstance(each, IntegerLinear)}
    assert len(layers) == 7 * len(plain.spec.layers)
    for path_of_layer, layer in layers.items():
        right = weights[f"{path_of_layer}.weight"]
        again = IntegerLinear(plain.network.get_submodule(path_of_layer), "int4")
        err, anew = (float((numbers_of(each) - right).norm() / right.norm()) for each in (layer, again))
        assert err < 0.005 < anew


def numbers_of(layer: IntegerLinear) -> torch.Tensor:
    """Return the weights that a layer multiplies with, rounded to bfloat16."""
    found: torch.Tensor = layer(torch.eye(layer.in_features)).T
    return found if layer.bias is None else found - layer.bias[:, None]


def test_what_a_product_cannot_hold_is_rounded_finely(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", tiny_network("llama"), "llama", Type.MXFP4)
    right, found = (logits(load_model(path, "cpu", quantize=each), 20) for each in ("none", "blocks"))
    assert float((found - right).norm() / right.norm()) < 0.08


def test_a_file_that_is_cut_while_it_is_used_is_told_of(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", tiny_network("llama"), "llama", Type.Q8_0)
    model = load_model(path, "cpu", quantize="blocks")
    with path.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(ModelNotFound, match="cut short while it was read: fetch it anew"):
        logits(model, 3)


@pytest.mark.parametrize(("dtype", "usual"), [("float32", "blocks"), ("bfloat16", "none")])
def test_a_file_stays_in_its_blocks_where_a_processor_computes_in_float32(
    dtype: str, usual: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOCKPOT_DTYPE", dtype)
    path = write_gguf(tmp_path / "model.gguf", tiny_network("llama"), "llama", Type.Q8_0)
    tiny_network("llama").save_pretrained(tmp_path / "folder")
    asked = [weights_form(*each) for each in ((path, "cpu"), (path, "cpu", "int8"), (tmp_path / "folder", "cpu"))]
    assert asked == [usual, "int8", "none"]
    sizes = model_sizes(read_config(path), getattr(torch, dtype))
    assert (sizes.form("none"), sizes.form("nf4")) == (usual, "nf4")
    assert weights_form(tmp_path / "missing.gguf", "cpu") == "none"


def test_blocks_are_for_a_file_on_a_cpu(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    tiny_network("llama").save_pretrained(folder)
    with pytest.raises(SettingsError, match="blocks is for a GGUF file on a CPU: leave it out"):
        model_sizes(read_config(folder), torch.float32).weight_bytes("blocks")
