"""Fill an archive to any length within seconds: one slab is filled, and the others share its tensors.

A full slab is never written again, so many slabs can share the same keys and values. Each has its own addresses in the
kernels' tables, and a slab is larger than any cache of a GPU, so that reading takes as long as with slabs of their own.
Host memory holds one slab instead of all. Look-ups in such an archive find the same entries again and again.
"""

from __future__ import annotations

import dataclasses

import torch

from engine.memory import Memory
from engine.parts.archive import tier_plan
from engine.parts.archive.sketch import Sketch
from engine.parts.selectors.gist import GistSelector
from engine.parts.selectors.units import UnitSelector
from engine.parts.window import WindowStore


def _whole_slab(memory: Memory) -> int | None:
    """Return the number of the first slab of a memory's archive that is as large as any, and full; None without one."""
    slabs = memory.archive.host.slabs if memory.archive else []
    return next((number for number, slab in enumerate(slabs) if slab.full and slab.capacity >= tier_plan.SLAB), None)


def aliases(memory: Memory, tokens: int) -> int:
    """Return how often a whole slab of a memory's archive fits `tokens`: 0 before there is one."""
    return 0 if _whole_slab(memory) is None else tokens // tier_plan.SLAB


def alias(memory: Memory, tokens: int) -> int:
    """Repeat a whole slab of a memory's archive behind itself, as often as fits `tokens`; return the tokens added."""
    times, number = aliases(memory, tokens), _whole_slab(memory)
    if not times or number is None or memory.archive is None:
        return 0
    host = memory.archive.host
    host.flush()
    slab, size = host.slabs[number], tier_plan.SLAB
    added = times * size
    places = (slab.source + size * further for further in range(1, times + 1))
    host.slabs[number + 1 : number + 1] = [dataclasses.replace(slab, source=source) for source in places]
    host.length += added
    host.mirror = None, 0
    if host.sketch is not None:
        _alias_sketches(host.sketch, size, times)
    memory.store.seen += added
    if isinstance(memory.store, WindowStore) and memory.store.wide:
        memory.store.wide.seen += added
    if isinstance(memory.selector, UnitSelector):
        _alias_units(memory.selector, size, times)
    if isinstance(memory.selector, GistSelector):
        memory.selector._evicted += added
    return added


def _alias_sketches(sketch: Sketch, size: int, times: int) -> None:
    """Repeat the sketches of the first `size` entries behind all others."""
    sketch._make_room(sketch.length + size * times)
    for bank in sketch.own:
        for number in range(times):
            there = slice(sketch.length + number * size, sketch.length + (number + 1) * size)
            bank.quantized[:, there] = bank.quantized[:, :size]
            bank.scale[:, there] = bank.scale[:, :size]
    sketch.length += size * times


def _alias_units(selector: UnitSelector, size: int, times: int) -> None:
    """Repeat the units that there are until there is one for each `selector.size` of the new entries."""
    for units in selector.units:
        if units.count:
            rows = torch.arange(times * size // selector.size, device=units.own.device) % units.count
            units.append(units.own[rows])
