"""The lock between savers of one folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: no lock between two savers of one folder
    fcntl = None  # type: ignore[assignment]


@contextmanager
def only_saver(folder: Path, wait: bool = True) -> Iterator[None]:
    """Lock the folder against other savers; the lock ends with the process.

    Raises:
        BlockingIOError: another saver has the lock and `wait` is False.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)
