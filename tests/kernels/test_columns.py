"""Test column sums of probabilities: Triton and PyTorch against the reference in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels.columns import reference, torch_impl
from tests.kernels.banks import Case, Coding, by_row, case, plainly

pytest.importorskip("triton")
SCALING = 0.15
CASES = {
    "catalyst": case((8, 2), 64, 0, torch.float32, count=37),
    "size-48-one-query": case((6, 3), 48, 0, torch.float32, count=1),
    "lists": case((4, 2), 96, 24, torch.float32, count=7, block=5),
    "list-of-one-query": case((8, 1), 128, 64, torch.bfloat16, count=1, block=1),
    "heads-shown-other-rows": case((4, 2), 64, 32, torch.float32, count=7, block=5, by_head=True),
    "half": case((4, 2), 64, 0, torch.float16),
    "bfloat16-size-256": case((5, 1), 256, 0, torch.bfloat16, count=20),
    "bfloat16-size-512": case((5, 1), 512, 0, torch.bfloat16, count=20),
    "int8": case((4, 2), 96, 24, torch.float32, count=7, block=5, coding=Coding(torch.int8)),
    "int4-rows": case((8, 1), 48, 24, torch.bfloat16, count=1, block=1, coding=Coding(torch.quint4x2, 1)),
}


def sums(module: object, given: Case, total: Tensor, softcap: float | None) -> Tensor:
    return module.column_sums(given.q, given.keys, given.span, given.lists, total, SCALING, softcap)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_errs_at_most_twice_as_much_as_pytorch(name: str) -> None:
    from kernels.columns import kernel

    given, softcap = CASES[name], 20.0 if name == "half" else None
    wide = given.wide()
    _, total, _ = plainly(wide, SCALING, softcap)
    exact = by_row(wide, sums(reference, wide, total, softcap))
    plain, found = (by_row(given, sums(module, given, total.float(), softcap)) for module in (torch_impl, kernel))
    assert found.dtype == plain.dtype == torch.float32
    assert (found - exact).abs().max() <= 2 * (plain - exact).abs().max() + 2e-6


@pytest.mark.parametrize("name", CASES)
def test_reference_and_pytorch_sum_the_matrix(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    wide = CASES[name].wide()
    _, total, probability = plainly(wide, SCALING, 20.0)
    monkeypatch.setattr(torch_impl, "STEP_BYTES", 4 * wide.q.shape[0] * wide.q.shape[1] * 13)
    for module in (reference, torch_impl):
        found = by_row(wide, sums(module, wide, total, 20.0))
        torch.testing.assert_close(found.double(), probability.sum(dim=1), atol=1e-6, rtol=1e-5)
