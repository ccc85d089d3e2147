"""Translate the RoPE settings of a GGUF file to transformers' `rope_parameters`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from engine.errors import ModelNotFound, UnsupportedModel
from engine.models.gguf.header import SHOWN, Header
from engine.models.gguf.values import count, number, short
from engine.models.gguf.weights import fill

FACTORS = "rope_freqs.weight"  # divisors of the frequencies, by the formula of Llama 3.1
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def rope_of(header: Header, head: int, mscale: float | None = None) -> dict[str, Any]:
    """Return the RoPE settings for heads of size `head`.

    mscale: what a file's multiplier of YaRN's logarithm is multiplied with to get transformers' `mscale_all_dim`; None
        where an architecture is not known to have it.

    Raises:
        UnsupportedModel: the frequencies are scaled in an unknown way.
    """
    theta = number(header, "rope.freq_base", 10000.0)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    turned = count(header, "rope.dimension_count", head)
    if turned % 2 or not 0 < turned <= head:
        raise ModelNotFound(
            f"{header.path} says that RoPE turns {turned} of {head} dimensions of a head: fetch it anew."
        )
    if turned != head:
        rope["partial_rotary_factor"] = turned / head
    kind = header.get("rope.scaling.type", "linear")
    if "rope_factors_long.weight" in header.tensors:
        return rope | _longrope(header)
    if FACTORS in header.tensors:
        return rope | _llama3(header, theta, turned)
    factor = number(header, "rope.scaling.factor", 0.0) or number(header, "rope.scale_linear", 1.0)
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return rope
    if kind == "linear":
        return rope | {"rope_type": "linear", "factor": factor}
    multiplier = number(header, "rope.scaling.yarn_log_multiplier", 0.0)
    if kind == "yarn" and (mscale is not None or not multiplier):
        original = count(header, "rope.scaling.original_context_length") or None
        own = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
        for key in ("beta_fast", "beta_slow"):
            if header.get(f"rope.scaling.yarn_{key}") is not None:
                own[key] = number(header, f"rope.scaling.yarn_{key}")
        if mscale is not None and multiplier:
            own |= dict.fromkeys(("mscale", "mscale_all_dim"), short(mscale * multiplier))
        return rope | own
    raise UnsupportedModel(
        f"{header.path} scales RoPE by '{kind!s:.{SHOWN}}' in a way that is not read from GGUF files: choose a "
        f"folder or hub id with safetensors."
    )


def _longrope(header: Header) -> dict[str, Any]:
    factors = {name: numbers_of(header, f"rope_factors_{name}.weight") for name in ("long", "short")}
    own: dict[str, Any] = {
        "rope_type": "longrope",
        "original_max_position_embeddings": count(header, "rope.scaling.original_context_length") or None,
        "long_factor": factors["long"],
        "short_factor": factors["short"],
    }
    if header.get("rope.scaling.attn_factor") is not None:
        own["attention_factor"] = number(header, "rope.scaling.attn_factor")
    return own


def _llama3(header: Header, theta: float, turned: int) -> dict[str, Any]:
    found = numbers_of(header, FACTORS)
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


def numbers_of(header: Header, name: str) -> list[float]:
    """Return all numbers of a small tensor that is part of the configuration."""
    stored = header.tensors[name]
    numbers = torch.empty(stored.shape)
    fill(numbers, stored)
    found = [short(each) for each in numbers.reshape(-1).tolist()]
    if not all(0 < each < math.inf for each in found):
        raise ModelNotFound(f"{name} in {header.path} has numbers that are not above 0: fetch it anew.")
    return found
