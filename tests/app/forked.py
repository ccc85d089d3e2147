"""Processes of their own that start at once: forked from one that has imported all large packages."""

import importlib
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerProcess

METHOD = "forkserver"
_FORKS = multiprocessing.get_context(METHOD)
_FORKS.set_forkserver_preload(["torch", "transformers", "gradio", "app.cli", "engine", "ingest", "sessions.adding"])


def start(function: Callable[..., object], *given: object) -> ForkServerProcess:
    """Start a process that calls a function with this program's environment."""
    process = _FORKS.Process(target=_run, args=(dict(os.environ), function, given))
    process.start()
    return process


def start_program(
    module: str, arguments: Sequence[str], stdin: str = os.devnull, stdout: str = os.devnull, stderr: str = os.devnull
) -> ForkServerProcess:
    """Start a module as a program, like `python -m`. Files are named by their paths; one may be a terminal.

    The process leads a session, and the first terminal that it opens is the one that it gets signals of.
    """
    return start(_run_program, module, arguments, (stdin, stdout, stderr))


def _run(environment: dict[str, str], function: Callable[..., object], given: tuple[object, ...]) -> None:
    import torch
    from huggingface_hub import constants

    torch.set_num_threads(1)
    os.environ.clear()
    os.environ.update(environment)
    importlib.reload(constants)  # which are taken from the environment when they are imported
    function(*given)


def _run_program(module: str, arguments: Sequence[str], files: tuple[str, str, str]) -> None:
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored
    for number, (path, flags) in enumerate(zip(files, (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        file = os.open(path, flags | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, closefd=False) for number, mode in enumerate(("r", "w", "w"))
    )
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
