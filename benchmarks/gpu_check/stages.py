"""InfiniteHiP's stages one by one, in the form of the paper's Tables 3 and 4, on one layer.

Timed are each pruning stage and the attention to what the last one leaves, for a pass of prefill and for a token, with
keys in pinned host memory and with the same keys on the device, and with query heads that compare by themselves or by
groups. A token's mean cost follows from how often each stage is renewed. Calls are replayed as CUDA graphs where that
is possible, so that the host's part does not count, as in the paper. Copies of keys on the device are not here:
`methods` times whole answers with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.gpu_check.check import Check, Row
from benchmarks.gpu_check.gauge import graph_seconds, median_seconds
from engine.memory import Memory
from engine.methods.archived import COMPARES
from engine.models.spec import Scoring
from engine.parts.attention import attend
from engine.parts.selectors.pruned import PruningSelector
from kernels.rows import Slabs

KEYS = ("host", "device")  # where keys and values are
REFRESHES = {"3k": (16, 8, 4), "3k_fast": (32, 16, 8), "3k_flash": (96, 24, 8)}  # tokens between renewals of a stage
PREFILL, TOKEN = "prefill", "a token"
PAPER_QUERIES = 32768  # of a prefill in the paper's Table 3


def cells(lengths: tuple[int, ...]) -> Iterator[Row]:
    """Yield the measurements to make."""
    for length in lengths:
        for what in (PREFILL, TOKEN):
            for keys, compares in itertools.product(KEYS, COMPARES):
                yield {"what": what, "keys": keys, "compares": compares, "length": length}


def check_stages(
    check: Check, memory: Memory, length: int, what: str, source: Tensor, noise: Callable[..., Tensor]
) -> None:
    """Time the stages of a pass of tokens at these positions, which the memory forgets again.

    noise: returns normal noise of a shape, in the dtype and on the device of the check.
    """
    selector, archive = memory.selector, memory.archive
    assert isinstance(selector, PruningSelector)
    assert archive is not None
    layer, count = memory.spec.layers[0], len(source)
    q, k, v = (noise(heads, count, layer.head_size) for heads in (layer.query_heads, layer.kv_heads, layer.kv_heads))
    memory.begin_pass(source)
    memory.append(0, q, k, v)
    for where in KEYS:
        banks: tuple[Slabs, Slabs] = archive.slabs(0)
        if where == "device":
            keys, values = ([(bank.to(check.place), rows) for bank, rows in each] for each in banks)  # type: ignore[union-attr]
            banks = keys, values
        for compares in COMPARES:
            selector.pruning.grouped = compares == COMPARES[1]
            row = check.row("stages", what=what, keys=where, compares=compares, length=length)
            row |= {**_timed(check, selector, q, banks), "queries": count, "status": "done"}
            if what == PREFILL:
                row["seconds_for_32k"] = row["all"] * PAPER_QUERIES / count
            else:
                row |= _means(row)
        selector.pruning.grouped = False


def _timed(check: Check, selector: PruningSelector, q: Tensor, banks: tuple[Slabs, Slabs]) -> Row:
    """Return the seconds of each stage, of the attention behind them, and of all together."""

    def seconds(run: Callable[[], object]) -> float:
        found = median_seconds(check.place, run)
        replayed = graph_seconds(check.place, run)
        return found if replayed is None else replayed

    def blocks(size: int) -> object:
        return selector.query_blocks(size)

    row, before = Row(), None
    for number, stage in enumerate(selector.stages):

        def run(number: int = number, size: int = stage.query_block, before: Tensor | None = before) -> Tensor:
            return selector.pruning._run_stage(0, number, q, blocks(size), banks[0], before, False)  # type: ignore[arg-type]

        row[f"stage_{number + 1}"] = seconds(run)
        before = run()
    assert before is not None
    last = selector.stages[-1]
    index = (before[..., None] + torch.arange(last.chunk, device=q.device)).flatten(1)
    sinks, count = selector._sinks(0), selector.store.sinks
    slabs = tuple([(sink, count), *bank] for sink, bank in zip(sinks, banks, strict=True))
    wanted = selector.query_blocks(last.query_block)
    listing = selector.listing(index)

    def attention() -> Tensor:
        near = selector.store.segments(0, q, sinks_for=wanted.near)
        far = selector.listed(0, q, wanted, listing, selector.attention, slabs)  # type: ignore[arg-type]
        return attend([*near, far], Scoring(q.shape[2] ** -0.5))[0]

    row["attention"] = seconds(attention)
    return row | {"all": sum(row.values())}


def _means(row: Row) -> Row:
    """Return the seconds of a token that begins at each stage (Table 4), and its mean by the presets (Table 3)."""
    stages = [row[f"stage_{number}"] for number in (1, 2, 3) if f"stage_{number}" in row]
    found = {f"from_stage_{at + 1}": sum(stages[at:]) + row["attention"] for at in range(len(stages))}
    for name, refreshes in REFRESHES.items():
        renewing = sum(seconds / every for seconds, every in zip(stages, refreshes, strict=False))
        found[f"mean_{name}"] = row["attention"] + renewing
    return found
