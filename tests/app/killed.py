"""Operations in a process of their own, which ends as by `kill -9` at a chosen step that touches the disk.

Steps are before and after each call that makes, flushes, renames, links or removes files, and each commit of the
database.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from app.service import Service
from tests.app.forked import start

TOUCHING = ("fsync", "replace", "rename", "link", "mkdir", "unlink", "rmdir")
Operation = Callable[[Service], object]
Operation = Callable[[Service], object]


def steps_of(operation: Operation, home: Path, model: str) -> list[str]:
    """Return the steps of an operation that is not stopped."""
    trace = home.parent / "steps"
    trace.unlink(missing_ok=True)
    assert _run(operation, home, model, None, trace) == 0
    return trace.read_text().splitlines()


def kill(operation: Operation, home: Path, model: str, at: int) -> None:
    """Run the operation and kill it at step number `at`, from 1."""
    assert _run(operation, home, model, at, home.parent / "killed") == -signal.SIGKILL


def _run(operation: Operation, home: Path, model: str, at: int | None, trace: Path) -> int | None:
    process = start(_child, operation, home, model, at, trace)
    process.join()
    code = process.exitcode
    process.close()
    return code


def _child(operation: Operation, home: Path, model: str, at: int | None, trace: Path) -> None:
    _count_steps(at, trace)
    with closing(Service(home, model, "cpu")) as service:
        operation(service)
    sys.stdout.flush()
    os._exit(0)


def _count_steps(at: int | None, trace: Path) -> None:
    """Kill this process at step `at`; if that is None, write the steps down."""
    import safetensors.torch

    done = 0

    def step(name: str) -> None:
        nonlocal done
        done += 1
        if at is None:
            with trace.open("a") as lines:
                lines.write(f"{name}\n")
        elif done == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(*given: Any, **more: Any) -> Any:
            step(f"before {name}")
            result = call(*given, **more)
            step(f"after {name}")
            return result

        return counted

    for name in TOUCHING:
        setattr(os, name, watched(getattr(os, name), name))
    safetensors.torch.save_file = watched(safetensors.torch.save_file, "save_file")

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *given: Any) -> Any:
            return watched(super().execute, "COMMIT")(sql) if sql == "COMMIT" else super().execute(sql, *given)

    connect = sqlite3.connect
    sqlite3.connect = lambda *given, **more: connect(*given, **{"factory": Connection, **more})  # type: ignore[assignment]
