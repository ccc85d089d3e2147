"""Every kernel against its reference on this device, with its time beside dense attention.

    python -m benchmarks.gpu_kernels [--lengths 4096 32768 ...] [--kernels main]

`_Bench.rows` is the one list of comparisons. Fields of a row:

- kernel, what, heads, dtype, length: what ran;
- bank: where keys and values are (device or pinned host memory), and their quantisation;
- error, reference_error: the largest error of the kernel, and of PyTorch in the same precision, both against float64
  of the dequantised numbers. Of several outputs, the one closest to its limit. Pruning: without the largest twentieth
  of chunks, see ALIKE;
- agrees: every error is at most twice PyTorch's; None for banks that are only timed. Quantisation: the codes are the
  same, see ODD, and so are the scales, see `scales_agree`;
- graph_seconds: of the kernel alone, replayed as a CUDA graph; seconds: with the host's part of the call;
- sdpa_graph_seconds, sdpa_seconds: the same of PyTorch's dense attention of as many queries, with all keys on the GPU.

Without a GPU, kernels run in Triton's interpreter, and no times are given. It rounds to fp8 differently from a GPU, so
nothing is quantised to fp8 there. It truncates to bfloat16 instead of rounding, so the default dtype is float32. Not
here: the reaction to a row that does not agree.
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

from benchmarks import gpu_inputs, gpu_layers
from benchmarks.gpu_check.gauge import computed_in, graph_seconds, median_seconds
from benchmarks.gpu_compare import ALIKE, ODD, SLACK, Compared, Outputs, compared, scales_agree
from benchmarks.gpu_inputs import ON_DEVICE, STORES, Heads, Inputs, Source, numbers
from engine.parts.archive.probes import every_nth
from kernels import attention, bank, columns, gathering, mxfp4, pruning, quantise, scoring
from kernels.bank import UnitBank
from kernels.gathering import EntryBuffers
from kernels.pruning import KeyPositions
from kernels.rows import GROUP_SIZE

CHUNK = 2048  # queries of a prefill pass
BLOCK = 64  # queries that share a list; also the longest pass that reads quantised kept entries in place
WINDOW = 2047  # rows visible to a query, as in Phi-3-mini
PRUNED = 256  # rows of a chunk in the first pruning stage
WATCHED = 32  # tokens of a catalyst
KEPT = 4096  # entries that condensing keeps
UNITS, UNIT = 256, 8  # last chunks that InfiniteHiP's presets choose, and entries in each
SHORT = 8192  # keys, at most, with the heads of other models
GPT_OSS, CHOSEN_EXPERTS = 2880, 4  # width of gpt-oss's experts, and experts per token
EXACT_KEYS = 131072  # longer banks are only timed: in float64 they would not fit a small GPU
EXACT_BLOCKS = 2  # blocks compared with float64; all of them would take too much memory
BENT = 4 * torch.finfo(torch.float32).eps  # times the softcap: tolerance for logits that were that large before it
ALL, MAIN, NONE = "all", "main", "none"  # which kernels to check: MAIN takes a tenth of the compilations
Row = dict[str, Any]
Dense = dict[tuple[Heads, int, int], tuple[float, float | None]]  # seconds and graph_seconds of dense attention


def kernel_rows(device: torch.device, lengths: list[int], dtype: torch.dtype, which: str = ALL) -> Iterator[Row]:
    """Yield one row for each kernel and use, as each is done.

    At the first length in each store, then with the heads of other models; then some of them at the other lengths.

    Args:
        device: where they run.
        lengths: keys in the bank, at least 2.
        dtype: of plain keys and values.
        which: ALL, or MAIN for the kernels of a pass of `infinitehip` over int4 alone.

    Raises:
        ImportError: there is no triton.
        ValueError: a length is too small.
    """
    if min(lengths) < 2:
        raise ValueError(f"A length is at least 2 keys, not {min(lengths)}.")
    import triton  # optional; imported before anything is allocated

    if device.type == "cpu" and not triton.knobs.runtime.interpret:
        yield from _interpreted(lengths, dtype, which)
        return
    first, *others = lengths
    dense: Dense = {}
    if which == MAIN:
        for store in (ON_DEVICE, "host int4", "device int4"):
            source = Source(device, first, dtype, store, gpu_inputs.LLAMA.few_on(device))
            yield from _Bench(source, store, dense).main_rows()
        others = []
    for store, (kind, _) in STORES.items() if which == ALL else ():
        if kind != torch.float8_e4m3fn or device.type == "cpu" or torch.cuda.get_device_capability(device) >= (8, 9):
            source = Source(device, first, dtype, store, gpu_inputs.LLAMA.few_on(device))
            yield from _Bench(source, store, dense).rows()
    for heads in gpu_inputs.OTHERS if which == ALL else ():
        for store in (ON_DEVICE, "device int8"):
            source = Source(device, min(first, SHORT), dtype, store, heads.few_on(device))
            yield from _Bench(source, store, dense).rows()
    for length in others:
        source = Source(device, length, dtype, ON_DEVICE, gpu_inputs.LLAMA.few_on(device))
        yield from _Bench(source, ON_DEVICE, dense).plain_rows()


def _interpreted(lengths: list[int], dtype: torch.dtype, which: str) -> Iterator[Row]:
    """Yield the same rows from a subprocess, as TRITON_INTERPRET must be set before Triton is imported."""
    command = [sys.executable, "-m", "benchmarks.gpu_kernels", "--device", "cpu", "--dtype", str(dtype).split(".")[1]]
    with subprocess.Popen(
        [*command, "--kernels", which, "--lengths", *map(str, lengths)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield from map(json.loads, process.stdout or ())
        except BaseException:  # out of time, or the caller stopped
            process.kill()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


class _Bench:
    """Rows of one source of inputs."""

    def __init__(self, source: Source, store: str, dense: Dense) -> None:
        """Create the rows of `source`. `dense` caches the seconds of dense attention by heads, keys and queries."""
        self.source, self.store, self.dense = source, store, dense
        self.device, self.length, self.heads = source.device, source.length, source.heads
        self.count = min(CHUNK, self.length // 2)
        self.few, self.watched = min(BLOCK, self.count), min(WATCHED, self.count)
        self.llama = gpu_inputs.LLAMA.few_on(self.device)
        self.scaling, self.slack = self.heads.size**-0.5, SLACK + BENT * (self.heads.softcap or 0.0)

    def rows(self) -> Iterator[Row]:
        """Yield all rows that the engine uses with this store.

        Each is a kernel to compile. So heads with rows of their own are checked in int8 only, and kernels that depend
        only on the head size run with one model's heads.
        """
        kind, host = self.source.store
        if host:
            yield from self._kept_by_host(kind)
            yield from self._banked()
        elif kind is not None:
            yield from self._kept_in_codes(kind)
        else:
            yield from self.plain_rows()
            yield from self._kept_as_they_are()

    def main_rows(self) -> Iterator[Row]:
        """Yield the rows of MAIN."""
        kind, host = self.source.store
        if host:
            yield from self._kept_by_host(kind)
        elif kind is not None:
            yield self._quantised(f"pages of {GROUP_SIZE}", self._pages(GROUP_SIZE, self.source.dtype), kind)
        else:
            yield from self.plain_rows()

    def plain_rows(self) -> Iterator[Row]:
        """Yield the rows that are also timed at other lengths, on the device without quantisation."""
        yield self._pruning("one query", 1)
        yield from self._chosen()
        yield self._columns(f"{self.watched} queries", self.source.last(self.watched))
        yield self._gathered()

    def _kept_as_they_are(self) -> Iterator[Row]:
        yield self._attention("prefill, window", self.source.last(self.count, WINDOW))
        yield self._attention("decode, all", self.source.last(1))
        yield from self._listed()
        if self.heads == self.llama:
            yield from self._by_head()
            yield from self._weights()

    def _kept_by_host(self, kind: torch.dtype | None) -> Iterator[Row]:
        yield self._pruning("one query", 1)
        yield self._pruning("one query, by groups", 1, grouped=True)
        yield self._pruning("one query, copies", 1, probes=8)
        yield from self._chosen()
        yield from self._listed()
        if kind in (None, torch.int8):
            yield from self._by_head()

    def _kept_in_codes(self, kind: torch.dtype) -> Iterator[Row]:
        """Yield reads in place by lists of all entries, in passes of few tokens, and quantisation row by row.

        Groups are a host tier's, whose codes come from the CPU, but the kernel handles them too.
        """
        few = self.source.last(self.few, listed=True)
        yield self._attention(f"{self.few} queries, all", few)
        yield self._attention("decode, all", self.source.last(1, listed=True))
        yield self._columns(f"{self.few} queries, all", few)
        if self.heads != self.llama:
            return
        for page, dtype in ((1, torch.float32), (GROUP_SIZE, self.source.dtype)):
            x = self._pages(page, dtype)
            if kind != torch.float8_e4m3fn or self.device.type == "cuda":
                yield self._quantised(f"pages of {page}", x, kind)
            yield self._dequantised(f"pages of {page}", x, kind)
            yield self._scored(f"one query, pages of {page}", kind, page, 1)
        yield self._scored(f"{self.few} queries, pages of 1", kind, 1, self.few)
        if kind == torch.quint4x2:  # the other type of a host tier's sketch
            yield from self._sketched(torch.quint2x4)

    def _pages(self, page: int, dtype: torch.dtype) -> Tensor:
        return self.source.noise(self.heads.kv * -(-self.length // page), page, self.heads.size).to(dtype)

    def _sketched(self, kind: torch.dtype) -> Iterator[Row]:
        x = self.source.noise(self.heads.kv * self.length, 1, self.heads.size)
        yield self._quantised("2 bits", x, kind)
        yield self._dequantised("2 bits", x, kind)
        yield self._scored("one query, 2 bits", kind, 1, 1)
        yield self._scored(f"{self.few} queries, 2 bits", kind, 1, self.few)

    def _chosen(self) -> Iterator[Row]:
        yield self._attention("prefill", self.source.chosen(self.count, self.few))
        yield self._attention("decode", self.source.chosen(1, 1))

    def _listed(self) -> Iterator[Row]:
        yield self._pruning(f"{self.few} queries", self.few)
        yield self._columns(f"{self.watched} queries, lists", self.source.chosen(self.watched, self.watched))
        yield self._taken()

    def _by_head(self) -> Iterator[Row]:
        watched = self.source.chosen(self.watched, self.watched, by_head=True)
        yield self._attention("prefill, by head", self.source.chosen(self.count, self.few, by_head=True))
        yield self._attention("decode, by head", self.source.chosen(1, 1, by_head=True))
        yield self._columns(f"{self.watched} queries, by head", watched)

    def _row(
        self, kernel: str, what: str, compare: Callable[[], Compared], run: Callable[[], object], queries: int | None
    ) -> Row:
        """Return a row; `queries` are those of the dense attention timed beside it, None for none."""
        timed = self.device.type == "cuda"
        found = compare() if self.length <= EXACT_KEYS else None
        dense = self._dense_seconds(queries) if timed and queries else (None, None)
        return {
            "kernel": kernel,
            "what": what,
            "heads": str(self.heads),
            "bank": self.store,
            "dtype": str(self.source.dtype).removeprefix("torch."),
            "length": self.length,
            "error": None if found is None else found.error,
            "reference_error": None if found is None else found.reference_error,
            "agrees": None if found is None else found.agrees,
            "seconds": median_seconds(self.device, run) if timed else None,
            "graph_seconds": graph_seconds(self.device, run),
            "sdpa_seconds": dense[0],
            "sdpa_graph_seconds": dense[1],
        }

    def _dense_seconds(self, queries: int) -> tuple[float, float | None]:
        """Return the seconds of dense attention of `queries` queries to all keys of this length, and in a graph."""
        key = self.heads, self.length, queries
        if key not in self.dense:
            q = self.source.noise(1, self.heads.query, queries, self.heads.size)
            k, v = (self.source.noise(1, self.heads.kv, self.length, self.heads.size) for _ in range(2))

            def run() -> Tensor:
                return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

            self.dense[key] = median_seconds(self.device, run), graph_seconds(self.device, run)
        return self.dense[key]

    def _attention(self, what: str, given: Inputs) -> Row:
        from kernels.attention import kernel, torch_impl

        def outputs(attend: Callable[..., Outputs], each: Inputs) -> Outputs:
            return attend(each.q, each.keys, each.values, each.span, each.lists, self.scaling, self.heads.softcap)

        def compare() -> Compared:
            few = given.part(EXACT_BLOCKS * (self.few if given.lists is None else given.lists.block_size))
            found = [x[:, : few.q.shape[1]] for x in outputs(kernel.attend, given)]
            exact = outputs(torch_impl.attend, self.source.exact(few))
            return compared(found, outputs(torch_impl.attend, few), exact, slack=self.slack)

        return self._row("attention", what, compare, lambda: outputs(attention.attend, given), given.q.shape[1])

    def _columns(self, what: str, given: Inputs) -> Row:
        from kernels.columns import kernel, torch_impl

        def sums(module: Any, each: Inputs) -> Outputs:
            whole = total.to(torch.promote_types(total.dtype, each.q.dtype))
            return [
                module.column_sums(each.q, each.keys, each.span, each.lists, whole, self.scaling, self.heads.softcap)
            ]

        given_to = (given.q, given.keys, given.values, given.span, given.lists, self.scaling, self.heads.softcap)
        _, total = attention.attend(*given_to)

        def compare() -> Compared:
            exact = sums(torch_impl, self.source.exact(given))
            return compared(sums(kernel, given), sums(torch_impl, given), exact, slack=self.slack)

        return self._row("columns", what, compare, lambda: sums(columns, given), given.q.shape[1])

    def _gathered(self) -> Row:
        from kernels.gathering import kernel, torch_impl

        source, kept = self.source, min(KEPT, self.length)
        index, cos, sin = self._kept(kept), source.cos[:kept], source.sin[:kept]

        def room(dtype: torch.dtype) -> EntryBuffers:
            shape = (self.heads.kv, kept, self.heads.size)
            return EntryBuffers(*(torch.empty(shape, dtype=dtype, device=self.device) for _ in range(3)))

        def compare() -> Compared:
            exact, plain, found = room(torch.float64), room(source.dtype), room(source.dtype)
            torch_impl.gather(source.exact_keys, source.exact_values, index, cos.double(), sin.double(), exact)
            torch_impl.gather(source.keys, source.values, index, cos, sin, plain)
            kernel.gather(source.keys, source.values, index, cos, sin, found)
            mine, theirs, true = ([each.keys, each.rotated, each.values] for each in (found, plain, exact))
            return compared(mine, theirs, true)

        reused = room(source.dtype)

        def run() -> None:
            gathering.gather(source.keys, source.values, index, cos, sin, reused)

        return self._row("gathering", f"{kept} kept", compare, run, 1)

    def _taken(self) -> Row:
        from kernels.gathering import kernel, torch_impl

        source, kept = self.source, min(KEPT, self.length)
        index = self._kept(kept)

        def compare() -> Compared:
            where = index, self.device
            return compared(
                [kernel.gather_rows(source.keys, *where, source.dtype)],
                [torch_impl.gather_rows(source.keys, *where, source.dtype)],
                [torch_impl.gather_rows(source.exact_keys, *where, torch.float64)],
            )

        def run() -> object:
            return gathering.gather_rows(source.keys, index, self.device, source.dtype)

        return self._row("gathering", f"{kept} taken", compare, run, 1)

    def _banked(self) -> Iterator[Row]:
        """Yield rows of a look-up that finds no unit in the bank, and of one that finds them all."""
        from kernels.bank import kernel, torch_impl

        source, size = self.source, min(UNIT, self.length // 4)
        units = self.length // size
        count = min(UNITS, units // 2)
        order = torch.randperm(units, generator=source.generator, device=self.device) * size
        turns = order[:count], order[count : 2 * count]
        limits, stored = (torch.full((1,), self.length, device=self.device) for _ in range(2))
        traffic, like = torch.zeros(2, dtype=torch.int64, device=self.device), (source.keys[0][0], source.values[0][0])

        def brought(module: Any, starts: Tensor, to: UnitBank) -> Tensor:
            slabs = source.keys, source.values
            found: Tensor = module.bring(to, starts[None], limits, *slabs, stored, traffic, 0)
            return found

        def copies(module: Any) -> list[Tensor]:
            to = UnitBank.empty(like, count, size, units, False, self.device)
            rows = [brought(module, starts, to) for starts in turns][-1]
            return [numbers(each, self.device)[:, rows[0]] for each in (to.keys, to.values)]

        def compare() -> Compared:
            plain = copies(torch_impl)
            return compared(copies(kernel), plain, plain)

        room = UnitBank.empty(like, count, size, units, False, self.device)

        def missing() -> None:
            for starts in turns:
                brought(bank, starts, room)

        yield self._row("bank", f"{count} missing, twice", compare, missing, None)
        yield self._row("bank", f"{count} held", compare, lambda: brought(bank, turns[-1], room), None)

    def _kept(self, count: int) -> Tensor:
        """Return random rows [H, count] for each head, ascending."""
        return self.source.uniform(self.heads.kv, self.length).topk(count, dim=1).indices.sort(dim=1).values

    def _pruning(self, what: str, queries: int, probes: int = 0, grouped: bool = False) -> Row:
        """Prune with one stage. probes: n if every n-th key of the first slab has a copy on the device, else 0."""
        from kernels.pruning import kernel, torch_impl

        source, size = self.source, min(PRUNED, self.length)
        q = source.noise(self.heads.query, 1, queries, self.heads.size)
        if grouped:  # as queries of one head
            q = q.reshape(self.heads.kv, 1, -1, self.heads.size)
        copies = every_nth(source.keys[:1], probes, self.device) if probes else None
        starts = torch.arange(0, self.length, size, device=self.device)[None]
        limits = torch.tensor([self.length], device=self.device)
        rule, group = torch.tensor([pruning.BRANCH], device=self.device), torch.ones(1, device=self.device).long()
        places = KeyPositions(rule, group, 0, source.cos, source.sin)
        wide = KeyPositions(rule, group, 0, source.cos.double(), source.sin.double())

        def compare() -> Compared:
            given = q, source.keys, starts, limits, size, places
            exact = torch_impl.chunk_scores(q.double(), source.exact_keys, starts, limits, size, wide)
            return compared([kernel.chunk_scores(*given, copies)], [torch_impl.chunk_scores(*given)], [exact], ALIKE)

        def run() -> object:
            return pruning.chunk_scores(q, source.keys, starts, limits, size, places, copies)

        return self._row("pruning", what, compare, run, queries)

    def _weights(self) -> Iterator[Row]:
        """Yield rows of MXFP4 experts as wide as gpt-oss's, with as many rows as the bank; then of other layers."""
        from kernels.mxfp4 import kernel, torch_impl

        rows, groups = min(self.length, 2 * GPT_OSS), GPT_OSS // mxfp4.GROUP
        blocks, scales = (
            (self.source.uniform(2 * CHOSEN_EXPERTS, rows, groups, size) * most + least).to(torch.uint8)
            for size, least, most in ((mxfp4.GROUP // 2, 0, 255), (1, 120, 8))
        )
        scales, x = scales[..., 0], self.source.noise(CHOSEN_EXPERTS, GPT_OSS)
        which = torch.arange(0, 2 * CHOSEN_EXPERTS, 2, device=self.device)
        given, unpacked = (x, blocks, scales, which), (blocks, scales, which, self.source.dtype)
        numbers = torch_impl.unpack(blocks, scales, which, torch.float64)

        def product() -> Compared:
            exact = (numbers @ x.double()[..., None])[..., 0]
            return compared([kernel.product(*given)], [torch_impl.product(*given)], [exact])

        def unpack() -> Compared:
            return compared([kernel.unpack(*unpacked)], [torch_impl.unpack(*unpacked)], [numbers])

        yield self._row("mxfp4", "product", product, lambda: mxfp4.product(*given), None)
        yield self._row("mxfp4", "unpack", unpack, lambda: mxfp4.unpack(*unpacked), None)
        yield from gpu_layers.rows(self.source, self.length, self._row)

    def _quantised(self, what: str, x: Tensor, kind: torch.dtype) -> Row:
        from kernels.quantise import kernel, torch_impl

        def compare() -> Compared:
            (found, found_scale), (codes, scale) = kernel.quantise(x, kind), torch_impl.quantise(x, kind)
            mine, theirs = (quantise.unpack(each, kind, torch.float32) for each in (found, codes))
            step = (theirs.abs() / 8).clamp_min(2**-9) if kind == torch.float8_e4m3fn else torch.ones_like(theirs)
            next_at_most = bool(((mine - theirs).abs() <= step).all())
            few = float((mine != theirs).float().mean()) <= ODD
            same = next_at_most and few and scales_agree(x, (mine, found_scale), (theirs, scale), kind)
            stood_for = (each * by[:, None, None].double() for each, by in ((mine, found_scale), (theirs, scale)))
            error, reference_error = (float((each - x).abs().max()) for each in stood_for)
            return Compared(error, reference_error, same)

        return self._row("quantise", what, compare, lambda: quantise.quantise(x, kind), None)

    def _dequantised(self, what: str, x: Tensor, kind: torch.dtype) -> Row:
        from kernels.quantise import kernel, torch_impl

        codes, scale = torch_impl.quantise(x, kind)
        given = codes, scale, kind, self.source.dtype

        def compare() -> Compared:
            exact = quantise.unpack(codes, kind, torch.float64) * scale[:, None, None]
            return compared([kernel.dequantise(*given)], [torch_impl.dequantise(*given)], [exact])

        return self._row("dequantise", what, compare, lambda: quantise.dequantise(*given), None)

    def _scored(self, what: str, kind: torch.dtype, page: int, queries: int) -> Row:
        from kernels.scoring import kernel, torch_impl

        heads, group = self.heads, queries * (self.heads.query // self.heads.kv)
        shape = heads.kv, -(-self.length // page) * page, heads.size
        codes, scale = quantise.quantise(self.source.noise(*shape).view(-1, page, heads.size), kind)
        codes, scale = codes.view(*shape[:2], -1), scale.view(heads.kv, -1)
        q, shift = self.source.noise(heads.kv, group, heads.size).float(), self.source.noise(heads.kv, group).float()

        def scored(module: Any) -> Tensor:
            out = torch.empty(heads.kv, group, self.length, device=self.device)
            module.scores(q, codes, scale, shift, kind, self.source.dtype, out)
            return out

        def compare() -> Compared:
            numbers = quantise.unpack(codes[:, : self.length], kind, torch.float64)
            numbers *= scale.repeat_interleave(page, dim=1)[:, : self.length, None]
            exact = q.double() @ numbers.transpose(1, 2) + shift[..., None]
            return compared([scored(kernel)], [scored(torch_impl)], [exact])

        return self._row("scoring", what, compare, lambda: scored(scoring), queries)


def main() -> None:
    """Print a line of JSON for each row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[32768, 131072], help="keys in the bank")
    parser.add_argument("--kernels", choices=(ALL, MAIN), default=ALL, help="the main ones take a tenth of the time")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), help="default: bfloat16, or float32")
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    dtype = getattr(torch, chosen.dtype) if chosen.dtype else computed_in(device)
    for row in kernel_rows(device, chosen.lengths, dtype, chosen.kernels):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
