"""Test norms and gates against float64, for all three implementations."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor

from kernels.layers import reference, torch_impl

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)


@pytest.fixture(params=["reference", "torch_impl", "kernel"])
def way(request: pytest.FixtureRequest) -> ModuleType:
    if request.param != "kernel":
        return reference if request.param == "reference" else torch_impl
    pytest.importorskip("triton")
    from kernels.layers import kernel

    return kernel


def noise(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[-1])).to(DEVICE, dtype)


def close(found: Tensor, exact: Tensor) -> None:
    assert found.shape == exact.shape
    # A few roundings; the interpreter truncates to bfloat16 where others round.
    torch.testing.assert_close(found.double(), exact, rtol=6 * torch.finfo(found.dtype).eps, atol=1e-6)


@every_dtype
@pytest.mark.parametrize(("shift", "early"), [(0.0, True), (0.0, False), (1.0, False)])
def test_norms_are_exact(way: ModuleType, dtype: torch.dtype, shift: float, early: bool) -> None:
    weight = noise(dtype, 111)
    heads = noise(dtype, 2, 3, 2 * 111)[..., :111]  # rows apart, as in a joined product
    for x in (heads, noise(dtype, 1, 1, 111), heads[:0]):
        found = way.rms_norm(x, weight, 1e-5, shift, early)
        assert found.dtype == dtype
        close(found, reference.rms_norm(x.double(), weight.double(), 1e-5, shift, early))


@every_dtype
@pytest.mark.parametrize("gate", reference.GATES)
def test_gates_are_exact(way: ModuleType, dtype: torch.dtype, gate: str) -> None:
    for shape in ((1, 1, 2 * 1100), (2, 3, 2 * 63), (0, 8)):
        x = noise(dtype, *shape)
        found = way.gated(x, gate)
        assert found.dtype == dtype
        close(found, reference.gated(x.double(), gate))
