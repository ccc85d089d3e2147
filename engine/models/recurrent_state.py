"""States of recurrent layers: what linear attention, Mamba and short convolutions carry from token to token.

Their size does not depend on how much has been read, so no method has anything to choose there: every memory keeps the
states behind the last token that it has committed, beside its entries. transformers' layers ask a cache for them and
give it the new ones; `RecurrentState` is that cache.
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
RECURRENCES = ("causal_conv1d_", "mamba2_", "torch_")  # how names of what recurrent layers call begin


class RecurrentState:
    """The states of one pass: those before it go in, those after it come out.

    To layers it is a cache of transformers', of which they use what is here. Layers with attention give it their keys
    and values too, and get them back as they are: those are the memory's.
    """

    def __init__(self, states: Mapping[str, Tensor] | None = None) -> None:
        """Behind these states, which are copied; None before the first token."""
        self.states: dict[str, Tensor] = {}  # written in place, at addresses that do not change
        self.load(states or {})

    @property
    def nbytes(self) -> int:
        """Of the states."""
        return sum(state.nbytes for state in self.states.values())

    def load(self, states: Mapping[str, Tensor]) -> None:
        """The next pass comes behind these states, which are copied."""
        for name, state in states.items():
            self._put(name, state)

    def copies(self) -> dict[str, Tensor]:
        """The states after the pass, to be kept."""
        return {name: state.clone() for name, state in self.states.items()}

    def _put(self, name: str, state: Tensor) -> None:
        if name in self.states:
            self.states[name].copy_(state)
        else:
            self.states[name] = state.clone()

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """The last inputs of a convolution [1, channels, kernel], which a pass of one token replaces in place."""
        return self.states.get(_name(layer_idx, CONVOLUTION, state_idx))

    def update_conv_state(
        self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, *, conv_kernel_size: int, **kwargs: Any
    ) -> Tensor:
        """Inputs [1, channels, T] of a pass; those before it and them, for the convolution."""
        name = _name(layer_idx, CONVOLUTION, state_idx)
        before = self.states.get(name)
        shown = F.pad(conv_states, (conv_kernel_size, 0)) if before is None else torch.cat([before, conv_states], -1)
        self._put(name, shown[..., -conv_kernel_size:])
        return shown

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """What a recurrence knows [1, heads, ...], which a pass of one token may replace in place."""
        return self.states.get(_name(layer_idx, RECURRENCE, state_idx))

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> Tensor:
        """What it knows after the pass."""
        self._put(_name(layer_idx, RECURRENCE, state_idx), recurrent_states)
        return recurrent_states

    def is_recording_past(self, layer_idx: int) -> bool:
        """Nothing is ever taken back here: the states before a pass are still the memory's."""
        return False

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions are the memory's matter, so all passes begin at 0."""
        return 0

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any) -> tuple[Tensor, Tensor]:
        """Keys and values as they are."""
        return key_states, value_states


def _name(layer: int, what: str, number: int) -> str:
    return f"{layer}.{what}{number or ''}"


@functools.cache
def spare_kernels(modeling: str) -> None:
    """Let recurrent layers of a module of transformers call kernels of other packages for tensors on a GPU alone.

    Whether there are any (flash-linear-attention, mamba_ssm, causal_conv1d) is settled as the module is imported, for
    tensors on every device, and they run on no other.
    """
    module = sys.modules[modeling]
    for name, function in list(vars(module).items()):
        if name.startswith(RECURRENCES) and hasattr(function, "__wrapped__"):
            setattr(module, name, _by_device(function, function.__wrapped__))


def _by_device(kernel: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def call(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return (kernel if x.is_cuda else plain)(x, *args, **kwargs)

    del call.__wrapped__  # it is not to be taken apart again
    return call
