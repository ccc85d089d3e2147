"""Load rows of slabs in Triton, on the device or from pinned host memory without a copy.

A kernel gets a table of slabs. They are of at most two kinds, so that sinks in the model's dtype may come before a host
tier that is quantised or in another dtype. Quantised rows are dequantised in registers: code * scale of the group *
range of the channel + mean of the channel.
A row is loaded in three parts: both halves of its rotated width (HALF each) and the rest, each padded to a power of
two. A wide row without rotation is split in the same way, so that the rest is a power of two.
Prefixes: p_ pointer, b_ loaded value, m_ mask.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import power_of_2
from kernels.rows import Bank, QuantizedSlab, Slabs
from kernels.slab_facts import facts_of, tensors_of

DTYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
QUANTIZED = {torch.int8: tl.int8, torch.quint4x2: tl.uint8, torch.float8_e4m3fn: tl.float8e4nv}
QUANTIZED_TYPES = frozenset(QUANTIZED.values())
FACTS = tl.constexpr(6)  # int64 numbers of a slab in the table
BEYOND = 1 << 62  # larger than any row
WIDE = 256  # columns above which padding costs more than a third load
WIDEST = 16  # bytes of the widest load of a thread
# Arguments that change from pass to pass: Triton must not recompile when one is 1 or a multiple of 16
CHANGING = (
    *("blocks", "capacity", "chunks", "copied", "count", "halvings", "listed", "offset", "per_share", "queries"),
    *("rounds", "rows", "shares", "size", "slabs"),
    *("p_index", "p_rows", "p_positions", "p_head_mask", "p_first", "p_end"),  # some are slices of one tensor
)
PACKED = tl.constexpr(tl.uint8)  # 4 bits: two channels share a byte


class Layout(NamedTuple):
    """Constants that describe a list of slabs.

    Attributes:
        first, other: type of the first slab, and of slabs that differ from it.
        group_size: rows of a quantisation group.
        align: largest power of two, at most 16, that divides every row's address in bytes: the widest aligned load.
    """

    first: tl.dtype
    other: tl.dtype
    group_size: int
    align: int

    @property
    def quantized(self) -> bool:
        """True if some slabs are quantised."""
        return not QUANTIZED_TYPES.isdisjoint((self.first, self.other))

    def constants(self, name: str) -> dict[str, Any]:
        """Return the constexpr arguments, prefixed with the kernel's name for these slabs ("KEY", "VALUE", "ROW")."""
        kinds = {f"{name}_FIRST": self.first, f"{name}_OTHER": self.other}
        return {**kinds, f"{name}_GROUP_SIZE": self.group_size, f"{name}_ALIGN": self.align}


class Table(NamedTuple):
    """Kernel arguments that describe a list of slabs.

    Attributes:
        slabs: int64 [slabs, FACTS], padded to a power of two. Each line: address, first row, head stride, 1 if of
            the other kind, address and head stride of the scales.
        channel_scale: mean and range, float32 [H, D], for quantised slabs.
        rows: rows of all slabs.
        layout: constants that the kernel is compiled for.
    """

    slabs: Tensor
    channel_scale: tuple[Tensor, Tensor]
    rows: int
    layout: Layout

    @property
    def halvings(self) -> int:
        """Steps of the binary search that finds a row's slab."""
        return (self.slabs.shape[0] - 1).bit_length()

    @property
    def pointers(self) -> tuple[Tensor, Tensor, Tensor]:
        """Pointer arguments: the table, mean and range."""
        return self.slabs, *self.channel_scale


def table(slabs: Slabs, device: torch.device, copies: tuple[Bank, ...] = ()) -> Table:
    """Return the table of some slabs. It is built once per device, until a slab is added.

    copies: banks that get lines behind those of the slabs. Kernels read them by number; `rows_of` never finds them.

    Raises:
        ValueError: slabs of more than two kinds, quantised slabs that differ in kind, group size or channel scale, or
            rows that are not contiguous.
    """
    known = facts_of(slabs).tables
    key: tuple[Any, ...] = (device,)
    if copies:  # a comprehension is a call, and most tables have none
        key = device, *[(part.data_ptr(), part.shape) for bank in copies for part in tensors_of(bank)]
    if key not in known:
        known[key] = _table([*slabs, *[(bank, 0) for bank in copies]], device, len(slabs))
    found: Table = known[key]
    rows = sum([length for _, length in slabs])
    return found if found.rows == rows else found._replace(rows=rows)


def _table(slabs: Slabs, device: torch.device, count: int) -> Table:
    """Return the table of slabs. Those from number `count` on are copies, and may have another group size."""
    # One loop, since a million tokens take about thirty slabs.
    lines: list[tuple[int, ...]] = []
    kinds: list[tl.dtype] = []
    quantized: list[QuantizedSlab] = []
    at, together = 0, WIDEST
    for number, (bank, length) in enumerate(slabs):
        scale_at = scale_step = 0
        if isinstance(bank, QuantizedSlab):
            rows, kind = bank.quantized, QUANTIZED[bank.kind]
            (scale_step, step), scale_at = bank.scale.stride(), bank.scale.data_ptr()
            quantized.append(bank)
        else:
            rows, kind, step = bank, DTYPES[bank.dtype], 1
        if kind not in kinds:
            kinds.append(kind)
        head_step, row_step, column_step = rows.stride()
        if (row_step, column_step, step) != (rows.shape[2], 1, 1):
            raise ValueError("Rows of a slab lie next to one another: make the slab contiguous.")
        address, size = rows.data_ptr(), rows.element_size()
        begin = at if number < count else BEYOND
        lines.append((address, begin, head_step, kinds.index(kind), scale_at, scale_step))
        together |= address | head_step * size | row_step * size
        at += length
    if len(kinds) > 2:
        raise ValueError(f"The slabs of a bank are of two kinds at most, not of {len(kinds)}: {_named(slabs)}.")
    groups = {bank.group_size for bank, _ in slabs[:count] if isinstance(bank, QuantizedSlab)}
    if len(groups) > 1 or len({(bank.kind, id(bank.channel_scale)) for bank in quantized}) > 1:
        raise ValueError(f"Quantised slabs share kind, group size and scale, and these do not: {_named(slabs)}.")
    lines += [(0, BEYOND, 0, 0, 0, 0)] * (power_of_2(len(lines)) - len(lines))
    found = table_on_device(tuple(lines), device)
    return Table(
        slabs=found,
        channel_scale=quantized[0].channel_scale.on(device) if quantized else (found, found),  # unused pointers
        rows=at,
        layout=Layout(
            first=kinds[0],
            other=kinds[-1],
            group_size=quantized[0].group_size if quantized else 1,
            align=together & -together,  # lowest set bit
        ),
    )


@functools.lru_cache(maxsize=1024)
def table_on_device(lines: tuple[tuple[int, ...], ...], device: torch.device) -> Tensor:
    """Copy table lines to a device in one transfer, once for a window that is shown again at the same address."""
    return torch.tensor(lines).to(device, non_blocking=True)


def _named(slabs: Slabs) -> str:
    kinds = [
        (bank.kind, f" in groups of {bank.group_size}") if isinstance(bank, QuantizedSlab) else (bank.dtype, "")
        for bank, _ in slabs
    ]
    return ", ".join(dict.fromkeys(str(kind).removeprefix("torch.") + groups for kind, groups in kinds))


def padded(width: int) -> int:
    """Return the tile width for this many columns: a power of two, at least 16 as tl.dot needs."""
    return max(16, power_of_2(width))


def widths(size: int, half: int) -> dict[str, int]:
    """Return the constants of kernels that load a row of `size` columns in parts; the first 2 * `half` are rotated."""
    turned = half > 0
    if not turned and size > WIDE:
        half = (size - (1 << (size.bit_length() - 1))) // 2
    return {"SIZE": size, "HALF": half, "TURN": turned, "HALF_PAD": padded(half), "REST_PAD": padded(size - 2 * half)}


def factor_dtype(dtype: torch.dtype) -> tl.dtype:
    """Return the dtype of the factors of a product: float32 in Triton's interpreter, which lacks bfloat16, else
    `dtype`.
    """
    return tl.float32 if triton.knobs.runtime.interpret else DTYPES[dtype]


@triton.jit
def rows_of(index, p_slabs, halvings):
    """Return the slab of each row index [TILE], and the row within that slab. Every index must be valid."""
    slab = tl.zeros_like(index)
    for done in range(halvings):
        other = slab + (1 << (halvings - 1 - done))
        slab = tl.where(index >= tl.load(p_slabs + other * FACTS + 1), other, slab)
    return slab, index - tl.load(p_slabs + slab * FACTS + 1)


@triton.jit
def _load_kind(
    slab, row, group, head, m_row, column, m_column, p_slabs, p_mean, p_range,
    KIND: tl.constexpr, ALIGN: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Compute `load_part` for slabs of a single kind. group: number of each row's scale [TILE]."""
    # m_part, b_byte, b_code: [TILE, WIDTH], p_row, b_scale: [TILE], b_mean, b_range: [WIDTH]
    m_part = m_row[:, None] & m_column[None, :]
    p_head = tl.load(p_slabs + slab * FACTS).to(tl.pointer_type(KIND)) + head * tl.load(p_slabs + slab * FACTS + 2)
    WIDTH: tl.constexpr = SIZE // 2 if KIND == PACKED else SIZE
    p_row = tl.multiple_of(p_head + row * WIDTH, ALIGN)
    if KIND.primitive_bitwidth > 8:
        return tl.load(p_row[:, None] + column[None, :], mask=m_part, other=0.0).to(tl.float32)
    else:
        if KIND == PACKED:
            b_byte = tl.load(p_row[:, None] + (column % WIDTH)[None, :], mask=m_part).to(tl.int32)
            b_code = (((b_byte >> (column // WIDTH * 4)[None, :]) & 15) - 8).to(tl.float32)
        else:
            b_code = tl.load(p_row[:, None] + column[None, :], mask=m_part).to(tl.float32)
        p_scale = tl.load(p_slabs + slab * FACTS + 4).to(tl.pointer_type(tl.float32)) + group
        b_scale = tl.load(p_scale + head * tl.load(p_slabs + slab * FACTS + 5), mask=m_row)
        b_mean = tl.load(p_mean + head * SIZE + column, mask=m_column)
        b_range = tl.load(p_range + head * SIZE + column, mask=m_column)
        return tl.where(m_part, b_code * b_scale[:, None] * b_range[None, :] + b_mean[None, :], 0.0)


@triton.jit
def load_part(
    slab, row, head, m_row, column, m_column, p_slabs, p_mean, p_range,
    FIRST: tl.constexpr, OTHER: tl.constexpr, GROUP_SIZE: tl.constexpr, ALIGN: tl.constexpr, SIZE: tl.constexpr,
    group=None,
):  # fmt: skip
    """Load columns [TILE, WIDTH] of a head's rows as float32; 0 where m_row [TILE] or m_column [WIDTH] is False.

    group: number of each row's scale [TILE], if that is not row // GROUP_SIZE.
    """
    if group is None:
        group = row // GROUP_SIZE
    if FIRST == OTHER:
        return _load_kind(slab, row, group, head, m_row, column, m_column, p_slabs, p_mean, p_range, FIRST, ALIGN, SIZE)
    else:
        other = tl.load(p_slabs + slab * FACTS + 3) > 0
        b_first = _load_kind(
            slab, row, group, head, m_row & ~other, column, m_column, p_slabs, p_mean, p_range,
            FIRST, ALIGN, SIZE,
        )  # fmt: skip
        b_other = _load_kind(
            slab, row, group, head, m_row & other, column, m_column, p_slabs, p_mean, p_range,
            OTHER, ALIGN, SIZE,
        )  # fmt: skip
        return b_first + b_other


@triton.jit
def load_key(
    slab, row, head, m_row, p_slabs, p_mean, p_range,
    FIRST: tl.constexpr, OTHER: tl.constexpr, GROUP_SIZE: tl.constexpr, ALIGN: tl.constexpr,
    SIZE: tl.constexpr, HALF: tl.constexpr, HALF_PAD: tl.constexpr, REST_PAD: tl.constexpr, group=None,
):  # fmt: skip
    """Load a head's rows in three parts, [TILE, HALF_PAD] twice and [TILE, REST_PAD], as float32; 0 outside m_row
    [TILE]. group: see `load_part`.
    """
    half = tl.arange(0, HALF_PAD)
    rest = 2 * HALF + tl.arange(0, REST_PAD)
    b_k1 = tl.zeros((row.shape[0], HALF_PAD), dtype=tl.float32)
    b_k2 = tl.zeros((row.shape[0], HALF_PAD), dtype=tl.float32)
    b_k3 = tl.zeros((row.shape[0], REST_PAD), dtype=tl.float32)
    if HALF > 0:
        b_k1 = load_part(
            slab, row, head, m_row, half, half < HALF, p_slabs, p_mean, p_range,
            FIRST, OTHER, GROUP_SIZE, ALIGN, SIZE, group,
        )  # fmt: skip
        b_k2 = load_part(
            slab, row, head, m_row, HALF + half, half < HALF, p_slabs, p_mean, p_range,
            FIRST, OTHER, GROUP_SIZE, ALIGN, SIZE, group,
        )  # fmt: skip
    if SIZE > 2 * HALF:
        b_k3 = load_part(
            slab, row, head, m_row, rest, rest < SIZE, p_slabs, p_mean, p_range,
            FIRST, OTHER, GROUP_SIZE, ALIGN, SIZE, group,
        )  # fmt: skip
    return b_k1, b_k2, b_k3


@triton.jit
def turn(b_k1, b_k2, m_row, place, p_cos, p_sin, HALF: tl.constexpr, HALF_PAD: tl.constexpr):
    """Rotate both halves of the rotated width [TILE, HALF_PAD] to positions `place` [TILE]."""
    half = tl.arange(0, HALF_PAD)
    # m_half, b_cos, b_sin: [TILE, HALF_PAD], b_first, b_second: [TILE, HALF_PAD, 2]
    m_half = m_row[:, None] & (half < HALF)[None, :]
    b_cos = tl.load(p_cos + place[:, None] * HALF + half[None, :], mask=m_half, other=0.0)
    b_sin = tl.load(p_sin + place[:, None] * HALF + half[None, :], mask=m_half, other=0.0)
    # Sums over pairs: the compiler would move plain sums into the dot's operand layout, where each warp repeats them.
    b_first, b_second = tl.join(b_k1 * b_cos, -b_k2 * b_sin), tl.join(b_k2 * b_cos, b_k1 * b_sin)
    return tl.sum(b_first, axis=2), tl.sum(b_second, axis=2)


@triton.jit
def factors_of(
    b_k1, b_k2, b_k3, m_row, place, p_cos, p_sin,
    DOT: tl.constexpr, HALF: tl.constexpr, TURN: tl.constexpr, HALF_PAD: tl.constexpr,
):  # fmt: skip
    """Return loaded keys as factors of a product in dtype DOT, rotated to positions `place` [TILE] if TURN is set."""
    if TURN:
        b_k1, b_k2 = turn(b_k1, b_k2, m_row, place, p_cos, p_sin, HALF, HALF_PAD)
    return b_k1.to(DOT), b_k2.to(DOT), b_k3.to(DOT)


@triton.jit
def logits_of(b_a1, b_a2, b_a3, b_b1, b_b2, b_b3, scaling, softcap, HALF: tl.constexpr, SIZE: tl.constexpr):
    """Return logits [A, B], float32, of A rows with B rows in three parts: queries and rotated keys. softcap 0 means
    none.
    """
    logits = tl.zeros((b_a1.shape[0], b_b1.shape[0]), dtype=tl.float32)
    if HALF > 0:
        logits = tl.dot(b_a1, tl.trans(b_b1), acc=logits, input_precision="ieee")
        logits = tl.dot(b_a2, tl.trans(b_b2), acc=logits, input_precision="ieee")
    if SIZE > 2 * HALF:
        logits = tl.dot(b_a3, tl.trans(b_b3), acc=logits, input_precision="ieee")
    logits = logits * scaling
    if softcap > 0:
        logits = softcap * (2 * tl.sigmoid(2 * logits / softcap) - 1)  # tanh
    return logits
