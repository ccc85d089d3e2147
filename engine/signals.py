"""Signals: Ctrl-C and similar ones end a reading, an answer or a training between two steps, so no work is lost."""

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
    """Note Ctrl-C, SIGTERM and a closed terminal instead of ending at once. A second Ctrl-C or SIGTERM ends at once.

    Ignored signals, as under nohup, stay ignored. Outside the main thread nothing can be noted.

    Args:
        reply: written to standard error at the first signal.

    Yields:
        A function that returns whether a stop was asked for.
    """
    asked = threading.Event()
    before: dict[signal.Signals, Any] = {}

    def note(number: int, frame: object) -> None:
        asked.set()
        if number == HANG_UP:  # comes twice when a shell is closed: from the shell and from the system
            return
        _restore(before)
        if reply:
            with suppress(OSError):
                os.write(2, reply.encode())  # `print` may have been interrupted

    if threading.current_thread() is threading.main_thread():
        for each in SIGNALS:
            if signal.getsignal(each) != signal.SIG_IGN:
                before[each] = signal.signal(each, note)
    try:
        yield asked.is_set
    finally:
        _restore(before)


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    """Set signal handlers back to these."""
    for each, handler in handlers.items():
        signal.signal(each, handler)
