"""Every kernel compiles for a GPU, also where there is none: the interpreter takes much that the compiler refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CONSUMER_SHARED = 99 << 10  # bytes that a block may take on a GPU of compute capability 8.9 (RTX 4090)


def test_every_kernel_compiles_and_fits_a_consumer_gpu() -> None:
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compiling"],
        env={**os.environ, "TRITON_INTERPRET": "0"},
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    made = [json.loads(line) for line in done.stdout.splitlines()]
    names = [each["kernel"] for each in made]
    assert names == [
        *("_attend", "_merge", "_attend", "_attend", "_column_sums", "_chunk_scores", "_gather", "_gather"),
        *("_quantise", "_dequantise") * 2,
    ]
    assert all(each["shared"] <= CONSUMER_SHARED for each in made), made
