"""Every kernel compiles for a GPU, also where there is none: the interpreter takes much that the compiler refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

CONSUMER_SHARED = 99 << 10  # bytes that a block may take on a GPU of compute capability 8.9 (RTX 4090)


def compiled(*what: str) -> list[dict[str, Any]]:
    """What `compiling` says of each kernel."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compiling", *what],
        env={**os.environ, "TRITON_INTERPRET": "0"},
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_kernel_compiles_and_fits_a_consumer_gpu() -> None:
    pytest.importorskip("triton")
    made = compiled()
    names = [each["kernel"] for each in made]
    assert names == [
        *("_attend", "_merge", "_attend", "_attend", "_column_sums", "_chunk_scores", "_gather", "_gather"),
        *("_quantise", "_dequantise") * 2,
    ]
    assert all(each["shared"] <= CONSUMER_SHARED for each in made), made


def test_kernels_are_not_compiled_anew_for_every_length() -> None:
    """It takes seconds. They were: for a multiple of 16, and for each number of shares."""
    pytest.importorskip("triton")
    kernels = Counter(name for name, _ in {(each["kernel"], each["hash"]) for each in compiled("lengths")})
    assert kernels == {"_attend": 3, "_column_sums": 2, "_gather": 1, "_merge": 1}
