"""Models and machines that plans are made for in tests."""

from __future__ import annotations

import torch
from transformers import AutoConfig

from engine.models.sizes import model_sizes
from engine.planning.planner import Machine, Planner
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
    """Of fused attention on a CPU, which PyTorch's counter leaves out: queries [B, HQ, T, D], keys [B, H, S, D]."""
    return 4 * q.numel() * k[2]
