"""A bank of keys and values of documents read lately: the crowd that a far look-up must find its fact in.

Rows of a few hundred tokens hold a few thousand distractors a step; a document of a hundred thousand tokens holds many
more, and a model that has not met so many loses its way among them. A bank holds the keys of whole documents, read
without gradients a few steps ago; of it each query sees only the hardest, as it will when it is answered by top-k.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

HARDEST = 64  # bank entries that each query of each head sees
STRIDE = 32  # entries of which the best one is looked at further
ROWS = 128  # queries whose scores are worked out at once, so that they stay in the processor's cache


@dataclass(frozen=True)
class Bank:
    """Per layer keys before RoPE and values, float32 [H, M, D]; M is a multiple of `STRIDE`."""

    keys: list[Tensor]
    values: list[Tensor]

    @torch.no_grad()
    def hardest(self, layer: int, q: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values that q [B, HQ, T, D] comes nearest to: each [B, HQ, T, HARDEST, D].

        Only the best of every `STRIDE` entries are compared, so that now and then a good one is missed: it is a crowd,
        not an answer.
        """
        keys, values = self.keys[layer], self.values[layer]
        H, M, D = keys.shape
        B, _, T, _ = q.shape
        columns = M // STRIDE
        turned, queries = keys.mT.contiguous(), q.view(B, H, -1, T, D).transpose(0, 1).reshape(H, -1, D)
        chosen = []
        for begin in range(0, queries.shape[1], ROWS):
            scores = (queries[:, begin : begin + ROWS] @ turned).view(H, -1, STRIDE, columns)
            column = scores.amax(dim=2).topk(min(HARDEST, columns), dim=-1).indices
            among = scores.gather(3, column[:, :, None].expand(-1, -1, STRIDE, -1)).argmax(dim=2)
            chosen.append(among * columns + column)
        index = torch.cat(chosen, dim=1) + torch.arange(H)[:, None, None] * M
        index = index.view(H, B, -1, T, index.shape[-1]).transpose(0, 1).flatten(1, 2)
        return keys.flatten(0, 1)[index], values.flatten(0, 1)[index]


def bank_of(keys: list[Tensor], values: list[Tensor], kept: Tensor) -> Bank:
    """The bank of a batch's keys and values, per layer [B, H, T, D]; kept: bool [B, T], what goes in."""
    rows = kept.flatten().nonzero()[:, 0]
    rows = rows[: len(rows) // STRIDE * STRIDE]

    def chosen(x: Tensor) -> Tensor:
        return x.transpose(0, 1).flatten(1, 2)[:, rows]

    return Bank([chosen(k) for k in keys], [chosen(v) for v in values])
