"""Loss and accuracy of rows with loss weights, as made by `training/pocket/documents.py`."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def scored(
    hidden: Tensor, ids: Tensor, weights: Tensor, logits_of: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, float]:
    """Return mean loss of answer tokens, mean loss of language positions, and accuracy of short answers.

    An answer counts as right if greedy decoding with the right tokens before it would give every token.

    Args:
        hidden: [B, T, C] after the last norm.
        ids: int64 [B, T].
        weights: float32 [B, T], loss weight of predicting each token; -1 for a language position, 0 for none.
        logits_of: maps hidden states [N, C] to logits [N, vocabulary].
    """
    hidden, weights, targets = hidden[:, :-1], weights[:, 1:], ids[:, 1:]
    chosen = weights != 0
    logits = logits_of(hidden[chosen]).float()
    each = F.cross_entropy(logits, targets[chosen], reduction="none")
    weight = weights[chosen]
    answer, plain = weight.clamp(min=0), (weight < 0).float()
    with torch.no_grad():
        # right if every token has the highest logit
        begins = (weights > 0) & (F.pad(weights, (1, 0))[:, :-1] <= 0)
        number = begins.flatten().cumsum(0).view_as(weights)[chosen]
        short = weight >= 0.6  # values and refusals, not quotations and lists
        wrong = torch.zeros(int(begins.sum()) + 1, dtype=torch.bool, device=hidden.device)
        wrong[number[short & (logits.argmax(-1) != targets[chosen])]] = True
        asked = torch.unique(number[short])
        accuracy = 1 - float(wrong[asked].float().mean()) if len(asked) else 0.0
    return (each * answer).sum() / answer.sum().clamp(min=1), (each * plain).sum() / plain.sum().clamp(min=1), accuracy
