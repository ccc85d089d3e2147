"""Building networks with transformers in several threads at once.

transformers has a network made in its dtype by setting the default dtype of the whole process meanwhile, and by
replacing functions of PyTorch and of its own. Other threads that compute or build at that moment would see it. So what
it replaces is put right here as this module is imported, before any thread builds: a dtype holds for the thread that
builds, and one network is built at a time. Weights are read outside of that.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel, initialization, modeling_utils

LOADING = threading.Lock()
"""Held while a network is loaded: first transformers ties no weights in the whole process, and at the end it must."""
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
"""Functions that make a tensor of the default dtype unless they are told another."""
_FROM_NUMBERS = {torch.arange, torch.full, torch.scalar_tensor, torch.tensor}
"""Those that do so of numbers with a fraction alone."""


class _Dtype(TorchFunctionMode):
    """What this thread makes without naming a dtype has this one; other threads notice nothing."""

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
    """Build in a dtype, one thread at a time; in place of transformers' `local_torch_dtype`.

    Raises:
        ValueError: no network can be built in this dtype.
    """
    if not dtype.is_floating_point:
        raise ValueError(f"{model_class_name or 'A network'} cannot be built in {dtype}")
    with _BUILDING, _Dtype(dtype):
        yield


def outline(config: PretrainedConfig) -> PreTrainedModel:
    """The network that a configuration describes, on the meta device: all of its modules, and no weights."""
    with _BUILDING, torch.device("meta"):
        network: PreTrainedModel = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    return network


def _settle() -> None:
    """Leave nothing for transformers to change in PyTorch while a network is built or loaded.

    Its ways to initialise weights take PyTorch's place for good: they differ only for weights that were loaded already.
    torch.linspace stays as it is: only models that bring code of their own need another, and none is run here.
    """
    modeling_utils.local_torch_dtype = dtype_of_this_thread
    initialization.meta_device_safe_creation_ops = nullcontext  # type: ignore[assignment]
    _kept.enter_context(initialization.guard_torch_init_functions())


_kept = ExitStack()
_settle()
