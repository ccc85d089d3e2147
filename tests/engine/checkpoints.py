"""Saved random models, their sizes, and their logits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaForCausalLM, PreTrainedModel

from engine import Model, make_method
from engine.loops.context import new_memory
from engine.models.experts import PackedExperts
from tests.engine.architectures import small_config
from tests.engine.conftest import byte_tokenizer, tiny_config


def saved(kind: str, folder: Path, **sizes: int) -> Path:
    """Save a random mixture and its tokenizer as a checkpoint of several files; a layer may lie in two."""
    config = small_config(kind)
    config.update({"initializer_range": 0.1, **sizes})
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder, max_shard_size="60KB")
    byte_tokenizer().save_pretrained(folder)
    return folder


def through(model: Model, ids: Tensor, sizes: list[int]) -> Tensor:
    """Return logits [T, vocabulary] of tokens that pass in pieces of these sizes."""
    memory, hidden = new_memory(model, make_method("full")), []
    for chunk in ids.split(sizes):
        hidden.append(model.forward(chunk, memory, torch.full((len(chunk),), -1, dtype=torch.int32)))
        memory.end_pass()
    return model.logits(torch.cat(hidden))


def packed_bytes(network: PreTrainedModel) -> int:
    """Return the bytes of weights and of their constants, before anything was computed."""
    experts = [each for each in network.modules() if isinstance(each, PackedExperts)]
    total = sum(stack.nbytes for each in experts for stack in each.buffers())
    for weight in network.parameters():
        total += weight.nbytes
        state = getattr(weight, "quant_state", None)
        if state is not None:
            tensors = [state.absmax, state.code, state.offset, state.state2.absmax, state.state2.code]
            total += sum(tensor.nbytes for tensor in tensors)
        if getattr(weight, "SCB", None) is not None:
            total += weight.SCB.nbytes
    return total


TEXT = {
    **{"gemma3": "gemma3_text", "internvl": "qwen2", "mistral3": "mistral"},
    **{"gemma4": "gemma4_text", "gemma4_unified": "gemma4_unified_text"},
    **{"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"},
}
GEMMA_4 = {f"{each}_token_id": 251 + i for i, each in enumerate(("image", "boi", "eoi", "audio", "boa", "video"))}
QWEN = {"image_token_id": 255, "video_token_id": 254, "vision_start_token_id": 252, "vision_end_token_id": 253}
VISION: dict[str, Any] = {
    **{"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"image_size": 28, "patch_size": 14},
}
SEEING: dict[str, dict[str, Any]] = {
    "gemma3": {"model_type": "siglip_vision_model"},
    "gemma4": {"model_type": "gemma4_vision", "num_key_value_heads": 2, "head_dim": 16},
    "gemma4_unified": {"model_type": "gemma4_unified_vision", "num_soft_tokens": 4},
    "internvl": {"model_type": "internvl_vision", "image_size": [28, 28], "patch_size": [14, 14]},
    "mistral3": {"model_type": "pixtral", "head_dim": 16},
    **{kind: {"depth": 2, "num_heads": 2, "out_hidden_size": 64} for kind in ("qwen3_5", "qwen3_5_moe")},
}
OWN: dict[str, dict[str, Any]] = {
    "gemma3": {"mm_tokens_per_image": 4, "boi_token_index": 253, "eoi_token_index": 254, "image_token_index": 255},
    "gemma4": GEMMA_4,
    "gemma4_unified": GEMMA_4,
    "internvl": {"image_token_id": 255, "tie_word_embeddings": False},
    "mistral3": {"image_token_index": 255, "tie_word_embeddings": False},
    "qwen3_5": QWEN,
    "qwen3_5_moe": QWEN,
}


def save_small(path: Path) -> Path:
    """Save a random Llama with layers 64 wide, and its tokenizer, as a checkpoint."""
    config = tiny_config()
    config.update({"hidden_size": 64, "intermediate_size": 192, "head_dim": 16, "num_attention_heads": 4})
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return path


def changed(folder: Path, target: Path, **facts: object) -> Path:
    """Copy a checkpoint, with other settings in its config.json."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **facts}))
    return target
