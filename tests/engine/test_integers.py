"""Integer weights: the error of products, their bytes, the ways they take, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from engine import SettingsError, load_model, read_config
from engine.models.attention_interface import samples_of
from engine.models.four_bits import GROUP, TILE, in_four_bits
from engine.models.integers import DIRECT, INTEGERS, Head, IntegerLinear, fits, in_integers, layer_bytes
from engine.models.products import coarse, packed_bytes
from engine.models.sizes import model_sizes, sizes_of
from tests.engine.checkpoints import saved

POCKET = Path(__file__).resolve().parents[2] / "assets" / "pocket"


def stood_for(codes: Tensor, scales: Tensor) -> Tensor:
    """Return the weights [rows, columns] of codes and their scales and offsets."""
    scale, offset = scales.float().permute(2, 1, 0)[..., None]
    return ((codes.float().view(len(codes), len(scales), -1) - 8) * scale + offset).flatten(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 3, 8, 9, 40])
@pytest.mark.parametrize("kind", INTEGERS)
def test_products_are_those_of_rounded_weights(kind: str, rows: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(192, 144, dtype=dtype)
    x = torch.randn(2, rows, 192, dtype=dtype)
    found = IntegerLinear(linear, kind)(x)
    assert (found.dtype, found.shape) == (dtype, (2, rows, 144))
    weight = linear.weight.detach().float()
    if kind == "int8":
        step = weight.abs().amax(dim=1, keepdim=True) / 127
        rounded = (weight / step).round() * step
    else:
        rounded = stood_for(*in_four_bits(weight))
    expected = x.float() @ rounded.T + linear.bias.detach().float()
    error = (found.float() - expected).norm() / expected.norm()
    in_bfloat16 = kind == "int4" or dtype == torch.bfloat16 or 2 * rows <= DIRECT
    assert error < (0.01 if in_bfloat16 else 1e-5)


def test_four_bits_lose_less_where_they_are_fitted() -> None:
    weight = torch.randn(48, 4 * GROUP, generator=torch.Generator().manual_seed(1)).pow(3)
    groups = weight.view(48, -1, GROUP)
    step = (groups.amax(dim=2, keepdim=True) - groups.amin(dim=2, keepdim=True)) / 15
    plain, fitted = (stood_for(*in_four_bits(weight, fit=fit)) - weight for fit in (False, True))
    assert bool((plain.view_as(groups).abs() <= 0.55 * step).all())  # half a step, with bfloat16 for scales and offsets
    assert fitted.abs().mean() < 0.97 * plain.abs().mean()


@pytest.mark.parametrize("kind", INTEGERS)
def test_a_loaded_model_takes_what_is_planned(kind: str) -> None:
    plain, packed = load_model(POCKET, "cpu"), load_model(POCKET, "cpu", quantize=kind)
    sizes = model_sizes(read_config(POCKET), packed.spec.dtype)
    assert held_bytes(packed.network) == sizes.weight_bytes(kind)
    assert sizes_of(packed.network, packed.spec).weight_bytes(kind) == sizes.weight_bytes(kind)
    assert len(layers(packed.network)) == len(sizes.linear)
    embeddings = packed.network.get_input_embeddings().weight
    assert torch.equal(embeddings, plain.network.get_input_embeddings().weight)
    assert packed.fingerprint != plain.fingerprint


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", INTEGERS)
def test_a_head_is_multiplied_in_eight_bits_and_embeddings_are_looked_up_as_they_are(kind: str, tied: bool) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 1}
    config = LlamaConfig(vocab_size=272, tie_word_embeddings=tied, **sizes)  # type: ignore[arg-type]
    network: Any = LlamaForCausalLM(config)
    head, embeddings = network.lm_head.weight.detach().clone(), network.get_input_embeddings().weight.detach().clone()
    [before] = [each[1:] for each in samples_of(network) if each[0] == "lm_head.weight"]
    in_integers(network, kind, torch.device("cpu"), network.lm_head, (), {})
    assert isinstance(network.lm_head, Head)
    [told] = [each[1:] for each in samples_of(network) if each[0] == "lm_head.weight"]
    assert told[0] == before[0]
    assert torch.equal(told[1], before[1]), "a reading saved with another head would be taken for one of this"
    x = torch.randn(5, 64)
    error = (network.lm_head(x) - x @ head.T).norm() / (x @ head.T).norm()
    assert 0.0 < error < 0.02
    assert torch.equal(network.get_input_embeddings().weight, embeddings)
    assert held_bytes(network) == model_sizes(config, torch.float32).weight_bytes(kind)


def test_on_a_gpu_a_head_is_in_four_bits_unless_it_is_the_embeddings() -> None:
    for tied, head in ((True, nn.Linear), (False, IntegerLinear)):
        with FakeTensorMode():
            config = LlamaConfig(vocab_size=272, hidden_size=64, tie_word_embeddings=tied, num_hidden_layers=0)
            network: Any = LlamaForCausalLM(config)
            in_integers(network, "int4", torch.device("meta"), network.lm_head, (), {})
        assert type(network.lm_head) is head


def held_bytes(network: Any) -> int:
    """Return the bytes of all parameters, of the codes of integer layers, and of what is held of the head."""
    tensors = [*network.parameters(), *(b for each in layers(network) for b in each.buffers())]
    rows, columns = network.lm_head.out_features, network.lm_head.in_features
    return sum(each.nbytes for each in tensors) + packed_bytes(rows, columns, 8, coarse(columns))


def layers(network: nn.Module) -> list[IntegerLinear]:
    """Return the integer layers of a network."""
    return [each for each in network.modules() if isinstance(each, IntegerLinear)]


class Operations(TorchDispatchMode):
    """Notes the names of operations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("columns", "tiles"), [(512, 8), (576, 4)])
def test_another_device_multiplies_few_rows_in_four_bits_and_unpacks_for_many(columns: int, tiles: int) -> None:
    """Follow shapes and dtypes as PyTorch states them for a GPU; numbers need one."""
    with FakeTensorMode(), torch.device("meta"):
        layer = IntegerLinear(nn.Linear(columns, 144, dtype=torch.float16), "int4")
        assert (layer.codes.shape, layer.codes.dtype) == ((18, columns // (16 * tiles), 32, tiles // 2), torch.int32)
        assert (layer.scales.shape, layer.scales.dtype) == ((columns // GROUP, 144, 2), torch.bfloat16)
        for rows in (1, TILE, TILE + 1, 300):
            with Operations() as seen:
                found = layer(torch.empty(rows, columns, dtype=torch.float16))
            assert (found.shape, found.dtype) == ((rows, 144), torch.float16)
            direct = rows <= TILE
            assert (seen.names.count("_weight_int4pack_mm"), seen.names.count("mm")) == (direct, not direct)


def test_layers_that_the_products_do_not_take_stay_as_they_are() -> None:
    assert [fits(16, 32), fits(24, 32), fits(16, 48)] == [True, False, False]
    assert layer_bytes("int8", 24, 32, 4) == 24 * 32 * 4


def test_other_models_and_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="int4 is for models without experts: choose 8bit or nf4"):
        load_model(saved("qwen3_moe", tmp_path), "cpu", quantize="int4")
    sizes = model_sizes(read_config(POCKET), torch.bfloat16, torch.device("cuda"))
    with pytest.raises(SettingsError, match="int8 is for a CPU: choose 8bit, int4 or nf4"):
        sizes.weight_bytes("int8")
    assert sizes.weight_bytes("int4") < sizes.loading_bytes("int4") < 2 * sizes.weight_bytes("none") + 32 * 2**22
