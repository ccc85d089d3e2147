"""Test gathering of entries: Triton and PyTorch against the reference in float64."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from kernels.gathering import EntryBuffers, reference, torch_impl
from kernels.quantise import stored, width
from kernels.rows import GROUP_SIZE, ChannelScale, QuantizedSlab, require_unquantized, split_by_slab, take, take_shared
from kernels.slab_facts import reachable
from tests.kernels.banks import DEVICE, Case, Coding, case

pytest.importorskip("triton")


@pytest.mark.parametrize(
    ("heads", "size", "half", "dtype"),
    [
        (2, 64, 32, torch.float32),
        (3, 48, 24, torch.float32),
        (1, 96, 24, torch.float16),
        (2, 128, 64, torch.bfloat16),
        (1, 256, 0, torch.bfloat16),
    ],
    ids=["size-64", "size-48", "partial-rotation", "bfloat16", "no-rotation"],
)
def test_the_kernel_errs_at_most_twice_as_much_as_pytorch(heads: int, size: int, half: int, dtype: torch.dtype) -> None:
    from kernels.gathering import kernel

    given = case((heads, heads), size, 0, dtype)
    wide = given.wide()
    generator = torch.Generator().manual_seed(0)
    index = torch.stack([torch.randperm(111, generator=generator)[:41].sort().values for _ in range(heads)]).to(DEVICE)
    angles = torch.rand(41, half, generator=generator).to(DEVICE) * 6

    def kept(module: object, case: object, dtype: torch.dtype) -> EntryBuffers:
        buffers = EntryBuffers(*(torch.full((heads, 50, size), 7.0, dtype=dtype, device=DEVICE) for _ in range(3)))
        module.gather(case.keys, case.values, index, angles.cos().to(dtype), angles.sin().to(dtype), buffers)  # type: ignore[attr-defined]
        return buffers

    exact, plain, found = (
        kept(reference, wide, torch.float64),
        kept(torch_impl, given, dtype),
        kept(kernel, given, dtype),
    )
    keys, values = (
        torch.cat([slab[:, :length] for slab, length in bank], dim=1) for bank in (given.keys, given.values)
    )
    for head in range(heads):
        assert torch.equal(found.keys[head, :41], keys[head, index[head]])
        assert torch.equal(found.values[head, :41], values[head, index[head]])
    for buffers in (plain, found):
        assert all(bool((rows[:, 41:] == 7.0).all()) for rows in (buffers.keys, buffers.rotated, buffers.values))
    error = (found.rotated - exact.rotated).abs().max()
    assert error <= 2 * (plain.rotated - exact.rotated).abs().max() + 1e-6


@pytest.mark.parametrize("half", [0, 16])
def test_keys_that_are_values_go_once(half: int) -> None:
    """Wide rows go in three parts, whether they are rotated or not."""
    from kernels.gathering import kernel

    given = case((1, 1), 288, 0, torch.bfloat16)
    index, angles = torch.arange(0, 82, 2, device=DEVICE)[None], torch.rand(41, half, device=DEVICE)
    nothing = [(slab[:0], length) for slab, length in require_unquantized(given.values)]
    written = []
    for module in (kernel, torch_impl):
        buffers = EntryBuffers(
            *(torch.full((heads, 50, 288), 7.0, dtype=torch.bfloat16, device=DEVICE) for heads in (1, 1, 0))
        )
        module.gather(given.keys, nothing, index, angles.cos(), angles.sin(), buffers)
        written.append(buffers)
    assert torch.equal(written[0].keys, written[1].keys)
    torch.testing.assert_close(written[0].rotated, written[1].rotated, atol=0.02, rtol=0.02)


@pytest.mark.parametrize(
    ("kind", "page", "size", "half", "dtype"),
    [
        (torch.int8, GROUP_SIZE, 64, 32, torch.float32),
        (torch.quint4x2, 1, 48, 24, torch.float32),
        (torch.quint4x2, GROUP_SIZE, 96, 24, torch.bfloat16),
        (torch.float8_e4m3fn, GROUP_SIZE, 128, 64, torch.float16),
    ],
    ids=["int8", "int4-rows", "int4-partial-rotation", "fp8"],
)
def test_codes_are_gathered_as_the_numbers_they_stand_for(
    kind: torch.dtype, page: int, size: int, half: int, dtype: torch.dtype
) -> None:
    from kernels.gathering import kernel

    given = case((2, 2), size, 0, dtype, coding=Coding(kind, page, (True, True, True)))
    exact = given.wide()
    index = torch.randint(0, 111, (2, 41), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    angles = torch.rand(41, half, generator=torch.Generator().manual_seed(1)).to(DEVICE) * 6

    def kept(module: object, case: Case, dtype: torch.dtype) -> EntryBuffers:
        buffers = EntryBuffers(*(torch.full((2, 41, size), 7.0, dtype=dtype, device=DEVICE) for _ in range(3)))
        module.gather(case.keys, case.values, index, angles.cos(), angles.sin(), buffers)  # type: ignore[attr-defined]
        return buffers

    true, plain, found = (
        kept(reference, exact, torch.float64),
        kept(torch_impl, given, dtype),
        kept(kernel, given, dtype),
    )
    for name in ("keys", "rotated", "values"):
        x, rounded, mine = (getattr(buffers, name) for buffers in (true, plain, found))
        assert (mine - x).abs().max() <= 2 * (rounded - x).abs().max() + 1e-6
        assert (rounded - x).abs().max() < 0.1
    for bank, x in ((given.keys, found.keys), (given.values, found.values)):
        assert torch.equal(kernel.gather_rows(bank, index, index.device, dtype), x)  # the same rows without angles


@pytest.mark.parametrize("lowest", [0, 68], ids=["all-slabs", "the-last-slab"])
def test_one_index_for_all_heads_reads_slabs_of_several_dtypes(lowest: int) -> None:
    given = case((2, 2), 16, 0, torch.bfloat16, sinks=torch.float32)
    whole = torch.cat([slab[:, :length].float() for slab, length in require_unquantized(given.keys)], dim=1)
    index = torch.randint(lowest, 111, (60,), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    index[7] = lowest  # of the first slab, or of the last
    shares = split_by_slab(given.keys, index)
    assert len(shares) == (1 if lowest else 3)
    assert torch.equal(take_shared(given.keys, shares, whole), whole[:, index])


def test_codes_behind_sinks_are_read_as_they_are_taken() -> None:
    generator = torch.Generator().manual_seed(0)
    sinks, x = torch.randn(2, 5, 16, generator=generator), torch.randn(2, 128, 16, generator=generator)
    codes, scale = torch.empty(2, 192, 16, dtype=torch.int8), torch.empty(2, 3)
    pages = QuantizedSlab(codes, scale, ChannelScale.of(x), torch.int8, torch.float32)
    pages.write(0, x)
    index = torch.randint(0, 133, (40,), generator=generator)
    bank = [(sinks, 5), (pages, 128)]
    whole = torch.cat([sinks, take([(pages, 128)], torch.arange(128).expand(2, -1))], dim=1)
    assert torch.equal(take_shared(bank, split_by_slab(bank, index), sinks), whole[:, index])
    assert (whole[:, 5:] - x).abs().max() < 0.05
    with pytest.raises(ValueError, match="through a BlockTable"):
        require_unquantized(bank)
    with pytest.raises(ValueError, match="all quantised, or none"):
        take(bank, index.expand(2, -1))


def test_what_a_kernel_can_reach_is_codes_and_scales_both() -> None:
    given = case((2, 2), 16, 0, torch.float32, coding=Coding(torch.int8))
    assert reachable(given.keys, given.q.device)
    assert not reachable(given.keys, torch.device("meta"))
    (sinks, pages, _) = given.keys
    assert isinstance(pages[0], QuantizedSlab)
    astray = dataclasses.replace(pages[0], scale=pages[0].scale.to("meta"))
    assert not reachable([sinks, (astray, pages[1])], given.q.device)


def test_a_slab_is_asked_once_whether_it_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver was once asked in every layer, for every token."""
    asked: list[torch.Tensor] = []

    def is_pinned(tensor: torch.Tensor) -> bool:
        asked.append(tensor)
        return len(asked) < 3

    monkeypatch.setattr(torch.Tensor, "is_pinned", is_pinned)
    on_gpu = torch.device("cuda", 0)
    slabs = [(torch.empty(2, 8, 4, device="cpu"), length) for length in (8, 3)]
    assert all(reachable(slabs, on_gpu) for _ in range(3))
    pageable = torch.empty(2, 8, 4, device="cpu")
    assert not any(reachable([*slabs, (pageable, 1)], on_gpu) for _ in range(3))
    assert len(asked) == 3


@pytest.mark.parametrize("kind", [torch.int8, torch.quint4x2, torch.float8_e4m3fn], ids=["int8", "int4", "fp8"])
@pytest.mark.parametrize("page", [1, GROUP_SIZE])
def test_all_rows_at_once_are_those_that_are_taken(kind: torch.dtype, page: int) -> None:
    x = torch.randn(2, 128, 16, generator=torch.Generator().manual_seed(0))
    codes, scale = torch.empty(2, 192, width(kind, 16), dtype=stored(kind)), torch.empty(2, 192 // page)
    pages = QuantizedSlab(codes, scale, ChannelScale.of(x), kind, torch.float32)
    pages.write(0, x)
    taken = take([(pages, 128)], torch.arange(101).expand(2, -1))
    torch.testing.assert_close(pages.dequantized(101), taken)
    assert (taken - x[:, :101]).abs().max() < (0.5 if kind == torch.quint4x2 else 0.2)


@pytest.mark.parametrize("lengths", [(5,), (5, 3, 4), (1, 0, 2, 7, 3, 3, 1, 4, 6), (4,) * 16], ids=len)
def test_a_row_is_found_in_whichever_slab_holds_it(lengths: tuple[int, ...]) -> None:
    from kernels.gathering import kernel

    rows = torch.arange(sum(lengths), dtype=torch.float32, device=DEVICE)
    slabs = [(part[None, :, None].repeat(2, 1, 16), len(part)) for part in rows.split(lengths)]
    index = torch.stack([torch.arange(len(rows)), torch.arange(len(rows)).flip(0)]).to(DEVICE)
    found = kernel.gather_rows(slabs, index, index.device, torch.float32)
    assert torch.equal(found[:, :, 0].long(), index)
