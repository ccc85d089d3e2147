"""The check of all kernels runs on any machine, and notices a kernel that is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import gpu_kernels
from kernels.rows import Slabs

pytest.importorskip("triton")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"QUERY_HEADS": 2, "HEADS": 1, "SIZE": 16, "BLOCK": 8, "SLAB": 32, "PRUNED": 16}.items():
        monkeypatch.setattr(gpu_kernels, name, value)


def test_every_kernel_agrees_with_its_reference() -> None:
    rows = list(gpu_kernels.kernel_rows(DEVICE, [50], torch.float32))
    every = ["pruning", "attention", "attention", "columns", "gathering"]
    assert [row["kernel"] for row in rows if row["bank"] == gpu_kernels.ON_DEVICE] == every
    for bank in ("host", "host int8", "host int4", "host fp8"):
        found = [row["kernel"] for row in rows if row["bank"] == bank]
        assert found == [name for name in every if name != "columns"]
    assert all(row["agrees"] for row in rows), rows
    assert all((row["seconds"] is None) == (DEVICE.type == "cpu") for row in rows)


def test_a_wrong_kernel_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels.columns import kernel

    right = kernel.column_sums
    monkeypatch.setattr(kernel, "column_sums", lambda *arguments: _spoilt(right(*arguments)))
    rows = list(gpu_kernels.kernel_rows(DEVICE, [30], torch.float32))
    assert [row["kernel"] for row in rows if not row["agrees"]] == ["columns"]


def test_a_kernel_that_reads_codes_wrongly_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels.paged import kernel

    right = kernel.table

    def wrong(slabs: Slabs, device: torch.device) -> object:
        made = right(slabs, device)
        return made._replace(levels=(made.levels[0], made.levels[1] * 1.01)) if made.slabs[:, 4].any() else made

    for name in ("attention", "gathering", "pruning"):
        monkeypatch.setattr(f"kernels.{name}.kernel.table", wrong)
    rows = list(gpu_kernels.kernel_rows(DEVICE, [30], torch.float32))
    assert {row["bank"] for row in rows if not row["agrees"]} == {"host int8", "host int4", "host fp8"}
    assert all(not row["agrees"] for row in rows if row["bank"] == "host int8")


@pytest.mark.parametrize(("others", "agrees"), [(1, True), (4, False)])
def test_rounding_may_choose_another_key_for_a_chunk_or_two(
    monkeypatch: pytest.MonkeyPatch, others: int, agrees: bool
) -> None:
    """Of 256 chunks in bfloat16, PyTorch chooses two or three otherwise and the kernel as many, but others: the largest
    error was twice as large one time in four.
    """
    from kernels.pruning import kernel

    right = kernel.chunk_scores

    def rounded(*arguments: Any) -> Tensor:
        scores = right(*arguments)
        scores[:, :others] -= 1.0
        return scores

    monkeypatch.setattr(kernel, "chunk_scores", rounded)
    first = next(gpu_kernels.kernel_rows(DEVICE, [640], torch.float32))  # 40 chunks
    assert (first["kernel"], first["agrees"]) == ("pruning", agrees)


def _spoilt(sums: Tensor) -> Tensor:
    sums[0, 0, 0] += 0.01
    return sums


def test_a_length_without_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 keys"):
        next(gpu_kernels.kernel_rows(DEVICE, [1]))
