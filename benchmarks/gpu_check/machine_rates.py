"""Rates of the machine that a check ran on, so that two runs can be compared."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from benchmarks.gpu_check.gauge import median_seconds
from engine import Rates
from kernels.gathering import gather_rows

HEADS, ROWS = 8, 65536  # of a bank in host memory; a GPU's cache holds less
TINY_ROWS = 64
ASKED = 0.25  # share of the rows that a kernel asks for, in no order
WIDTHS = {"bfloat16": 128, "64 bytes": 32}  # numbers of two bytes in a row: of a key, and of as many int4 codes


def machine_rates(place: torch.device, rates: Rates, tiny: bool) -> dict[str, Any]:
    """Return rates of products, memory, link and host.

    The link is measured twice: `link` by the copy engine, `in_place` by a kernel that reads rows of host memory.
    """
    in_place = {name: _in_place(place, width, TINY_ROWS if tiny else ROWS) for name, width in WIDTHS.items()}
    return {**dataclasses.asdict(rates), "in_place": in_place}


def _in_place(place: torch.device, width: int, rows: int) -> float:
    """Return bytes per second of rows of so many bfloat16 numbers, read by a kernel in no order."""
    bank = torch.zeros(HEADS, rows, width, dtype=torch.bfloat16, pin_memory=place.type == "cuda")
    asked = int(ASKED * rows)
    index = torch.stack([torch.randperm(rows)[:asked] for _ in range(HEADS)]).to(place)
    seconds = median_seconds(place, lambda: gather_rows([(bank, rows)], index, place, torch.bfloat16))
    return index.numel() * width * bank.itemsize / seconds
