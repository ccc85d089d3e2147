"""Settings of every test run."""

import functools
import gc
import importlib
import inspect
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch


def quicken(interpreter: Any) -> None:
    """Let Triton's interpreter look for functions to replace once in each module, and not in each call of a kernel."""
    language = interpreter.tl
    members = functools.cache(
        lambda of: [name for name, each in inspect.getmembers(of) if language.core.is_builtin(each)]
    )

    def patch(of: Any, builder: object, scope: object) -> None:
        for name in members(of):
            if language.core.is_builtin(member := getattr(of, name)):
                interpreter._patch_attr(of, name, member, builder, scope)

    interpreter._patch_builtin = patch


torch.set_num_threads(1)  # more threads change the last bit of products, which decides between equal entries
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton's interpreter must be asked for before triton is imported
    with suppress(ImportError):
        quicken(importlib.import_module("triton.runtime.interpreter"))
os.environ["COLUMNS"] = "80"  # help depends on the width of the terminal
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"  # servers of tests are on this machine
os.environ.pop("STOCKPOT_AUTH", None)
os.environ["STOCKPOT_MODEL"] = "pocket"  # the default model of tests: small and always there

TESTS = Path(__file__).resolve().parent
ROOMS = ("app", "benchmarks", "engine", "training", "browser", "kernels", "ingest", "sessions")
"""Those with the longest files first, so that at the end nobody waits long for another's last file; after the browser's
none that runs an event loop, as what drives the browser has one in the same thread until the end."""


def pytest_collection_finish() -> None:
    """Leave what was imported out of all later searches for garbage: it lives until the end."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def turn(item: pytest.Item) -> int:
        room = item.path.relative_to(TESTS).parts[0]
        return ROOMS.index(room) if room in ROOMS else len(ROOMS)

    items.sort(key=turn)
