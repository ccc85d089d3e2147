"""Comparison of a kernel's results with PyTorch's in the same precision, both against float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

# Share of chunks whose scores are compared. If both keys of a round tie in bfloat16, either may win, and the scores
# found after that may differ widely: in two or three of 256 chunks of noise
ALIKE = 0.95
SLACK = 1e-5  # absolute tolerance, as PyTorch's own error may be zero
ODD = 1e-3  # share of codes that may differ by one: quotients half-way between two round differently
SAME_SCALE = 1e-6  # relative: sums in another order
Outputs = Sequence[Tensor]


class Compared(NamedTuple):
    """The largest error of a kernel and of its reference, and whether the first is small enough beside the second."""

    error: float
    reference_error: float
    agrees: bool


def scales_agree(x: Tensor, found: tuple[Tensor, Tensor], plain: tuple[Tensor, Tensor], kind: torch.dtype) -> bool:
    """Return whether a kernel's scales are right, given its numbers [groups, rows, D] and PyTorch's, both with scales.

    In 2 bits a scale follows from the codes, and one code that fell to its neighbour changes it by a hundredth. There
    scales are compared where all codes of a group are the same, and all of them with what their own codes ask for.
    """
    (mine, found_scale), (theirs, scale) = found, plain
    if kind != torch.quint2x4:
        return torch.allclose(found_scale, scale, rtol=SAME_SCALE, atol=0.0)
    alike = (mine == theirs).flatten(1).all(dim=1)
    number = mine.double()
    asked = ((x.double() * number).sum(dim=(1, 2)) / (number * number).sum(dim=(1, 2))).float()
    return (
        float((~alike).float().mean()) <= ODD
        and torch.allclose(found_scale[alike], scale[alike], rtol=SAME_SCALE, atol=0.0)
        and torch.allclose(found_scale, asked, rtol=SAME_SCALE, atol=0.0)
    )


def compared(found: Outputs, plain: Outputs, exact: Outputs, share: float = 1.0, slack: float = SLACK) -> Compared:
    """Return the errors of the output closest to its limit; of each output the largest, or the quantile `share`."""

    def largest(x: Tensor, true: Tensor) -> float:
        off = (x - true).abs()
        return float(off.max() if share == 1.0 else off.double().quantile(share))

    every = [
        (largest(mine, true), largest(theirs, true)) for mine, theirs, true in zip(found, plain, exact, strict=True)
    ]
    error, reference_error = max(every, key=lambda each: each[0] - 2 * each[1])
    return Compared(error, reference_error, all(mine <= 2 * theirs + slack for mine, theirs in every))
