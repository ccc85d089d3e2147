"""Data-parallel training in several single-threaded processes instead of one process with threads.

On a few busy cores this is about twice as fast. Threads wait at every operation for whichever was descheduled;
processes wait once a step. Each worker makes its own rows. Gradients are averaged, and the costly orthogonalisation of
the optimiser is shared out.
"""

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from engine.signals import asked_to_stop
from training.stopping import PATIENCE

Report = Callable[[Any], None]
Work = Callable[[Report], None]

_stop: Any = None  # event of this worker, set by the launching process


def size() -> int:
    """Return the number of workers (1 outside `launch`)."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Return this worker's number; 0 is the one that logs and saves."""
    return dist.get_rank() if dist.is_initialized() else 0


def total(tensors: list[Tensor]) -> None:
    """Sum each tensor over all workers, in place, in one exchange."""
    if size() == 1:
        return
    flat = torch.cat([t.reshape(-1) for t in tensors])
    dist.all_reduce(flat)
    for tensor, part in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))


def stop_asked() -> bool:
    """Return whether the launching process was asked to stop."""
    return _stop is not None and bool(_stop.is_set())


def _worker(number: int, count: int, meeting: str, work: Work, lines: Any, stop: Any) -> None:
    global _stop
    _stop = stop
    # the parent's death arrives as this signal, which a background job of a shell would ignore
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # sharp attention gives denormal weights, which double the time of a step
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=count)
    try:
        work(lines.put)
    finally:
        dist.destroy_process_group()


def launch(count: int, work: Work, report: Report) -> None:
    """Run `work(put)` in `count` processes; `work` must be picklable. Everything they put goes to `report`.

    A request to stop this process is passed on to the workers, and this waits for them: see `stop_asked`.

    Raises:
        ProcessRaisedException: a worker failed.
    """
    with tempfile.TemporaryDirectory() as folder, asked_to_stop(PATIENCE) as asked:
        lines, stop = mp.get_context("spawn").SimpleQueue(), mp.get_context("spawn").Event()
        arguments = (count, str(Path(folder) / "meeting"), work, lines, stop)
        context = spawn(_worker, args=arguments, nprocs=count, join=False)  # type: ignore[no-untyped-call]
        done = False
        while not done:
            done = context.join(timeout=0.5)
            if asked():
                stop.set()
            while not lines.empty():
                report(lines.get())
