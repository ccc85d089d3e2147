"""Translate the RoPE settings of a GGUF file to transformers' `rope_parameters`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from engine.errors import UnsupportedModel
from engine.models.gguf.header import Header
from engine.models.gguf.weights import fill

FACTORS = "rope_freqs.weight"  # divisors of the frequencies, by the formula of Llama 3.1
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def short(number: float) -> float:
    """Return the shortest decimal for a float32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(number)))


def rope_of(header: Header, head: int) -> dict[str, Any]:
    """Return the RoPE settings for heads of size `head`.

    Raises:
        UnsupportedModel: the frequencies are scaled in an unknown way.
    """
    theta = short(header.get("rope.freq_base", 10000.0))
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    turned = header.get("rope.dimension_count", head)
    if turned != head:
        rope["partial_rotary_factor"] = turned / head
    kind = header.get("rope.scaling.type", "none")
    if "rope_factors_long.weight" in header.tensors:
        return rope | _longrope(header)
    if FACTORS in header.tensors:
        return rope | _llama3(header, theta, turned)
    factor = header.get("rope.scaling.factor") or 1.0
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return rope
    if kind == "linear":
        return rope | {"rope_type": "linear", "factor": short(factor)}
    if kind == "yarn" and not header.get("rope.scaling.yarn_log_multiplier"):
        original = header.get("rope.scaling.original_context_length")
        own = {"rope_type": "yarn", "factor": short(factor), "original_max_position_embeddings": original}
        for key in ("beta_fast", "beta_slow"):
            if (said := header.get(f"rope.scaling.yarn_{key}")) is not None:
                own[key] = short(said)
        return rope | own
    raise UnsupportedModel(
        f"{header.path} scales RoPE by '{kind}' in a way that is not read from GGUF files: choose a folder or hub id "
        f"with safetensors."
    )


def _longrope(header: Header) -> dict[str, Any]:
    factors = {name: _numbers(header, f"rope_factors_{name}.weight") for name in ("long", "short")}
    own: dict[str, Any] = {
        "rope_type": "longrope",
        "original_max_position_embeddings": header.get("rope.scaling.original_context_length"),
        "long_factor": factors["long"],
        "short_factor": factors["short"],
    }
    if (said := header.get("rope.scaling.attn_factor")) is not None:
        own["attention_factor"] = short(said)
    return own


def _llama3(header: Header, theta: float, turned: int) -> dict[str, Any]:
    found = _numbers(header, FACTORS)
    if all(each == 1.0 for each in found):
        return {}
    low, high, original = LLAMA3.values()
    factor = max(found)
    expected = []
    for pair in range(turned // 2):
        cycles = original * theta ** (-2 * pair / turned) / (2 * math.pi)
        smooth = min(1.0, max(0.0, (cycles - low) / (high - low)))
        expected.append(1 / ((1 - smooth) / factor + smooth))
    if not np.allclose(found, expected, rtol=1e-4):
        raise UnsupportedModel(
            f"{header.path} scales RoPE by factors of its own ({FACTORS}), which are not those of Llama 3.1: choose a "
            f"folder or hub id with safetensors."
        )
    return {"rope_type": "llama3", "factor": factor, **LLAMA3}


def _numbers(header: Header, name: str) -> list[float]:
    """Return all numbers of a small tensor that is part of the configuration."""
    stored = header.tensors[name]
    numbers = torch.empty(stored.shape)
    fill(numbers, stored)
    return [short(each) for each in numbers.reshape(-1).tolist()]
