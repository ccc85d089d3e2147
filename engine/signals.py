"""Ctrl-C and its like end a reading, an answer or a training between two steps, so that what was done is not lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

HANG_UP = getattr(signal, "SIGHUP", None)  # a closed terminal; Windows has no such signal
SIGNALS = [each for each in (signal.SIGINT, signal.SIGTERM, HANG_UP) if each is not None]


@contextmanager
def asked_to_stop(reply: str = "") -> Iterator[Callable[[], bool]]:
    """Note Ctrl-C, SIGTERM and a closed terminal instead of ending at once; the second Ctrl-C or SIGTERM ends at once.

    What is ignored, as under nohup, stays ignored. In another thread than the main one nothing can be noted.

    Args:
        reply: said on standard error when the first comes.

    Yields:
        A function that says whether a stop was asked for.
    """
    asked = threading.Event()
    before: dict[signal.Signals, Any] = {}

    def note(number: int, frame: object) -> None:
        asked.set()
        if number == HANG_UP:  # when a shell is closed it comes twice: from the shell and from the system
            return
        _restore(before)
        if reply:
            with suppress(OSError):
                os.write(2, reply.encode())  # `print` may be what was interrupted

    if threading.current_thread() is threading.main_thread():
        for each in SIGNALS:
            if signal.getsignal(each) != signal.SIG_IGN:
                before[each] = signal.signal(each, note)
    try:
        yield asked.is_set
    finally:
        _restore(before)


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for each, handler in handlers.items():
        signal.signal(each, handler)
