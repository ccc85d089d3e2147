"""Build networks with transformers safely in several threads.

To build a network in a dtype, transformers sets the default dtype of the whole process for that time, and replaces
functions of PyTorch and of its own. Other threads that compute or build at that moment would see it. Importing this
module replaces that: a dtype holds for the building thread only, and one network is built at a time. Weights are read
outside of that lock.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel, initialization, modeling_utils

LOADING = threading.Lock()
"""Held while a network is loaded: transformers turns the tying of weights off for the whole process meanwhile."""
_BUILDING = threading.RLock()
_FILLED = {
    torch.empty,
    torch.empty_strided,
    torch.eye,
    torch.linspace,
    torch.logspace,
    torch.ones,
    torch.rand,
    torch.randn,
    torch.zeros,
}
"""Functions that make a tensor of the default dtype unless given another."""
_FROM_NUMBERS = {torch.arange, torch.full, torch.scalar_tensor, torch.tensor}
"""Functions that do so only for numbers with a fraction."""


class _Dtype(TorchFunctionMode):
    """Sets the default dtype of tensors that this thread makes; other threads notice nothing."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") is None and (
            func in _FILLED or (func in _FROM_NUMBERS and _has_fraction([*args, *kwargs.values()]))
        ):
            kwargs["dtype"] = self.dtype
        return func(*args, **kwargs)


def _has_fraction(given: Any) -> bool:
    if isinstance(given, list | tuple):
        return any(_has_fraction(each) for each in given)
    return isinstance(given, float)


@contextmanager
def dtype_of_this_thread(dtype: torch.dtype, model_class_name: str | None = None) -> Iterator[None]:
    """Build in a dtype, one thread at a time; takes the place of transformers' `local_torch_dtype`.

    Raises:
        ValueError: no network can be built in this dtype.
    """
    if not dtype.is_floating_point:
        raise ValueError(f"{model_class_name or 'A network'} cannot be built in {dtype}")
    with _BUILDING, _Dtype(dtype):
        yield


def outline(config: PretrainedConfig) -> PreTrainedModel:
    """Build the network of a configuration on the meta device: all of its modules, and no weights."""
    with _BUILDING, torch.device("meta"):
        network: PreTrainedModel = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    return network


def _settle() -> None:
    """Make transformers' changes to PyTorch for good, so that it changes nothing while it builds or loads.

    Its functions that initialise weights differ from PyTorch's only for weights that are loaded already. Its
    replacement of torch.linspace is left out: only models with code of their own need it, and none is run here.
    """
    modeling_utils.local_torch_dtype = dtype_of_this_thread
    initialization.meta_device_safe_creation_ops = nullcontext  # type: ignore[assignment]
    _kept.enter_context(initialization.guard_torch_init_functions())


_kept = ExitStack()
_settle()
