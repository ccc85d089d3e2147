"""Free memory, in containers too."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from engine import memory_usage

STAT = "anon 100\ninactive_file 40\nactive_file 7\n"


@pytest.mark.parametrize("limit", ["", "memory/"])
def test_a_container_has_what_its_limit_leaves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str) -> None:
    """Regression: only the machine's memory was asked for, so plans too large for a container were killed."""
    names = ("memory.max", "memory.current") if not limit else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    there = tmp_path / limit
    there.mkdir(exist_ok=True)
    monkeypatch.setattr(memory_usage, "CONTAINER", tmp_path)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=5000))
    cpu = torch.device("cpu")
    assert memory_usage.free_bytes(cpu) == 5000, "where nothing is said"
    for most, free in (("1000\n", 900), ("100000\n", 5000), ("100\n", 0), ("max\n", 5000)):
        for name, text in zip((*names, "memory.stat"), (most, "140\n", STAT), strict=True):
            (there / name).write_text(text)
        assert memory_usage.free_bytes(cpu) == free
