"""Muon for matrices and AdamW for the rest; with this pair look-up is learned within minutes.

Muon orthogonalises each matrix's momentum by Newton-Schulz steps (K. Jordan, kellerjordan.github.io/posts/muon). This
version works in float32, stacked by shape: torch's own takes twice as long on a CPU without bfloat16 arithmetic.
"""

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from training.pocket import workers

_A, _B, _C = 3.4445, -4.7750, 2.0315  # quintic coefficients of the reference implementation
_STEPS, _MOMENTUM = 5, 0.95


def orthogonalise(matrices: Tensor) -> Tensor:
    """Move the singular values of matrices [N, rows, columns], float32, to about one."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x: Tensor = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x.mT if tall else x


class Muon:
    """Orthogonalised Nesterov momentum for two-dimensional parameters."""

    def __init__(self, parameters: list[nn.Parameter], decay: float) -> None:
        self.decay = decay
        self.groups: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
        for parameter in parameters:
            self.groups[tuple(parameter.shape)].append(parameter)
        self.buffers = {shape: group[0].new_zeros(len(group), *shape) for shape, group in self.groups.items()}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Make one update with learning rate `rate`; a missing gradient counts as zero."""
        updates = {}
        for shape, group in self.groups.items():
            gradients = torch.stack([p.grad if p.grad is not None else torch.zeros_like(p) for p in group])
            buffer = self.buffers[shape].lerp_(gradients, 1 - _MOMENTUM)
            updates[shape] = torch.zeros_like(buffer)
            mine = slice(
                workers.rank(), None, workers.size()
            )  # each worker does its share; `total` brings them together
            updates[shape][mine] = orthogonalise(gradients[mine].lerp(buffer[mine], _MOMENTUM))
        workers.total(list(updates.values()))
        for shape, group in self.groups.items():
            scale = max(1.0, shape[0] / shape[1]) ** 0.5
            for parameter, change in zip(group, updates[shape], strict=True):
                parameter.mul_(1 - rate * self.decay).add_(change, alpha=-rate * scale)

    def state_dict(self) -> dict[str, Any]:
        """Return the momentum buffers."""
        return {"buffers": {"x".join(map(str, shape)): buffer for shape, buffer in self.buffers.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for shape, buffer in self.buffers.items():
            buffer.copy_(state["buffers"]["x".join(map(str, shape))])


class Optimiser:
    """Muon and AdamW over one network, with one rate factor for both."""

    def __init__(self, network: nn.Module, muon_rate: float, adam_rate: float, decay: float = 0.0) -> None:
        """Create both optimisers. `decay` is the weight decay of matrices; 0 when continuing from trained weights."""
        matrices: list[nn.Parameter] = []
        rest: list[nn.Parameter] = []
        for name, parameter in network.named_parameters():
            (matrices if parameter.ndim == 2 and "embed" not in name and "lm_head" not in name else rest).append(
                parameter
            )
        self.parameters = matrices + rest
        self.muon_rate, self.adam_rate = muon_rate, adam_rate
        self.muon = Muon(matrices, decay=decay)
        self.adam = torch.optim.AdamW(rest, lr=adam_rate, betas=(0.9, 0.98), weight_decay=0.0)

    def step(self, factor: float) -> None:
        """Clip gradients, update with rates times `factor`, and clear the gradients."""
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.muon.step(self.muon_rate * factor)
        for group in self.adam.param_groups:
            group["lr"] = self.adam_rate * factor
        self.adam.step()
        for parameter in self.parameters:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return the states of both optimisers."""
        return {"muon": self.muon.state_dict(), "adam": self.adam.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])
