"""Part 1: parity of the engine's attention interface with transformers, and of every kernel with its reference."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.gpu_check.check import Check
from benchmarks.gpu_kernels import kernel_rows
from benchmarks.model_shapes import config_of
from benchmarks.random_models import random_network
from engine import make_method
from engine.models.attention_interface import attach, run
from engine.models.recurrent_state import RecurrentState
from engine.parts.mass import no_source

SEAM = {"what": "seam, bf16"}
KERNELS = {"kernel": "all"}
TINY_KEYS = 8  # with real head sizes the interpreter would take minutes for a tiny text


def check_seam(check: Check, name: str) -> None:
    """Read with two layers of real width in chunks, in bf16; the error must be at most twice transformers' own."""
    config = config_of(name, check.tiny, layers=2)
    vocabulary: int = config.vocab_size
    ids = torch.randint(vocabulary, (600,), generator=torch.Generator().manual_seed(1)).to(check.place)
    low = random_network(config, check.place, torch.bfloat16, nf4=False)
    made: Any = random_network(config, check.place, torch.bfloat16, nf4=False)  # the same weights
    high = made.float()
    with torch.no_grad():
        exact = high(input_ids=ids[None], use_cache=False).logits[0]
        theirs = low(input_ids=ids[None], use_cache=False).logits[0].float()
    spec = attach(low)
    memory, state = make_method("full").new_memory(spec, lambda text: 1), RecurrentState() if spec.recurrent else None
    pieces = []
    with torch.no_grad():
        for chunk in torch.split(ids, 171):
            memory.begin_pass(no_source(len(chunk)))
            pieces.append(low.lm_head(run(low, chunk, memory, state=state)).float())
            memory.end_pass()
    ours = torch.cat(pieces)
    error, allowed = float((ours - exact).norm() / exact.norm()), 2 * float((theirs - exact).norm() / exact.norm())
    row = check.row("parity", model=name, **SEAM)
    row |= {"error": error, "allowed": allowed, "ok": error <= allowed, "status": "done"}


def check_kernels(check: Check) -> None:
    """Compare every kernel with its reference; then time some at other lengths, as far as time allows."""
    every, agreed = check.row("kernels", **KERNELS), True
    for row in kernel_rows(check.place, [TINY_KEYS] if check.tiny else list(check.lengths), check.dtype, check.kernels):
        if row["agrees"] is None:  # only timed; all comparisons are done
            every |= {"ok": agreed, "status": "done"}
        check.rows.append({"part": "kernels", **row, "status": "done"})
        agreed &= row["agrees"] is not False
    every |= {"ok": agreed, "status": "done"}
