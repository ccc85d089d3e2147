"""Mixtures of experts in codes, unpacked as a pass needs them.

transformers holds the experts of a layer in two parameters of three dimensions, which bitsandbytes' layers do not
reach. `PackedExperts` takes their module's place. A stack that is packed here is one tensor [E, bytes]; a row holds the
codes of an expert and then their constants, so a pass that chooses a few experts reads a few rows. A stack that was
published in codes stays as the tensors of the checkpoint.

On a GPU the experts of a single token are unpacked together. All shapes are the same whichever they are, and no number
is read back, so the pass can be recorded as a CUDA graph. The experts of a longer pass, and all on a CPU, are unpacked
one after another.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from engine.models.expert_packing import InRows, Packing

# As transformers names them: [E, 2 I, H], or without a gate [E, I, H], and [E, H, I]; or all transposed.
STACKS = (("gate_up_proj", "down_proj"), ("up_proj", "down_proj"))
BIAS = "_bias"  # behind a stack's name, where experts have one


class PackedExperts(nn.Module):
    """Takes the place of the experts of a layer."""

    def __init__(self, own: nn.Module, packing: type[Packing]) -> None:
        """Make empty stacks on the meta device. own: transformers' module of experts, also on the meta device."""
        super().__init__()
        self.inner: Any = own._apply_gate if own.has_gate else own.act_fn
        self.transposed, self.has_bias = bool(own.is_transposed), bool(own.has_bias)
        self.packings: dict[str, Packing] = {}
        for name, (count, rows, columns) in zip(stacks_of(own), shapes_of(own), strict=True):
            self.packings[name] = packing(rows, columns)
            for end, shape in self.packings[name].shapes.items():
                self.register_buffer(name + end, torch.empty(count, *shape, dtype=torch.uint8, device="meta"))
            if self.has_bias:
                self.register_parameter(name + BIAS, own.get_parameter(name + BIAS))

    @property
    def stacks(self) -> tuple[str, ...]:
        """Names of the two stacks."""
        return tuple(self.packings)

    def stack(self, name: str) -> list[Tensor]:
        """Return the tensors that hold a stack, in the order of `Packing.shapes`."""
        return [self.get_buffer(name + end) for end in self.packings[name].shapes]

    def shape(self, name: str) -> tuple[int, int, int]:
        """Return (E, R, C) of the weights in a stack."""
        packing = self.packings[name]
        return len(self.stack(name)[0]), packing.rows, packing.columns

    def turned(self, weights: Tensor) -> Tensor:
        """Return weights of transformers' layout in the layout [E, R, C] of this module, or the other way round."""
        return weights.transpose(-2, -1) if self.transposed else weights

    def takes(self, name: str, weights: Tensor) -> bool:
        """Return whether weights in transformers' layout have the shape of a stack."""
        return weights.dim() == 3 and self.turned(weights).shape == self.shape(name)

    def pack(self, name: str, weights: Tensor) -> Tensor:
        """Pack a stack of weights in transformers' layout into uint8 [E, bytes], one expert at a time.

        Only for a packing that is made here.
        """
        packing = self.packings[name]
        assert isinstance(packing, InRows)
        packed = torch.empty(self.get_buffer(name).shape, dtype=torch.uint8, device=weights.device)
        for row, weight in zip(packed, self.turned(weights), strict=True):
            row.copy_(packing.pack(weight))
        return packed

    def unpacked(self, name: str, which: int | Tensor, dtype: torch.dtype) -> Tensor:
        """Return the weights [R, C] of one expert, or [K, R, C] of experts int64 [K]."""
        return self.packings[name].unpack(self.stack(name), which, dtype)

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """Return the outputs of the chosen experts, weighted and summed in float32.

        Args:
            hidden_states: [T, H].
            top_k_index: int64 [T, K], the experts of each token.
            top_k_weights: [T, K].

        Returns:
            [T, H] in the dtype of the tokens.
        """
        if len(hidden_states) == 1 and together_on(hidden_states.device):
            return self.together(hidden_states, top_k_index, top_k_weights)
        count, chosen = self.shape(self.stacks[0])[0], top_k_index.shape[1]
        experts, order = top_k_index.reshape(-1).sort(stable=True)
        tokens, weights = order // chosen, top_k_weights.reshape(-1)[order]
        numbers = torch.arange(count + 1, device=experts.device)
        bounds: list[int] = torch.searchsorted(experts, numbers).tolist()
        total = torch.zeros_like(hidden_states, dtype=torch.float32)
        for expert, (begin, end) in enumerate(pairwise(bounds)):
            if begin < end:
                own = tokens[begin:end]
                each = self._expert(hidden_states[own], expert).float() * weights[begin:end, None]
                total.index_add_(0, own, each)
        return total.to(hidden_states.dtype)

    def together(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """Return the same for one token, whose experts are unpacked together."""
        each = self._expert(hidden_states.expand(top_k_index.shape[1], 1, -1), top_k_index[0])  # [K, 1, H]
        return (each[:, 0].float() * top_k_weights[0, :, None]).sum(0, keepdim=True).to(hidden_states.dtype)

    def _expert(self, x: Tensor, which: int | Tensor) -> Tensor:
        """Pass x [T, H] through one expert, or x [K, 1, H] through one expert each; the output has the same shape."""
        up, down = self.stacks
        return self._through(self.inner(self._through(x, up, which)), down, which)

    def _through(self, x: Tensor, name: str, which: int | Tensor) -> Tensor:
        """Multiply x [..., C] with the weights of a stack: [..., R]."""
        product: Tensor = _Product.apply(x, self, name, which)  # type: ignore[no-untyped-call]
        if not self.has_bias:
            return product
        bias = self.get_parameter(name + BIAS)
        return product + (bias[which] if isinstance(which, int) else bias.index_select(0, which)[:, None])


def together_on(device: torch.device) -> bool:
    """Return whether the experts of one token are unpacked together.

    On a CPU that takes four times as long as one by one, where the same few megabytes are used again.
    """
    return device.type != "cpu"


class _Product(torch.autograd.Function):
    """Multiplies with unpacked weights, and unpacks them again for the gradient instead of keeping them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, experts: PackedExperts, name: str, which: int | Tensor) -> Tensor:
        dtype = x.dtype
        ctx.unpacked = lambda: experts.unpacked(name, which, dtype)
        return experts.packings[name].product(x, experts.stack(name), which)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return gradients[0] @ ctx.unpacked(), None, None, None


def pack_experts(network: nn.Module, packing: type[Packing]) -> None:
    """Replace all experts of a network on the meta device by `PackedExperts`, to be filled as weights arrive."""
    for name, module in list(network.named_modules()):
        if has_experts(module):
            network.set_submodule(name, PackedExperts(module, packing))


def experts_in(network: nn.Module) -> list[nn.Module]:
    """Return the modules of experts of a network's layers, packed or not."""
    return [each for each in network.modules() if isinstance(each, PackedExperts) or has_experts(each)]


def has_experts(module: nn.Module) -> bool:
    """Return whether a module is transformers' module of the experts of a layer."""
    return bool(stacks_of(module))


def stacks_of(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the stacks of transformers' module of experts; none for any other module."""
    own = dict(module.named_parameters(recurse=False))
    return next((names for names in STACKS if all(name in own and own[name].dim() == 3 for name in names)), ())


def shapes_of(experts: nn.Module) -> list[tuple[int, int, int]]:
    """Return (E, R, C) of both stacks of a layer's experts, packed or not."""
    if isinstance(experts, PackedExperts):
        return [experts.shape(name) for name in experts.stacks]
    stacks = [experts.get_parameter(name) for name in stacks_of(experts)]
    return [tuple((each.transpose(1, 2) if experts.is_transposed else each).shape) for each in stacks]  # type: ignore[misc]
