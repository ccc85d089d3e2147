"""The loss of rows with weights, as `training/pocket/documents.py` makes them, and how much of them is right."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def scored(
    hidden: Tensor, ids: Tensor, weights: Tensor, logits_of: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, float]:
    """Mean loss of answer tokens and of language positions, and the share of short answers that are wholly right.

    Args:
        hidden: [B, T, C] after the last norm; ids: int64 [B, T]; weights: float32 [B, T], loss weight of predicting
            each token, -1 for a plain language position, 0 for none.
        logits_of: from hidden states [N, C] to logits [N, vocabulary].
    """
    hidden, weights, targets = hidden[:, :-1], weights[:, 1:], ids[:, 1:]
    chosen = weights != 0
    logits = logits_of(hidden[chosen]).float()
    each = F.cross_entropy(logits, targets[chosen], reduction="none")
    weight = weights[chosen]
    answer, plain = weight.clamp(min=0), (weight < 0).float()
    with torch.no_grad():
        # an answer is right if greedy decoding would say it: every one of its tokens comes first
        begins = (weights > 0) & (F.pad(weights, (1, 0))[:, :-1] <= 0)
        number = begins.flatten().cumsum(0).view_as(weights)[chosen]
        short = weight >= 0.6  # values and refusals; quotations and lists are another matter
        wrong = torch.zeros(int(begins.sum()) + 1, dtype=torch.bool, device=hidden.device)
        wrong[number[short & (logits.argmax(-1) != targets[chosen])]] = True
        asked = torch.unique(number[short])
        accuracy = 1 - float(wrong[asked].float().mean()) if len(asked) else 0.0
    return (each * answer).sum() / answer.sum().clamp(min=1), (each * plain).sum() / plain.sum().clamp(min=1), accuracy
