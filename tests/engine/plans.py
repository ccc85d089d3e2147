"""Models and machines to plan for in tests."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import AutoConfig

from engine import (
    Method,
    Model,
    Reader,
    make_method,
)
from engine.models.sizes import model_sizes
from engine.planning.plan import Machine
from engine.planning.planner import Planner
from engine.planning.rates import Rates

GB = 1_000_000_000
ROOMY = Machine(device=64 * GB, host=64 * GB, shared=False)
LLAMA_8B = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
QWEN3_30B = {
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}


def llama() -> Planner:
    model = model_sizes(AutoConfig.for_model("llama", **LLAMA_8B), torch.bfloat16)
    return Planner(
        model, Machine(device=24 * GB, host=64 * GB, shared=False, rates=Rates(80e12, 9e11, 2e10, 1e12, 5e10))
    )


def fused_operations(q: torch.Size, k: torch.Size, *_: object, **__: object) -> int:
    """Count fused attention on a CPU, which PyTorch's counter leaves out: queries [B, HQ, T, D], keys [B, H, S, D]."""
    return 4 * q.numel() * k[2]


def with_store(name: str) -> Method:
    """Make a method by its name and, after a colon, its store."""
    name, _, store = name.partition(":")
    return make_method(name, **({"store": store} if store else {}))


def peak_of_pass(model: Model, method: Method, ids: Tensor, chunk: int) -> int:
    """Return the most bytes that the last pass of a reading allocates beyond those before it."""
    reader = Reader(model, method, ids, chunk)
    running = reader.run()
    for progress in running:
        if progress.tokens_total - progress.tokens_done <= chunk:
            break
    return peak_of(lambda: next(running))


def peak_of(run: Callable[[], object]) -> int:
    """Return the most bytes that a call allocates beyond those before it."""
    held = peak = 0
    with torch.profiler.profile(profile_memory=True) as profile:
        run()
    assert profile.profiler is not None
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak
