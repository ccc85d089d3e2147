"""Test attention over block tables and whole banks: Triton and PyTorch against the reference in float64."""

from __future__ import annotations

import dataclasses
import importlib

import pytest
import torch
from torch import Tensor

from kernels import softmax
from kernels.attention import BlockTable, VisibleRange, reference, torch_impl
from kernels.rows import ChannelScale
from tests.kernels.banks import DEVICE, Case, Coding, by_row, case, plainly, slab_of

pytest.importorskip("triton")
SCALING = 0.15
CASES = {
    "group-2": case((4, 2), 64, 32, torch.float32, block=8),
    "group-8-decode": case((8, 1), 128, 64, torch.float32, count=1, block=1),
    "size-48-short-block": case((3, 3), 48, 24, torch.float32, count=7, block=5),
    "partial-rotation": case((2, 1), 96, 24, torch.float32, block=6),
    "no-rotation": case((3, 3), 64, 0, torch.float32, count=5, block=5),
    "size-512": case((8, 1), 512, 256, torch.bfloat16, count=20, block=5),
    "size-256": case((4, 1), 256, 128, torch.float32, count=3, block=3),
    "half": case((4, 2), 64, 32, torch.float16, block=8),
    "bfloat16": case((5, 1), 96, 48, torch.bfloat16, block=7),
    "bfloat16-decode": case((8, 1), 128, 64, torch.bfloat16, count=1, block=1),
    "bfloat16-blocks-of-many": case((6, 1), 64, 32, torch.bfloat16, count=50, block=25, listed=60),
    "sinks-of-another-dtype": case((4, 2), 64, 32, torch.bfloat16, block=8, sinks=torch.float32),
    "heads-shown-other-rows": case((4, 2), 64, 32, torch.float32, block=8, by_head=True),
    "heads-shown-other-rows-decode": case((6, 3), 48, 24, torch.float32, count=1, block=1, by_head=True),
    "window": case((4, 2), 64, 0, torch.float32, count=63),
    "window-one-query": case((6, 3), 48, 0, torch.float32, count=1),
    "window-bfloat16": case((8, 1), 128, 0, torch.bfloat16, count=20),
}
INT8, INT4, FP8 = torch.int8, torch.quint4x2, torch.float8_e4m3fn
CASES |= {  # quantised
    "int8": case((4, 2), 64, 32, torch.float32, block=8, coding=Coding(INT8)),
    "int8-bfloat16-decode": case((8, 1), 128, 64, torch.bfloat16, count=1, block=1, coding=Coding(INT8)),
    "int8-half-all-slabs": case((4, 2), 64, 32, torch.float16, block=8, coding=Coding(INT8, coded=(True,) * 3)),
    "int8-rows-by-head": case((5, 1), 96, 24, torch.float32, block=6, by_head=True, coding=Coding(INT8, 1)),
    "int4-size-48-short-block": case((3, 3), 48, 24, torch.float32, count=7, block=5, coding=Coding(INT4)),
    "int4-size-48-decode": case((6, 3), 48, 24, torch.float32, count=1, block=1, coding=Coding(INT4)),
    "int4-partial-rotation": case((2, 1), 96, 24, torch.float16, block=6, coding=Coding(INT4)),
    "int4-bfloat16-size-256": case((4, 1), 256, 128, torch.bfloat16, count=3, block=3, coding=Coding(INT4)),
    "int4-rows-and-waiting": case((4, 2), 64, 32, torch.float32, block=8, coding=Coding(INT4, 1, (True, False, True))),
    "fp8": case((4, 2), 128, 64, torch.float32, block=8, coding=Coding(FP8)),
    "fp8-bfloat16-no-rotation-decode": case((7, 1), 96, 0, torch.bfloat16, count=1, block=1, coding=Coding(FP8)),
}
LATENT = {  # keys are values
    "latent": case((5, 1), 288, 16, torch.float32, block=4),
    "latent-decode": case((20, 1), 576, 32, torch.bfloat16, count=1, block=1),
    "latent-int8": case((5, 1), 288, 16, torch.bfloat16, block=4, coding=Coding(INT8)),
    "latent-no-rotation": case((5, 1), 288, 0, torch.float32, block=4),
    "latent-window": case((5, 1), 288, 0, torch.float32, count=33),
    "latent-of-no-power-of-two": case((5, 1), 56, 8, torch.float32, block=4),
}
CASES |= {name: dataclasses.replace(given, values=given.keys) for name, given in LATENT.items()}


def attend(module: object, given: Case, softcap: float | None) -> tuple[Tensor, Tensor]:
    return module.attend(given.q, given.keys, given.values, given.span, given.lists, SCALING, softcap)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_errs_at_most_twice_as_much_as_pytorch(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from kernels.attention import kernel

    shares = 4 if len(CASES[name].span.end) == 1 else 1  # split over keys in decoding
    monkeypatch.setattr(kernel, "shares_of", lambda *_: shares)
    given, softcap = CASES[name], 20.0 if name in ("half", "window-bfloat16") else None
    exact = attend(reference, given.wide(), softcap)
    plain = attend(torch_impl, given, softcap)
    found = attend(kernel, given, softcap)
    assert found[0].dtype == plain[0].dtype == given.q.dtype
    for what in (0, 1):
        error = (found[what] - exact[what]).abs().max()
        assert error <= 2 * (plain[what] - exact[what]).abs().max() + 2e-6


@pytest.mark.parametrize("name", CASES)
def test_reference_and_pytorch_are_softmax_attention(name: str) -> None:
    wide = CASES[name].wide()
    for softcap in (None, 20.0):
        exact = plainly(wide, SCALING, softcap)
        for module in (reference, torch_impl):
            found = attend(module, wide, softcap)
            torch.testing.assert_close(found[0], exact[0])
            torch.testing.assert_close(found[1], exact[1])


@pytest.mark.parametrize("name", CASES)
def test_logits_written_out_are_the_same_attention(name: str) -> None:
    wide = CASES[name].wide()
    for softcap in (None, 20.0):
        output, total, given = plainly(wide, SCALING, softcap)
        logits = torch_impl.logits(wide.q, wide.keys, wide.span, wide.lists, SCALING, softcap)
        torch.testing.assert_close(logits.logsumexp(-1), total)
        weights = logits.softmax(dim=-1)
        torch.testing.assert_close(torch_impl.weighted_values(weights, wide.values, wide.lists, wide.q), output)
        summed = by_row(wide, torch_impl.sum_per_block(weights, wide.lists))
        torch.testing.assert_close(summed.double(), given.sum(dim=1), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("listed", [True, False], ids=["lists", "bank"])
def test_a_query_that_sees_nothing_gives_nothing(listed: bool) -> None:
    from kernels.attention import kernel

    given = case((4, 2), 16, 8, torch.float32, count=9, block=4 if listed else 0)
    end = given.span.end.masked_fill(torch.arange(9, device=DEVICE) < 6, 0)
    blind = dataclasses.replace(given, span=VisibleRange(given.span.start, end))
    for module in (reference, torch_impl, kernel):
        output, total = attend(module, blind, None)
        assert bool((output[:, :6] == 0).all())
        assert bool((total[:, :6] == float("-inf")).all())
        torch.testing.assert_close(output[:, 6:], attend(module, given, None)[0][:, 6:])
    output, total = torch_impl.attend(
        *_first_four(dataclasses.replace(given, span=VisibleRange(end * 0, end * 0))), None, 1.0
    )
    assert bool((output == 0).all())
    assert bool((total == float("-inf")).all())


def _first_four(given: Case) -> tuple[Tensor, object, object, VisibleRange]:
    return given.q, given.keys, given.values, given.span


@pytest.mark.parametrize("first", [0, 40], ids=["from-the-beginning", "behind-others"])
def test_causal_attention_over_slabs(first: int) -> None:
    """Rows that all queries see and the causal square behind them need no mask, wherever slabs begin."""
    given = case((4, 2), 16, 0, torch.float64, count=111 - first)
    causal = dataclasses.replace(given, span=VisibleRange(given.span.start * 0, given.span.end))
    exact = plainly(causal, SCALING, None)
    found = attend(torch_impl, causal, None)
    torch.testing.assert_close(found[0], exact[0])
    torch.testing.assert_close(found[1], exact[1])


def test_steps_and_bands_do_not_change_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in (CASES["group-2"], CASES["window"]):
        at_once = attend(torch_impl, given, None)
        with monkeypatch.context() as patch:
            patch.setattr(torch_impl, "STEP_BYTES", 1)
            patch.setattr(torch_impl, "BAND", 10)
            fresh = dataclasses.replace(given, span=VisibleRange(given.span.start, given.span.end))
            stepped = attend(torch_impl, fresh, None)
        torch.testing.assert_close(stepped, at_once)


def test_parts_merge_to_one_softmax() -> None:
    given = CASES["window"].wide()
    whole = attend(torch_impl, given, None)
    parts, at = [], 0
    for key, value in zip(given.keys, given.values, strict=True):
        span = VisibleRange(given.span.start - at, given.span.end - at)
        parts.append(torch_impl.attend(given.q, [key], [value], span, None, SCALING))
        at += key[1]
    torch.testing.assert_close(softmax.merge(parts), whole)


def test_slabs_that_a_kernel_cannot_read_are_refused() -> None:
    from kernels.slab_rows import kernel

    slab, levels = torch.zeros(2, 8, 16), [ChannelScale(torch.zeros(2, 16), torch.ones(2, 16)) for _ in range(2)]
    kinds = (Coding(INT8), Coding(INT8, 1), Coding(INT4, 1), Coding(INT8, 1))
    int8, rows, int4, other = (slab_of(slab, 0, how, levels[number == 3]) for number, how in enumerate(kinds))
    for banks, message in (
        ((slab, slab, slab.half(), slab.bfloat16()), "two kinds.*float32, float16, bfloat16"),
        ((slab, slab.half(), int8), "two kinds.*int8 in groups of 64"),
        ((int8, rows), "do not: int8 in groups of 64, int8 in groups of 1"),
        ((slab[:, :4], rows, other), "scale"),
        ((rows, int4), "kind"),
        ((slab[:, ::2],), "next to one another"),
        ((dataclasses.replace(int8, quantized=int8.quantized[..., ::2]),), "next to one another"),
    ):
        with pytest.raises(ValueError, match=message):
            kernel.table([(bank, 4) for bank in banks], slab.device)


@pytest.mark.parametrize("module", ["torch_impl", "kernel"])
def test_codes_are_read_by_lists_alone(module: str) -> None:
    given = dataclasses.replace(CASES["int8"], lists=None)
    with pytest.raises(ValueError, match="through a BlockTable"):
        attend(importlib.import_module(f"kernels.attention.{module}"), given, None)


def test_slabs_have_one_table() -> None:
    from kernels.slab_rows import kernel

    slabs = [(torch.zeros(2, 8, 16), 8), (torch.zeros(2, 4, 16), 3)]
    made = kernel.table(slabs, slabs[0][0].device)
    assert kernel.table([*slabs], slabs[0][0].device) is made
    assert made.rows == 11
    (first, _), (second, _) = slabs
    assert made.slabs.tolist() == [[first.data_ptr(), 0, 128, 0, 0, 0], [second.data_ptr(), 8, 64, 0, 0, 0]]


def test_rows_are_loaded_as_wide_as_all_of_them_are_aligned() -> None:
    from kernels.slab_rows import kernel

    aligned = torch.zeros(2, 8, 16)
    assert kernel.table([(aligned, 8)], aligned.device).layout.align == 16
    shifted = torch.zeros(2 * 8 * 16 + 1)[1:].view(2, 8, 16)
    assert kernel.table([(aligned, 8), (shifted, 8)], aligned.device).layout.align == 4
    narrow = slab_of(torch.zeros(2, 8, 48), 0, Coding(INT4), ChannelScale(torch.zeros(2, 48), torch.ones(2, 48)))
    assert kernel.table([(narrow, 8)], aligned.device).layout.align == 8  # rows of 24 bytes


def test_few_programs_split_the_keys() -> None:
    from kernels.attention import kernel

    device = torch.device("cpu")
    assert kernel.shares_of(1, 4096, device) == kernel.PROGRAMS_PER_CORE
    assert kernel.shares_of(1000, 4096, device) == 1
    assert kernel.shares_of(1, 10, device) == 1


def test_lists_are_cut_into_steps_by_block() -> None:
    lists = CASES["group-2"].lists
    assert isinstance(lists, BlockTable)
    assert torch.equal(lists.part(1, 3).rows, lists.rows[1:3])
