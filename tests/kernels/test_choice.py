"""Test the choice of an implementation for tensors of the host beside a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels import attention, choice, columns, gathering, pruning, quantise
from kernels.attention import VisibleRange
from kernels.gathering import EntryBuffers
from kernels.pruning import CONSTANT, KeyPositions

CPU = torch.device("cpu")
SLAB_KERNELS = ("attention.attend", "columns.column_sums", "gathering.gather", "gathering.gather_rows")
KERNELS = (*SLAB_KERNELS, "pruning.chunk_scores")


def test_beside_a_gpu_the_references_serve_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels were once launched on tensors of the host, with --device cpu on a machine with a GPU."""
    pytest.importorskip("triton")
    launched: list[str] = []

    def launching(name: str) -> Any:
        return lambda *_: launched.append(name)

    for name in (*KERNELS, "quantise.quantise", "quantise.dequantise"):
        package, function = name.split(".")
        monkeypatch.setattr(f"kernels.{package}.kernel.{function}", launching(name))
    monkeypatch.setattr(choice, "implementation", lambda: "triton")

    def everything() -> None:
        q, x = torch.randn(2, 3, 8, device=CPU), torch.randn(1, 4, 8, device=CPU)
        bank, span = [(x, 4)], VisibleRange(torch.zeros(3, dtype=torch.long), torch.full((3,), 4))
        index, turns = torch.tensor([[2, 0]]), torch.ones(5, 4)
        attention.attend(q, bank, bank, span, None, 0.5)
        columns.column_sums(q, bank, span, None, torch.zeros(2, 3), 0.5)
        gathering.gather(
            bank, bank, index, turns[:2], turns[:2], EntryBuffers(*(torch.empty(1, 2, 8) for _ in range(3)))
        )
        gathering.gather_rows(bank, index, CPU, torch.float32)
        places = KeyPositions(torch.tensor([CONSTANT]), torch.tensor([1]), 0, turns, turns)
        pruning.chunk_scores(q[:, None], bank, torch.tensor([[0, 2]]), torch.tensor([4]), 2, places)
        quantise.quantise(x, torch.int8)
        quantise.dequantise(torch.zeros(1, 4, 8, dtype=torch.int8), torch.ones(1), torch.int8, torch.float32)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    everything()
    assert launched == []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # as where Triton is forced, and interprets
    everything()
    assert launched == [*KERNELS, "quantise.quantise", "quantise.dequantise"]


def test_where_triton_cannot_launch_anything_the_references_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every reading on a GPU once ended with an error of Triton, where no C compiler was installed."""
    runtime = pytest.importorskip("triton.runtime")

    class Broken:
        @property
        def active(self) -> None:
            raise RuntimeError("Failed to find C compiler.\nSee the manual.")

    monkeypatch.setattr(runtime, "driver", Broken())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.delenv("STOCKPOT_KERNELS", raising=False)
    choice.implementation.cache_clear()
    try:
        assert choice.implementation() == "torch"
        assert "(Failed to find C compiler.); install a C compiler" in caplog.text
        monkeypatch.setenv("STOCKPOT_KERNELS", "triton")
        choice.implementation.cache_clear()
        with pytest.raises(ValueError, match=r"=triton: Triton cannot use the GPU .*, or unset the variable\."):
            choice.implementation()
    finally:
        choice.implementation.cache_clear()
