"""Test dot products with quantised rows: Triton and PyTorch against the dequantised numbers in float64."""

from __future__ import annotations

import pytest
import torch

from kernels import rows as banks
from kernels.quantise import stored, unpack, width
from kernels.rows import ChannelScale, QuantizedSlab
from kernels.scoring import reference, torch_impl
from tests.kernels.banks import DEVICE, every_kind


def coded(kind: torch.dtype, rows: int, size: int, group: int, dtype: torch.dtype = torch.float32) -> QuantizedSlab:
    """Return a quantised slab of two heads, of numbers whose mean is not zero."""
    x = torch.randn(2, rows, size, generator=torch.Generator().manual_seed(rows + size)) + 3
    codes = torch.empty(2, rows, width(kind, size), dtype=stored(kind), device=DEVICE)
    levels = ChannelScale.of(x[:, :64].to(DEVICE))
    bank = QuantizedSlab(codes, torch.empty(2, rows // group, device=DEVICE), levels, kind, dtype)
    bank.write(0, x.to(DEVICE))
    return bank


@every_kind
@pytest.mark.parametrize("group", [1, 64])
@pytest.mark.parametrize("count", [128, 300, 320])
def test_scores_of_codes_are_those_of_the_numbers_that_they_stand_for(
    kind: torch.dtype, group: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_impl, "STEP", 128)
    bank = coded(kind, 320, 48, group)
    q = torch.randn(2, 3, 48, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    found = torch.full((2, 3, 400), -1.0, device=DEVICE)
    banks.score(bank, q, found[..., 40 : 40 + count])
    numbers = banks.take([(bank, 320)], torch.arange(count, device=DEVICE).expand(2, -1))
    torch.testing.assert_close(found[..., 40 : 40 + count], q @ numbers.transpose(1, 2), rtol=1e-4, atol=1e-4)
    assert bool((found[..., :40] == -1).all() and (found[..., 40 + count :] == -1).all())


@every_kind
@pytest.mark.parametrize(("size", "group", "queries"), [(48, 1, 1), (64, 64, 7), (128, 1, 33), (256, 64, 4)])
@pytest.mark.parametrize("wide", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_the_kernel_errs_at_most_twice_as_much_as_pytorch(
    kind: torch.dtype, size: int, group: int, queries: int, wide: torch.dtype
) -> None:
    pytest.importorskip("triton")
    from kernels.scoring import kernel

    bank, count = coded(kind, 320, size, group), 301
    q = torch.randn(2, queries, size, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    shift = torch.randn(2, queries, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    numbers = unpack(bank.quantized[:, :count], kind, torch.float64)
    scale = bank.scale.repeat_interleave(group, dim=1)[:, None, :count].double()
    exact = q.double() @ numbers.transpose(1, 2) * scale + shift[..., None].double()
    by_reference = torch.empty(2, queries, count, device=DEVICE, dtype=torch.float64)
    reference.scores(q.double(), bank.quantized, bank.scale.double(), shift.double(), kind, wide, by_reference)
    torch.testing.assert_close(by_reference, exact)
    theirs = (q.to(wide) @ numbers.to(wide).transpose(1, 2)).float() * scale.float() + shift[..., None]
    around = torch.full((2, queries, 400), -1.0, device=DEVICE)
    kernel.scores(q, bank.quantized, bank.scale, shift, kind, wide, around[..., 40 : 40 + count])
    mine = around[..., 40 : 40 + count]
    least = 1e-6 * float(exact.abs().max())
    assert float((mine - exact).abs().max()) <= 2 * float((theirs - exact).abs().max()) + least
    assert bool((around[..., :40] == -1).all() and (around[..., 40 + count :] == -1).all())
