"""Keep a model from rotating queries and keys, and read the frequencies that it would rotate them by."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.models.architectures import architecture_of
from engine.models.rope import NoRope, Rope

# Functions in the modules of transformers' models that rotate.
ROTATIONS = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave", "apply_rotary_emb")
ANGLES = ("cos", "freqs_cis")  # names of their first parameter after the tensors to rotate


class _Unrotated:
    """Stands for cosine and sine, for both together, and for any slice of them."""

    def __getitem__(self, part: object) -> _Unrotated:
        return self

    def __iter__(self) -> Iterator[_Unrotated]:
        return iter((self, self))

    def to(self, device: torch.device) -> _Unrotated:
        return self


UNROTATED = _Unrotated()


class NoRotation(nn.Module):
    """Stands in for a model's rotary embedding: queries and keys are left as they are."""

    def __init__(self, original: nn.Module) -> None:
        """Keep the original module, whose frequencies the engine reads."""
        super().__init__()
        self.original = original
        self.layer_types: list[str] = list(getattr(original, "layer_types", []))  # some models go through them
        nothing = torch.zeros(1, 1, device=next(original.buffers()).device)
        kinds = [[each] for each in self.layer_types] or [[]]
        for kind in kinds:  # LongRoPE computes its frequencies for long texts when it is called
            original(nothing, nothing.long(), *kind)

    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> _Unrotated:
        """Return `UNROTATED` in place of cosine and sine."""
        return UNROTATED


@functools.cache
def leave_unrotated(modeling: str) -> None:
    """Patch the rotation functions of a module of transformers: given `UNROTATED`, they return their inputs.

    Rotating by nothing would take a twentieth of the time of a token of an answer in the pocket model.
    """
    module = sys.modules[modeling]
    for name in ROTATIONS:
        if hasattr(module, name):
            setattr(module, name, _returning_inputs(getattr(module, name)))


def _returning_inputs(rotation: Callable[..., Any]) -> Callable[..., Any]:
    names = list(inspect.signature(rotation).parameters)
    together = next(
        at for at, name in enumerate(names) if name in ANGLES
    )  # 2: queries and keys together; 1: each by itself

    @functools.wraps(rotation)
    def rotate(*args: Any, **kwargs: Any) -> Any:
        if args[together] is not UNROTATED:
            return rotation(*args, **kwargs)
        return args[0] if together == 1 else args[:together]

    return rotate


def rope_of(module: nn.Module, rotary: nn.Module | None) -> Rope:
    """Return the rotary frequencies of an attention module's queries and keys.

    rotary: the model's own rotary embedding, None if it has none.
    """
    if rotary is None:
        return NoRope(next(module.parameters()).device)
    config: Any = module.config
    kinds = getattr(config, "layer_types", None)
    kind = kinds[int(module.layer_idx)] if kinds else ""  # type: ignore[arg-type]
    within = architecture_of(config).rope_in_windows_only and config.sliding_window and kind != "sliding_attention"
    if within or getattr(module, "use_rope", 1) in (0, False):
        return NoRope(next(rotary.buffers()).device)
    prefix = f"{kind}_" if hasattr(rotary, f"{kind}_inv_freq") else ""
    # LongRoPE has a set for short texts and one for long ones. Keys change positions, so one set has to serve.
    inv_freq = getattr(rotary, f"{prefix}long_inv_freq", getattr(rotary, f"{prefix}inv_freq"))
    return Rope(inv_freq, float(getattr(rotary, f"{prefix}attention_scaling", 1.0)))


def rotary_of(model: PreTrainedModel) -> nn.Module | None:
    """Return a model's own rotary embedding, also after `attach`; None if it has none."""
    rotary = getattr(model.base_model, architecture_of(model.config).rotary, None)
    return rotary.original if isinstance(rotary, NoRotation) else rotary
