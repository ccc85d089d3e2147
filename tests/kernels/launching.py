"""Count the function calls of a launch of each kernel, with a driver and compiled kernels that do nothing.

    python -m tests.kernels.launching

Prints a line of JSON: calls of Python and C functions per launch, by kernel. It runs in a process of its own, because
Triton must know before its import that it does not interpret.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from kernels.attention import BlockTable, VisibleRange
from kernels.attention import kernel as attention
from kernels.columns import kernel as columns
from kernels.gathering import kernel as gathering
from kernels.pruning import BRANCH, KeyPositions
from kernels.pruning import kernel as pruning
from kernels.rows import ChannelScale, QuantizedSlab, Slabs

HEADS, GROUP, SIZE, SLABS = 8, 4, 128, 32  # as Llama 3.1 8B has them, with a million tokens on the host
BF16 = torch.bfloat16


class Nowhere:
    """A driver of a GPU of compute capability 9.0 that is not there."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


class Compiled:
    """A compiled kernel that does nothing."""

    function, packed_metadata = 1, (1,)

    def launch_metadata(self, *arguments: object) -> None:
        return None

    def run(self, *arguments: object) -> None:
        return None

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., None]:
        return self.run


def compiled(self: JITFunction, key: str, *arguments: object) -> Compiled:
    """Stand in for JITFunction._do_compile."""
    made = Compiled()
    self.device_caches[0][0][key] = made
    return made


def calls(launch: Callable[[], object]) -> int:
    """Return the function calls of a launch that follows others like it."""
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    for _ in range(3):
        launch()
    sys.setprofile(count)
    launch()
    sys.setprofile(None)
    return counted - 2  # `launch` itself, and the end of counting


def main() -> None:
    """Print the calls of all kernels that read slabs, for a token of an answer."""
    driver.set_active(Nowhere())
    JITFunction._do_compile = compiled
    levels = ChannelScale(torch.zeros(HEADS, SIZE), torch.ones(HEADS, SIZE))
    sinks = (torch.zeros(HEADS, 64, SIZE, dtype=BF16), 64)
    codes, scale = torch.zeros(HEADS, 64, SIZE // 2, dtype=torch.uint8), torch.zeros(HEADS, 1)
    far = [(QuantizedSlab(codes, scale, levels, torch.quint4x2, BF16), 64) for _ in range(SLABS)]
    q, cos = torch.zeros(HEADS * GROUP, 1, SIZE, dtype=BF16), torch.zeros(4096, SIZE // 2)
    rows = torch.zeros(1, 2304, dtype=torch.int64)
    lists = BlockTable(rows, rows, 1, cos, cos)
    span = VisibleRange(torch.zeros(1, dtype=torch.int64), torch.full((1,), 64))
    starts, limits = torch.zeros(1, 1024, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    places = KeyPositions(torch.full((1,), BRANCH), torch.ones(1, dtype=torch.int64), 0, cos, cos)
    index, total = torch.zeros(HEADS, 2048, dtype=torch.int64), torch.zeros(HEADS * GROUP, 1)
    found = _calls_of_all(q, [sinks, *far], far, span, lists, total, starts, limits, places, index)
    print(json.dumps(found))


def _calls_of_all(
    q: torch.Tensor,
    bank: Slabs,
    keys: Slabs,
    span: VisibleRange,
    lists: BlockTable,
    total: torch.Tensor,
    starts: torch.Tensor,
    limits: torch.Tensor,
    places: KeyPositions,
    index: torch.Tensor,
) -> dict[str, int]:
    return {
        "attend": calls(lambda: attention.attend(q, bank, bank, span, lists, 0.1)),
        "column_sums": calls(lambda: columns.column_sums(q, bank, span, lists, total, 0.1)),
        "chunk_scores": calls(lambda: pruning.chunk_scores(q[:, None], keys, starts, limits, 32, places)),
        "gather_rows": calls(lambda: gathering.gather_rows(keys, index, index.device, BF16)),
    }


if __name__ == "__main__":
    main()
