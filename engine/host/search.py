"""The best entries of the host tier for each query, by dot product with every one of them.

It is done where the queries are. Keys come to a GPU slab by slab, each while the ones before it are compared, so that a
search takes there as long as the keys need for the way.

Keys in bfloat16 are multiplied as they are, and their products rounded to it: of neighbours within 0.4 % of the largest
product either may be taken. So keys with a large offset in common, as of models with biases, are told apart less well.

Sizes: HQ query heads, H KV heads, T queries, N entries, D head size.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from engine.host import tier_plan
from engine.host.transfers import STREAMED, streamed
from engine.seam import ModelSpec
from kernels import rows
from kernels.rows import Slabs, sent

SCORE_BYTES = 256 << 20  # room that the scores of a search may take, unless those of a query in one slab need more
BLOCK = 64  # entries whose best score stands for them in the first step of a search


def searched_together(query_heads: int, entries: int) -> int:
    """Queries that are compared with so many entries at once, so that each of these is read once; at least one."""
    return max(1, SCORE_BYTES // (4 * query_heads * max(entries, 1)))


def asked_together(spec: ModelSpec, far: int) -> int:
    """Queries that one search compares with all of `far` entries, in the layer with most heads."""
    return searched_together(max(layer.query_heads for layer in spec.layers), min(far, tier_plan.SLAB))


def searching_bytes(spec: ModelSpec, dtype: torch.dtype, queries: int, far: int) -> int:
    """What a search takes beside what it finds, among `far` entries in a dtype for so many queries: scores and those of
    them that are sorted; on a GPU also keys.
    """
    widest = max(spec.layers, key=lambda layer: layer.query_heads)
    slab, each = min(far, tier_plan.SLAB), 4 * widest.query_heads * min(queries, asked_together(spec, far))
    scores = each * max(slab, min(far, SCORE_BYTES // each))
    keys = tier_plan.slab_bytes(spec.with_heads(lambda layer: layer is widest), dtype, slab) // 2
    return 2 * scores + (STREAMED * keys if spec.device.type == "cuda" else 0)


def best_of_all(slabs: Slabs, q: Tensor, limits: Tensor, top: int, visible: int) -> tuple[Tensor, Tensor]:
    """As `HostTier.search`, of the first `visible` entries of the slabs of keys."""
    heads, queries, size = q.shape
    grouped = q.float().reshape(slabs[0][0].shape[0] if slabs else heads, -1, size)
    best = torch.empty(heads, queries, 0, dtype=rows.scored_in(slabs), device=q.device)
    index = torch.empty(heads, queries, 0, dtype=torch.int64, device=q.device)
    at = 0
    for some in _together(slabs, visible, heads * queries):
        count = sum(length for _, length in some)
        scores = _scored(some, grouped, best.new_empty(heads, queries, -(-count // BLOCK) * BLOCK), count)
        if int(limits[0]) < at + count:
            first = max(at, int(limits[0]))
            late = torch.arange(first, at + count) >= limits[:, None]
            scores[..., first - at : count].masked_fill_(sent(late, q.device), float("-inf"))
        more, place = _best_of(scores, min(top, count))
        best, index = torch.cat([best, more], dim=2), torch.cat([index, place + at], dim=2)
        best, chosen = best.topk(min(top, best.shape[2]), dim=2)
        index = index.gather(2, chosen)
        at += count
    held = best > float("-inf")
    return index.masked_fill_(~held, 0), held


def _together(slabs: Slabs, visible: int, queries: int) -> Iterator[Slabs]:
    """The visible entries, slab by slab, as many slabs at once as there is room for the scores of."""
    some: list[tuple[rows.Bank, int]] = []
    left, room = visible, SCORE_BYTES // (4 * queries)
    for bank, length in slabs:
        if some and min(length, left) > room - sum(count for _, count in some):
            yield some
            some = []
        if left:
            some.append((bank, min(length, left)))
        left -= min(length, left)
    if some:
        yield some


def _scored(slabs: Slabs, q: Tensor, scores: Tensor, count: int) -> Tensor:
    """Scores [HQ, T, N] of queries [H, R, D], written; -inf behind the entries there are."""
    scores[..., count:] = float("-inf")
    by_group, at = scores.view(q.shape[0], q.shape[1], scores.shape[2]), 0
    for bank, length in streamed(slabs, q.device):
        rows.score(bank, q, by_group[..., at : at + length])
        at += length
    return scores


def _best_of(scores: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """The highest `top` scores and where they are, [HQ, T, top] both; of whole blocks [HQ, T, N].

    They lie in the `top` blocks with the best maxima, so only those are sorted.
    """
    grid = scores.view(*scores.shape[:2], -1, BLOCK)
    chosen = grid.amax(dim=3).topk(min(top, grid.shape[2]), dim=2).indices
    candidates = grid.gather(2, chosen[..., None].expand(-1, -1, -1, BLOCK)).flatten(2)
    best, place = candidates.topk(top, dim=2)
    return best, chosen.gather(2, place // BLOCK) * BLOCK + place % BLOCK


def best_among(among: Tensor, keys: Tensor, q: Tensor, limits: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """As `HostTier.search`, of the entries [N] whose keys are given, float32 [H, N, D] where the queries are."""
    grouped = q.float().reshape(len(keys), -1, q.shape[2])
    scores = (grouped @ keys.transpose(1, 2)).view(*q.shape[:2], -1)
    late = sent(among >= limits[:, None], q.device)
    best, place = scores.masked_fill_(late, float("-inf")).topk(min(top, len(among)), dim=-1)
    held = best > float("-inf")
    return sent(among, q.device)[place].masked_fill_(~held, 0), held
