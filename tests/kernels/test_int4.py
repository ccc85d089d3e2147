"""Test the unpacking of weights of 4 bits against PyTorch's packing, written out as its source describes it."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor

from kernels.int4 import reference, torch_impl

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def packed(codes: list[list[int]], tiles: int) -> Tensor:
    """Return codes in the layout of `_convert_weight_to_int4pack`, lane by lane. tiles: of 16 columns, per lane."""
    rows, columns = len(codes), len(codes[0])
    words = torch.zeros(rows // 8, columns // (16 * tiles), 32, tiles // 2, dtype=torch.int64)
    for row_tile, chunk, lane, word in torch.cartesian_prod(*map(torch.arange, words.shape)).tolist():
        row, first = 8 * row_tile + lane // 4, 16 * (chunk * tiles + 2 * word) + 2 * (lane % 4)
        # two columns of each half of a tile, of two tiles: v[0] .. v[7]
        v = [codes[row][first + tile + half + odd] for tile in (0, 16) for half in (0, 8) for odd in (0, 1)]
        nibbles = (v[7], v[5], v[3], v[1], v[6], v[4], v[2], v[0])  # the highest first
        words[row_tile, chunk, lane, word] = int("".join(f"{each:x}" for each in nibbles), 16)
    return torch.where(words < 1 << 31, words, words - (1 << 32)).int()


@pytest.mark.parametrize("way", ["reference", "torch_impl", "kernel"])
@pytest.mark.parametrize(("tiles", "columns", "group"), [(2, 96, 32), (4, 576, 64), (8, 256, 128)])
def test_weights_are_those_that_were_packed(way: str, tiles: int, columns: int, group: int) -> None:
    module: ModuleType = reference if way == "reference" else torch_impl
    if way == "kernel":
        pytest.importorskip("triton")
        from kernels.int4 import kernel as module
    generator = torch.Generator().manual_seed(tiles)
    codes = torch.randint(0, 16, (24, columns), generator=generator)
    scales = torch.randn(columns // group, 24, 2, generator=generator).bfloat16()
    scale, offset = (scales[..., each].float().T.repeat_interleave(group, dim=1) for each in (0, 1))
    exact = (codes - 8) * scale + offset
    laid = packed(codes.tolist(), tiles).to(DEVICE)
    for dtype in (torch.float32, torch.bfloat16):
        found = module.unpack(laid, scales.to(DEVICE), dtype).cpu()
        assert found.dtype == dtype
        # The interpreter truncates to bfloat16 where others round.
        torch.testing.assert_close(found, exact.to(dtype), rtol=2**-7 if dtype == torch.bfloat16 else 1e-6, atol=0)
