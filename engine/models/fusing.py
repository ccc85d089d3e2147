"""Fewer, larger operations in a transformers model: norms, gates, and layers that read the same input.

- Linear layers with one input (queries, keys and values; gate and up) become one product. Their weights are moved into
  one tensor. Each layer keeps a view of it, so nothing is held twice.
- A norm, and an MLP's activation with its product, become one kernel each (`kernels/layers`).

A module is replaced if its class computes, instruction by instruction, what a class computes that is known here. All
others stay as they are, and so do layers of other packages. Where gradients are wanted, everything runs as before.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import GELUTanh, SiLUActivation
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.helium.modeling_helium import HeliumRMSNorm
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

from engine.models.file_layers import FileLinear, FileProduct
from engine.models.integers import IntegerLinear, join_integers, joinable
from kernels import layers

TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # names of layers that read the same input
GATES: dict[type, str] = {nn.SiLU: "silu", SiLUActivation: "silu", GELUTanh: "gelu_tanh"}


class Norm(NamedTuple):
    """A known norm. eps: name of the attribute that holds it. shift, early: see `kernels/layers`."""

    known: type
    eps: str
    shift: float
    early: bool


NORMS = (
    Norm(LlamaRMSNorm, "variance_epsilon", 0.0, True),
    Norm(Olmo2RMSNorm, "variance_epsilon", 0.0, False),
    Norm(HeliumRMSNorm, "variance_epsilon", 0.0, False),
    Norm(GemmaRMSNorm, "eps", 1.0, False),
)


def fuse(network: nn.Module) -> None:
    """Replace modules in place, once the network is on its device."""
    modules = list(network.modules())
    held = Counter(id(weight) for each in modules for weight in each._parameters.values())
    for module in modules:
        for names in TOGETHER:
            parts: list[Any] = [getattr(module, name, None) for name in names]
            weights = [getattr(part, "weight", None) for part in parts]
            if _joinable(parts) and all(each is None or held[id(each)] <= 1 for each in weights):
                _join(parts)
        kind: Any = type(module)
        if fused := _fused(kind):
            module.__class__ = fused


class _Joined:
    """Linear layers that read the same input, as one product; each takes its columns of it."""

    def __init__(self, product: Callable[[Tensor], Tensor] | None, parts: int) -> None:
        self.product = product  # None once the weights have been moved apart
        self.parts = parts
        self._held: list[Any] | None = None  # the last input, its product, and how many layers have not asked for it

    def of(self, x: Tensor) -> Tensor | None:
        """Return the product of all layers with x, computed once for layers that ask in turn; None if moved apart."""
        held = self._held
        if held is None or held[0] is not x:
            if self.product is None:
                return None
            held = self._held = [x, self.product(x), self.parts]
        held[2] -= 1
        if not held[2]:
            self._held = None
        whole: Tensor = held[1]
        return whole

    def __deepcopy__(self, memo: object) -> _Joined:
        return _Joined(None, self.parts)  # copies of the layers have weights of their own


class _Part(nn.Module):
    """Makes a linear layer one of several that are computed as one product."""

    joined: _Joined
    begin: int
    out_features: int

    def forward(self, x: Tensor) -> Tensor:
        """Return the products [..., out] with x [..., in]."""
        whole = None if torch.is_grad_enabled() else self.joined.of(x)
        if whole is None:
            own: Tensor = super().forward(x)
            return own
        return whole.narrow(-1, self.begin, self.out_features)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self.joined.product = None  # a moved or converted layer has weights of its own
        return super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]


class _LinearPart(_Part, nn.Linear):
    pass


class _IntegerPart(_Part, IntegerLinear):
    pass


class _FilePart(_Part, FileLinear):
    pass


PARTS: dict[type, type[_Part]] = {FileLinear: _FilePart, IntegerLinear: _IntegerPart, nn.Linear: _LinearPart}


def _joinable(parts: Sequence[Any]) -> bool:
    """Return whether layers are of one kind that can be joined, and are not yet."""
    kinds = {type(part) for part in parts}
    if (
        len(kinds) > 1
        or len({(getattr(part, "in_features", 0), getattr(part, "bias", None) is None) for part in parts}) > 1
    ):
        return False
    if kinds <= {_LinearPart}:
        return any(part.joined.product is None for part in parts)
    return kinds <= {nn.Linear} or kinds <= {FileLinear} or (kinds <= {IntegerLinear} and joinable(parts))


def _join(parts: Sequence[Any]) -> None:
    """Move the weights of layers into one tensor; the layers keep views of it."""
    ends = list(itertools.accumulate(part.out_features for part in parts))
    begins = [0, *ends]
    bias = None if parts[0].bias is None else torch.cat([part.bias.detach() for part in parts])
    kind = next(each for each in PARTS if isinstance(parts[0], each))
    product: Callable[[Tensor], Tensor]
    if kind is FileLinear:
        product = FileProduct([part.kept for part in parts], bias)
    elif kind is IntegerLinear:
        product = join_integers(parts, bias)
    else:
        weight = torch.cat([part.weight.detach() for part in parts])
        product = functools.partial(F.linear, weight=weight, bias=bias)
    joined = _Joined(product, len(parts))
    for part, begin, end in zip(parts, begins, ends, strict=False):
        if kind is nn.Linear:
            part.weight = nn.Parameter(weight[begin:end], requires_grad=part.weight.requires_grad)
        if bias is not None:
            part.bias = nn.Parameter(bias[begin:end], requires_grad=part.bias.requires_grad)
        part.__class__ = PARTS[kind]
        part.joined, part.begin = joined, begin


@functools.cache
def _fused(kind: Any) -> type[nn.Module] | None:
    """Return a class that computes the same as a class of modules in fewer operations; None if it is not known."""
    if norm := norm_of(kind):
        return type(kind.__name__, (kind,), {"forward": functools.partialmethod(_normed, kind, norm)})
    if _same(kind.forward, LlamaMLP.forward):
        return type(kind.__name__, (kind,), {"forward": functools.partialmethod(_gated, kind)})
    return None


def norm_of(kind: Any) -> Norm | None:
    """Return the known norm that a class computes, None if there is none."""
    for norm in NORMS:
        names = ["forward", *(["_norm"] if hasattr(norm.known, "_norm") else [])]
        if all(_same(getattr(kind, name, None), getattr(norm.known, name)) for name in names):
            return norm
    return None


def _same(one: Any, other: Any) -> bool:
    """Return whether two functions are the same instructions on the same names."""
    return one is not None and _instructions(one.__code__) == _instructions(other.__code__)


def _instructions(code: CodeType) -> tuple[Any, ...]:
    return code.co_code, code.co_names, [each for each in code.co_consts if not isinstance(each, str)]


def _normed(module: Any, kind: type[nn.Module], norm: Norm, x: Tensor) -> Tensor:
    """Compute a norm's forward pass."""
    if torch.is_grad_enabled() or module.weight.dtype != x.dtype:
        plain: Tensor = kind.forward(module, x)
        return plain
    return layers.rms_norm(x, module.weight, getattr(module, norm.eps), norm.shift, norm.early)


def _gated(module: Any, kind: type[nn.Module], x: Tensor) -> Tensor:
    """Compute the forward pass of an MLP whose gate is an activation."""
    joined, gate = getattr(module.gate_proj, "joined", None), GATES.get(type(module.act_fn))
    if joined is None or joined.product is None or gate is None or torch.is_grad_enabled():
        plain: Tensor = kind.forward(module, x)
        return plain
    projected: Tensor = module.down_proj(layers.gated(joined.product(x), gate))
    return projected
