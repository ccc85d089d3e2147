"""Rows of slabs, loaded where they lie: on the device, or in pinned host memory without a copy.

A bank is a table of slabs. They are of two kinds at most, that of the first slab and another, so that sinks in the
model's own dtype may stand before a host tier in another or in codes. Codes become numbers in registers: each is
multiplied by the scale of its page and by its channel's spread, and shifted by its channel's centre. A row is loaded in
three parts: both halves of its rotated width (HALF each) and the rest, each padded to a power of two; a wide one of
which nothing is rotated in the same way, the rest being a power of two. Prefixes: p_ pointer, b_ loaded value, m_ mask.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.rows import Fixed, Pages, Slabs

DTYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
CODES = {torch.int8: tl.int8, torch.quint4x2: tl.uint8, torch.float8_e4m3fn: tl.float8e4nv}
FACTS = tl.constexpr(6)  # of a slab, in its line of a table
BEYOND = 1 << 62  # no row comes after it
WIDE = 256  # columns above which padding costs more than a third part
WIDEST = 16  # bytes that a thread loads at once
# What changes from pass to pass: a kernel is not compiled anew for where it is 1, or a multiple of 16
CHANGING = (
    *("blocks", "capacity", "chunks", "count", "halvings", "listed", "offset", "per_share", "queries", "rounds"),
    *("rows", "shares", "size"),
    *("p_index", "p_places", "p_seen", "p_first", "p_end"),  # of which some are parts of one tensor
)
PACKED = tl.constexpr(tl.uint8)  # of four bits: two channels share a byte


class Table(NamedTuple):
    """What a kernel is told of a bank: pointers on the device, and what is known beforehand.

    slabs: int64 [slabs, FACTS], of each its address, first row, distance of heads, whether it is of the other kind, and
    address and distance of heads of its scales, then such as no row is in, up to a power of two; levels: float32
    [H, D], centre and spread, of codes.
    """

    slabs: Tensor
    levels: tuple[Tensor, Tensor]
    rows: int
    kinds: tuple[tl.dtype, tl.dtype]  # of the first slab, and of those that are unlike it
    page: int  # rows of codes that share a scale
    align: int  # bytes of which the address of every row is a multiple: so many can be loaded at once

    @property
    def coded(self) -> bool:
        """Whether there are codes among them."""
        return not set(CODES.values()).isdisjoint(self.kinds)

    @property
    def halvings(self) -> int:
        """By which a row's slab is found."""
        return (len(self.slabs) - 1).bit_length()

    @property
    def pointers(self) -> tuple[Tensor, Tensor, Tensor]:
        """As kernels take them."""
        return self.slabs, *self.levels

    def constants(self, name: str) -> dict[str, Any]:
        """As kernels take them, for the bank that they call by this name."""
        kinds = {f"{name}_FIRST": self.kinds[0], f"{name}_OTHER": self.kinds[1]}
        return {**kinds, f"{name}_PAGE": self.page, f"{name}_ALIGN": self.align}


def table(slabs: Slabs, device: torch.device) -> Table:
    """The table of a bank; of fixed slabs, always the same one.

    Raises:
        ValueError: slabs are of more than two kinds, or in codes that do not go together, or rows of a slab are not
            next to one another.
    """
    if not isinstance(slabs, Fixed):
        return _table(slabs, device)
    if device not in slabs.tables:
        slabs.tables[device] = _table(slabs, device)
    found: Table = slabs.tables[device]
    return found


def _table(slabs: Slabs, device: torch.device) -> Table:
    # A million tokens are some thirty slabs, and this is done for every layer of every token: one loop over them.
    lines: list[tuple[int, ...]] = []
    kinds: list[tl.dtype] = []
    coded: list[Pages] = []
    at, together = 0, WIDEST
    for bank, length in slabs:
        scale_at = scale_step = 0
        if isinstance(bank, Pages):
            rows, kind = bank.codes, CODES[bank.kind]
            (scale_step, step), scale_at = bank.scale.stride(), bank.scale.data_ptr()
            coded.append(bank)
        else:
            rows, kind, step = bank, DTYPES[bank.dtype], 1
        if kind not in kinds:
            kinds.append(kind)
        head_step, row_step, column_step = rows.stride()
        if (row_step, column_step, step) != (rows.shape[2], 1, 1):
            raise ValueError("Rows of a slab lie next to one another: make the slab contiguous.")
        address, size = rows.data_ptr(), rows.element_size()
        lines.append((address, at, head_step, kinds.index(kind), scale_at, scale_step))
        together |= address | head_step * size | row_step * size
        at += length
    if len(kinds) > 2:
        raise ValueError(f"The slabs of a bank are of two kinds at most, not of {len(kinds)}: {_named(slabs)}.")
    if len({(bank.kind, bank.page, id(bank.levels)) for bank in coded}) > 1:
        raise ValueError(f"Slabs in codes share kind, rows of a page and levels, and these do not: {_named(slabs)}.")
    lines += [(0, BEYOND, 0, 0, 0, 0)] * (triton.next_power_of_2(len(lines)) - len(lines))
    found = _sent(tuple(lines), device)
    return Table(
        slabs=found,
        levels=coded[0].levels.on(device) if coded else (found, found),  # pointers where there is nothing to point to
        rows=at,
        kinds=(kinds[0], kinds[-1]),
        page=coded[0].page if coded else 1,
        align=together & -together,  # the lowest bit of all of them
    )


@functools.lru_cache(maxsize=1024)
def _sent(lines: tuple[tuple[int, ...], ...], device: torch.device) -> Tensor:
    """On the device, in one copy; they are the same for token after token, as only the last slab grows."""
    return torch.tensor(lines).to(device, non_blocking=True)


def _named(slabs: Slabs) -> str:
    kinds = [
        (bank.kind, f" in pages of {bank.page}") if isinstance(bank, Pages) else (bank.dtype, "") for bank, _ in slabs
    ]
    return ", ".join(dict.fromkeys(str(kind).removeprefix("torch.") + pages for kind, pages in kinds))


def padded(width: int) -> int:
    """Columns that a tile takes for so many: a power of two, and enough for a product of matrices."""
    return max(16, int(triton.next_power_of_2(width)))


def widths(size: int, half: int) -> dict[str, int]:
    """Of a row of so many columns, twice `half` of them rotated: the constants by which kernels load it in parts."""
    turned = half > 0
    if not turned and size > WIDE:
        half = (size - (1 << (size.bit_length() - 1))) // 2
    return {"SIZE": size, "HALF": half, "TURN": turned, "HALF_PAD": padded(half), "REST_PAD": padded(size - 2 * half)}


def factor_dtype(dtype: torch.dtype) -> tl.dtype:
    """What a product is computed from. The interpreter knows none of bfloat16; as float32 they are the same."""
    return tl.float32 if triton.knobs.runtime.interpret else DTYPES[dtype]


@triton.jit
def rows_of(index, p_slabs, halvings):
    """Slab and row in it of rows index [TILE] of a bank; they must be in the bank. Keys and values lie alike."""
    slab = tl.zeros_like(index)
    for done in range(halvings):
        other = slab + (1 << (halvings - 1 - done))
        slab = tl.where(index >= tl.load(p_slabs + other * FACTS + 1), other, slab)
    return slab, index - tl.load(p_slabs + slab * FACTS + 1)


@triton.jit
def _load_kind(
    slab, row, head, m_row, column, m_column, p_slabs, p_centre, p_spread,
    KIND: tl.constexpr, PAGE: tl.constexpr, ALIGN: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """`load_part` of slabs that are all of one kind."""
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
        p_scale = tl.load(p_slabs + slab * FACTS + 4).to(tl.pointer_type(tl.float32)) + row // PAGE
        b_scale = tl.load(p_scale + head * tl.load(p_slabs + slab * FACTS + 5), mask=m_row)
        b_centre = tl.load(p_centre + head * SIZE + column, mask=m_column)
        b_spread = tl.load(p_spread + head * SIZE + column, mask=m_column)
        return tl.where(m_part, b_code * b_scale[:, None] * b_spread[None, :] + b_centre[None, :], 0.0)


@triton.jit
def load_part(
    slab, row, head, m_row, column, m_column, p_slabs, p_centre, p_spread,
    FIRST: tl.constexpr, OTHER: tl.constexpr, PAGE: tl.constexpr, ALIGN: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Columns [TILE, WIDTH] of a head's rows, float32; 0 where m_row [TILE] or m_column [WIDTH] is False."""
    if FIRST == OTHER:
        return _load_kind(
            slab, row, head, m_row, column, m_column, p_slabs, p_centre, p_spread, FIRST, PAGE, ALIGN, SIZE
        )
    else:
        other = tl.load(p_slabs + slab * FACTS + 3) > 0
        b_first = _load_kind(
            slab, row, head, m_row & ~other, column, m_column, p_slabs, p_centre, p_spread,
            FIRST, PAGE, ALIGN, SIZE,
        )  # fmt: skip
        b_other = _load_kind(
            slab, row, head, m_row & other, column, m_column, p_slabs, p_centre, p_spread,
            OTHER, PAGE, ALIGN, SIZE,
        )  # fmt: skip
        return b_first + b_other


@triton.jit
def load_key(
    slab, row, head, m_row, p_slabs, p_centre, p_spread,
    FIRST: tl.constexpr, OTHER: tl.constexpr, PAGE: tl.constexpr, ALIGN: tl.constexpr,
    SIZE: tl.constexpr, HALF: tl.constexpr, HALF_PAD: tl.constexpr, REST_PAD: tl.constexpr,
):  # fmt: skip
    """A head's rows in three parts, [TILE, HALF_PAD] twice and [TILE, REST_PAD], float32; 0 outside m_row [TILE]."""
    half = tl.arange(0, HALF_PAD)
    rest = 2 * HALF + tl.arange(0, REST_PAD)
    b_k1 = tl.zeros((row.shape[0], HALF_PAD), dtype=tl.float32)
    b_k2 = tl.zeros((row.shape[0], HALF_PAD), dtype=tl.float32)
    b_k3 = tl.zeros((row.shape[0], REST_PAD), dtype=tl.float32)
    if HALF > 0:
        b_k1 = load_part(
            slab, row, head, m_row, half, half < HALF, p_slabs, p_centre, p_spread,
            FIRST, OTHER, PAGE, ALIGN, SIZE,
        )  # fmt: skip
        b_k2 = load_part(
            slab, row, head, m_row, HALF + half, half < HALF, p_slabs, p_centre, p_spread,
            FIRST, OTHER, PAGE, ALIGN, SIZE,
        )  # fmt: skip
    if SIZE > 2 * HALF:
        b_k3 = load_part(
            slab, row, head, m_row, rest, rest < SIZE, p_slabs, p_centre, p_spread,
            FIRST, OTHER, PAGE, ALIGN, SIZE,
        )  # fmt: skip
    return b_k1, b_k2, b_k3


@triton.jit
def turn(b_k1, b_k2, m_row, place, p_cos, p_sin, HALF: tl.constexpr, HALF_PAD: tl.constexpr):
    """Both halves of the rotated width [TILE, HALF_PAD], turned to their places [TILE]."""
    half = tl.arange(0, HALF_PAD)
    m_half = m_row[:, None] & (half < HALF)[None, :]
    b_cos = tl.load(p_cos + place[:, None] * HALF + half[None, :], mask=m_half, other=0.0)
    b_sin = tl.load(p_sin + place[:, None] * HALF + half[None, :], mask=m_half, other=0.0)
    # As sums over pairs: plain ones the compiler moves to where a product takes its factors, once for each warp.
    b_first, b_second = tl.join(b_k1 * b_cos, -b_k2 * b_sin), tl.join(b_k2 * b_cos, b_k1 * b_sin)
    return tl.sum(b_first, axis=2), tl.sum(b_second, axis=2)


@triton.jit
def factors_of(
    b_k1, b_k2, b_k3, m_row, place, p_cos, p_sin,
    DOT: tl.constexpr, HALF: tl.constexpr, TURN: tl.constexpr, HALF_PAD: tl.constexpr,
):  # fmt: skip
    """Loaded keys in three parts, turned to their places [TILE] if they are to be, as factors of a product."""
    if TURN:
        b_k1, b_k2 = turn(b_k1, b_k2, m_row, place, p_cos, p_sin, HALF, HALF_PAD)
    return b_k1.to(DOT), b_k2.to(DOT), b_k3.to(DOT)


@triton.jit
def logits_of(b_a1, b_a2, b_a3, b_b1, b_b2, b_b3, scaling, softcap, HALF: tl.constexpr, SIZE: tl.constexpr):
    """Logits [A, B], float32, of A rows and B rows in three parts, queries and turned keys; softcap 0 for none."""
    logits = tl.zeros((b_a1.shape[0], b_b1.shape[0]), dtype=tl.float32)
    if HALF > 0:
        logits = tl.dot(b_a1, tl.trans(b_b1), acc=logits, input_precision="ieee")
        logits = tl.dot(b_a2, tl.trans(b_b2), acc=logits, input_precision="ieee")
    if SIZE > 2 * HALF:
        logits = tl.dot(b_a3, tl.trans(b_b3), acc=logits, input_precision="ieee")
    logits = logits * scaling
    if softcap > 0:
        logits = softcap * (2 * tl.sigmoid(2 * logits / softcap) - 1)  # the hyperbolic tangent
    return logits
