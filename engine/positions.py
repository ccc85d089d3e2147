"""The position rules: which RoPE position a key or a query gets. Together in one place, to be compared.

What is stored is the key before RoPE, so each rule is a matter of arithmetic only. RoPE sees nothing but the distance
between a query's position and a key's; every rule here keeps that distance inside what the model was trained for.

| rule | keys | query | used by |
|---|---|---|---|
| context-reset (CR-RoPE) | slot 0, 1, 2, ..., anew after condensing | next slot | `slots.py`: infinipot, locret, full |
| true distance | index in the window | its own index | `window.py`: streaming, exact |
| StreamingLLM's sinks | 0 .. S-1 | its place in the cache, at most S+W-1 | `window.py`: the sinks |
| constant distance (InfLLM) | 0 | S+W-1 | `methods/exact.py`: far keys |
"""

from __future__ import annotations

import torch
from torch import Tensor


def sink_query_positions(first: int, count: int, sinks: int, window: int, device: torch.device) -> Tensor:
    """Where queries number first, first+1, ... stand as seen from the sinks, int64 [count].

    StreamingLLM (https://arxiv.org/abs/2309.17453, section 3.2) numbers positions inside its cache: sinks 0 .. S-1,
    then the last W tokens, the query being the last of them.
    """
    return torch.arange(first, first + count, device=device).clamp_max(sinks + window - 1)


def far_query_position(sinks: int, window: int) -> int:
    """The one position of a query as seen from far keys at position 0.

    InfLLM (https://arxiv.org/abs/2402.04617, section 3.3) puts all far keys at one distance, the end of the window.
    """
    return sinks + window - 1
