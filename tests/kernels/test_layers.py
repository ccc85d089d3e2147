"""Test the small steps of a layer against float64, for all three implementations."""

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


@every_dtype
@pytest.mark.parametrize(("tokens", "rotated_width"), [(1, 48), (3, 32), (3, 0)])
@pytest.mark.parametrize("where", ["number", "tensor"])
def test_keys_are_appended_and_queries_rotated(
    way: ModuleType, dtype: torch.dtype, tokens: int, rotated_width: int, where: str
) -> None:
    if where == "tensor" and tokens > 1:
        pytest.skip("only a single token comes to a row in a tensor")
    joined = noise(dtype, tokens, 4 + 2 + 2, 48).transpose(0, 1)  # queries, keys and values of one product
    q, k, v = joined.split([4, 2, 2])
    angles = noise(torch.float32, tokens, rotated_width // 2)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    at = 5 if where == "number" else torch.tensor([5], device=DEVICE)
    buffers = [torch.full((2, 9, 48), float("nan"), dtype=dtype, device=DEVICE) for _ in range(3)]
    found = way.append(q, k, v, cos, sin, at, *buffers)
    for mine, given in zip((found, *(each[:, 5 : 5 + tokens] for each in buffers)), (q, k, k, v), strict=True):
        rotating = mine is found or mine.data_ptr() == buffers[1][:, 5].data_ptr()
        exact = reference.turn(given.double(), cos.double(), sin.double()) if rotating else given.double()
        torch.testing.assert_close(mine.double(), exact, rtol=0, atol=8 * torch.finfo(dtype).eps)
    assert all(bool(each[:, :5].isnan().all() and each[:, 5 + tokens :].isnan().all()) for each in buffers)
    turned = way.turn(q, cos, sin)
    torch.testing.assert_close(turned, found, rtol=0, atol=0)
    one = way.turn(q, cos[0], sin[0])
    torch.testing.assert_close(one[:, 0], found[:, 0], rtol=0, atol=0)


@every_dtype
def test_attention_is_merged(way: ModuleType, dtype: torch.dtype) -> None:
    first, second = noise(dtype, 2, 3, 48), noise(dtype, 2, 3, 48).flip(0)
    totals = noise(torch.float32, 2, 2, 3)
    totals[0, 0, 0] = totals[1, 1, 1] = totals[0, 1, 2] = totals[1, 1, 2] = float("-inf")
    found, total = way.merge(first, totals[0], second, totals[1])
    weights = totals.double().softmax(dim=0).nan_to_num(0.0)[..., None]
    exact = first.double() * weights[0] + second.double() * weights[1]
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=16 * torch.finfo(dtype).eps)
    torch.testing.assert_close(total, totals.logsumexp(dim=0), rtol=1e-5, atol=1e-6)
