"""Command line of the GPU check; see the package's docstring."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.gpu_check.caches import CACHES
from benchmarks.gpu_check.check import Check
from benchmarks.gpu_check.methods import VARIANTS
from benchmarks.gpu_check.report import compare, tables, write
from benchmarks.gpu_check.schedule import run
from benchmarks.options import words
from benchmarks.random_models import SHAPES
from benchmarks.report import RESULTS, machine
from engine import GPU_BASE, METHODS, free_bytes
from engine.models.sizes import CPU

LENGTHS = (64 << 10, 256 << 10, 1 << 20)
TINY_LENGTHS = (512, 1024, 2048)
SHARE = 0.9  # share of the host's free memory to use
NO_GPU = "There is no CUDA GPU here, so nothing was checked; --tiny --device cpu runs the same code on the processor."


def main(argv: list[str] | None = None) -> int:
    """Run the check, print and write. Returns 0 if all parity holds, 1 if not, after a failure, or without a GPU."""
    parser = argparse.ArgumentParser(description="Check speed, bytes and exactness on a GPU held to 24 GiB.")
    every = (*CACHES, *METHODS, *VARIANTS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="where it runs (default: cuda)")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes and short texts, to see that it runs")
    parser.add_argument("--minutes", type=float, help="time for all of it (default: 8.5, with --tiny 1.5)")
    parser.add_argument("--memory", type=float, default=24.0, help="GiB of the device to be used (default: 24)")
    parser.add_argument(
        "--host-memory", type=float, default=48.0, help="GiB of the host's, of what is free (default: 48)"
    )
    parser.add_argument("--models", type=words, default=list(SHAPES), help=f"of {','.join(SHAPES)} (default: all)")
    parser.add_argument("--methods", type=words, default=list(every), help="separated by commas (default: all)")
    parser.add_argument("--out", type=Path, help="JSON file (default: benchmarks/results/gpu-check-DEVICE.json)")
    chosen = parser.parse_args(argv)
    if unknown := [name for name in chosen.models if name not in SHAPES]:
        parser.error(f"there are no shapes of {', '.join(unknown)}: choose of {', '.join(SHAPES)}")
    if unknown := [name for name in chosen.methods if name not in every]:
        parser.error(f"there is no {', '.join(unknown)}: choose of {', '.join(every)}")
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
    minutes = (1.5 if chosen.tiny else 8.5) if chosen.minutes is None else chosen.minutes
    ends, lengths = time.monotonic() + 60 * minutes, TINY_LENGTHS if chosen.tiny else LENGTHS
    out = chosen.out or RESULTS / f"gpu-check-{_device(place)}{'-tiny' if chosen.tiny else ''}.json"
    with tempfile.TemporaryDirectory() as folder:
        check = Check(place, chosen.tiny, limit, host, ends, Path(folder), lengths, tuple(chosen.methods))
        check.keep = lambda: write(check, out)
        try:
            run(check, chosen.models)
            compare(check.rows)
        finally:
            write(check, out)
    print(tables(check.rows))
    print(f"written to {out}", file=sys.stderr)
    return 0 if all(row.get("ok", True) for row in check.rows) else 1


def _device(place: torch.device) -> str:
    """Return the device's name for use in a file name."""
    return "-".join(str(machine()["device"]).split()).replace("/", "-") if place.type == "cuda" else "cpu"


if __name__ == "__main__":
    sys.exit(main())
