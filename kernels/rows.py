"""Rows of keys or values that lie in several slabs, one behind the other, as they are or in codes.

Row i of a bank is row i - n of the slab that begins at row n. Sizes: H KV heads, N rows asked for, D head size, W bytes
of a row's codes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kernels import quantise, scoring
from kernels.scoring.reference import STEP

PAGE = 64  # rows of a head that share a scale
BANKS = ("keys", "values")  # of a layer, as they are named on disk
FEW = 16  # queries of a KV head for which a CPU multiplies keys in bfloat16 with queries, and not the other way round
PINNED = "known_to_be_pinned"  # a tensor's attribute
FLATTEST = 0.25  # of the mean spread, what a channel's counts for at least: it may vary more later than at first


@dataclass(frozen=True)
class Levels:
    """What rows are shifted and divided by before they are coded, so that no channel drowns the others.

    centre, spread: float32 [H, D].
    """

    centre: Tensor
    spread: Tensor

    @staticmethod
    def of(x: Tensor) -> Levels:
        """From some rows [H, N, D]: the means of channels, and their largest deviations."""
        x = x.float()
        centre = x.mean(dim=1)
        spread = (x - centre[:, None]).abs().amax(dim=1)
        least = FLATTEST * spread.mean(dim=1, keepdim=True)
        return Levels(centre, torch.maximum(spread, least).clamp_min(1e-12))

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Both where kernels need them; copied there once."""
        if self.centre.device == device:
            return self.centre, self.spread
        if device not in self._copies:
            self._copies[device] = self.centre.to(device), self.spread.to(device)
        return self._copies[device]

    @cached_property
    def _copies(self) -> dict[torch.device, tuple[Tensor, Tensor]]:
        return {}

    def nbytes(self) -> int:
        """Bytes of both."""
        return self.centre.nbytes + self.spread.nbytes

    def saved(self, name: str) -> dict[str, Tensor]:
        """Both for disk, as those of the rows that are saved under a name."""
        return {f"{name}.centre": self.centre, f"{name}.spread": self.spread}

    @classmethod
    def loaded(cls, tensors: Mapping[str, Tensor], name: str, heads: int, device: torch.device) -> Levels:
        """A copy of what was saved so, of the first heads."""
        centre, spread = (tensors[f"{name}.{part}"][:heads].to(device, copy=True) for part in ("centre", "spread"))
        return cls(centre, spread)


@dataclass(frozen=True)
class Pages:
    """A slab in codes: codes [H, capacity, W], scale float32 [H, capacity / page]; rows come out in `dtype`.

    Pages of PAGE rows take the least room; rows with a scale each (pages of one) can be moved about as they are.
    """

    codes: Tensor
    scale: Tensor
    levels: Levels
    kind: torch.dtype
    dtype: torch.dtype

    @property
    def shape(self) -> tuple[int, int, int]:
        """H, capacity and D, as of a slab that is not in codes."""
        heads, capacity, _ = self.codes.shape
        return heads, capacity, self.levels.centre.shape[1]

    @property
    def page(self) -> int:
        """Rows that share a scale."""
        return self.codes.shape[1] // self.scale.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the codes are."""
        return self.codes.device

    def data_ptr(self) -> int:
        """The address of the codes."""
        return self.codes.data_ptr()

    def write(self, at: int, x: Tensor) -> None:
        """Code rows [H, N, D] from row `at` on; both whole pages."""
        heads, count, size = x.shape
        level = (x.to(self.device, torch.float32) - self.levels.centre[:, None]) / self.levels.spread[:, None]
        codes, scale = quantise.quantise(level.reshape(-1, self.page, size), self.kind)
        stored = self.codes[:, at : at + count]
        stored.copy_(codes.view(stored.shape))
        self.scale[:, at // self.page : (at + count) // self.page] = scale.view(heads, count // self.page)

    def rows(self, places: Tensor) -> Tensor:
        """Rows [N, D] at places [N] of all heads' rows together, not levelled back yet."""
        found = self.codes.view(torch.uint8).view(-1, 1, self.codes.shape[2])  # not every device gathers 8-bit floats
        codes = found.index_select(0, places).view(self.codes.dtype)
        scale = self.scale.view(-1).index_select(0, places // self.page)
        return quantise.dequantise(codes, scale, self.kind, self.dtype)[:, 0]

    def numbers(self, count: int) -> Tensor:
        """The first `count` rows [H, count, D], levelled back."""
        rows = quantise.unpack(self.codes[:, :count], self.kind, torch.float32)
        rows.mul_(self.scale.repeat_interleave(self.page, dim=1)[:, :count, None])
        return rows.mul_(self.levels.spread[:, None]).add_(self.levels.centre[:, None]).to(self.dtype)

    def score(self, q: Tensor, out: Tensor) -> None:
        """See `score`: codes are multiplied as they are, and each product by the scale of its page."""
        centre, spread = self.levels.on(q.device)
        wide = torch.float32 if self.dtype == torch.float32 else torch.bfloat16  # none leaves its range
        shift = (q @ centre[..., None])[..., 0]
        scoring.scores(q * spread[:, None], self.codes, self.scale, shift, self.kind, wide, out)


Bank = Tensor | Pages
Slabs = Sequence[tuple[Bank, int]]  # [H, capacity, D] contiguous, and how many rows of it count


class Fixed(list[tuple[Bank, int]]):
    """Slabs that stay where they are and as long as they are, so that what a kernel is told of them is told once."""

    def __init__(self, slabs: Slabs) -> None:
        """Nobody has been told yet."""
        super().__init__(slabs)
        self.tables: dict[torch.device, Any] = {}


def scored_in(slabs: Slabs) -> torch.dtype:
    """What `score` makes of banks: their products in bfloat16 are that, all others float32."""
    same = all(isinstance(bank, Tensor) and bank.dtype == torch.bfloat16 for bank, _ in slabs)
    return torch.bfloat16 if same else torch.float32


def score(bank: Bank, q: Tensor, out: Tensor) -> None:
    """Write dot products of q [H, R, D], float32, with the first N rows of a bank to `out` [H, R, N]."""
    if isinstance(bank, Pages):
        bank.score(q, out)
    elif bank.dtype == torch.float16:  # which dot products that nobody has scaled outgrow
        for at in range(0, out.shape[2], STEP):
            part = out[..., at : at + STEP]
            part.copy_(q @ bank[:, at : at + part.shape[2]].float().transpose(1, 2))
    elif bank.dtype == torch.bfloat16 and q.shape[1] <= FEW and q.device.type == "cpu":  # three times as fast so
        out.copy_((bank[:, : out.shape[2]] @ q.to(bank.dtype).transpose(1, 2)).transpose(1, 2))
    else:
        out.copy_(q.to(bank.dtype) @ bank[:, : out.shape[2]].transpose(1, 2))


def room_for(bank: Bank, length: int, device: torch.device) -> tuple[Bank, list[tuple[Tensor, Tensor]]]:
    """A bank like this one on a device, its rows not written yet, and what to copy to where so that `length` are: all
    at once, or head by head, so that nothing is packed before it can be sent.
    """
    there = [torch.empty_like(part, device=device) for part in tensors_of(bank)]
    pairs: list[tuple[Tensor, Tensor]] = []
    for to, part in zip(there, tensors_of(bank), strict=True):
        counting = used(part, length, bank.shape[1])
        whole = counting == part.shape[1]
        pairs += [(to, part)] if whole else list(zip(to[:, :counting], part[:, :counting], strict=True))
    if isinstance(bank, Pages):
        return dataclasses.replace(bank, codes=there[0], scale=there[1]), pairs
    return there[0], pairs


def plain(slabs: Slabs) -> list[tuple[Tensor, int]]:
    """The same slabs, for what reads no codes.

    Raises:
        ValueError: one is in codes.
    """
    found = [(slab, length) for slab, length in slabs if isinstance(slab, Tensor)]
    if len(found) < len(slabs):
        raise ValueError("Slabs in codes hold keys before RoPE, and are read by lists: list the rows that are wanted.")
    return found


def reachable(slabs: Slabs, q: Tensor) -> bool:
    """Whether a kernel that runs where q is can read the slabs: same device, or pinned host memory (no copy)."""
    parts = (part for slab, _ in slabs for part in tensors_of(slab))
    return all(part.device == q.device or (q.is_cuda and _pinned(part)) for part in parts)


def _pinned(part: Tensor) -> bool:
    """Asked once of each tensor, which remembers: it is wanted of every slab for every kernel of every layer of every
    token, and the driver takes its time to answer.
    """
    known = vars(part)
    if PINNED not in known:
        known[PINNED] = part.is_pinned()
    return bool(known[PINNED])


def tensors_of(bank: Bank) -> tuple[Tensor, ...]:
    """What a slab's rows lie in: itself, or codes and their scales."""
    return (bank.codes, bank.scale) if isinstance(bank, Pages) else (bank,)


def used(part: Tensor, length: int, capacity: int) -> int:
    """Of what a slab's rows lie in, [H, ...], how many rows of it, or pages, the first `length` of its rows take."""
    return -(-length * part.shape[1] // capacity)


class Share(NamedTuple):
    """What slab `number` holds of an index [N].

    here: the places of the index that it fills, int64 [M] or bool [N]; None for all. rows: int64, the slab's own row
    for each place: [M] where `here` lists places, otherwise [N], in which rows at places of other slabs are arbitrary.
    """

    number: int
    here: Tensor | None
    rows: Tensor


def take(slabs: Slabs, index: Tensor) -> Tensor:
    """Rows [H, N, D] of every head's own index [H, N], int64 within the bank.

    Raises:
        ValueError: some slabs are in codes, and some are not.
    """
    if len({isinstance(slab, Pages) for slab, _ in slabs}) > 1:
        raise ValueError("Rows are taken by head from slabs that are all in codes, or none: take them bank by bank.")
    if len(slabs) > 1 and index.numel() and index.device.type == "cpu":  # elsewhere one would wait to know
        low, high = index.aminmax()
        slabs, before = among(slabs, int(low), int(high) + 1)
        index = index - before
    first = slabs[0][0]
    heads, _, size = first.shape
    if len(slabs) == 1:
        rows = _rows(first, _flat_index(first, index))
    else:
        rows = torch.empty(index.numel(), size, dtype=first.dtype, device=first.device)
        flat, at = index.reshape(-1), 0
        head = torch.arange(heads, device=index.device).repeat_interleave(index.shape[1])
        for slab, length in slabs:
            here = ((flat >= at) & (flat < at + length)).nonzero()[:, 0]
            if len(here):
                rows.index_copy_(0, here, _rows(slab, flat[here] - at + head[here] * slab.shape[1]))
            at += length
    rows = rows.view(heads, -1, size)
    if isinstance(first, Pages):  # the slabs of a bank share their levels
        levels = first.levels
        rows = torch.addcmul(levels.centre[:, None].to(rows), rows, levels.spread[:, None].to(rows))
    return rows


def among(slabs: Slabs, first: int, end: int) -> tuple[Slabs, int]:
    """Those slabs in which rows first .. end - 1 lie, at least the last one, and how many rows are before them."""
    before = 0
    for number, (_, length) in enumerate(slabs):
        if first < before + length or number == len(slabs) - 1:
            break
        before += length
    stop, at = number + 1, before + length
    while stop < len(slabs) and at < end:
        at += slabs[stop][1]
        stop += 1
    return slabs[number:stop], before


def parted(slabs: Slabs, index: Tensor) -> list[Share]:
    """Which rows of an index [N], int64 within the bank, lie in which slab; slabs that hold none are left out.

    The slab that holds most comes first and gives some row of its own to every other place, which those that follow
    write over: one gather instead of a gather and a copy. On a device that holds all of the slabs itself each gives a
    row to every place, because to count those it holds would be to wait for it.
    """
    lengths, device = [length for _, length in slabs], index.device
    if device.type == "cpu" or any(slab.device != device for slab, _ in slabs):
        found = _counted(lengths, index.cpu())
        return [
            Share(number, here if here is None else sent(here, device), sent(rows, slabs[number][0].device))
            for number, here, rows in found
        ]
    shares: list[Share] = []
    at = 0
    for number, length in enumerate(lengths):
        if length:
            here = (index >= at) & (index < at + length)
            shares.append(Share(number, here if shares else None, (index - at).clamp_(0, length - 1)))
        at += length
    return shares


def _counted(lengths: Sequence[int], index: Tensor) -> list[Share]:
    shares: list[Share] = []
    at = 0
    for number, length in enumerate(lengths):
        here = ((index >= at) & (index < at + length)).nonzero()[:, 0]
        if len(here) == len(index):
            return [Share(number, None, index - at)]
        if len(here):
            shares.append(Share(number, here, index[here] - at))
        at += length
    most = max(shares, key=lambda share: len(share.rows))
    first = sum(lengths[: most.number])
    everywhere = (index - first).clamp_(0, lengths[most.number] - 1)
    return [Share(most.number, None, everywhere), *(share for share in shares if share is not most)]


def take_same(slabs: Slabs, shares: Sequence[Share], like: Tensor) -> Tensor:
    """Rows [H, N, D] of one index for all heads, parted by slab, in the dtype of `like` and where it is.

    Slabs may be of several dtypes and on several devices.
    """
    first, *others = shares
    rows = _same(slabs[first.number][0], first.rows, like)
    for number, here, inside in others:
        assert here is not None, "only the first share is of all places"
        found = _same(slabs[number][0], inside, like)
        if here.dtype == torch.bool:
            rows = torch.where(here[:, None], found, rows)
        else:
            rows.index_copy_(1, here, found)
    return rows


def _same(slab: Bank, rows: Tensor, like: Tensor) -> Tensor:
    if isinstance(slab, Pages):
        found = take([(slab, slab.shape[1])], rows.expand(slab.shape[0], -1))
    else:
        found = slab.index_select(1, rows)
    return sent(found, like.device).to(like.dtype)


def sent(x: Tensor, device: torch.device) -> Tensor:
    """On a device; waited for only if that is the host."""
    return x.to(device, non_blocking=device.type != "cpu")


def _rows(slab: Bank, places: Tensor) -> Tensor:
    return slab.rows(places) if isinstance(slab, Pages) else slab.view(-1, slab.shape[2]).index_select(0, places)


def _flat_index(slab: Bank, index: Tensor) -> Tensor:
    head = torch.arange(index.shape[0], device=index.device)[:, None]
    return (index + head * slab.shape[1]).reshape(-1)
