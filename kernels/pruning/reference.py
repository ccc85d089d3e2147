"""Chunk scores by hierarchical top-1, in plain PyTorch; also what the engine runs on a CPU.

Source: InfiniteHiP (https://arxiv.org/abs/2502.08910), Algorithms 2 and 3. As printed, Algorithm 3 counts from 1 and
cuts a range of two into nothing and itself, so that its second key could never be chosen; here a range is cut into
its first ceil(n/2) keys and the rest, which halves it every time. Sizes: HQ query heads, H KV heads, NB query blocks
of B queries, C chunks, D head size, R rotated width.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kernels.rotation import rotate
from kernels.rows import Slabs, among, sent, take

# How a key's position while pruning is found (engine/positions.py has the rules that use them):
CONSTANT = 0  # 0
BRANCH = 1  # 0 in the first half of a range, 1 in the second and for a chunk's representative
CHUNK = 2  # the number of its chunk in this stage's list
TOKEN = 3  # (its row + offset) // group
FIXED = {CONSTANT, BRANCH}  # all keys stand at 0 or 1

STEP_BYTES = 8 << 20  # room that scores and gathered keys of one step may take: a part of a processor's cache
STEP_ROWS = 1 << 15  # rows under the chunks of one step: those of a first stage then mostly lie in one slab


@dataclass(frozen=True)
class Places:
    """Positions of keys: rule int64 [NB] and, for TOKEN, group int64 [NB] and offset; tables cos, sin [P, R/2].

    known: rules among which all of `rule` are, where somebody knows them without asking the device.
    """

    rule: Tensor
    group: Tensor
    offset: int
    cos: Tensor
    sin: Tensor
    known: frozenset[int] | None = None

    @cached_property
    def kinds(self) -> frozenset[int]:
        """Rules that may be among `rule`."""
        return frozenset(self.rule.tolist()) if self.known is None else self.known

    @property
    def fixed(self) -> Tensor:
        """Blocks whose keys all stand at 0 or 1, bool [NB]."""
        return (self.rule == CONSTANT) | (self.rule == BRANCH)

    def of(self, index: Tensor, number: Tensor) -> Tensor:
        """Positions int64, broadcastable to [..., NB, C], of keys index [..., NB, C] from chunks of these numbers [C];
        for CHUNK and TOKEN.
        """
        if self.kinds == {CHUNK}:
            return number
        token = torch.div(index + self.offset, self.group[:, None], rounding_mode="floor")
        return torch.where((self.rule == CHUNK)[:, None], number, token)


def chunk_scores(q: Tensor, slabs: Slabs, starts: Tensor, limits: Tensor, size: int, places: Places) -> Tensor:
    """The estimated highest attention score of each chunk, over all heads and all queries of a block.

    Args:
        q: [HQ, NB, B, D], rotated. A block that is not full repeats one of its queries.
        slabs: un-rotated keys, [H, capacity, D] each.
        starts: int64 [NB, C], the first row of each chunk, ascending; a chunk has `size` rows.
        limits: int64 [NB], rows from here on may not be seen, so a chunk may be shorter, or empty.
        size: l_c.
        places: where keys stand.

    Returns:
        float32 [NB, C]; -inf for empty chunks.
    """
    places = dataclasses.replace(places, known=places.kinds)  # looked up once, if at all
    both = _fold(q, places)
    query_heads, blocks, queries, width = both.shape
    per_chunk = 4 * query_heads * blocks * (queries + 3 * width)
    step = max(1, min(STEP_BYTES // per_chunk, STEP_ROWS // size))
    number = torch.arange(starts.shape[1], device=starts.device)
    pieces = []
    host = starts.to(slabs[0][0].device)  # which is asked where rows are
    for at in range(0, starts.shape[1], step):
        here, asked = starts[:, at : at + step], host[:, at : at + step]
        near, before = among(slabs, int(asked.min()), int(asked.max()) + size) if len(slabs) > 1 else (slabs, 0)
        moved = dataclasses.replace(places, offset=places.offset + before)
        pieces.append(_scores(both, near, here - before, limits - before, size, moved, number[at : at + step]))
    return torch.cat(pieces, dim=1)


def _fold(q: Tensor, places: Places) -> Tensor:
    """Queries [HQ, NB, S * B, D] for un-rotated keys in blocks where those all stand at 0 or 1.

    Rotating a query back is the same as rotating every key, and there are fewer queries. S is 2 if any block is a
    BRANCH, which needs them as seen from position 0 and from 1; else 1.
    """
    branch, fixed = ((places.rule == BRANCH)[:, None, None], places.fixed[:, None, None])
    left = rotate(q, places.cos[0], -places.sin[0])
    if BRANCH not in places.kinds:
        return torch.where(fixed, left, q)
    right = torch.where(branch, rotate(q, places.cos[1], -places.sin[1]), left)
    return torch.cat([torch.where(fixed, left, q), torch.where(fixed, right, q)], dim=2)


def _scores(
    q: Tensor, slabs: Slabs, starts: Tensor, limits: Tensor, size: int, places: Places, number: Tensor
) -> Tensor:
    heads, rows = slabs[0][0].shape[0], sum(length for _, length in slabs)
    sides = 2 if BRANCH in places.kinds else 1
    # In half precision dot products that nobody has scaled overflow, or are rounded until they tie.
    wide = torch.promote_types(q.dtype, torch.float32)
    folded, columns = places.fixed, q.transpose(2, 3).to(wide).contiguous()

    def score(index: Tensor) -> list[Tensor]:
        """Best score of each key [HQ, NB, C] over its block's queries, as a left key and as a right one."""
        bounded = index.clamp(0, rows - 1)
        flat = bounded.view(heads, -1).to(slabs[0][0].device)
        keys = sent(take(slabs, flat), q.device).to(q.dtype).view(*index.shape, q.shape[-1])
        if not places.kinds <= FIXED:
            position = places.of(bounded, number)
            turned = rotate(keys, places.cos[position], places.sin[position])
            keys = torch.where(folded[:, None, None], keys, turned) if places.kinds & FIXED else turned
        scores = keys.to(wide) @ columns  # in this order and so laid out, which is several times as fast as q @ keys
        best = scores.view(*index.shape, sides, -1).amax(dim=4).float()
        return [best[..., 0], best[..., -1]]

    whole = (limits[:, None] - starts).clamp(0, size)
    first = starts.expand(q.shape[0], -1, -1)
    length = whole.expand(q.shape[0], -1, -1)
    as_left, as_right = score(first)  # the scores of `first` on either side
    for _ in range((size - 1).bit_length()):
        half = (length + 1) >> 1
        other_left, other_right = score(first + half)
        go_right = (other_right > as_left) & (length > half)
        first = torch.where(go_right, first + half, first)
        length = torch.where(go_right, length - half, half)
        as_left = torch.where(go_right, other_left, as_left)
        as_right = torch.where(go_right, other_right, as_right)
    return as_right.amax(dim=0).masked_fill(whole == 0, float("-inf"))
