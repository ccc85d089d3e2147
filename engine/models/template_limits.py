"""Limits of time and memory for rendering a chat template, which is a program that comes with a model."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import psutil

from engine.errors import UnsupportedModel

RENDER_SEC = 0.5  # of this thread's processor time; a template takes a few milliseconds
RENDER_BYTES = 256 << 20  # that the process may grow by while a template is rendered
TEMPLATE_CHARACTERS = 1 << 20  # the longest template known has 30,000

_COMPILED = "<template>"  # the file name that Jinja gives to the code of a template
_CHECK_SEC = 0.01  # between looks at time and memory


@contextmanager
def template_limits() -> Iterator[None]:
    """Give up a template rendered in this thread that loops or takes all memory.

    The limits hold between lines of the template's own code, so a single call of a built-in function is not stopped.

    Raises:
        UnsupportedModel: a limit is passed.
    """
    process = psutil.Process()
    begun, memory = time.thread_time(), process.memory_info().rss  # a thread waits on a busy machine
    looked = time.monotonic()

    def check() -> None:
        nonlocal looked
        now = time.monotonic()
        if now - looked < _CHECK_SEC:
            return
        looked = now
        if process.memory_info().rss - memory > RENDER_BYTES:
            raise UnsupportedModel(f"it takes more than {RENDER_BYTES >> 20} MiB of memory")
        if time.thread_time() - begun > RENDER_SEC:
            raise UnsupportedModel(f"it does not end within {RENDER_SEC:g} s")

    def watch(frame: FrameType, event: str, value: Any) -> Any:
        if frame.f_code.co_filename != _COMPILED:
            return None
        check()
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(before)
