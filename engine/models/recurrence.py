"""What recurrent layers take: their states, and the work of a pass, found by sending a pass through one of them.

It is on PyTorch's meta device, where tensors have shapes and no storage. So whatever transformers does in such a layer
is counted as it is done, and no architecture's arithmetic is told twice.
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

from engine.models.architectures import RECURRENT
from engine.models.building import outline
from engine.models.recurrent_state import RecurrentState, spare_kernels

ROWS = 512  # tokens of the pass that is sent: whole chunks of all of them, which are of 64 to 256 tokens


@dataclass(frozen=True)
class Recurrence:
    """Of all recurrent layers of a model together, but for what their linear layers take.

    layers: how many there are; state_bytes: of what they carry; held: bytes that one holds at once in a pass, for each
    token; moved: bytes that all of them write, for each token; products: operations of matrix products, for each token;
    operations: of PyTorch, in a pass of one token, and for each token of a longer one.
    """

    layers: int
    state_bytes: int
    held: int
    moved: int
    products: float
    operations: tuple[int, float]


class _Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations, the bytes that they write, and those that tensors hold at once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.moved = self.now = self.most = 0
        self._over: Counter[int] = Counter()  # tensors over each storage that was made

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Do it, and count it."""
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
    """Of a network, loaded or on the meta device, as it computes in that dtype; None if it has no recurrent layers."""
    if network.config.model_type not in RECURRENT:
        return None
    if network.device.type != "meta":
        network = outline(network.config)
    spare_kernels(type(network).__module__)
    layers = [each for each in network.base_model.modules() if _is_recurrent(each)]
    if not layers:  # some of a family attend in all layers
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
    """Whether a module carries states: it mixes tokens, by a convolution at least, and does not attend."""
    mixes = hasattr(module, "layer_idx") and not hasattr(module, "is_causal")
    return mixes and any(isinstance(each, nn.Conv1d) for each in module.children())


def _sent(layer: nn.Module, state: RecurrentState, tokens: Tensor) -> tuple[_Meter, int]:
    """What a pass of tokens [1, T, hidden] through a layer takes, and operations of matrix products in it."""
    name = {"cache_params", "past_key_values"} & set(inspect.signature(layer.forward).parameters)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), _Meter() as meter, counter:
        layer(tokens, **{name.pop(): state})
    return meter, counter.get_total_flops()
