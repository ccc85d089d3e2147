"""The choice between PyTorch and Triton: made once and logged; STOCKPOT_KERNELS=torch or =triton forces it."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import logging
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import torch

from kernels.slab_facts import reachable

P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger(__name__)
CHOICES = ("auto", "torch", "triton")


@functools.cache
def implementation() -> str:
    """Return "triton" or "torch".

    By default it is Triton, if the package and a GPU are there and it can launch kernels.

    Raises:
        ValueError: STOCKPOT_KERNELS has another value, or asks for Triton where it is not installed or cannot run.
    """
    wanted = os.environ.get("STOCKPOT_KERNELS", "auto")
    if wanted not in CHOICES:
        raise ValueError(f"STOCKPOT_KERNELS is one of {', '.join(CHOICES)}, not '{wanted}'.")
    found, gpu = importlib.util.find_spec("triton") is not None, torch.cuda.is_available()
    if wanted == "triton" and not found:
        raise ValueError("STOCKPOT_KERNELS=triton needs the package triton: install it, or unset the variable.")
    broken = _why_not() if wanted != "torch" and found and gpu else ""
    if broken and wanted == "triton":
        raise ValueError(f"STOCKPOT_KERNELS=triton: {broken}, or unset the variable.")
    if broken:
        log.warning("kernels are PyTorch's, which are slower: %s", broken)
    chosen = wanted if wanted != "auto" else "triton" if found and gpu and not broken else "torch"
    log.info("kernels: %s (asked for %s; triton %s, GPU %s)", chosen, wanted, found, gpu)
    return chosen


def _why_not() -> str:
    """Return why Triton cannot launch kernels on the GPU and how to mend it, or "" if it can.

    Triton builds its launcher with the machine's C compiler when it first talks to the GPU, so only a try can tell.
    """
    from triton.runtime import driver

    try:
        driver.active.get_current_device()
    except Exception as error:  # Triton has no error class of its own, and a compiler raises many
        said = str(error).partition("\n")[0]
        return f"Triton cannot use the GPU ({said}); install a C compiler and Python's headers (gcc, python3-dev)"
    return ""


def uses_triton(device: torch.device) -> bool:
    """Return whether Triton runs operations on this device. If there is a GPU, CPU tensors always use PyTorch."""
    return implementation() == "triton" and (device.type != "cpu" or not torch.cuda.is_available())


def fast_in_bfloat16(device: torch.device) -> bool:
    """Return whether a device is a CPU that multiplies matrices in bfloat16 much faster than in float32."""
    able = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def dispatched(reference: Callable[P, R], device: str, slabs: tuple[str, ...] = ()) -> Callable[P, R]:
    """Return the entry point of a kernel: the function of the same name in `kernel.py` or `torch_impl.py` beside it.

    Args:
        reference: the function in `reference.py`, whose signature and docstring all three share.
        device: the argument, a tensor or a torch.device, that says where the operation runs.
        slabs: the arguments that are slabs. PyTorch runs if a kernel cannot read them.
    """
    package, name = reference.__module__.rpartition(".")[0], reference.__name__
    arguments = tuple(inspect.signature(reference).parameters)
    number = arguments.index(device)

    @functools.wraps(reference)
    def entry(*args: P.args, **kwargs: P.kwargs) -> R:
        where: Any = args[number] if number < len(args) else kwargs[device]
        place = where if isinstance(where, torch.device) else where.device
        by_triton = uses_triton(place)
        if by_triton and slabs:
            given: dict[str, Any] = {**dict(zip(arguments, args, strict=False)), **kwargs}
            by_triton = all(reachable(given[each], place) for each in slabs)
        chosen: Callable[P, R] = getattr(_module(package, by_triton), name)
        return chosen(*args, **kwargs)

    return entry


@functools.cache
def _module(package: str, by_triton: bool) -> ModuleType:
    """Return a kernel's module, imported when it is first needed, since Triton is optional."""
    return importlib.import_module(f"{package}.{'kernel' if by_triton else 'torch_impl'}")
