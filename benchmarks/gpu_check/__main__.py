"""Command line of the GPU check; see the package's docstring."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.gpu_check.caches import CACHES
from benchmarks.gpu_check.check import Check, Row
from benchmarks.gpu_check.methods import VARIANTS
from benchmarks.gpu_check.report import compare, tables, write
from benchmarks.gpu_check.schedule import PROFILE, minutes_of, parts_of, run
from benchmarks.gpu_kernels import ALL, MAIN, NONE
from benchmarks.model_shapes import SHAPES
from benchmarks.options import target_folder, words
from benchmarks.report import RESULTS, machine
from engine import GPU_BASE, METHODS, free_bytes
from engine.models.sizes import CPU

LENGTHS = (64 << 10, 256 << 10, 1 << 20)
TINY_LENGTHS = (512, 1024, 2048)
SHARE = 0.9  # share of the host's free memory to use
NO_GPU = "There is no CUDA GPU here, so nothing was checked; --tiny --device cpu runs the same code on the processor."


def main(argv: list[str] | None = None) -> int:
    """Run parts of the check, print and write. Returns 0 if all parity holds, 1 if not, after a failure or with no GPU.

    Each part writes its own file as it goes, so that an interrupted check keeps what it has measured.
    """
    parser = argparse.ArgumentParser(description="Check speed, bytes and exactness on a GPU held to 24 GiB.")
    every = (*CACHES, *METHODS, *VARIANTS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="where it runs (default: cuda)")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes and short texts, to see that it runs")
    parser.add_argument("--part", type=words, help="of all of it, separated by commas; see docs/gpu-check.md")
    parser.add_argument("--minutes", type=float, help="time for each part (default: four at most, with --tiny 1.5)")
    parser.add_argument("--kernels", choices=(ALL, MAIN, NONE), default=ALL, help="kernels to check (default: all)")
    parser.add_argument("--profile", action="store_true", help=f"also profile single passes, which is part {PROFILE}")
    parser.add_argument("--memory", type=float, default=24.0, help="GiB of the device to be used (default: 24)")
    parser.add_argument(
        "--host-memory", type=float, default=48.0, help="GiB of the host's, of what is free (default: 48)"
    )
    parser.add_argument("--models", type=words, default=list(SHAPES), help=f"of {','.join(SHAPES)} (default: all)")
    parser.add_argument("--methods", type=words, default=list(every), help="separated by commas (default: all)")
    parser.add_argument(
        "--out", type=target_folder, default=RESULTS, help="folder of gpu-check-DEVICE-PART.json (%(default)s)"
    )
    chosen = parser.parse_args(argv)
    if unknown := [name for name in chosen.models if name not in SHAPES]:
        parser.error(f"there are no shapes of {', '.join(unknown)}: choose of {', '.join(SHAPES)}")
    if unknown := [name for name in chosen.methods if name not in every]:
        parser.error(f"there is no {', '.join(unknown)}: choose of {', '.join(every)}")
    known = list(dict.fromkeys([*parts_of(chosen.models, profile=True), *chosen.models]))
    if unknown := [name for name in chosen.part or () if name not in known]:
        parser.error(f"there is no part {', '.join(unknown)}: choose of {', '.join(known)}")
    if chosen.device == "cuda" and not torch.cuda.is_available():
        print(NO_GPU, file=sys.stderr)
        return 1
    place, limit = torch.device(chosen.device), int(chosen.memory * (1 << 30))
    if place.type == "cuda":
        place = torch.device("cuda", torch.cuda.current_device())  # the limit needs a device with a number
        total = torch.cuda.get_device_properties(place).total_memory
        limit = min(limit, total) - GPU_BASE  # used outside PyTorch's allocator
        torch.cuda.set_per_process_memory_fraction(limit / total, place)
    host = min(int(chosen.host_memory * (1 << 30)), int(SHARE * free_bytes(CPU)))
    lengths = TINY_LENGTHS if chosen.tiny else LENGTHS
    checks: list[tuple[Check, str, Path]] = []
    with tempfile.TemporaryDirectory() as folder:
        for part in chosen.part or parts_of(chosen.models, chosen.profile):
            minutes = minutes_of(part, chosen.tiny) if chosen.minutes is None else chosen.minutes
            ends = time.monotonic() + 60 * minutes
            check = Check(place, chosen.tiny, limit, host, ends, Path(folder), lengths, tuple(chosen.methods))
            check.kernels = chosen.kernels
            out = chosen.out / f"gpu-check-{_device(place)}{'-tiny' if chosen.tiny else ''}-{part}.json"
            check.keep = lambda check=check, part=part, out=out: write(check, part, out)  # type: ignore[misc]
            checks.append((check, part, out))
            try:
                run(check, part, chosen.models)
            finally:
                write(check, part, out)
    rows: list[Row] = [row for check, _, _ in checks for row in check.rows]
    compare(rows)
    for check, part, out in checks:
        write(check, part, out)
    print(tables(rows))
    print(f"written to {chosen.out}", file=sys.stderr)
    return 0 if all(row.get("ok", True) for row in rows) else 1


def _device(place: torch.device) -> str:
    """Return the device's name for use in a file name."""
    return "-".join(str(machine()["device"]).split()).replace("/", "-") if place.type == "cuda" else "cpu"


if __name__ == "__main__":
    sys.exit(main())
