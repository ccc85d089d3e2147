"""Test MXFP4: weights against those of transformers, products against float64, for all three implementations."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from kernels.mxfp4 import reference, torch_impl

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SIZES = [(3, 7, 32), (2, 16, 96), (4, 9, 608)]  # matrices, rows, columns
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "half", "bfloat16"])
every_size = pytest.mark.parametrize("size", SIZES, ids=str)


@pytest.fixture(params=["reference", "torch_impl", "kernel"])
def way(request: pytest.FixtureRequest) -> ModuleType:
    if request.param != "kernel":
        return reference if request.param == "reference" else torch_impl
    pytest.importorskip("triton")
    from kernels.mxfp4 import kernel

    return kernel


def weights(count: int, rows: int, columns: int, least: int = 110, most: int = 134) -> tuple[Tensor, Tensor]:
    """Return random codes, with scales from `least` to `most`."""
    generator = torch.Generator().manual_seed(count + rows)
    blocks = torch.randint(0, 256, (count, rows, columns // 32, 16), dtype=torch.uint8, generator=generator)
    scales = torch.randint(least, most + 1, blocks.shape[:3], dtype=torch.uint8, generator=generator)
    return blocks.to(DEVICE), scales.to(DEVICE)


@every_dtype
@every_size
def test_weights_are_what_transformers_unpacks(way: ModuleType, size: tuple[int, int, int], dtype: torch.dtype) -> None:
    blocks, scales = weights(*size)
    which = torch.tensor([size[0] - 1, 0, size[0] - 1], device=DEVICE)
    expected = convert_moe_packed_tensors(blocks, scales, dtype=dtype).transpose(1, 2)[which]
    assert torch.equal(way.unpack(blocks, scales, which, dtype), expected)
    assert torch.equal(way.unpack(blocks[:1], scales[:1], None, dtype), expected[1:2])


def test_scales_of_all_sizes_are_powers_of_two(way: ModuleType) -> None:
    blocks = torch.full((1, 256, 1, 16), 0xA2, dtype=torch.uint8, device=DEVICE)  # 1, then -1
    scales = torch.arange(256, dtype=torch.uint8, device=DEVICE).view(1, 256, 1)
    found = way.unpack(blocks, scales, torch.zeros(1, dtype=torch.int64, device=DEVICE), torch.float32)[0].cpu()
    powers = torch.tensor([2.0 ** (byte - 127) for byte in range(255)])[:, None] * torch.tensor([1.0, -1.0])
    assert torch.equal(found[:255, :2], powers.float())
    assert bool(found[255].isnan().all())


@every_dtype
@every_size
def test_products_are_as_exact_as_pytorchs(way: ModuleType, size: tuple[int, int, int], dtype: torch.dtype) -> None:
    blocks, scales = weights(*size, 120, 126)
    which = torch.tensor([size[0] - 1, 0, 0, 1], device=DEVICE)
    x = torch.randn(4, size[2], generator=torch.Generator().manual_seed(1)).to(DEVICE, dtype)
    for given in (x, x[:1].expand(4, -1)):  # one row, the same for all
        plain = reference.unpack(blocks, scales, which, torch.float64)
        exact = (plain @ given.double()[..., None])[..., 0]
        found = way.product(given, blocks, scales, which)
        assert found.dtype == dtype
        theirs = (plain.to(dtype) @ given[..., None])[..., 0]
        error, allowed = ((each.double() - exact).norm() for each in (found, theirs))
        if dtype == torch.bfloat16 and DEVICE == "cpu":
            allowed = exact.norm() * 2**-8  # the interpreter truncates where others round
        assert error <= 2 * allowed + 1e-6 * exact.norm()
