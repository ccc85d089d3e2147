"""Test the cost of a launch to the host in function calls; unlike times, they are the same on every machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MOST = {"attend": 152, "column_sums": 88, "chunk_scores": 86, "gather_rows": 65}
"""Calls per launch for a token of an answer; lower them where a change saves some."""


def test_a_launch_takes_few_calls() -> None:
    """Triton's look at 46 arguments, and its `cdiv`, took twice the time of all the rest."""
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.launching"],
        env={**os.environ, "TRITON_INTERPRET": "0"},
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not {name: (found[name], most) for name, most in MOST.items() if found[name] > most}


def test_numbers_that_do_not_fit_32_bits_get_a_kernel_of_their_own() -> None:
    """Prepared keeps one compiled kernel per key; a wide number needs another kernel."""
    pytest.importorskip("triton")
    import torch

    from kernels.launch import Prepared

    compiled: list[tuple[object, ...]] = []
    launched: list[tuple[object, ...]] = []

    class Made(dict[object, object]):
        def __missing__(self, grid: object) -> object:
            return lambda *arguments: launched.append(arguments)

    class Kernel:
        arg_names = ("p_x", "count", "SIZE")

        def __getitem__(self, grid: object) -> object:
            return lambda *arguments, **constants: compiled.append((arguments, constants)) or Made()

    x, launch = torch.zeros(64), Prepared(Kernel(), {"SIZE": 8}, num_warps=4)
    for pointer, count in ((x, 1), (x, 16), (x, 1 << 31), (x[1:], 1), (x.half(), 1), (x, 5)):
        launch((1, 1, 1), (pointer,), (count,))
    assert [constants for _, constants in compiled] == [{"SIZE": 8, "num_warps": 4}] * 4
    assert [arguments[1:] for arguments in launched] == [(16, 8), (5, 8)]
