"""Measure the states of recurrent layers and the work of a pass, by sending a pass through one of them.

It runs on PyTorch's meta device, where tensors have shapes and no storage. So everything that transformers does in such
a layer is counted, and no architecture's arithmetic is written down a second time.
"""

from __future__ import annotations

import copy
import inspect
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from engine.models.architectures import architecture_of
from engine.models.building import outline
from engine.models.recurrent_state import RecurrentState, limit_kernels_to_gpu

ROWS = 512  # tokens of the pass: a multiple of the chunks of all such layers, which have 64 to 256 tokens


@dataclass(frozen=True)
class Recurrence:
    """The needs of all recurrent layers of a model, without their linear layers."""

    layers: int
    state_bytes: int
    held: int  # most bytes that one layer holds at once in a pass, per token
    moved: int  # bytes that all layers write, per token
    products: float  # multiplications and additions of matrix products, per token
    operations: tuple[int, float]  # of PyTorch: in a pass of one token, and per token of a longer pass


class _Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations, the bytes that they write, and those that tensors hold at once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.moved = self.now = self.most = 0
        self._over: Counter[int] = Counter()  # number of tensors over each storage

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation and count it."""
        given = {_storage(each) for each in tree_leaves(args) if isinstance(each, Tensor)}
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        for each in tree_leaves(result):
            if isinstance(each, Tensor) and (_storage(each) in self._over or _storage(each) not in given):
                self._note(each)
        return result

    def _note(self, tensor: Tensor) -> None:
        storage, size = _storage(tensor), tensor.untyped_storage().nbytes()
        if storage not in self._over:
            self.moved += size
            self.now += size
            self.most = max(self.most, self.now)
        self._over[storage] += 1
        weakref.finalize(tensor, self._let_go, storage, size)

    def _let_go(self, storage: int, size: int) -> None:
        self._over[storage] -= 1
        if not self._over[storage]:
            del self._over[storage]
            self.now -= size


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def recurrence_of(network: PreTrainedModel, dtype: torch.dtype) -> Recurrence | None:
    """Measure a network, loaded or on the meta device, for a dtype; None if it has no recurrent layers."""
    if not architecture_of(network.config).recurrent:
        return None
    if network.device.type != "meta":
        network = outline(network.config)
    limit_kernels_to_gpu(type(network).__module__)
    layers = [each for each in network.base_model.modules() if _is_recurrent(each)]
    if not layers:  # some models of these architectures attend in all layers
        return None
    own = copy.deepcopy(layers[0]).to(dtype)
    linear = sum(each.weight.numel() for each in own.modules() if isinstance(each, nn.Linear))
    state, size = RecurrentState(), int(network.config.hidden_size)
    many, meter, products = len(layers), *_sent(own, state, torch.empty(1, ROWS, size, dtype=dtype, device="meta"))
    token, _ = _sent(own, state, torch.empty(1, 1, size, dtype=dtype, device="meta"))
    return Recurrence(
        layers=many,
        state_bytes=many * state.nbytes,
        held=-(-meter.most // ROWS),
        moved=many * meter.moved // ROWS,
        products=many * (products / ROWS - 2 * linear),
        operations=(many * token.operations, many * meter.operations / ROWS),
    )


def _is_recurrent(module: nn.Module) -> bool:
    """Return whether a module carries states: it mixes tokens by a convolution at least, and does not attend."""
    mixes = hasattr(module, "layer_idx") and not hasattr(module, "is_causal")
    return mixes and any(isinstance(each, nn.Conv1d) for each in module.children())


def _sent(layer: nn.Module, state: RecurrentState, tokens: Tensor) -> tuple[_Meter, int]:
    """Send tokens [1, T, hidden] through a layer; return its meter, and the operations of matrix products."""
    name = {"cache_params", "past_key_values"} & set(inspect.signature(layer.forward).parameters)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), _Meter() as meter, counter:
        layer(tokens, **{name.pop(): state})
    return meter, counter.get_total_flops()
