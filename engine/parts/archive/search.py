"""Search of the host tier: the best entries for each query by dot product with every key.

It runs on the queries' device. Keys are copied to a GPU slab by slab, while earlier slabs are compared, so a search
takes as long as the copy of the keys.

Where a processor is fast in bfloat16, and on a GPU, keys in it are multiplied in that type and their products rounded
to it. Among entries within 0.4 % of the largest product, any may be chosen. Keys with a large common offset, as in
models with biases, are thus told apart less well.

Sizes: HQ query heads, H KV heads, T queries, N entries, D head size.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.models.spec import ModelSpec
from engine.parts.archive import tier_plan
from engine.parts.archive.sketch import CANDIDATES, Sketch
from engine.parts.archive.slabs import group_size_of
from engine.parts.archive.transfers import STREAMED, streamed
from kernels import rows
from kernels.gathering import gather_rows
from kernels.rows import Bank, Slabs, to_device

SCORE_BYTES = 256 << 20  # limit for the scores of a search, exceeded only if one query in one slab needs more
BLOCK = 64  # entries represented by their best score in the first step
PAYS = 3  # times as many scores as those blocks have, from which on a CPU the first step saves time
FEW = 512  # so few scores take little time, and are selected alike on all devices


def searching_bytes(
    spec: ModelSpec, dtype: torch.dtype, queries: int, far: int, top: int = 0, sketch: torch.dtype | None = None
) -> int:
    """Return the bytes that a search needs beside its result.

    These are scores and the part of them that is sorted, on a CPU the numbers of entries, on a GPU also keys, and with
    sketches the candidates' keys.

    Args:
        spec: sizes of the model.
        dtype: type of the entries.
        queries: number of queries.
        far: number of entries.
        top: entries wanted for each query.
        sketch: type of the sketches, or None.
    """
    widest = max(spec.layers, key=lambda layer: layer.query_heads)
    slab, each = min(far, tier_plan.SLAB), 4 * widest.query_heads
    scores = min(each * queries * far, max(each * slab, SCORE_BYTES))
    held = scores * (2 if spec.device.type == "cuda" else 3)
    if sketch is not None:
        found = each * widest.head_size * min(far, CANDIDATES[sketch] * top)
        return held + min(queries * found, max(found, SCORE_BYTES))
    if spec.device.type != "cuda":
        return held
    keys = tier_plan.slab_bytes(spec.with_heads(lambda layer: layer is widest), dtype, slab) * spec.key_share
    numbers = slab * widest.kv_heads * widest.head_size if group_size_of(dtype) > 1 else 0  # dequantised rows
    return held + STREAMED * round(keys) + numbers * (1 + 2 * spec.dtype.itemsize)


class Found(NamedTuple):
    """Result of a search for queries [HQ, T, D], on the queries' device.

    Attributes:
        entries: numbers of entries, int64 [HQ, T, K].
        held: whether there is an entry, bool [HQ, T, K].
        keys: their keys [HQ, T, K, D], or None if they were not fetched.
    """

    entries: Tensor
    held: Tensor
    keys: Tensor | None = None


def best_of_all(slabs: Slabs, q: Tensor, limits: Tensor, top: int, visible: int) -> Found:
    """Search the first `visible` entries like `HostTier.search`. Each key is read once."""
    heads, queries, _ = q.shape
    seen = within(slabs, visible)
    coming, dtype = streamed(seen, q.device), rows.scored_in(slabs, q.device)
    best: Tensor | None = None
    index, at = torch.empty(heads, queries, 0, dtype=torch.int64, device=q.device), 0
    for some in _together(seen, heads * queries):
        count = sum(length for _, length in some)
        here: Iterable[tuple[Bank, int]] = itertools.islice(coming, len(some))
        steps = _steps(heads, queries, count)
        if len(steps) > 1:  # a single slab, read for each step
            here = list(here)
        more, place = _joined(
            _best_of(_scored(here, q[:, each], limits[each] - at, count, dtype), min(top, count)) for each in steps
        )
        if best is None:
            best, index = more, place
        else:
            best, index = torch.cat([best, more], dim=2), torch.cat([index, place + at], dim=2)
            best, chosen = highest(best, min(top, best.shape[2]))
            index = index.gather(2, chosen)
        at += count
    if best is None:
        best = torch.empty(heads, queries, 0, dtype=dtype, device=q.device)
    held = best > float("-inf")
    return Found(index.masked_fill_(~held, 0), held)


def _steps(query_heads: int, queries: int, entries: int) -> list[slice]:
    """Split queries into steps whose scores fit `SCORE_BYTES`, with at least one query each."""
    step = max(1, SCORE_BYTES // (4 * query_heads * max(entries, 1)))
    return [slice(at, at + step) for at in range(0, queries, step)]


def _joined(found: Iterable[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Join the results of steps along the queries."""
    return tuple(each[0] if len(each) == 1 else torch.cat(each, dim=1) for each in zip(*found, strict=True))


def within(slabs: Slabs, visible: int) -> Slabs:
    """Return the slabs cut to the first `visible` entries."""
    ends = list(itertools.accumulate(length for _, length in slabs))
    return [
        (bank, min(length, visible - end + length))
        for (bank, length), end in zip(slabs, ends, strict=True)
        if end - length < visible
    ]


def _together(slabs: Slabs, queries: int) -> Iterator[Slabs]:
    """Group slabs so that the scores of a group fit `SCORE_BYTES`."""
    some: list[tuple[Bank, int]] = []
    room = SCORE_BYTES // (4 * queries)
    for bank, length in slabs:
        if some and length > room - sum(count for _, count in some):
            yield some
            some = []
        some.append((bank, length))
    if some:
        yield some


def _scored(slabs: Iterable[tuple[Bank, int]], q: Tensor, limits: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """Return scores [HQ, T, N] of the `count` entries of slabs, in whole blocks; -inf for invisible entries."""
    scores = _products(slabs, q, count, dtype)
    scores[..., count:] = float("-inf")
    first = max(0, int(limits[0]))
    if first < count:
        late = torch.arange(first, count) >= limits[:, None]
        scores[..., first:count].masked_fill_(to_device(late, q.device), float("-inf"))
    return scores


def _products(slabs: Iterable[tuple[Bank, int]], q: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """Return unmasked scores [HQ, T, N] in whole blocks. The values behind the last entry are undefined."""
    scores = torch.empty(*q.shape[:2], in_blocks(count), dtype=dtype, device=q.device)
    at = 0
    for bank, length in slabs:
        grouped = q.float().reshape(bank.shape[0], -1, q.shape[2])
        rows.score(bank, grouped, scores.view(*grouped.shape[:2], -1)[..., at : at + length])
        at += length
    return scores


def _best_of(scores: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Return the highest `top` scores and their indices, both [HQ, T, top], from whole blocks [HQ, T, N].

    They lie in the `top` blocks with the best maxima, so only those are sorted, if that pays.
    """
    if scores.shape[2] <= top * BLOCK * (PAYS if scores.device.type == "cpu" else 1):
        return highest(scores, top)
    grid = scores.view(*scores.shape[:2], -1, BLOCK)
    _, chosen = highest(grid.amax(dim=3), min(top, grid.shape[2]))
    candidates = grid.gather(2, chosen[..., None].expand(-1, -1, -1, BLOCK)).flatten(2)
    best, place = highest(candidates, top)
    return best, chosen.gather(2, place // BLOCK) * BLOCK + place % BLOCK


def highest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` highest of scores [..., N] and their indices, both [..., count], in any order."""
    left_out = scores.shape[-1] - count
    if scores.device.type != "cpu" or scores.shape[-1] <= FEW or not left_out:
        best, place = scores.topk(count, dim=-1)
        return best, place
    # NumPy takes a quarter of the time of topk, but chooses others among equal scores.
    place = torch.from_numpy(np.argpartition(scores.numpy(), left_out, axis=-1)[..., left_out:])
    return scores.gather(-1, place), place


def best_by_sketch(sketch: Sketch, layer: int, keys: Slabs, q: Tensor, limits: Tensor, top: int) -> Found:
    """Search like `HostTier.search` among the entries with the best sketch scores."""
    wanted, visible = CANDIDATES[sketch.kind] * top, int(limits[-1])
    index, held, _ = best_of_all(sketch.banks(layer), sketch.turned(layer, q), limits, wanted, visible)
    steps = _steps(q.shape[0], q.shape[1], index.shape[2] * q.shape[2])  # each candidate's key has D numbers
    return Found(*_joined(_best_found(keys, index[:, each], held[:, each], q[:, each], top) for each in steps))


def best_of_room(slabs: Slabs, q: Tensor, late: Tensor, top: int) -> Found:
    """Search like `best_of_all` for the queries [HQ, 1, D] of one token, in constant shapes.

    All rows there is room for are compared.

    Args:
        slabs: of keys, the last one whole.
        q: [HQ, 1, D].
        late: bool [N] on the device, true for rows at the end of the room that the token must not see. The room is
            counted in whole blocks.
        top: entries wanted.
    """
    count = sum(length for _, length in slabs)
    scores = _products(_within_reach(slabs, q.device), q, count, rows.scored_in(slabs, q.device))
    scores[..., scores.shape[2] - len(late) :].masked_fill_(late, float("-inf"))
    best, index = _best_of(scores, min(top, count))
    held = best > float("-inf")
    return Found(index.masked_fill_(~held, 0), held)


def in_blocks(entries: int) -> int:
    """Return the rows of the blocks that so many entries take."""
    return -(-entries // BLOCK) * BLOCK


def _within_reach(slabs: Slabs, device: torch.device) -> Iterator[tuple[Bank, int]]:
    """Yield slabs that a device can multiply, without waiting: codes are read in place, other rows are gathered."""
    at = 0
    for bank, length in slabs:
        found = bank
        if isinstance(bank, Tensor) and bank.device != device:
            index = torch.arange(at, at + length, device=device).expand(len(bank), -1)
            found = gather_rows(slabs, index, device, bank.dtype)
        yield found, length
        at += length


def best_by_all_sketches(sketch: Sketch, layer: int, keys: Slabs, q: Tensor, late: Tensor, top: int) -> Found:
    """Search like `best_of_room`, among the entries with the best sketch scores; `late` counts sketches."""
    wanted = CANDIDATES[sketch.kind] * top
    index, held, _ = best_of_room(sketch.banks(layer, whole=True), sketch.turned(layer, q), late, wanted)
    return Found(*_best_found(keys, index, held, q, top))


def _best_found(keys: Slabs, index: Tensor, held: Tensor, q: Tensor, top: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best of each query's candidates [HQ, T, C], as the fields of `Found`."""
    found = gather_rows(keys, index.reshape(keys[0][0].shape[0], -1), q.device, torch.float32).view(*index.shape, -1)
    scores = (found @ q.float()[..., None])[..., 0].masked_fill_(~held, float("-inf"))
    best, place = highest(scores, min(top, index.shape[2]))
    held = best > float("-inf")
    kept = found.gather(2, place[..., None].expand(-1, -1, -1, found.shape[3])).to(q.dtype)
    return index.gather(2, place).masked_fill_(~held, 0), held, kept


def best_among(among: Tensor, keys: Tensor, q: Tensor, limits: Tensor, top: int) -> Found:
    """Search like `HostTier.search` among entries [N] with these keys, float32 [H, N, D] on the queries' device."""
    steps = _steps(q.shape[0], q.shape[1], len(among))
    return Found(*_joined(_best_among(among, keys, q[:, each], limits[each], top) for each in steps))


def _best_among(among: Tensor, keys: Tensor, q: Tensor, limits: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Return entries and `held` for one step of queries."""
    grouped = q.float().reshape(len(keys), -1, q.shape[2])
    scores = (grouped @ keys.transpose(1, 2)).view(*q.shape[:2], -1)
    late = to_device(among >= limits[:, None], q.device)
    best, place = highest(scores.masked_fill_(late, float("-inf")), min(top, len(among)))
    held = best > float("-inf")
    return to_device(among, q.device)[place].masked_fill_(~held, 0), held
