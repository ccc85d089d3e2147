"""Test that every kernel compiles for a GPU that need not be there; the interpreter accepts more than the compiler."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import kernels

CONSUMER_SHARED = 99 << 10  # bytes that a block may take on an RTX 4090 or 5090
CAPABILITIES = (89, 90)  # of an RTX 40, and an H100 or H200; for an RTX 50, 120, the widest heads are compiled
SPILLED = 64  # bytes of a thread's registers, which outside the loop cost nothing; and where codes are decoded:
SPILLED_DECODING = 512
Compiled = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    """Return the line of `compiling` for each kernel, by set of kernels and GPU."""
    pytest.importorskip("triton")
    found: Compiled = {
        **{f"all-{capability}": [] for capability in CAPABILITIES},
        **{"widest-120": [], "presets-89": [], "lengths-89": []},
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compiling", *found],
        env={**os.environ, "TRITON_INTERPRET": "0"},
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        made = json.loads(line)
        found[made["for"]].append(made)
    return found


def every_kernel() -> set[str]:
    """Return the names of all kernels that the package launches: functions for Triton that no other of them calls."""
    jitted, called = set[str](), set[str]()
    for path in Path(kernels.__path__[0]).glob("*/kernel.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and any("triton.jit" in ast.unparse(x) for x in node.decorator_list):
                jitted.add(node.name)
                calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
                called |= {each.id for each in calls if isinstance(each, ast.Name)}
    return jitted - called


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_kernel_compiles_and_fits_a_consumer_gpu(compiled: Compiled, capability: int) -> None:
    made = compiled[f"all-{capability}"]
    names = [each["kernel"] for each in made]
    assert names == [
        *("_attend", "_merge", "_attend", "_attend", "_attend", "_column_sums", "_chunk_scores", "_gather", "_take"),
        *("_resolve", "_admit", "_fetch") * 3,
        *("_quantise", "_dequantise", "_scores") * 2,
        *("_quantise_in_two_bits", "_dequantise", "_scores"),
        *("_product", "_unpack", "_unpack", "_rms_norm", "_gated"),
        *("_turn", "_append", "_append", "_merge_two"),
    ]
    assert set(names) == every_kernel(), "one is not compiled here"
    assert all(each["shared"] <= CONSUMER_SHARED and each["local"] <= SPILLED_DECODING for each in made), made


def test_kernels_fit_a_consumer_gpu_with_the_widest_heads(compiled: Compiled) -> None:
    """Kernels in float32, and with heads of 512, once took more shared memory than there is and refused to run.

    Pruning for a single query spilled 4 KB of each thread's registers with such heads.
    """
    made = compiled["widest-120"]
    names = ["_attend", "_attend", "_column_sums", "_chunk_scores", "_scores", "_scores"]
    latent = ["_attend", "_attend", "_attend", "_column_sums", "_chunk_scores", "_scores", "_scores"]
    assert [each["kernel"] for each in made] == names * 3 + latent
    assert all(each["shared"] <= CONSUMER_SHARED for each in made), made
    assert all(each["local"] <= SPILLED for each in [*made[:6], *made[12:]]), made


def test_kernels_spill_no_registers_with_the_blocks_of_the_presets(compiled: Compiled) -> None:
    """Pruning in bfloat16 once spilled 352 bytes, and attention to quantised keys of single heads 384."""
    made = compiled["presets-89"]
    assert [each["kernel"] for each in made] == ["_chunk_scores", "_attend", "_attend"] * 3 + ["_chunk_scores"] * 6
    assert all(each["shared"] <= CONSUMER_SHARED and each["local"] <= SPILLED for each in made[:-4]), made
    assert all(each["local"] <= SPILLED_DECODING for each in made[-4:]), made


def test_kernels_are_not_compiled_anew_for_every_length(compiled: Compiled) -> None:
    """Kernels were once compiled for each multiple of 16, number of shares and number of chunks; each takes seconds."""
    made = Counter(name for name, _ in {(each["kernel"], each["hash"]) for each in compiled["lengths-89"]})
    assert made == {"_attend": 3, "_chunk_scores": 2, "_column_sums": 2, "_gather": 1, "_merge": 1}
