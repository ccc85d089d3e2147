"""Every kernel against its reference on the device at hand, and its time beside dense attention.

    python -m benchmarks.gpu_kernels [--lengths 4096 32768 ...]

A row says what ran (kernel, what, dtype, length), where the keys and values lay (bank: on the device, or at the first
length also in pinned host memory, as they are and in codes), the largest error of the kernel and of PyTorch in the same
precision, both against float64 of the numbers that codes stand for (`agrees`: at most twice as large; None for banks
that are only timed; of pruning the largest but for one chunk in twenty, see ALIKE), the kernel's seconds, and those of
`F.scaled_dot_product_attention` over all keys at once, on the device. Where there is no GPU kernels run in Triton's
interpreter, whose times mean nothing: then no times are given. Not here: what is done about a row that does not agree.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.gpu_check.gauge import median_seconds
from kernels import attention, columns, gathering, pruning
from kernels.attention import Lists, Span
from kernels.gathering import Room
from kernels.pruning import Places
from kernels.quantise import stored, unpack, width
from kernels.rows import PAGE, Bank, Levels, Pages, Slabs

SLAB = 32768  # rows of a slab, as in the engine's host tier
QUERY_HEADS, HEADS, SIZE = 32, 8, 128
CHUNK = 2048  # queries of a prefill pass
BLOCK = 64  # queries that share a list
CHOSEN = 3072  # rows of a list, InfiniteHiP's 3K
PRUNED = 256  # rows of a chunk in the first stage of pruning
WATCHED = 32  # tokens of a catalyst
KEPT = 4096  # entries that condensing keeps
EXACT_KEYS = 131072  # longer banks are only timed: in float64 they would not fit a small GPU
EXACT_BLOCKS = 2  # blocks that are compared with float64; all of them would take the memory of many kernels
# Of chunks, the share whose scores are compared. Where both keys of a round score alike in bfloat16, either may go on,
# and what is found behind it may be far from what is behind the other: of 256 chunks of noise two or three
ALIKE = 0.95
ON_DEVICE = "device"
HOST_BANKS = {"host": None, "host int8": torch.int8, "host int4": torch.quint4x2, "host fp8": torch.float8_e4m3fn}
Row = dict[str, Any]


def kernel_rows(device: torch.device, lengths: list[int], dtype: torch.dtype = torch.bfloat16) -> Iterator[Row]:
    """One row for each kernel and length (keys in the bank, 2 or more), and at the first length for each host bank;
    each when it is done, those of the first length first.

    Raises:
        ImportError: there is no triton.
        ValueError: a length is too small.
    """
    if min(lengths) < 2:
        raise ValueError(f"A length is at least 2 keys, not {min(lengths)}.")
    import triton  # optional, and asked for before anything is allocated

    if device.type == "cpu" and not triton.knobs.runtime.interpret:
        yield from _interpreted(lengths, dtype)
        return
    for bank, kind in {ON_DEVICE: None, **HOST_BANKS}.items():
        if kind != torch.float8_e4m3fn or device.type == "cpu" or torch.cuda.get_device_capability(device) >= (8, 9):
            yield from _Bench(device, lengths[0], dtype, bank).rows()
    for length in lengths[1:]:
        yield from _Bench(device, length, dtype, ON_DEVICE).rows()


def _interpreted(lengths: list[int], dtype: torch.dtype) -> list[Row]:
    """The same in a process of its own: Triton must know that it interprets before anybody imports it."""
    command = [sys.executable, "-m", "benchmarks.gpu_kernels", "--device", "cpu", "--dtype", str(dtype).split(".")[1]]
    done = subprocess.run(
        [*command, "--lengths", *map(str, lengths)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


class _Bench:
    """Inputs of one length in one bank, and the rows that they give."""

    def __init__(self, device: torch.device, length: int, dtype: torch.dtype, bank: str) -> None:
        """length: keys in the bank, which is ON_DEVICE or of HOST_BANKS. Sizes shrink with it: short ones are quick."""
        self.device, self.length, self.dtype, self.bank = device, length, dtype, bank
        self.heads = HEADS if device.type == "cuda" else 1  # interpreted, one head takes seconds
        self.query_heads = self.heads * (QUERY_HEADS // HEADS)
        self.count = min(CHUNK, length // 2)
        self.chosen = min(CHOSEN, length)
        self.kept = min(KEPT, length)
        self.generator = torch.Generator(device).manual_seed(length)
        self.levels = Levels.of(self._random(self.heads, PAGE, SIZE).cpu())  # of codes
        self.keys, self.values = self._bank(), self._bank()
        angles = torch.rand(length + self.count, SIZE // 2, generator=self.generator, device=device) * 6
        self.cos, self.sin = angles.cos(), angles.sin()

    def _random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, device=self.device, dtype=self.dtype)

    def _bank(self) -> Slabs:
        lengths = [min(SLAB, self.length - at) for at in range(0, self.length, SLAB)]
        return [(self._slab(self._random(self.heads, length, SIZE)), length) for length in lengths]

    def _slab(self, x: Tensor) -> Bank:
        if self.bank == ON_DEVICE:
            return x
        kind, pinned = HOST_BANKS[self.bank], self.device.type == "cuda"
        if kind is None:
            return x.cpu().pin_memory() if pinned else x
        capacity = -(-x.shape[1] // PAGE) * PAGE
        codes = torch.empty(self.heads, capacity, width(kind, SIZE), dtype=stored(kind), pin_memory=pinned)
        pages = Pages(codes, torch.empty(self.heads, capacity // PAGE, pin_memory=pinned), self.levels, kind, x.dtype)
        pages.write(0, F.pad(x, (0, 0, 0, capacity - x.shape[1])))
        return pages

    def rows(self) -> Iterator[Row]:
        """All kernels; the column sums of a whole bank are of keys after RoPE, which are on the device."""
        yield self._pruning()
        yield self._attention("prefill", self.count, BLOCK)
        yield self._attention("decode", 1, 1)
        if self.bank == ON_DEVICE:
            yield self._columns()
        yield self._gathering()

    def _wide(self, bank: Slabs, dtype: torch.dtype = torch.float64) -> list[tuple[Tensor, int]]:
        """A bank of numbers on the device."""
        return [(_numbers(slab, self.device).to(dtype), length) for slab, length in bank]

    def _row(
        self,
        kernel: str,
        what: str,
        errors: Callable[[], tuple[float, float]],
        run: Callable[[], object],
        dense: Callable[[], object],
    ) -> Row:
        timed = self.device.type == "cuda"
        error, plain = errors() if self.length <= EXACT_KEYS else (None, None)
        return {
            "kernel": kernel,
            "what": what,
            "bank": self.bank,
            "dtype": str(self.dtype).removeprefix("torch."),
            "length": self.length,
            "error": error,
            "reference_error": plain,
            "agrees": None if error is None or plain is None else error <= 2 * plain + 1e-5,
            "seconds": median_seconds(self.device, run) if timed else None,
            "sdpa_seconds": median_seconds(self.device, dense) if timed else None,
        }

    def _sdpa(self, count: int) -> Callable[[], object]:
        """Dense attention of so many queries over all keys of the bank."""
        q = self._random(1, self.query_heads, count, SIZE)
        k, v = (
            torch.cat([slab[:, :n] for slab, n in self._wide(bank, self.dtype)], dim=1)[None]
            for bank in (self.keys, self.values)
        )
        return lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    def _lists(self, blocks: int, size: int) -> Lists:
        scores = torch.rand(blocks, self.length, generator=self.generator, device=self.device)
        index = scores.topk(self.chosen, dim=1).indices.sort(dim=1).values
        places = torch.arange(self.chosen, device=self.device).expand(blocks, -1).contiguous()
        return Lists(index, places, size, self.cos, self.sin)

    def _span(self, count: int) -> Span:
        end = torch.full((count,), self.length, device=self.device)
        return Span(torch.zeros_like(end), end)

    def _attention(self, what: str, count: int, size: int) -> Row:
        from kernels.attention import kernel, reference

        q, span, scaling = self._random(self.query_heads, count, SIZE), self._span(count), SIZE**-0.5
        lists = self._lists(-(-count // size), size)

        def errors() -> tuple[float, float]:
            few = min(count, EXACT_BLOCKS * size)
            part, part_span = lists.part(0, EXACT_BLOCKS), span.part(0, few)
            wide = Lists(part.index, part.places, size, part.cos.double(), part.sin.double())
            keys, values = self._wide(self.keys), self._wide(self.values)
            exact, _ = reference.attend(q[:, :few].double(), keys, values, part_span, wide, scaling)
            plain, _ = reference.attend(q[:, :few], self.keys, self.values, part_span, part, scaling)
            found, _ = kernel.attend(q, self.keys, self.values, span, lists, scaling)
            return _errors(found[:, :few], plain, exact)

        def run() -> object:
            return attention.attend(q, self.keys, self.values, span, lists, scaling)

        return self._row("attention", what, errors, run, self._sdpa(count))

    def _columns(self) -> Row:
        from kernels.columns import kernel, reference

        count, scaling = min(WATCHED, self.count), SIZE**-0.5
        q, span = self._random(self.query_heads, count, SIZE), self._span(count)
        _, total = attention.attend(q, self.keys, self.values, span, None, scaling)

        def errors() -> tuple[float, float]:
            exact = reference.column_sums(q.double(), self._wide(self.keys), span, None, total.double(), scaling)
            plain = reference.column_sums(q, self.keys, span, None, total, scaling)
            return _errors(kernel.column_sums(q, self.keys, span, None, total, scaling), plain, exact)

        def run() -> object:
            return columns.column_sums(q, self.keys, span, None, total, scaling)

        return self._row("columns", f"{count} queries", errors, run, self._sdpa(count))

    def _gathering(self) -> Row:
        from kernels.gathering import kernel, reference

        scores = torch.rand(self.heads, self.length, generator=self.generator, device=self.device)
        index = scores.topk(self.kept, dim=1).indices.sort(dim=1).values
        cos, sin = self.cos[: self.kept], self.sin[: self.kept]

        def room(dtype: torch.dtype, device: torch.device = self.device) -> Room:
            shape = (self.heads, self.kept, SIZE)
            return Room(*(torch.empty(shape, dtype=dtype, device=device) for _ in range(3)))

        kept = room(self.dtype)

        def errors() -> tuple[float, float]:
            lying = self.keys[0][0].device  # where the reference takes rows
            exact, plain, found = room(torch.float64), room(self.dtype, lying), room(self.dtype)
            reference.gather(self._wide(self.keys), self._wide(self.values), index, cos.double(), sin.double(), exact)
            reference.gather(self.keys, self.values, index.to(lying), cos.to(lying), sin.to(lying), plain)
            kernel.gather(self.keys, self.values, index, cos, sin, found)
            return _errors(found.rotated, plain.rotated.to(self.device), exact.rotated)

        def run() -> None:
            gathering.gather(self.keys, self.values, index, cos, sin, kept)

        return self._row("gathering", f"{self.kept} kept", errors, run, self._sdpa(1))

    def _pruning(self) -> Row:
        from kernels.pruning import kernel, reference

        size = min(PRUNED, self.length)
        q = self._random(self.query_heads, 1, 1, SIZE)
        starts = torch.arange(0, self.length, size, device=self.device)[None]
        limits = torch.tensor([self.length], device=self.device)
        rule, group = torch.tensor([pruning.BRANCH], device=self.device), torch.ones(1, device=self.device).long()
        places = Places(rule, group, 0, self.cos, self.sin)
        wide = Places(rule, group, 0, self.cos.double(), self.sin.double())

        def errors() -> tuple[float, float]:
            exact = reference.chunk_scores(q.double(), self._wide(self.keys), starts, limits, size, wide)
            plain = reference.chunk_scores(q, self.keys, starts, limits, size, places)
            return _errors(kernel.chunk_scores(q, self.keys, starts, limits, size, places), plain, exact, ALIKE)

        def run() -> object:
            return pruning.chunk_scores(q, self.keys, starts, limits, size, places)

        return self._row("pruning", "one query", errors, run, self._sdpa(1))


def _numbers(slab: Bank, device: torch.device) -> Tensor:
    """A slab, or what its codes stand for in float64, [H, capacity, D] on the device."""
    if isinstance(slab, Tensor):
        return slab.to(device)
    centre, spread = slab.levels.on(device)
    scale = slab.scale.to(device).repeat_interleave(slab.page, dim=1)[..., None]
    return unpack(slab.codes.to(device), slab.kind, torch.float64) * scale * spread[:, None] + centre[:, None]


def _errors(found: Tensor, plain: Tensor, exact: Tensor, share: float = 1.0) -> tuple[float, float]:
    """The largest of both, or below what so large a share of them lies."""

    def largest(x: Tensor) -> float:
        off = (x - exact).abs()
        return float(off.max() if share == 1.0 else off.double().quantile(share))

    return largest(found), largest(plain)


def main() -> None:
    """Print a line of JSON per row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[32768, 131072], help="keys in the bank")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    chosen = parser.parse_args()
    for row in kernel_rows(torch.device(chosen.device), chosen.lengths, getattr(torch, chosen.dtype)):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
