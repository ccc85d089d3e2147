"""Test quantisation of groups: error bounds, odd sizes, zeros; Triton and PyTorch give the codes of the reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels.quantise import reference, torch_impl, unpack, width
from kernels.quantise.kinds import LARGEST
from tests.kernels.banks import DEVICE, every_kind


def groups(rows: int, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return five groups: noise, large, small, all zero, and one outlier."""
    x = torch.randn(5, rows, size, generator=torch.Generator().manual_seed(rows + size))
    x *= torch.tensor([1.0, 300.0, 1e-3, 0.0, 1.0])[:, None, None]
    x[4, 0, 0] = 50.0
    return x.to(DEVICE, dtype)


@every_kind
@pytest.mark.parametrize(("rows", "size"), [(64, 48), (63, 64), (111, 128), (1, 96), (17, 256)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["float32", "half", "bfloat16"])
def test_no_number_is_off_by_more_than_its_code_allows(
    kind: torch.dtype, rows: int, size: int, dtype: torch.dtype
) -> None:
    x = groups(rows, size, dtype)
    codes, scale = reference.quantise(x, kind)
    assert codes.shape == (5, rows, width(kind, size))
    assert codes.element_size() == 1
    error = (reference.dequantise(codes, scale, kind, torch.float32) - x.float()).abs()
    largest = x.float().abs().amax(dim=(1, 2))
    step = (largest / LARGEST[kind])[:, None, None]
    if kind == torch.float8_e4m3fn:  # three bits behind the point, and a fixed step below 2^-6
        assert bool((error <= torch.maximum(x.float().abs() / 16, step * 2**-10) * 1.001).all())
    elif kind == torch.quint2x4:  # a single number may be off by anything; of a bell the mean square by 0.119 of it
        bells = x[:3].float()
        assert bool((error[:3].square().mean(dim=(1, 2)) < 0.15 * bells.square().mean(dim=(1, 2))).all())
    else:
        assert bool((error <= 0.501 * step).all())
    assert bool((error[3] == 0).all())  # zeros stay zeros
    assert error.max() > 0  # and it is not the identity


@every_kind
@pytest.mark.parametrize(("rows", "size"), [(64, 48), (63, 64), (111, 128), (1, 96)])
def test_pytorch_gives_the_codes_and_numbers_of_the_reference(kind: torch.dtype, rows: int, size: int) -> None:
    x = groups(rows, size)
    (codes, scale), (found, found_scale) = reference.quantise(x, kind), torch_impl.quantise(x, kind)
    torch.testing.assert_close(found_scale, scale)
    assert float((unpack(found, kind, torch.float32) != unpack(codes, kind, torch.float32)).float().mean()) < 1e-3
    numbers = reference.dequantise(codes, scale, kind, torch.float32)
    assert torch.equal(torch_impl.dequantise(codes, scale, kind, torch.float32), numbers)


@every_kind
@pytest.mark.parametrize(("rows", "size"), [(64, 48), (63, 64), (1, 96)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["float32", "half", "bfloat16"])
def test_the_kernel_equals_the_reference(kind: torch.dtype, rows: int, size: int, dtype: torch.dtype) -> None:
    pytest.importorskip("triton")
    from kernels.quantise import kernel

    x = groups(rows, size, dtype)
    codes, scale = reference.quantise(x, kind)
    if kind != torch.float8_e4m3fn or DEVICE == "cuda":  # the interpreter halves numbers that round up to a power of 2
        found_codes, found_scale = kernel.quantise(x, kind)
        torch.testing.assert_close(found_scale, scale, rtol=1e-6, atol=0)
        # A quotient half-way between two codes may be rounded either way: division is not the same everywhere.
        mine, theirs = (unpack(each, kind, torch.float32) for each in (found_codes, codes))
        assert float((mine != theirs).float().mean()) < 1e-3
        torch.testing.assert_close(mine, theirs, rtol=1 / 8 if kind == torch.float8_e4m3fn else 0, atol=1)
    numbers = reference.dequantise(codes, scale, kind, dtype)
    torch.testing.assert_close(kernel.dequantise(codes, scale, kind, dtype), numbers, rtol=1e-2, atol=1e-30)


@pytest.mark.parametrize(("kind", "size"), [(torch.quint4x2, 47), (torch.quint2x4, 46)], ids=["int4", "int2"])
def test_codes_that_would_not_fill_their_bytes_are_refused(kind: torch.dtype, size: int) -> None:
    with pytest.raises(ValueError, match=f"a head size of {size} is no multiple"):
        torch_impl.quantise(torch.ones(1, 4, size), kind)
