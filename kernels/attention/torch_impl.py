"""Attention over rows of slabs in PyTorch, for CPUs. Signature and meaning are those of `reference.attend`.

Sizes: HQ query heads, H KV heads, T queries, NB blocks of queries, N rows listed or in all slabs, D head size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import softmax
from kernels.attention.visible import BlockTable, VisibleRange
from kernels.rotation import rotate
from kernels.rows import Slabs, require_unquantized, take_shared

STEP_BYTES = 128 << 20  # memory for the gathered keys and values of one step
BAND = 128  # queries at a time if each sees its own window, or all logits are written


def attend(
    q: Tensor,
    keys: Slabs,
    values: Slabs,
    span: VisibleRange,
    lists: BlockTable | None,
    scaling: float,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute `reference.attend` in steps, with PyTorch's fused attention."""
    if lists is None:
        return _dense(q, keys, values, span, scaling, softcap)
    row_bytes = 4 * 4 * keys[0][0].shape[0] * q.shape[2]  # keys and values, before and after conversion
    step = max(1, STEP_BYTES // (row_bytes * lists.rows.shape[1]))
    parts = []
    for begin in range(0, len(lists.rows), step):
        rows = slice(begin * lists.block_size, (begin + step) * lists.block_size)
        part = lists.part(begin, begin + step)
        parts.append(_listed(q[:, rows], keys, values, span.part(rows.start, rows.stop), part, scaling, softcap))
    if len(parts) == 1:
        return parts[0]
    return torch.cat([output for output, _ in parts], dim=1), torch.cat([total for _, total in parts], dim=1)


def _dense(
    q: Tensor, keys: Slabs, values: Slabs, span: VisibleRange, scaling: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """Attend slab by slab. Rows that all queries see, and a causal square, need no mask."""
    query_heads, count, size = q.shape
    heads, group = keys[0][0].shape[0], query_heads // keys[0][0].shape[0]
    (low, high), (lowest, highest) = span.common, span.extent
    if count > BAND and (low > lowest or q.device.type != "cpu"):
        pieces = [
            _dense(q[:, at : at + BAND], keys, values, span.part(at, at + BAND), scaling, softcap)
            for at in range(0, count, BAND)
        ]
        return torch.cat([output for output, _ in pieces], dim=1), torch.cat([total for _, total in pieces], dim=1)
    single = count == 1  # then the query heads of a group read the keys once, as queries of one head
    folded = q.reshape(1, heads, group, size) if single else q.view(heads, group, count, size)
    parts, at = [], 0
    for (k, length), (v, _) in zip(require_unquantized(keys), require_unquantized(values), strict=True):
        start, stop = min(max(at, lowest), at + length), max(at, min(at + length, highest))
        edge = min(max(start, high if single else high - 1), stop) if low <= start else start
        for begin, end in ((start, edge), (edge, stop)):
            if begin >= end:
                continue
            square = not single and low <= begin == high - 1 and end - begin == count and span.grows
            mask = None if square or (low <= begin and end <= high) else span.mask_between(begin, end)
            shape = (1, heads, end - begin, size) if single else (heads, group, end - begin, size)
            here = slice(begin - at, end - at)
            own_k, own_v = ((x[:, here][None] if single else x[:, None, here]).expand(shape) for x in (k, v))
            parts.append(softmax.attend(folded, own_k, own_v, scaling, softcap, mask, square))
        at += length
    if not parts:
        return torch.zeros_like(q), q.new_full(q.shape[:2], float("-inf"), dtype=torch.float32)
    output, total = softmax.merge(parts)
    return output.reshape(query_heads, count, size), total.reshape(query_heads, count)


def _listed(
    q: Tensor, keys: Slabs, values: Slabs, span: VisibleRange, lists: BlockTable, scaling: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    heads, count, blocks = keys[0][0].shape[0], q.shape[1], len(lists.rows)
    turned, v = gather_rotated(keys, lists, q), gather_listed(values, lists, q)
    mask = _list_mask(span, lists, count, q.shape[0] // heads)
    folded = fold(q, heads, blocks, lists.block_size).transpose(0, 1)
    output, total = softmax.attend(folded, turned.transpose(0, 1), v.transpose(0, 1), scaling, softcap, mask)
    return (
        unfold(output.transpose(0, 1), q.shape[0], count, lists.block_size),
        unfold(total.transpose(0, 1)[..., None], q.shape[0], count, lists.block_size)[..., 0],
    )


def _list_mask(span: VisibleRange, lists: BlockTable, count: int, group: int) -> Tensor | None:
    """Return the mask to add to logits [NB, H, G * size, N], broadcastable to them; None if every row is visible."""
    blocks = len(lists.rows)
    missing = blocks * lists.block_size - count
    ends = [F.pad(end, (0, missing)).view(blocks, lists.block_size) for end in (span.start, span.end)]
    if not missing and span.same_within(lists.block_size):
        ends = [end[:, :1] for end in ends]  # queries of a block see the same rows: one mask row is enough
    mask = VisibleRange(ends[0], ends[1]).mask(lists.rows)
    if mask is not None:
        mask = (mask if mask.shape[1] == 1 else mask.repeat(1, group, 1))[:, None]
    if lists.head_mask is None:
        return mask
    unseen = lists.head_mask.new_zeros(lists.head_mask.shape, dtype=torch.float32).masked_fill_(
        ~lists.head_mask, float("-inf")
    )
    by_head = unseen.transpose(0, 1)[:, :, None]
    return by_head if mask is None else by_head + mask


def logits(
    q: Tensor, keys: Slabs, span: VisibleRange, lists: BlockTable | None, scaling: float, softcap: float | None = None
) -> Tensor:
    """Return logits [HQ, T, N], at least float32, -inf for rows that a query does not see; without lists N = all rows.

    For few queries: the matrix is small then, and `logits` with `mix` takes fewer steps than `attend`.
    """
    query_heads, count, size = q.shape
    heads = keys[0][0].shape[0]
    if lists is not None:
        folded = fold(q, heads, len(lists.rows), lists.block_size)
        found = softmax.scores(folded, gather_rotated(keys, lists, q), scaling, softcap)
        mask = _list_mask(span, lists, count, query_heads // heads)
        if mask is not None:
            found = found.add_(mask.transpose(0, 1))
        return unfold(found, query_heads, count, lists.block_size)
    (low, high), at, pieces = span.common, 0, []
    grouped = q.reshape(heads, -1, size)
    for slab, length in require_unquantized(keys):
        if length:
            piece = softmax.scores(grouped, slab[:, :length], scaling, softcap).view(query_heads, count, length)
            mask = None if low <= at and at + length <= high else span.mask_between(at, at + length)
            pieces.append(piece if mask is None else piece.add_(mask))
        at += length
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-1)


def weighted_values(weights: Tensor, values: Slabs, lists: BlockTable | None, like: Tensor) -> Tensor:
    """Return sums [HQ, T, D] of values weighted by `weights` [HQ, T, N], on the device and in the dtype of `like`."""
    query_heads, count, _ = weights.shape
    heads, _, size = values[0][0].shape
    weights = weights.to(like.dtype)
    if lists is not None:
        mixed = fold(weights, heads, len(lists.rows), lists.block_size) @ gather_listed(values, lists, like)
        return unfold(mixed, query_heads, count, lists.block_size)
    grouped, at, output = weights.view(heads, -1, weights.shape[2]), 0, None
    for slab, length in require_unquantized(values):
        if length:
            part = grouped[..., at : at + length] @ slab[:, :length]
            output = part if output is None else output + part
        at += length
    assert output is not None, "a bank without rows"
    return output.view(query_heads, count, size)


def sum_per_block(weights: Tensor, lists: BlockTable | None) -> Tensor:
    """Sum weights [HQ, T, N] over the queries of each list; returns float32 [HQ, NB, N]."""
    if weights.shape[1] == 1:
        return weights.float()
    if lists is None or len(lists.rows) == 1:
        return weights.float().sum(dim=1, keepdim=True)
    missing = len(lists.rows) * lists.block_size - weights.shape[1]
    padded = F.pad(weights.float(), (0, 0, 0, missing))
    return padded.view(len(weights), len(lists.rows), lists.block_size, -1).sum(dim=2)


def gather_listed(slabs: Slabs, lists: BlockTable, q: Tensor) -> Tensor:
    """Gather the listed rows [H, NB, N, D], on the device and in the dtype of q."""
    rows = take_shared(slabs, lists.split_by_slab(slabs), q)
    return rows.view(len(rows), *lists.rows.shape, -1)


def gather_rotated(keys: Slabs, lists: BlockTable, q: Tensor) -> Tensor:
    """Gather the listed keys [H, NB, N, D] and rotate them to their positions."""
    if len(lists.rows) > 1:
        return _rotate_listed(gather_listed(keys, lists, q), lists)
    bank = (q.dtype, *(slab.data_ptr() for slab, _ in keys))
    if bank not in lists.rotated_keys:
        lists.rotated_keys[bank] = _rotate_listed(gather_listed(keys, lists, q), lists)
    return lists.rotated_keys[bank]


def _rotate_listed(keys: Tensor, lists: BlockTable) -> Tensor:
    return keys if lists.is_unrotated else rotate(keys, lists.cos[lists.positions], lists.sin[lists.positions])


def fold(x: Tensor, heads: int, blocks: int, size: int) -> Tensor:
    """Reshape [HQ, T, X] to [H, NB, G * size, X], so that queries that share keys are together."""
    padded = F.pad(x, (0, 0, 0, blocks * size - x.shape[1]))
    grouped = padded.view(heads, -1, blocks, size, x.shape[2])
    return grouped.transpose(1, 2).reshape(heads, blocks, -1, x.shape[2])


def unfold(x: Tensor, query_heads: int, count: int, size: int) -> Tensor:
    """Undo `fold` and return [HQ, T, X]."""
    grouped = x.reshape(*x.shape[:2], -1, size, x.shape[3]).transpose(1, 2)
    return grouped.reshape(query_heads, -1, x.shape[3])[:, :count]
