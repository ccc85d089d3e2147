"""Launch Triton kernels with little time of the host, which passes of few tokens otherwise wait for."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

WIDE = 1 << 31  # numbers from here on are passed in 64 bits
Grid = tuple[int, int, int]


def cdiv(a: int, b: int) -> int:
    """Return a / b rounded up. Triton's own function of that name takes 1.5 us."""
    return -(-a // b)


def power_of_2(n: int) -> int:
    """Return the smallest power of two that is at least n, and at least 1."""
    return 1 << max(0, n - 1).bit_length()


@functools.cache
def cores_of(device: torch.device) -> int:
    """Return the number of multiprocessors of a device; 1 for a CPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


class Prepared:
    """A Triton kernel with its constants, launched without Triton's look at all arguments once it is compiled.

    Triton compiles a kernel anew for other constants, dtypes, alignments of pointers and widths of numbers. Constants
    are fixed here, and the rest is the key under which a compiled kernel is kept.
    """

    def __init__(self, kernel: Any, constants: dict[str, Any], **options: int) -> None:
        """Prepare a kernel whose arguments are pointers, then numbers, then these constants.

        Args:
            kernel: the function, decorated with triton.jit.
            constants: its constexpr arguments by name.
            options: num_warps, num_stages.
        """
        self.kernel, self.constants, self.options = kernel, constants, options
        self.compiled: dict[tuple[object, ...], tuple[Any, tuple[Any, ...]]] = {}

    def __call__(self, grid: Grid, pointers: tuple[Tensor, ...], numbers: tuple[float, ...]) -> None:
        """Launch the kernel on the current device and stream."""
        key = (
            pointers[0].get_device(),
            *[(x.dtype, not x.data_ptr() & 15) for x in pointers],
            *[number >= WIDE for number in numbers],
        )
        found = self.compiled.get(key)
        if found is not None:
            compiled, constants = found
            compiled[grid](*pointers, *numbers, *constants)
            return
        made = self.kernel[grid](*pointers, *numbers, **self.constants, **self.options)
        if made is not None and torch.version.hip is None:  # the interpreter makes nothing; HIP looks at sizes too
            names = self.kernel.arg_names[len(pointers) + len(numbers) :]
            self.compiled[key] = made, tuple(self.constants[name] for name in names)
