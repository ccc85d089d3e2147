"""Test chunk scores: Triton and PyTorch against the reference in float64; and which one runs."""

from __future__ import annotations

import dataclasses
import logging

import pytest
import torch
from torch import Tensor

from kernels import choice, pruning
from kernels.bank.state import NOWHERE
from kernels.pruning import BRANCH, CHUNK, CONSTANT, TOKEN, Copies, KeyPositions, reference, torch_impl
from kernels.rows import Bank, ChannelScale, Slabs, dense, take
from kernels.slab_facts import tensors_of
from tests.kernels.banks import Coding, slab_of, wide

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def case(
    query_heads: int,
    kv_heads: int,
    size: int,
    half: int,
    queries: int,
    rule: int,
    dtype: torch.dtype,
    kind: torch.dtype | None = None,
    lengths: tuple[int, ...] = (63, 47, 1),
) -> tuple[Tensor, Slabs, Tensor, Tensor, KeyPositions]:
    """Return two blocks of queries over 111 keys in slabs of these lengths, in chunks of 11.

    The first block sees 9 chunks, the second 4.5. The slabs are quantised to `kind`.
    """
    generator = torch.Generator().manual_seed(size + queries + rule)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(DEVICE, dtype)

    levels = ChannelScale(*(random(kv_heads, size).float().abs() + 0.5 for _ in range(2))) if kind else None
    coding = Coding(kind) if kind else None
    slabs: Slabs = [
        (slab_of(random(kv_heads, length, size), spare, coding, levels), length)
        for length, spare in zip(lengths, (0, 5, 2), strict=False)
    ]
    starts = torch.arange(0, 111, 11, device=DEVICE).expand(2, -1)
    angles = torch.rand(200, half, generator=generator).to(DEVICE) * 6
    places = KeyPositions(
        rule=torch.tensor([rule, TOKEN], device=DEVICE),
        group=torch.tensor([1, 3], device=DEVICE),
        offset=4,
        cos=angles.cos(),
        sin=angles.sin(),
    )
    return random(query_heads, 2, queries, size), slabs, starts, torch.tensor([100, 50], device=DEVICE), places


@pytest.mark.parametrize(
    ("heads", "size", "half", "queries", "rule", "dtype", "kind"),
    [
        ((4, 2), 64, 32, 16, BRANCH, torch.float32, None),
        ((8, 1), 128, 64, 1, CHUNK, torch.float32, None),
        ((3, 3), 48, 24, 7, TOKEN, torch.float32, None),
        ((2, 1), 96, 32, 5, CONSTANT, torch.float32, None),
        ((4, 4), 64, 0, 3, BRANCH, torch.float32, None),
        ((4, 2), 64, 32, 9, BRANCH, torch.float16, None),
        ((4, 2), 128, 64, 9, CHUNK, torch.bfloat16, None),
        ((4, 2), 64, 32, 16, BRANCH, torch.float32, torch.int8),
        ((8, 1), 128, 64, 1, CHUNK, torch.bfloat16, torch.int8),
        ((3, 3), 48, 24, 7, TOKEN, torch.float32, torch.quint4x2),
        ((2, 1), 96, 32, 5, CONSTANT, torch.float16, torch.quint4x2),
        ((5, 1), 256, 0, 1, BRANCH, torch.bfloat16, torch.float8_e4m3fn),
        ((5, 1), 512, 256, 3, BRANCH, torch.bfloat16, None),
    ],
    ids=[
        *("group-2", "group-8-one-query", "size-48", "partial-rotation", "no-rotation", "half", "bfloat16"),
        *("int8", "int8-bfloat16-one-query", "int4-size-48", "int4-half", "fp8-size-256", "size-512"),
    ],
)
def test_the_kernel_errs_at_most_twice_as_much_as_pytorch(
    heads: tuple[int, int],
    size: int,
    half: int,
    queries: int,
    rule: int,
    dtype: torch.dtype,
    kind: torch.dtype | None,
) -> None:
    from kernels.pruning import kernel

    q, slabs, starts, limits, places = case(*heads, size, half, queries, rule, dtype, kind)
    exact_places = dataclasses.replace(places, cos=places.cos.double(), sin=places.sin.double())
    exact = reference.chunk_scores(q.double(), wide(slabs), starts, limits, 11, exact_places)
    plain = torch_impl.chunk_scores(q, slabs, starts, limits, 11, places)
    found = kernel.chunk_scores(q, slabs, starts, limits, 11, places)
    hidden = starts >= limits[:, None]
    assert bool((found[hidden] == float("-inf")).all())
    assert bool((plain[hidden] == float("-inf")).all())
    error = (found - exact)[~hidden].abs().max()
    assert error <= 2 * (plain - exact)[~hidden].abs().max() + 1e-5
    in_steps = torch_impl.chunk_scores(q.double(), wide(slabs), starts, limits, 11, exact_places)
    torch.testing.assert_close(in_steps, exact)


COPIED = 60  # keys, of the 100 that queries see


def copies_of(slabs: Slabs, every: int, starts: Tensor, size: int) -> Copies:
    """Return copies of every `every`-th of the first `COPIED` keys, and of two in three chunks, in another order.

    Behind them are rows that must not be read.
    """
    order = torch.arange(starts.shape[1] - 1, -1, -1, device=starts.device)
    places = torch.where(order % 3 == 0, NOWHERE, order * size).expand(len(starts), -1)
    rows = (order[:, None] * size + torch.arange(size, device=starts.device)).flatten().clamp_max(110)
    first = slabs[0][0]

    def copied(index: Tensor, groups: Tensor) -> Bank:
        if isinstance(first, Tensor):
            return dense(slabs, first.dtype)[:, index].contiguous()
        codes, scale = (torch.cat(parts, dim=1) for parts in zip(*map(tensors_of, (x for x, _ in slabs)), strict=True))
        chosen = codes.view(torch.uint8)[:, index].view(codes.dtype)
        return dataclasses.replace(first, quantized=chosen, scale=scale[:, groups])

    near = copied(torch.arange(0, 100, every), torch.arange(2))
    behind = tensors_of(near)[0][:, COPIED // every :]
    behind.copy_(behind.flip(2))
    return Copies(every, COPIED, near, copied(rows, rows // 64), places)


@pytest.mark.parametrize(("kind", "every"), [(None, 4), (torch.int8, 1), (torch.quint4x2, 4)])
def test_copies_are_read_instead_and_change_nothing(kind: torch.dtype | None, every: int) -> None:
    from kernels.pruning import kernel

    q, slabs, starts, limits, places = case(4, 2, 64, 32, 3, BRANCH, torch.float32, kind, (64, 47))
    plain = kernel.chunk_scores(q, slabs, starts, limits, 11, places)
    copies = copies_of(slabs, every, starts, 11)
    for with_units in (True, False):
        given = copies if with_units else dataclasses.replace(copies, units=None, places=None)
        assert torch.equal(kernel.chunk_scores(q, slabs, starts, limits, 11, places, given), plain)
    at = 0
    for slab, length in slabs:  # what has a copy is not read where it was
        rows = slab if isinstance(slab, Tensor) else slab.quantized
        number = torch.arange(at, at + length)
        gone = (number % every == 0) & (number < COPIED)
        rows[:, :length][:, gone] = rows[:, :length][:, gone].flip(2)
        at += length
    assert torch.equal(kernel.chunk_scores(q, slabs, starts, limits, 11, places, given), plain)
    assert not torch.equal(kernel.chunk_scores(q, slabs, starts, limits, 11, places), plain)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["half", "bfloat16"])
def test_large_keys_neither_overflow_nor_tie(dtype: torch.dtype) -> None:
    """Dot products of keys with large biases were once infinite in half precision, or rounded to a few numbers."""
    q, slabs, starts, limits, places = case(4, 2, 64, 0, 1, CONSTANT, dtype)
    for slab, length in slabs:
        assert isinstance(slab, Tensor)
        slab[:, :length, 0] += 300
    q[..., 0] = 400
    exact = reference.chunk_scores(q.double(), wide(slabs), starts, limits, 11, places)
    found = torch_impl.chunk_scores(q, slabs, starts, limits, 11, places)
    torch.testing.assert_close(found, exact.float())


def test_take_reads_rows_across_slabs() -> None:
    _, slabs, _, _, _ = case(4, 2, 16, 8, 1, BRANCH, torch.float32)
    whole = torch.cat([slab[:, :length] for slab, length in slabs], dim=1)
    index = torch.randint(0, 111, (2, 50), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    rows = take(slabs, index)
    for head in range(2):
        assert torch.equal(rows[head], whole[head][index[head]])


def test_steps_do_not_change_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    q, slabs, starts, limits, places = case(4, 2, 16, 8, 5, BRANCH, torch.float32)
    at_once = torch_impl.chunk_scores(q, slabs, starts, limits, 11, places)
    monkeypatch.setattr(torch_impl, "STEP_BYTES", 1)
    torch.testing.assert_close(torch_impl.chunk_scores(q, slabs, starts, limits, 11, places), at_once)


@pytest.mark.parametrize("wanted", ["torch", "triton"])
def test_the_implementation_is_chosen_once_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wanted: str
) -> None:
    from kernels.pruning import kernel

    monkeypatch.setenv("STOCKPOT_KERNELS", wanted)
    ran: list[str] = []
    for module, name in ((torch_impl, "torch"), (kernel, "triton")):
        monkeypatch.setattr(module, "chunk_scores", lambda *arguments, name=name: ran.append(name))
    choice.implementation.cache_clear()
    try:
        with caplog.at_level(logging.INFO, logger="kernels.choice"):
            for _ in range(2):
                pruning.chunk_scores(*case(4, 2, 16, 8, 1, BRANCH, torch.float32)[:4], 11, KeyPositions(*[None] * 5))  # type: ignore[arg-type]
    finally:
        choice.implementation.cache_clear()
    assert ran == [wanted] * 2
    assert len(caplog.records) == 1


def test_a_choice_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOCKPOT_KERNELS", "fortran")
    choice.implementation.cache_clear()
    with pytest.raises(ValueError, match="auto, torch, triton"):
        choice.implementation()
    choice.implementation.cache_clear()
