"""Quantised pages: error bounds, odd sizes, zeros; the Triton kernel gives the codes and numbers of the reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels import rows as banks
from kernels.quantise import KINDS, reference, stored, width
from kernels.rows import Levels, Pages

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = {torch.int8: "int8", torch.quint4x2: "int4", torch.float8_e4m3fn: "fp8"}
every_kind = pytest.mark.parametrize("kind", KINDS, ids=NAMES.get)


def pages(rows: int, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Five pages: noise, large, small, all zero, and one outlier."""
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
    x = pages(rows, size, dtype)
    codes, scale = reference.quantise(x, kind)
    assert codes.shape == (5, rows, width(kind, size))
    assert codes.element_size() == 1
    error = (reference.dequantise(codes, scale, kind, torch.float32) - x.float()).abs()
    largest = x.float().abs().amax(dim=(1, 2))
    step = (largest / reference.LARGEST[kind])[:, None, None]
    if kind == torch.float8_e4m3fn:  # three bits behind the point, and a fixed step below 2^-6
        assert bool((error <= torch.maximum(x.float().abs() / 16, step * 2**-10) * 1.001).all())
    else:
        assert bool((error <= 0.501 * step).all())
    assert bool((error[3] == 0).all())  # zeros stay zeros
    assert error.max() > 0  # and it is not the identity


@every_kind
@pytest.mark.parametrize(("rows", "size"), [(64, 48), (63, 64), (1, 96)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["float32", "half", "bfloat16"])
def test_the_kernel_equals_the_reference(kind: torch.dtype, rows: int, size: int, dtype: torch.dtype) -> None:
    pytest.importorskip("triton")
    from kernels.quantise import kernel

    x = pages(rows, size, dtype)
    codes, scale = reference.quantise(x, kind)
    if kind != torch.float8_e4m3fn or DEVICE == "cuda":  # the interpreter halves what rounds up to a power of two
        found_codes, found_scale = kernel.quantise(x, kind)
        torch.testing.assert_close(found_scale, scale, rtol=1e-6, atol=0)
        # A quotient half-way between two codes may be rounded either way: division is not the same everywhere.
        mine, theirs = (reference.unpack(each, kind, torch.float32) for each in (found_codes, codes))
        assert float((mine != theirs).float().mean()) < 1e-3
        torch.testing.assert_close(mine, theirs, rtol=1 / 8 if kind == torch.float8_e4m3fn else 0, atol=1)
    numbers = reference.dequantise(codes, scale, kind, dtype)
    torch.testing.assert_close(kernel.dequantise(codes, scale, kind, dtype), numbers, rtol=1e-2, atol=1e-30)


@every_kind
@pytest.mark.parametrize("count", [128, 300, 320])
def test_scores_of_codes_are_those_of_the_numbers_that_they_stand_for(
    kind: torch.dtype, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(banks, "STEP", 128)
    x = torch.randn(2, 320, 48, generator=torch.Generator().manual_seed(1)) + 3
    codes = torch.empty(2, 320, width(kind, 48), dtype=stored(kind))
    bank = Pages(codes, torch.empty(2, 5), Levels.of(x), kind, torch.float32)
    bank.write(0, x)
    q, found = torch.randn(2, 3, 48, generator=torch.Generator().manual_seed(2)), torch.full((2, 3, 400), -1.0)
    banks.score(bank, q, found[..., 40 : 40 + count])
    numbers = banks.take([(bank, 320)], torch.arange(count).expand(2, -1))
    torch.testing.assert_close(found[..., 40 : 40 + count], q @ numbers.transpose(1, 2), rtol=1e-4, atol=1e-4)
    assert bool((found[..., :40] == -1).all() and (found[..., 40 + count :] == -1).all())


def test_an_odd_head_size_has_no_four_bit_codes() -> None:
    with pytest.raises(ValueError, match="47 is odd"):
        reference.quantise(torch.ones(1, 4, 47), torch.quint4x2)
