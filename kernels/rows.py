"""Rows of keys or values stored in consecutive slabs, in the model's dtype or quantised.

The slabs of a layer's keys (or values) form one bank: row i of the bank is row i - n of the slab that begins at row n.
Sizes: H KV heads, N rows asked for, D head size, W bytes of a quantised row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from kernels import quantise, scoring
from kernels.choice import fast_in_bfloat16
from kernels.scoring.torch_impl import STEP
from kernels.slab_facts import tensors_of

GROUP_SIZE = 64  # rows of a head in one quantisation group: they share a scale
BANKS = ("keys", "values")  # the two banks of a layer, by their names on disk
FEW = 16  # with at most so many queries of a KV head, a CPU computes keys @ queries in bfloat16, not queries @ keys
LEAST_RANGE = 0.25  # least range of a channel, as a share of the channels' average: later rows may vary more


@dataclass(frozen=True)
class ChannelScale:
    """Mean and range of each channel. Rows are normalised by them before quantisation, so that no channel dominates.

    Attributes:
        mean: float32 [H, D].
        range: float32 [H, D], largest deviation from the mean, but at least LEAST_RANGE of the channels' average.
    """

    mean: Tensor
    range: Tensor

    @staticmethod
    def of(x: Tensor) -> ChannelScale:
        """Return mean and range of each channel of rows x [H, N, D]."""
        x = x.float()
        centre = x.mean(dim=1)
        spread = (x - centre[:, None]).abs().amax(dim=1)
        least = LEAST_RANGE * spread.mean(dim=1, keepdim=True)
        return ChannelScale(centre, torch.maximum(spread, least).clamp_min(1e-12))

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return mean and range on this device; they are copied there once."""
        if self.mean.device == device:
            return self.mean, self.range
        if device not in self._copies:
            self._copies[device] = to_device(self.mean, device), to_device(self.range, device)
        return self._copies[device]

    @cached_property
    def _copies(self) -> dict[torch.device, tuple[Tensor, Tensor]]:
        return {}

    def on_host(self) -> ChannelScale:
        """Return the same scale in host memory. It knows this one as its copy on this device."""
        if self.mean.device.type == "cpu":
            return self
        found = ChannelScale(self.mean.cpu(), self.range.cpu())
        found._copies[self.mean.device] = self.mean, self.range
        return found

    def parted(self, heads: Sequence[int]) -> list[ChannelScale]:
        """Return the scales of so many heads each, one part after another, as views; known copies are parted too."""
        found = list(map(ChannelScale, torch.split(self.mean, list(heads)), torch.split(self.range, list(heads))))
        for device, (mean, spread) in self._copies.items():
            copies = zip(torch.split(mean, list(heads)), torch.split(spread, list(heads)), strict=True)
            for part, copy in zip(found, copies, strict=True):
                part._copies[device] = copy
        return found

    @classmethod
    def joined(cls, parts: Sequence[ChannelScale]) -> ChannelScale:
        """Return one scale for the heads of several."""
        return cls(torch.cat([part.mean for part in parts]), torch.cat([part.range for part in parts]))

    def nbytes(self) -> int:
        """Return the bytes of both tensors."""
        return self.mean.nbytes + self.range.nbytes

    def saved(self, name: str) -> dict[str, Tensor]:
        """Return both tensors for disk, keyed by the name of the rows they belong to."""
        return {f"{name}.centre": self.mean, f"{name}.spread": self.range}

    @classmethod
    def loaded(cls, tensors: Mapping[str, Tensor], name: str, heads: int, device: torch.device) -> ChannelScale:
        """Return a copy of a saved scale, of the first `heads` heads, on this device."""
        centre, spread = (tensors[f"{name}.{part}"][:heads].to(device, copy=True) for part in ("centre", "spread"))
        return cls(centre, spread)


@dataclass(frozen=True)
class QuantizedSlab:
    """A quantised slab; rows are dequantised to `dtype`.

    Groups of PAGE rows take the least memory. With a group for each row, rows can be moved without requantising.

    Attributes:
        quantized: [H, capacity, W].
        scale: float32 [H, capacity / group_size].
        channel_scale: normalisation of the rows.
        kind: quantised type, one of `quantise.KINDS`.
        dtype: dtype of dequantised rows.
    """

    quantized: Tensor
    scale: Tensor
    channel_scale: ChannelScale
    kind: torch.dtype
    dtype: torch.dtype

    @property
    def shape(self) -> tuple[int, int, int]:
        """H, capacity and D, as the shape of an unquantised slab."""
        heads, capacity, _ = self.quantized.shape
        return heads, capacity, self.channel_scale.mean.shape[1]

    @property
    def group_size(self) -> int:
        """Rows that share a scale."""
        return self.quantized.shape[1] // self.scale.shape[1]

    @property
    def device(self) -> torch.device:
        """Device of the codes."""
        return self.quantized.device

    def data_ptr(self) -> int:
        """Return the address of the codes."""
        return self.quantized.data_ptr()

    def write(self, at: int, x: Tensor) -> None:
        """Quantise rows x [H, N, D] and store them from row `at` on; `at` and N must be multiples of `group_size`."""
        scale, size, end = self.channel_scale, self.group_size, at + x.shape[1]
        codes, scales = coded(x.to(self.device), scale.mean, scale.range, size, self.kind)
        self.quantized[:, at:end], self.scale[:, at // size : end // size] = codes, scales

    def rows(self, places: Tensor) -> Tensor:
        """Return rows [N, D], still normalised, by their indices [N] into the rows of all heads, head after head."""
        found = self.quantized.view(torch.uint8).view(
            -1, 1, self.quantized.shape[2]
        )  # some devices gather no 8-bit floats
        codes = found.index_select(0, places).view(self.quantized.dtype)
        scale = self.scale.view(-1).index_select(0, places // self.group_size)
        return quantise.dequantise(codes, scale, self.kind, self.dtype)[:, 0]

    def dequantized(self, count: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return the first `count` rows [H, count, D] in `dtype`, by default the slab's."""
        rows = quantise.unpack(self.quantized[:, :count], self.kind, torch.float32)
        rows.mul_(self.scale.repeat_interleave(self.group_size, dim=1)[:, :count, None])
        return (
            rows.mul_(self.channel_scale.range[:, None]).add_(self.channel_scale.mean[:, None]).to(dtype or self.dtype)
        )

    def score(self, q: Tensor, out: Tensor) -> None:
        """Compute `score` on the codes; the scale of each group is applied to the products."""
        centre, spread = self.channel_scale.on(q.device)
        wide = torch.float32 if self.dtype == torch.float32 else torch.bfloat16  # every code fits it
        shift = (q @ centre[..., None])[..., 0]
        scoring.scores(q * spread[:, None], self.quantized, self.scale, shift, self.kind, wide, out)


def coded(x: Tensor, mean: Tensor, spread: Tensor, group_size: int, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Normalise rows x [H, N, D] by mean and range [H, D] of their channels, and quantise them in groups.

    Returns:
        Codes [H, N, W], and the scale of each group, float32 [H, N / group_size].
    """
    heads, count, size = x.shape
    level = (x.float() - mean[:, None]) / spread[:, None]
    codes, scale = quantise.quantise(level.reshape(-1, group_size, size), kind)
    return codes.view(heads, count, codes.shape[2]), scale.view(heads, count // group_size)


Bank = Tensor | QuantizedSlab
Slabs = Sequence[tuple[Bank, int]]  # contiguous [H, capacity, D], and the number of rows in use


def scored_in(slabs: Slabs, device: torch.device) -> torch.dtype:
    """Return the dtype of the products of `score`: bfloat16 if all banks are bfloat16 and a GPU sorts them, or float32.

    A CPU sorts numbers in float32 faster.
    """
    same = device.type != "cpu" and all(isinstance(bank, Tensor) and bank.dtype == torch.bfloat16 for bank, _ in slabs)
    return torch.bfloat16 if same else torch.float32


def score(bank: Bank, q: Tensor, out: Tensor) -> None:
    """Write the dot products of q [H, R, D], float32, with the first N rows of a bank to `out` [H, R, N]."""
    if isinstance(bank, QuantizedSlab):
        bank.score(q, out)
    elif bank.dtype == torch.float16 or _widened(bank):  # unscaled dot products overflow float16
        for at in range(0, out.shape[2], STEP):
            part = out[..., at : at + STEP]
            part.copy_(q @ bank[:, at : at + part.shape[2]].float().transpose(1, 2))
    elif bank.dtype == torch.bfloat16 and q.shape[1] <= FEW and q.device.type == "cpu":  # three times as fast so
        out.copy_((bank[:, : out.shape[2]] @ q.to(bank.dtype).transpose(1, 2)).transpose(1, 2))
    else:
        out.copy_(q.to(bank.dtype) @ bank[:, : out.shape[2]].transpose(1, 2))


def _widened(bank: Tensor) -> bool:
    """Return whether products in bfloat16 would take longer than widening its rows: on CPUs without such products."""
    return bank.dtype == torch.bfloat16 and bank.device.type == "cpu" and not fast_in_bfloat16(bank.device)


def empty_copy(bank: Bank, length: int, device: torch.device) -> tuple[Bank, list[tuple[Tensor, Tensor]]]:
    """Return an empty copy of a bank on a device, and the copies that fill its first `length` rows.

    Returns:
        The bank, and (target, source) pairs: whole tensors where possible, else head by head, so that each source is
        contiguous.
    """
    there = [torch.empty_like(part, device=device) for part in tensors_of(bank)]
    pairs: list[tuple[Tensor, Tensor]] = []
    for to, part in zip(there, tensors_of(bank), strict=True):
        counting = used(part, length, bank.shape[1])
        whole = counting == part.shape[1]
        pairs += [(to, part)] if whole else list(zip(to[:, :counting], part[:, :counting], strict=True))
    if isinstance(bank, QuantizedSlab):
        return dataclasses.replace(bank, quantized=there[0], scale=there[1]), pairs
    return there[0], pairs


def dense(slabs: Slabs, dtype: torch.dtype) -> Tensor:
    """Return all rows [H, N, D] of a bank in `dtype`: a copy, for references."""
    parts = (slab[:, :n].to(dtype) if isinstance(slab, Tensor) else slab.dequantized(n, dtype) for slab, n in slabs)
    return torch.cat(list(parts), dim=1)


def require_unquantized(slabs: Slabs) -> list[tuple[Tensor, int]]:
    """Return the slabs, after a check that none is quantised.

    Raises:
        ValueError: a slab is quantised.
    """
    found = [(slab, length) for slab, length in slabs if isinstance(slab, Tensor)]
    if len(found) < len(slabs):
        raise ValueError("Quantised slabs hold keys before RoPE: attend through a BlockTable of the wanted rows.")
    return found


def used(part: Tensor, length: int, capacity: int) -> int:
    """Return how many rows (or groups) of one of `tensors_of(slab)` the first `length` rows of the slab take."""
    return -(-length * part.shape[1] // capacity)


class SlabRows(NamedTuple):
    """The part of an index [N] that one slab holds.

    Attributes:
        slab: number of the slab.
        positions: positions in the index that it holds, int64 [M] or bool [N]; None for all.
        rows: the slab's row for each position, int64: [M] if `positions` is int64, else [N] with arbitrary rows at the
            other positions.
    """

    slab: int
    positions: Tensor | None
    rows: Tensor


def take(slabs: Slabs, index: Tensor) -> Tensor:
    """Return rows [H, N, D] for an index of each head, int64 [H, N], counted over all slabs.

    Raises:
        ValueError: some slabs are quantised and others are not.
    """
    if len({isinstance(slab, QuantizedSlab) for slab, _ in slabs}) > 1:
        raise ValueError("Rows are taken by head from slabs that are all quantised, or none: take them bank by bank.")
    if len(slabs) > 1 and index.numel() and index.device.type == "cpu":  # on a GPU this would synchronise
        low, high = index.aminmax()
        slabs, before = covering(slabs, int(low), int(high) + 1)
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
    if isinstance(first, QuantizedSlab):  # the slabs of a bank share their channel scale
        mean, spread = first.channel_scale.on(rows.device)
        rows = torch.addcmul(mean[:, None].to(rows), rows, spread[:, None].to(rows))
    return rows


def covering(slabs: Slabs, first: int, end: int) -> tuple[Slabs, int]:
    """Return the slabs that hold rows first .. end - 1 (at least the last slab), and the number of rows before them."""
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


def split_by_slab(slabs: Slabs, index: Tensor) -> list[SlabRows]:
    """Split an index [N], int64 and counted over all slabs, by the slab that holds each row; empty shares are left out.

    The slab with most rows comes first and gives some row for every position; the other slabs write over theirs. This
    takes one gather instead of a gather and a copy. If all slabs are on the device of the index, each gives a row for
    every position, as counting its rows would synchronise.
    """
    lengths, device = [length for _, length in slabs], index.device
    if device.type == "cpu" or any(slab.device != device for slab, _ in slabs):
        found = _counted(lengths, index.cpu())
        return [
            SlabRows(
                number, here if here is None else to_device(here, device), to_device(rows, slabs[number][0].device)
            )
            for number, here, rows in found
        ]
    shares: list[SlabRows] = []
    at = 0
    for number, length in enumerate(lengths):
        if length:
            here = (index >= at) & (index < at + length)
            shares.append(SlabRows(number, here if shares else None, (index - at).clamp_(0, length - 1)))
        at += length
    return shares


def _counted(lengths: Sequence[int], index: Tensor) -> list[SlabRows]:
    shares: list[SlabRows] = []
    at = 0
    for number, length in enumerate(lengths):
        here = ((index >= at) & (index < at + length)).nonzero()[:, 0]
        if len(here) == len(index):
            return [SlabRows(number, None, index - at)]
        if len(here):
            shares.append(SlabRows(number, here, index[here] - at))
        at += length
    most = max(shares, key=lambda share: len(share.rows))
    first = sum(lengths[: most.slab])
    everywhere = (index - first).clamp_(0, lengths[most.slab] - 1)
    return [SlabRows(most.slab, None, everywhere), *(share for share in shares if share is not most)]


def take_shared(slabs: Slabs, shares: Sequence[SlabRows], like: Tensor) -> Tensor:
    """Return rows [H, N, D] of one index for all heads, on the device and in the dtype of `like`.

    The slabs may differ in dtype and device. `shares` is the result of `parted`.
    """
    first, *others = shares
    rows = _same(slabs[first.slab][0], first.rows, like)
    for number, here, inside in others:
        assert here is not None, "only the first share is of all places"
        found = _same(slabs[number][0], inside, like)
        if here.dtype == torch.bool:
            rows = torch.where(here[:, None], found, rows)
        else:
            rows.index_copy_(1, here, found)
    return rows


def _same(slab: Bank, rows: Tensor, like: Tensor) -> Tensor:
    if isinstance(slab, QuantizedSlab):
        found = take([(slab, slab.shape[1])], rows.expand(slab.shape[0], -1))
    else:
        found = slab.index_select(1, rows)
    return to_device(found, like.device).to(like.dtype)


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Return x on this device; only a copy to the host is waited for."""
    return x.to(device, non_blocking=device.type != "cpu")


def _rows(slab: Bank, places: Tensor) -> Tensor:
    return (
        slab.rows(places) if isinstance(slab, QuantizedSlab) else slab.view(-1, slab.shape[2]).index_select(0, places)
    )


def _flat_index(slab: Bank, index: Tensor) -> Tensor:
    head = torch.arange(index.shape[0], device=index.device)[:, None]
    return (index + head * slab.shape[1]).reshape(-1)


def put_rows(at: int | Tensor, *pairs: tuple[Tensor, Tensor]) -> None:
    """Write rows [H, T, ...] into buffers [H, N, ...], from row `at` on, or at the rows int64 [T] in a tensor.

    pairs: a buffer and its rows each.
    """
    for buffer, rows in pairs:
        if isinstance(at, int):
            buffer[:, at : at + rows.shape[1]] = rows
        else:
            buffer.index_copy_(1, at, rows)
