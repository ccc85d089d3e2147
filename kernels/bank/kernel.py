"""A bank of units in Triton: three kernels that the host does not wait for, so that they can be recorded.

`_resolve` looks units up and notes those that are missing, `_admit` gives them slots, `_fetch` copies their rows and
writes where all rows are. Signature and meaning are those of `reference.bring`; only the order in which missing units
get their slots is not defined. Prefixes: p_ pointer, b_ loaded value, o_ offset, m_ mask.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.bank import state
from kernels.bank.state import UnitBank
from kernels.launch import Prepared, cdiv, power_of_2
from kernels.rows import Bank, QuantizedSlab, Slabs
from kernels.slab_rows.kernel import FACTS, rows_of, table

FREE, CLAIMED, NEVER = (tl.constexpr(number) for number in (state.FREE, state.CLAIMED, state.NEVER))
NOWHERE = tl.constexpr(state.NOWHERE)
OLDEST = tl.constexpr(state.AGES[0])
LOOKUP, HAND, MISSES, LOOKED, FETCHED = (tl.constexpr(number) for number in range(state.FACTS))
UNITS = 128  # of the lists, that one program looks up
SLOTS = 1024  # that the clock looks at together
ROWS = 16  # of a unit, copied together
CHANGING = ("listed", "per_list", "slots", "key_halvings", "value_halvings", "first")
WORDS = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64}


@triton.jit(do_not_specialize=CHANGING)
def _resolve(
    p_starts, p_limits, p_stored, p_table, p_owner, p_used, p_importance, p_filled, p_missing, p_facts, listed,
    per_list, SIZE: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    # All blocks: [UNITS]
    o_unit = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    m_unit = o_unit < listed
    b_start = tl.load(p_starts + o_unit, mask=m_unit, other=0)
    m_unit = m_unit & (b_start < tl.load(p_limits + o_unit // per_list, mask=m_unit, other=0))
    b_unit = tl.where(m_unit, b_start // SIZE, 0)
    lookup, stored = tl.load(p_facts + LOOKUP), tl.load(p_stored)
    b_slot = tl.load(p_table + b_unit, mask=m_unit, other=FREE)
    m_there = m_unit & (b_slot >= 0)
    b_filled = tl.load(p_filled + b_slot, mask=m_there, other=0)
    m_hit = m_there & (b_filled >= tl.minimum(stored - b_start, SIZE))
    tl.store(p_used + b_slot, lookup, mask=m_hit)
    # Of all programs that miss a unit, the one notes it that claims it first.
    m_miss = m_unit & (m_hit == 0)
    b_before = tl.atomic_xchg(p_table + b_unit, tl.full((UNITS,), CLAIMED, tl.int32), mask=m_miss)
    m_first = m_miss & (b_before != CLAIMED)
    m_stale = m_first & (b_before >= 0)
    b_never = tl.full((UNITS,), NEVER, tl.int32)
    tl.store(p_owner + b_before, tl.full((UNITS,), FREE, tl.int32), mask=m_stale)
    tl.store(p_used + b_before, b_never, mask=m_stale)
    tl.store(p_importance + b_before, b_never.to(tl.float32), mask=m_stale)
    b_first = m_first.to(tl.int32)
    at = tl.atomic_add(p_facts + MISSES, tl.sum(b_first, axis=0))
    tl.store(p_missing + at + tl.cumsum(b_first, axis=0) - b_first, b_unit.to(tl.int32), mask=m_first)
    tl.atomic_add(p_facts + LOOKED, tl.sum(m_unit.to(tl.int32), axis=0))


@triton.jit(do_not_specialize=CHANGING)
def _admit(
    p_missing, p_table, p_owner, p_used, p_importance, p_filled, p_rank, p_stored, p_facts, p_traffic, slots,
    SIZE: tl.constexpr, ROUNDS: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    lookup, hand, count = tl.load(p_facts + LOOKUP), tl.load(p_facts + HAND), tl.load(p_facts + MISSES)
    stored = tl.load(p_stored)
    begin, taken = hand, 0
    for number in tl.static_range(ROUNDS):
        # Free slots, then those older than 64, 16 and 4 look-ups, then any
        age = OLDEST if number == 0 else (-OLDEST if number == ROUNDS - 1 else 256 >> (2 * number))
        for at in range(0, slots, SLOTS):
            if taken < count:
                # All blocks: [SLOTS]
                o_ring = at + tl.arange(0, SLOTS)
                b_slot = (begin + o_ring) % slots
                m_slot = o_ring < slots
                b_used = tl.load(p_used + b_slot, mask=m_slot, other=0)
                b_rank = tl.load(p_rank + b_slot, mask=m_slot, other=0).to(tl.float32)
                m_slot = m_slot & (b_used != lookup) & (b_rank < (lookup - age).to(tl.float32))
                b_place = taken + tl.cumsum(m_slot.to(tl.int32), axis=0) - 1
                m_slot = m_slot & (b_place < count)
                b_unit = tl.load(p_missing + b_place, mask=m_slot, other=0)
                b_before = tl.load(p_owner + b_slot, mask=m_slot, other=FREE)
                tl.store(p_table + b_before, tl.full((SLOTS,), FREE, tl.int32), mask=m_slot & (b_before >= 0))
                tl.store(p_table + b_unit, b_slot, mask=m_slot)
                tl.store(p_owner + b_slot, b_unit, mask=m_slot)
                tl.store(p_used + b_slot, lookup, mask=m_slot)
                tl.store(p_importance + b_slot, lookup.to(tl.float32), mask=m_slot)
                b_filled = tl.minimum(stored - b_unit.to(tl.int64) * SIZE, SIZE)
                tl.store(p_filled + b_slot, b_filled.to(tl.int32), mask=m_slot)
                some = tl.sum(m_slot.to(tl.int32), axis=0)
                hand = tl.where(some > 0, (begin + tl.max(tl.where(m_slot, o_ring, 0), axis=0) + 1) % slots, hand)
                taken += some
        tl.debug_barrier()  # the next round must see what this one has taken
    tl.store(p_facts + LOOKUP, lookup + 1)
    tl.store(p_facts + HAND, hand)
    tl.store(p_facts + FETCHED, count)
    tl.store(p_traffic, tl.load(p_traffic) + tl.load(p_facts + LOOKED) - count)
    tl.store(p_traffic + 1, tl.load(p_traffic + 1) + count)
    tl.store(p_facts + MISSES, 0)
    tl.store(p_facts + LOOKED, 0)


@triton.jit
def _copy(
    unit, slot, head, stored, slots, p_slabs, halvings, p_rows, p_scale,
    SIZE: tl.constexpr, WORD: tl.constexpr, BYTES: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
    WIDTH_PAD: tl.constexpr, FROM: tl.constexpr, TO: tl.constexpr, SCALES_PAD: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Copy a head's rows of a unit into its slot, as words of BYTES bytes, and their scales if FROM is not 0.

    STEP: bytes of a number of the slabs, whose strides count numbers. WIDTH: words of a row. FROM, TO: rows that share
    a scale in the slabs and in the bank.
    """
    o_word = tl.arange(0, WIDTH_PAD)[None, :]
    for at in range(0, SIZE, ROWS):
        # o_row, m_row, b_row, b_slab, b_head, b_at: [ROWS], m_word, b_words: [ROWS, WIDTH_PAD]
        o_row = at + tl.arange(0, ROWS)
        b_row = unit * SIZE + o_row
        m_row = (o_row < SIZE) & (b_row < stored)
        b_slab, b_in_slab = rows_of(tl.where(m_row, b_row, 0), p_slabs, halvings)
        b_head = head * tl.load(p_slabs + b_slab * FACTS + 2) * STEP
        b_at = tl.load(p_slabs + b_slab * FACTS) + b_head + b_in_slab * (WIDTH * BYTES)
        p_from = tl.multiple_of(b_at.to(tl.pointer_type(WORD)), BYTES)
        m_word = m_row[:, None] & (o_word < WIDTH)
        b_words = tl.load(p_from[:, None] + o_word, mask=m_word, other=0)
        o_to = ((head * slots + slot) * SIZE + o_row)[:, None] * WIDTH + o_word
        tl.store(p_rows.to(tl.pointer_type(WORD)) + o_to, b_words, mask=m_word)
    if FROM > 0:
        # o_scale, m_row, b_row, b_slab, b_scale: [SCALES_PAD]
        o_scale = tl.arange(0, SCALES_PAD)
        b_row = unit * SIZE + o_scale * TO
        m_row = (o_scale < SIZE // TO) & (b_row < stored)
        b_slab, b_in_slab = rows_of(tl.where(m_row, b_row, 0), p_slabs, halvings)
        p_from = tl.load(p_slabs + b_slab * FACTS + 4).to(tl.pointer_type(tl.float32)) + b_in_slab // FROM
        b_scale = tl.load(p_from + head * tl.load(p_slabs + b_slab * FACTS + 5), mask=m_row)
        tl.store(p_scale + (head * slots + slot) * (SIZE // TO) + o_scale, b_scale, mask=m_row)


@triton.jit(do_not_specialize=CHANGING)
def _fetch(
    p_starts, p_limits, p_stored, p_table, p_missing, p_facts, p_keys, p_values, p_key_rows, p_key_scale, p_value_rows,
    p_value_scale, p_out, listed, per_list, slots, key_halvings, value_halvings, first,
    HEADS: tl.constexpr, SIZE: tl.constexpr, WORD: tl.constexpr, BYTES: tl.constexpr, STEP: tl.constexpr,
    WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr, FROM: tl.constexpr, TO: tl.constexpr, SCALES_PAD: tl.constexpr,
    SIZE_PAD: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    number, head, stored = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.load(p_stored)
    if head == 0:
        start = tl.load(p_starts + number)
        inside = start < tl.load(p_limits + number // per_list)
        slot = tl.load(p_table + tl.where(inside, start // SIZE, 0)).to(tl.int64)
        o_row = tl.arange(0, SIZE_PAD)
        b_row = tl.where(inside, first + slot * SIZE + o_row, NOWHERE)
        tl.store(p_out + number.to(tl.int64) * SIZE + o_row, b_row, mask=o_row < SIZE)
    if number < tl.load(p_facts + FETCHED):
        unit = tl.load(p_missing + number).to(tl.int64)
        slot = tl.load(p_table + unit).to(tl.int64)
        if head < HEADS:
            _copy(
                unit, slot, head, stored, slots, p_keys, key_halvings, p_key_rows, p_key_scale,
                SIZE, WORD, BYTES, STEP, WIDTH, WIDTH_PAD, FROM, TO, SCALES_PAD, ROWS,
            )  # fmt: skip
        else:
            _copy(
                unit, slot, head - HEADS, stored, slots, p_values, value_halvings, p_value_rows, p_value_scale,
                SIZE, WORD, BYTES, STEP, WIDTH, WIDTH_PAD, FROM, TO, SCALES_PAD, ROWS,
            )  # fmt: skip


def bring(
    bank: UnitBank,
    starts: Tensor,
    limits: Tensor,
    keys: Slabs,
    values: Slabs,
    stored: Tensor,
    traffic: Tensor,
    first: int,
) -> Tensor:
    """Compute `reference.bring` in Triton. The slabs must be on the device of the lists or in pinned host memory."""
    lists, per_list = starts.shape
    listed, slots = lists * per_list, bank.slots
    starts, limits = starts.contiguous(), limits.contiguous()
    of_slots = (bank.table, bank.owner, bank.used, bank.importance, bank.filled)
    rows = torch.empty(lists, per_list * bank.size, dtype=torch.int64, device=starts.device)
    _prepared_resolve(bank.size)(
        (cdiv(listed, UNITS), 1, 1),
        (starts, limits, stored, *of_slots, bank.missing, bank.facts),
        (listed, per_list),
    )
    _prepared_admit(bank.size)((1, 1, 1), (bank.missing, *of_slots, bank.rank, stored, bank.facts, traffic), (slots,))
    key_table, value_table = table(keys, starts.device), table(values, starts.device)
    align = min(key_table.layout.align, value_table.layout.align, max(WORDS))
    (key_rows, key_scale), (value_rows, value_scale) = _as_bytes(bank.keys), _as_bytes(bank.values)
    from_group = key_table.layout.group_size if isinstance(bank.keys, QuantizedSlab) else 0
    to_group = bank.keys.group_size if isinstance(bank.keys, QuantizedSlab) else 1
    step = 1 if from_group else bank.keys.element_size()  # type: ignore[union-attr]
    heads, count = bank.keys.shape[0], bank.values.shape[0]
    _prepared_fetch(heads, bank.size, key_rows.shape[2], align, step, from_group, to_group)(
        (listed, heads + count, 1),
        (
            *(starts, limits, stored, bank.table, bank.missing, bank.facts, key_table.slabs, value_table.slabs),
            *(key_rows, key_scale, value_rows, value_scale, rows),
        ),
        (listed, per_list, slots, key_table.halvings, value_table.halvings, first),
    )
    return rows


def _as_bytes(bank: Bank) -> tuple[Tensor, Tensor]:
    """Return the rows as bytes [H, rows, bytes], and their scales, or another valid pointer."""
    if isinstance(bank, QuantizedSlab):
        return bank.quantized.view(torch.uint8), bank.scale
    return bank.view(torch.uint8), bank


@functools.cache
def _prepared_resolve(size: int) -> Prepared:
    return Prepared(_resolve, {"SIZE": size, "UNITS": UNITS})


@functools.cache
def _prepared_admit(size: int) -> Prepared:
    return Prepared(_admit, {"SIZE": size, "ROUNDS": len(state.AGES), "SLOTS": SLOTS})


@functools.cache
def _prepared_fetch(
    heads: int, size: int, row_bytes: int, align: int, step: int, from_group: int, to_group: int
) -> Prepared:
    width = row_bytes // align
    constants: dict[str, Any] = {"HEADS": heads, "SIZE": size, "WORD": WORDS[align], "BYTES": align, "STEP": step}
    constants |= {"WIDTH": width, "WIDTH_PAD": power_of_2(width), "FROM": from_group, "TO": to_group}
    rows = min(ROWS, power_of_2(size))
    constants |= {"SCALES_PAD": power_of_2(size // to_group), "SIZE_PAD": power_of_2(size), "ROWS": rows}
    return Prepared(_fetch, constants, num_warps=1)
