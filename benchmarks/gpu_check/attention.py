"""Attention of one layer over long texts: InfiniteHiP's pruning and attention, beside dense attention and hip-attn.

Timed is `Memory.attend` of a layer of Llama-3.1-8B's shape: all pruning stages, and attention to the selected entries
in the host tier; and each stage by itself (`stages.py`). Also timed is `exact`'s search for the best entries, with and
without sketches. Keys and values of the others are all on the device.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import statistics
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.gpu_check import stages
from benchmarks.gpu_check.check import Check, Row
from benchmarks.gpu_check.gauge import median_seconds, wait
from benchmarks.gpu_inputs import LLAMA
from engine import make_method
from engine.memory import Memory
from engine.models.rope import Rope
from engine.models.spec import LayerSpec, ModelSpec, Scoring
from engine.parts import flash
from engine.parts.archive.archive import Archive
from engine.parts.archive.sketch import KINDS, Sketch
from engine.parts.mass import no_source
from engine.parts.selectors.base import searched

HIP_ATTN = "hip_attn"
WINDOW, THETA = 131072, 500000.0  # Llama-3.1-8B's
LENGTHS = (32 << 10, 128 << 10, 512 << 10, 1 << 20)
SINKS, STREAM, KEPT, BLOCK = 256, 1024, 2048, 64  # as in InfiniteHiP's 3K presets
FLASH = {"preset": "3k-flash", "first_layers": 0, "budget": SINKS + STREAM + KEPT + BLOCK - 1}
SMALL = {"stages": "32:16:128:8 32:4:32:4", "first_layers": 0, "first_keep": 32, "budget": 132, "looks": 1}
PREFILL, RENEWED, DECODE = "prefill", "a token, all stages", "a token, of 96"
SEARCHED = {1: "search of everything, a token", 50: "search of everything, 50 tokens"}
SKETCHED = {1: "search by sketches, a token", 50: "search by sketches, 50 tokens"}
SEARCHES = [what[count] for count in SEARCHED for what in (SEARCHED, SKETCHED)]
SKETCH = "int2"
BEST = 128  # entries to find for each query and head
QUERIES = {True: 32, False: STREAM}  # of a prefill pass, at most the stream; by tiny
ANSWER = 96  # tokens after which 3k-flash renews all stages
LAST = 5  # passes before a length, and answers at it; the median counts


def cells(check: Check) -> Iterator[Row]:
    """Yield the measurements to make."""
    for length in lengths_of(check):
        for what in (PREFILL, RENEWED, DECODE, *SEARCHES):
            yield {"what": what, "length": length}


def lengths_of(check: Check) -> tuple[int, ...]:
    """Return the lengths at which attention is measured."""
    return check.lengths if check.tiny else LENGTHS


@torch.no_grad()
def check_attention(check: Check) -> None:
    """Read noise at each length and answer with some; earlier entries are only stored, as they are not timed."""
    memory = memory_of(check)
    archive = memory.archive
    assert archive is not None
    lengths = sorted(lengths_of(check))
    memory.reserve(lengths[-1])
    queries = QUERIES[check.tiny]
    for length in lengths:
        while memory.seen < length - LAST * queries:
            _put(check, memory, queries)
        passes = [_attending(check, memory, _places(memory, queries)) for _ in range(LAST)]
        said = no_source(1)
        _attending(check, memory.fork(), said)  # compiles the kernels for one query and these slabs
        first = [_attending(check, memory.fork(), said) for _ in range(LAST)]  # first tokens, with all stages
        answer = memory.fork()
        others = [_attending(check, answer, said) for _ in range(1 + ANSWER)][1:]
        searching = ((archive, SEARCHED), (_sketched(archive), SKETCHED))
        for what, source in ((stages.PREFILL, _places(memory, queries)), (stages.TOKEN, said)):
            of = memory if what == stages.PREFILL else memory.fork()
            stages.check_stages(check, of, length, what, source, lambda *shape: _noise(check, *shape))
        limits = (torch.full((count,), memory.num_evicted) for count in SEARCHED)
        one, many = ({what[len(far)]: _searching(check, each, far) for each, what in searching} for far in limits)
        for count, taken in (
            (queries, {PREFILL: statistics.median(passes)}),
            (1, {RENEWED: statistics.median(first), DECODE: statistics.mean(others), **one}),
            (max(SEARCHED), many),
        ):
            beside = {"queries": count, **_beside(check, count, length)}
            for what, seconds in taken.items():
                row = check.row("attention", what=what, length=length)
                row |= {**beside, "seconds": seconds, "to_dense": beside["sdpa_seconds"] / seconds, "status": "done"}


def memory_of(check: Check) -> Memory:
    """Return InfiniteHiP's memory for a model of one layer."""
    frequencies = THETA ** -(torch.arange(0, LLAMA.size, 2, device=check.place) / LLAMA.size)
    layer = LayerSpec(LLAMA.query, LLAMA.kv, LLAMA.size, None, Rope(frequencies))
    spec = ModelSpec((layer,), check.dtype, check.place, 64 if check.tiny else WINDOW)
    return make_method("infinitehip", **(SMALL if check.tiny else FLASH)).new_memory(spec, len)


def _noise(check: Check, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=check.dtype, device=check.place)


def _places(memory: Memory, tokens: int) -> Tensor:
    """Return source positions of the next tokens."""
    return torch.arange(memory.seen, memory.seen + tokens, dtype=torch.int32)


def _put(check: Check, memory: Memory, tokens: int) -> None:
    """Store more tokens in a memory without attention, which would take minutes for a million."""
    memory.begin_pass(_places(memory, tokens))
    memory.append(0, *(_noise(check, heads, tokens, LLAMA.size) for heads in (LLAMA.query, LLAMA.kv, LLAMA.kv)))
    memory.end_pass()


def _attending(check: Check, memory: Memory, source: Tensor) -> float:
    """Return the seconds of `attend` for a pass of tokens at these positions."""
    q, k, v = (_noise(check, heads, len(source), LLAMA.size) for heads in (LLAMA.query, LLAMA.kv, LLAMA.kv))
    memory.begin_pass(source)
    began = wait(check.place)
    memory.attend(0, q, k, v, Scoring(LLAMA.size**-0.5))
    seconds = wait(check.place) - began
    memory.end_pass()
    return seconds


def _sketched(archive: Archive) -> Archive:
    """Return the archive with sketches of all its entries."""
    child = archive.snapshot()
    sketch = Sketch(child.host.spec, KINDS[SKETCH])
    sketch.extend(child.host.keys, child.host.stored, child.host.stored)
    child.host = dataclasses.replace(child.host, sketch=sketch)
    return child


def _searching(check: Check, archive: Archive, limits: Tensor) -> float:
    """Return the seconds that `exact` takes to find and fetch entries of the archive for tokens with these limits."""
    q = _noise(check, LLAMA.query, len(limits), LLAMA.size)
    rope = archive.host.spec.layers[0].rope
    return median_seconds(
        check.place, lambda: searched(archive, 0, q, rope.to_constant(q, SINKS + STREAM), BEST, limits)
    )


def _beside(check: Check, queries: int, length: int) -> Row:
    """Return the seconds of dense attention, by PyTorch and FlashAttention (if installed), and of hip-attn."""
    q = _noise(check, LLAMA.query, queries, LLAMA.size)
    k, v = _noise(check, LLAMA.kv, length, LLAMA.size), _noise(check, LLAMA.kv, length, LLAMA.size)

    def sdpa() -> Tensor:
        return F.scaled_dot_product_attention(q[None], k[None], v[None], enable_gqa=True)

    facts: Row = {"sdpa_seconds": median_seconds(check.place, sdpa)}
    function, _ = flash.choice()
    if function is not None and flash.usable(q):
        facts["flash_seconds"] = median_seconds(check.place, lambda: flash.attend(function, q, k, v, LLAMA.size**-0.5))
    return facts | _hip_attn(check, q, k, v)


def _hip_attn(check: Check, q: Tensor, k: Tensor, v: Tensor) -> Row:
    """Time the authors' package (1.2) with the same sinks, stream and stages, without its stage caches."""
    if importlib.util.find_spec(HIP_ATTN) is None:
        return {HIP_ATTN: "not installed"}
    try:
        package: Any = importlib.import_module(HIP_ATTN)
        settings = package.HiPAttentionArgs12(
            sink_token_size=SINKS,
            sliding_window_size=STREAM,
            second_stage_k=KEPT,
            require_cache_statistics=False,
            require_stage_caches=False,
        )
        rows = [each.transpose(0, 1)[None].contiguous() for each in (q, k, v)]  # hip-attn: [batch, tokens, heads, D]
        seconds = median_seconds(check.place, lambda: package.hip_attention_12(*rows, args=settings))
    except Exception as error:  # third-party packages raise anything
        return {HIP_ATTN: f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
    return {"hip_attn_seconds": seconds, HIP_ATTN: "done"}
