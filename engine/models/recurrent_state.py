"""The states that linear attention, Mamba and short convolutions carry from token to token.

Their size does not depend on the length of the text, so there is nothing for a method to choose: every memory keeps the
states after the last committed token beside its entries. transformers' layers take states from a cache and hand it the
new ones; `RecurrentState` is that cache.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CONVOLUTION, RECURRENCE = "convolution", "recurrence"
RECURRENCES = ("causal_conv1d_", "mamba2_", "torch_")  # prefixes of functions that recurrent layers call


class RecurrentState:
    """The states of one pass: it begins with those before the pass and ends with those after it.

    Layers use it as a cache of transformers'. Layers with attention pass their keys and values through it unchanged,
    since those belong to the memory.
    """

    def __init__(self, states: Mapping[str, Tensor] | None = None) -> None:
        """Begin with a copy of these states; None before the first token."""
        self.states: dict[str, Tensor] = {}  # written in place: their addresses never change
        self.load(states or {})

    @property
    def nbytes(self) -> int:
        """Bytes of the states."""
        return sum(state.nbytes for state in self.states.values())

    def load(self, states: Mapping[str, Tensor]) -> None:
        """Copy these states in, for a pass that follows them."""
        for name, state in states.items():
            self._put(name, state)

    def copies(self) -> dict[str, Tensor]:
        """Return copies of the states after the pass."""
        return {name: state.clone() for name, state in self.states.items()}

    def _put(self, name: str, state: Tensor) -> None:
        if name in self.states:
            self.states[name].copy_(state)
        else:
            self.states[name] = state.clone()

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """Return the last inputs [1, channels, kernel] of a convolution, which a one-token pass replaces in place."""
        return self.states.get(_name(layer_idx, CONVOLUTION, state_idx))

    def update_conv_state(
        self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, *, conv_kernel_size: int, **kwargs: Any
    ) -> Tensor:
        """Store the inputs [1, channels, T] of a pass, and return them with those before them, for the convolution."""
        name = _name(layer_idx, CONVOLUTION, state_idx)
        before = self.states.get(name)
        shown = F.pad(conv_states, (conv_kernel_size, 0)) if before is None else torch.cat([before, conv_states], -1)
        self._put(name, shown[..., -conv_kernel_size:])
        return shown

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """Return the state [1, heads, ...] of a recurrence, which a one-token pass may replace in place."""
        return self.states.get(_name(layer_idx, RECURRENCE, state_idx))

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> Tensor:
        """Store the state of a recurrence after the pass."""
        self._put(_name(layer_idx, RECURRENCE, state_idx), recurrent_states)
        return recurrent_states

    def is_recording_past(self, layer_idx: int) -> bool:
        """Return False: nothing is rolled back here, since the memory still has the states before the pass."""
        return False

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return 0 for every pass: positions are the memory's concern."""
        return 0

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any) -> tuple[Tensor, Tensor]:
        """Return keys and values unchanged."""
        return key_states, value_states


def _name(layer: int, what: str, number: int) -> str:
    return f"{layer}.{what}{number or ''}"


@functools.cache
def limit_kernels_to_gpu(modeling: str) -> None:
    """Patch a module of transformers so that its recurrent layers call other packages' kernels on a GPU only.

    transformers decides at import whether it calls them (flash-linear-attention, mamba_ssm, causal_conv1d), for tensors
    on every device, but they run on a GPU only.
    """
    module = sys.modules[modeling]
    for name, function in list(vars(module).items()):
        if name.startswith(RECURRENCES) and hasattr(function, "__wrapped__"):
            setattr(module, name, _by_device(function, function.__wrapped__))


def _by_device(kernel: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def call(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return (kernel if x.is_cuda else plain)(x, *args, **kwargs)

    del call.__wrapped__  # so that a second call leaves it alone
    return call
