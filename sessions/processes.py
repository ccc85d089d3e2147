"""Process stamps: which process wrote a row, and whether it still runs.

A stamp identifies a process for good: machine boot and PID namespace, PID, and start time, so that a reused PID is not
mistaken for it. A process of this boot and namespace is looked up directly. Others (another machine or container, or
before a reboot) count as alive if their last sign of life is recent. A time in the future comes from a clock that was
set back, and proves nothing.
"""

import functools
import os
import time
from pathlib import Path

import psutil

STALE_SEC = 60.0
"""A process that cannot be looked at is taken for dead when it has been silent this long."""


@functools.cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return f"boot-{round(psutil.boot_time() / 60)}"


def _started(pid: int) -> str | None:
    """Return the start time of a process, on Linux in ticks since boot; None if it is gone or a zombie."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # The command name, in brackets, may contain spaces and brackets.
            after_name = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if after_name[0] in "ZX" else after_name[19]
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else str(round(process.create_time()))
    except psutil.Error:
        return None


def stamp() -> str:
    """Return the stamp of this process."""
    return f"{_machine()}|{os.getpid()}|{_started(os.getpid())}"


def is_alive(owner: str | None, last_seen: float) -> bool:
    """Return whether the process with this stamp still runs; `last_seen` is its last sign of life in the store."""
    machine, _, rest = (owner or "").partition("|")
    pid, _, started = rest.partition("|")
    if machine == _machine() and pid.isdigit():
        return _started(int(pid)) == started
    return bool(owner) and abs(time.time() - last_seen) < STALE_SEC


def is_gone(pid: int) -> bool:
    """Return whether no process of this machine, or container, has this number."""
    return _started(pid) is None
