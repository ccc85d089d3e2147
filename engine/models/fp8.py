"""Weights that were published in FP8: numbers of eight bits, and beside them the scales that they are times.

Each becomes numbers of the model's dtype as it is read, before transformers sees it, so that the checkpoint is a plain
one from there on: its experts are put together, and it can be quantised. transformers' own way
(`FineGrainedFP8Config(dequantize=True)`) cannot quantise what it unpacks, takes codes without a scale as they are, and
takes the size of blocks from how many there are, which is another one where they do not divide a weight evenly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import PretrainedConfig

from engine.errors import ModelNotFound, UnsupportedModel
from engine.models.load_errors import ANEW, load_errors_as
from engine.models.quantised import COMPRESSED, FINEGRAINED, NOT_UNDERSTOOD, described

CODES = "F8_E4M3"  # as safetensors names what weights are in
SCALES = ("_scale_inv", "_scale")  # behind a weight's name; both are factors, in spite of the first
SCALE_KINDS = ("F32", "F16", "BF16")
AT_A_TIME = 256  # rows that are multiplied together, in float32

Stored = Mapping[str, tuple[str, tuple[int, ...]]]  # safetensors' kind and the shape of each tensor, by its name
Block = tuple[int | None, int | None]  # rows and columns that share a scale; None: all


@dataclass(frozen=True)
class FP8:
    """How the weights of a checkpoint that are in FP8 are scaled: blocks that may share a scale."""

    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, config: PretrainedConfig) -> FP8 | None:
        """What a config says; None for a checkpoint that is not in FP8.

        Raises:
            UnsupportedModel: compressed tensors of another kind, or blocks that cannot be.
        """
        found = described(config)
        if found is None or found[0] not in (FINEGRAINED, COMPRESSED):
            return None
        method, facts = found
        with load_errors_as(UnsupportedModel, NOT_UNDERSTOOD):
            if method == FINEGRAINED:
                return cls((_block(facts.get("weight_block_size")),))
            groups = [group["weights"] for group in facts["config_groups"].values() if group["weights"] is not None]
            if not groups or facts.get("transform_config") or not all(map(_is_fp8, groups)):
                raise UnsupportedModel(
                    f"Its weights were published as '{COMPRESSED}' in another format than FP8, which is not supported: "
                    f"choose a plain checkpoint, and --quantize nf4 or 8bit."
                )
            by_strategy: dict[str, Block] = {"tensor": (None, None), "channel": (1, None)}
            return cls(tuple(by_strategy.get(each["strategy"]) or _block(each["block_structure"]) for each in groups))

    def check(self, folder: Path, stored: Stored) -> None:
        """Refuse weights without the scales that they need.

        Raises:
            ModelNotFound: a scale that is missing or has another shape.
            UnsupportedModel: scales that are no floating-point numbers.
        """
        for name, (kind, shape) in stored.items():
            if kind != CODES:
                continue
            scale = _scale_of(name, stored)
            if scale is None:
                raise ModelNotFound(f"The weights at '{folder}' lack the scale of {name}, which is in FP8: {ANEW}.")
            own_kind, own = stored[scale]
            if own_kind not in SCALE_KINDS:
                raise UnsupportedModel(
                    f"{scale} at '{folder}' is stored as {own_kind}, and only scales in floating point are used: "
                    f"choose a plain checkpoint, and --quantize nf4 or 8bit."
                )
            if self._block_of(shape, own) is None:
                wanted = " or ".join(str(list(_grid(shape, block))) for block in self.blocks)
                raise ModelNotFound(
                    f"{scale} at '{folder}' has the shape {list(own)}, and for a weight of {list(shape)} its "
                    f"config.json asks for {wanted}: {ANEW}."
                )

    def weights(self, paths: list[Path], dtype: torch.dtype) -> dict[str, Any]:
        """The tensors of these files by their names, each read when it is indexed: those in FP8 give numbers in dtype,
        and their scales are left out. `check` has passed them.
        """
        slices: dict[str, Any] = {}
        for path in paths:
            opened: Any = safe_open(path, "pt")
            slices |= {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
        stored: Stored = {name: (each.get_dtype(), tuple(each.get_shape())) for name, each in slices.items()}
        weights = dict(slices)
        for name, (kind, shape) in stored.items():
            scale = _scale_of(name, stored)
            if kind == CODES and scale is not None:
                block = self._block_of(shape, stored[scale][1])
                assert block is not None
                weights[name] = _Scaled(slices[name], weights.pop(scale), block, dtype)
        return weights

    def _block_of(self, shape: tuple[int, ...], scale: tuple[int, ...]) -> Block | None:
        """What shares a scale, of a weight and a scale of such shapes; None if they do not go together."""
        for block in self.blocks if len(shape) > 1 else ():
            grid = _grid(shape, block)
            if scale == grid or (math.prod(scale) == 1 and grid[-2:] == (1, 1)):
                return block
        return None


class _Scaled:
    """A weight in FP8, to be read as transformers reads a tensor of a file: by its slices."""

    def __init__(self, codes: Any, scales: Any, block: Block, dtype: torch.dtype) -> None:
        """codes, scales: slices of safetensors."""
        self.codes, self.scales, self.block, self.dtype = codes, scales, block, dtype

    def __getitem__(self, every: EllipsisType) -> Tensor:
        return scaled(self.codes[every], self.scales[every], self.block, self.dtype)


def scaled(codes: Tensor, scales: Tensor, block: Block, dtype: torch.dtype) -> Tensor:
    """Numbers in dtype of codes in FP8 [..., R, C] times their scales, multiplied in float32.

    scales: one for each block of a weight [..., R / rows, C / columns], rounded up; or one for all.
    """
    scales = scales.float()
    scales = scales.reshape(_grid(tuple(codes.shape), block) if scales.numel() > 1 else [1] * codes.dim())
    sizes = zip(codes.shape[-2:], block, strict=True)
    rows, columns = (torch.arange(size) // (step or size) for size, step in sizes)
    if scales.shape[-1] > 1:
        scales = scales[..., columns]
    weight = torch.empty(codes.shape, dtype=dtype)
    for begin in range(0, len(rows), AT_A_TIME):
        own = slice(begin, begin + AT_A_TIME)
        weight[..., own, :] = codes[..., own, :].float().mul_(scales[..., rows[own], :])
    return weight


def _scale_of(name: str, stored: Stored) -> str | None:
    return next((name + end for end in SCALES if name + end in stored), None)


def _grid(shape: tuple[int, ...], block: Block) -> tuple[int, ...]:
    """The shape of the scales of a weight."""
    pairs = zip(shape[-2:], block, strict=False)
    return (*shape[:-2], *(math.ceil(size / (step or size)) for size, step in pairs))


def _block(given: Any) -> Block:
    """Rows and columns as a config gives them; all, if it gives none."""
    if given is None:
        return None, None
    rows, columns = map(int, given.lower().split("x") if isinstance(given, str) else given)
    if min(rows, columns) < 1:
        raise ValueError(f"it has blocks of {rows} times {columns} weights")
    return rows, columns


def _is_fp8(weights: Mapping[str, Any]) -> bool:
    """Whether a group of compressed tensors is in FP8."""
    strategies = ("tensor", "channel", "block")
    kind = (weights["type"], weights["num_bits"], weights.get("symmetric", True))
    return kind == ("float", 8, True) and weights["strategy"] in strategies
