"""Integer weights on a CPU: the error of products, their bytes, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from engine import SettingsError, load_model, read_config
from engine.models.integers import GROUP, INTEGERS, IntegerLinear, fits, layer_bytes
from engine.models.sizes import model_sizes, sizes_of
from tests.engine.checkpoints import saved

POCKET = Path(__file__).resolve().parents[2] / "assets" / "pocket"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 3, 8, 9, 40])
@pytest.mark.parametrize(("kind", "steps"), [("int8", 127), ("int4", 15)])
def test_products_are_those_of_rounded_weights(kind: str, steps: int, rows: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(192, 144, dtype=dtype)
    x = torch.randn(2, rows, 192, dtype=dtype)
    found = IntegerLinear(linear, kind)(x)
    assert (found.dtype, found.shape) == (dtype, (2, rows, 144))
    weight = linear.weight.detach().float()
    if kind == "int8":
        step = weight.abs().amax(dim=1, keepdim=True) / steps
        rounded = (weight / step).round() * step
    else:
        groups = weight.view(144, -1, GROUP)
        low = groups.amin(dim=2, keepdim=True)
        step = (groups.amax(dim=2, keepdim=True) - low) / steps
        rounded = (((groups - low) / step).round() * step + low).view_as(weight)
    expected = x.float() @ rounded.T + linear.bias.detach().float()
    error = (found.float() - expected).norm() / expected.norm()
    exact = 1e-5 if dtype == torch.float32 else 0.01
    assert error < (exact if kind == "int8" else 0.03)  # int4 has offsets in bfloat16


@pytest.mark.parametrize("kind", INTEGERS)
def test_a_loaded_model_takes_what_is_planned(kind: str) -> None:
    plain, packed = load_model(POCKET, "cpu"), load_model(POCKET, "cpu", quantize=kind)
    held = [*packed.network.parameters(), *(b for each in layers(packed.network) for b in each.buffers())]
    sizes = model_sizes(read_config(POCKET), packed.spec.dtype)
    assert sum(each.nbytes for each in held) == sizes.weight_bytes(kind)
    assert sizes_of(packed.network, packed.spec).weight_bytes(kind) == sizes.weight_bytes(kind)
    assert len(layers(packed.network)) == len(sizes.linear)
    assert packed.network.lm_head.weight.dtype == plain.network.lm_head.weight.dtype
    assert packed.fingerprint != plain.fingerprint


def layers(network: nn.Module) -> list[IntegerLinear]:
    """Return the integer layers of a network."""
    return [each for each in network.modules() if isinstance(each, IntegerLinear)]


def test_layers_that_the_products_do_not_take_stay_as_they_are() -> None:
    assert [fits(16, 32), fits(24, 32), fits(16, 48)] == [True, False, False]
    assert layer_bytes("int8", 24, 32, 4) == 24 * 32 * 4


def test_other_models_and_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="int8 is for models without experts on a CPU: choose 8bit or nf4"):
        load_model(saved("qwen3_moe", tmp_path), "cpu", quantize="int8")
    sizes = model_sizes(read_config(POCKET), torch.bfloat16, torch.device("cuda"))
    with pytest.raises(SettingsError, match="int4 is for models without experts on a CPU"):
        sizes.weight_bytes("int4")
