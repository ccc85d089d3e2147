"""FlashAttention (https://arxiv.org/abs/2307.08691), if its package is installed and there is a GPU.

    .venv/bin/pip install -e '.[gpu]'

The choice is made once, logged, and shown by `stockpot doctor`. It serves one causal segment of keys whose log-sum-exp
is not needed. Everything else runs in the kernels that `kernels/choice.py` chooses, or in PyTorch's own attention.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
from typing import Any

import torch
from torch import Tensor

PACKAGE = "flash_attn"
LARGEST_HEAD = 256
LEAST_CAPABILITY = (8, 0)  # of a GPU; on older ones neither this nor PyTorch's own FlashAttention runs

log = logging.getLogger(__name__)


@functools.cache
def choice() -> tuple[Any, str]:
    """Return FlashAttention's function, or None, and the reason in words."""
    function, reason = None, "there is no GPU"
    if torch.cuda.is_available():
        reason = "flash-attn is not installed: .venv/bin/pip install -e '.[gpu]', in Stockpot's folder"
        if importlib.util.find_spec(PACKAGE) is not None:
            try:
                function, reason = importlib.import_module(PACKAGE).flash_attn_func, "flash-attn is installed"
            except (ImportError, OSError, AttributeError) as error:  # built for another PyTorch or CUDA
                reason = f"flash-attn cannot be loaded ({error})"
    log.info("FlashAttention: %s (%s)", "used" if function else "not used", reason)
    return function, reason


def usable(q: Tensor) -> bool:
    """Return whether FlashAttention accepts these queries [HQ, T, D]; PyTorch's own has the same limits."""
    fitting = q.is_cuda and q.dtype in (torch.bfloat16, torch.float16) and q.shape[-1] <= LARGEST_HEAD
    return fitting and capable(q.device)


@functools.cache
def capable(device: torch.device) -> bool:
    """Return whether a GPU is new enough. Cached, since every layer of every pass asks."""
    return torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY


def attend(function: Any, q: Tensor, k: Tensor, v: Tensor, scaling: float) -> Tensor:
    """Return the causal attention output [HQ, T, D].

    Args:
        function: FlashAttention's function.
        q: [HQ, T, D], the last T of N tokens.
        k: [H, N, D].
        v: [H, N, D].
        scaling: factor of the scores.
    """
    rows = (each.transpose(0, 1)[None] for each in (q, k, v))  # [batch, tokens, heads, D]
    output: Tensor = function(*rows, softmax_scale=scaling, causal=True)
    return output[0].transpose(0, 1)
