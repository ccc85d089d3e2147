"""Compile every kernel to machine code for an NVIDIA GPU that need not be there, and run nothing.

    python -m tests.kernels.compiling all-89 [lengths-89 presets-89 widest-120 ...]

Prints a line of JSON for each compiled kernel: what it was compiled for, its name, bytes of shared memory of a block,
bytes of local memory of a thread (spilled registers), and a hash.

    all      each kernel, with every kind of slab
    lengths  several numbers of queries and keys
    presets  blocks of 64 queries as InfiniteHiP's presets have, and pruning for a single query
    widest   heads of 256 in bfloat16 and float32, of 512, and latents of 576

The number is a GPU's compute capability: 80 for an A100, 89 for an RTX 40, 90 for an H100 or H200, 120 for an RTX 50.
Below 89 no GPU has fp8, which is left out there.

It runs in a process of its own, because Triton must know before its import that it does not interpret; and each name in
a fork of that, because launches remember the GPU.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from triton import knobs
from triton.backends import nvidia
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from kernels.attention import VisibleRange
from kernels.attention import kernel as attention
from kernels.bank import UnitBank
from kernels.bank import kernel as bank
from kernels.columns import kernel as columns
from kernels.gathering import EntryBuffers
from kernels.gathering import kernel as gathering
from kernels.int4 import kernel as int4
from kernels.layers import kernel as layers
from kernels.mxfp4 import kernel as mxfp4
from kernels.pruning import BRANCH
from kernels.pruning import kernel as pruning
from kernels.quantise import kernel as quantise
from kernels.scoring import kernel as scoring
from tests.kernels import test_pruning
from tests.kernels.banks import Coding, case

INT8, INT4, FP8, INT2 = torch.int8, torch.quint4x2, torch.float8_e4m3fn, torch.quint2x4
BF16 = torch.bfloat16


class Elsewhere:
    """A driver that answers Triton's questions while it compiles."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_only(what: str, capability: int) -> None:
    """Make every launch compile its kernel, print a line about it and run nothing."""
    driver.set_active(Elsewhere(capability))
    run = JITFunction.run

    def compiled(self: JITFunction, *arguments: object, grid: object, warmup: bool, **more: object) -> None:
        made = run(self, *arguments, grid=grid, warmup=True, **more)
        assert made.asm["cubin"]
        local = spilled(made.asm["cubin"])
        said = {"kernel": self.fn.__name__, "shared": made.metadata.shared, "local": local, "hash": made.hash}
        print(json.dumps({"for": f"{what}-{capability}", **said}), flush=True)

    JITFunction.run = compiled


def spilled(cubin: bytes) -> int:
    """Return the bytes of local memory of each thread, as counted by the tool that comes with Triton."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
        usage = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return max(int(size) for size in re.findall(r"STACK:(\d+)", usage))


def launch_all(fp8: bool) -> None:
    """Launch each kernel, with slabs of every kind among them."""
    decode = case((8, 2), 128, 64, BF16, count=1, block=1, coding=Coding(INT8))
    prefill = case((4, 1), 256, 128, BF16, block=16, by_head=True, coding=Coding(INT4, 1, (True, False, True)))
    many = case((8, 2), 128, 64, BF16, block=32, listed=60)
    dense = case((8, 2), 96, 0, BF16)
    for given, shares in ((decode, 4), (prefill, 1), (many, 1), (dense, 1)):
        attention.shares_of = lambda *_, shares=shares: shares
        attention.attend(given.q, given.keys, given.values, given.span, given.lists, 0.1)
    columns.column_sums(decode.q, decode.keys, decode.span, decode.lists, torch.zeros(8, 1), 0.1)
    q, slabs, starts, limits, places = test_pruning.case(8, 2, 128, 64, 64, BRANCH, BF16, INT4)
    pruning.chunk_scores(q, slabs, starts, limits, 11, places)
    coded = case((2, 2), 128, 0, BF16, coding=Coding(FP8 if fp8 else INT8, coded=(True, True, True)))
    index, angles = torch.zeros(2, 5, dtype=torch.int64), torch.zeros(5, 64)
    room = EntryBuffers(*(torch.zeros(2, 5, 128, dtype=BF16) for _ in range(3)))
    gathering.gather(coded.keys, coded.values, index, angles, angles, room)
    gathering.gather_rows(dense.keys, index, index.device, BF16)
    held, limits, traffic = torch.zeros(1, dtype=torch.int64), torch.zeros(2, dtype=torch.int64), index[0]
    for size, slabs in zip((8, 128, 6), (prefill.keys[2:], coded.keys, dense.keys), strict=True):
        units = UnitBank.empty((slabs[0][0], slabs[0][0]), 4, size, 20, False, index.device)
        bank.bring(units, torch.zeros(2, 3, dtype=torch.int64), limits, slabs, slabs, held, traffic, 5)
    for kind in (INT4, FP8 if fp8 else INT8, INT2):
        codes, scale = quantise.quantise(room.keys, kind)
        quantise.dequantise(codes, scale, kind, BF16)
        q, found = torch.zeros(2, 20, 128), torch.zeros(2, 20, 5)
        scoring.scores(q, codes, scale[:, None], q[..., 0], kind, BF16, found)
    blocks, scales = torch.zeros(4, 5760, 90, 16, dtype=torch.uint8), torch.zeros(4, 5760, 90, dtype=torch.uint8)
    which = torch.zeros(4, dtype=torch.int64)
    mxfp4.product(torch.zeros(4, 2880, dtype=BF16), blocks, scales, which)
    mxfp4.unpack(blocks, scales, which, BF16)
    int4.unpack(torch.zeros(512, 32, 32, 4, dtype=torch.int32), torch.zeros(64, 4096, 2, dtype=BF16), BF16)
    layers.rms_norm(torch.zeros(3, 4096, dtype=BF16), torch.zeros(4096, dtype=BF16), 1e-5, 0.0, True)
    layers.gated(torch.zeros(3, 28672, dtype=BF16), "silu")
    q, k, angle = torch.zeros(8, 3, 128, dtype=BF16), torch.zeros(2, 3, 128, dtype=BF16), torch.zeros(3, 64, dtype=BF16)
    layers.turn(q, angle, angle)
    layers.append(q, k, k, angle, angle, torch.zeros(1, dtype=torch.int64), room.keys, room.rotated, room.values)
    layers.append(q, k, k, angle, angle, 0, room.keys, room.rotated, room.values)
    layers.merge(q, torch.zeros(8, 3), q, torch.zeros(8, 3))


def launch_lengths() -> None:
    """Launch the kernels of a pass for several numbers of queries, keys and shares of keys."""
    for count, listed, shares in ((1, 37, 2), (16, 48, 4), (21, 40, 32)):
        for block in (1, 0):
            given = case((8, 2), 96, 48, BF16, count=count, block=block, listed=listed)
            attention.shares_of = lambda *_, shares=shares: shares
            first = given.span.start[:count]  # beside the end in one tensor, as a pass sends them
            span = VisibleRange(first, torch.cat([first, given.span.end])[count:])
            attention.attend(given.q, given.keys, given.values, span, given.lists, 0.1)
            columns.column_sums(given.q, given.keys, span, given.lists, torch.zeros(8, count), 0.1)
        q, slabs, starts, limits, places = test_pruning.case(8, 2, 96, 48, count, BRANCH, BF16)
        pruning.chunk_scores(q, slabs, starts, limits, listed, places)
        index, angles = torch.zeros(2, listed, dtype=torch.int64), torch.zeros(listed, 48)
        room = EntryBuffers(*(torch.zeros(2, listed + count, 96, dtype=BF16) for _ in range(3)))
        gathering.gather(given.keys, given.values, index, angles, angles, room)


def launch_presets() -> None:
    """Launch pruning and attention with the blocks of the presets, and pruning for a single query."""
    attention.shares_of = lambda *_: 1
    for kind in (None, INT8, INT4):
        q, slabs, starts, limits, places = test_pruning.case(8, 2, 128, 64, 64, BRANCH, BF16, kind)
        pruning.chunk_scores(q, slabs, starts, limits, 11, places)
        for heads, size in (((8, 2), 128), ((1, 1), 96)):
            coding = None if kind is None else Coding(kind)
            given = case(heads, size, size // 2, BF16, count=64, block=64, listed=100, coding=coding)
            attention.attend(given.q, given.keys, given.values, given.span, given.lists, 0.1)
    for kind in (None, INT8, INT4):
        q, slabs, starts, limits, places = test_pruning.case(8, 2, 128, 64, 1, BRANCH, BF16, kind, (64, 47))
        pruning.chunk_scores(q, slabs, starts, limits, 11, places)
        copies = test_pruning.copies_of(slabs, 8, starts, 11)
        pruning.chunk_scores(q, slabs, starts, limits, 11, places, copies)


def launch_widest() -> None:
    """Launch the kernels that take most shared memory and registers."""
    attention.shares_of = lambda *_: 1
    for width, dtype in ((256, BF16), (256, torch.float32), (512, BF16)):
        knobs.nvidia.disable_ptxas_opt = dtype == torch.float32  # it spills, which takes the assembler 15 s to arrange
        for block in (16, 0):
            given = case((8, 2), width, width // 2 if block else 0, dtype, count=64, block=block)
            attention.attend(given.q, given.keys, given.values, given.span, given.lists, 0.1)
        columns.column_sums(given.q, given.keys, given.span, given.lists, torch.zeros(8, 64), 0.1)
        q, slabs, starts, limits, places = test_pruning.case(8, 2, width, width // 2, 64, BRANCH, dtype)
        pruning.chunk_scores(q, slabs, starts, limits, 11, places)
        for kind in (INT8, INT2):
            codes = torch.zeros(2, 64, quantise.width(kind, width), dtype=quantise.stored(kind))
            q = torch.zeros(2, 64, width)
            scoring.scores(q, codes, torch.zeros(2, 64), q[..., 0], kind, dtype, torch.zeros(2, 64, 64))
    for count, block, coding in ((64, 16, None), (1, 1, Coding(INT4)), (64, 0, None)):
        latent = case((20, 1), 576, 32 if block else 0, BF16, count=count, block=block, coding=coding)
        attention.attend(latent.q, latent.keys, latent.keys, latent.span, latent.lists, 0.1)
    columns.column_sums(latent.q, latent.keys, latent.span, None, torch.zeros(20, 64), 0.1)
    q, slabs, starts, limits, places = test_pruning.case(20, 1, 576, 32, 1, BRANCH, BF16)
    pruning.chunk_scores(q, slabs, starts, limits, 11, places)
    for kind in (INT8, INT2):
        codes, q = torch.zeros(1, 64, quantise.width(kind, 576), dtype=quantise.stored(kind)), torch.zeros(1, 20, 576)
        scoring.scores(q, codes, torch.zeros(1, 64), q[..., 0], kind, BF16, torch.zeros(1, 20, 64))


def launch(what: str, capability: int) -> None:
    compile_only(what, capability)
    launches = {"lengths": launch_lengths, "presets": launch_presets, "widest": launch_widest}
    if what == "all":
        launch_all(fp8=capability >= 89)
    else:
        launches[what]()


if __name__ == "__main__":
    for named in sys.argv[1:]:
        if not (child := os.fork()):
            launch(named.partition("-")[0], int(named.partition("-")[2]))
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{named} failed")
