"""Locret's retaining heads: one small MLP per layer that says how much each entry will matter.

Locret (https://arxiv.org/abs/2410.01805, section 3.3): S = act([Q, K, V] W1) W2, from the projections of a token before
RoPE, of all heads together, to one causal importance score per KV head. The activation is the model's own, there are
no biases, and a score estimates a dot product before softmax (scaled, as in the authors' code), so it has no bounds.

Files are those that the authors publish, by the names `model.layers.{i}.self_attn.fc1.weight` [width, (HQ + 2H) D] and
`fc2.weight` [H, width] (`sidecar_weights.py`). Sizes: HQ query heads, H KV heads, T tokens, D head size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from engine.errors import WeightsError
from engine.models.checkpoint import RETAINING_TENSORS
from engine.models.spec import LayerSpec, ModelSpec
from engine.trained.sidecar_weights import Kind, Shapes, Trained, find, sidecar_shapes

NAME = "model.layers.{layer}.self_attn.fc{part}.weight"
PAPERS_WIDTH = 1024


class RetainingHead(nn.Module):
    """The head of one layer."""

    def __init__(self, layer: LayerSpec, width: int, activation: str) -> None:
        """width: of the hidden layer; activation: by transformers' name."""
        super().__init__()
        self.fc1 = nn.Linear(input_width(layer), width, bias=False)
        with torch.device("cpu"):  # one with weights (xIELU) stays as it is made: they are in no file
            self.activation = ACT2FN[activation].requires_grad_(False)
        self.fc2 = nn.Linear(width, layer.kv_heads, bias=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Scores [H, T] for q [HQ, T, D] and k, v [H, T, D], all before RoPE."""
        joined = torch.cat([x.transpose(0, 1).flatten(1) for x in (q, k, v)], dim=1)
        scores: Tensor = self.fc2(self.activation(self.fc1(joined)))
        return scores.transpose(0, 1)


class RetainingHeads(Trained):
    """The heads of all layers."""

    def __init__(self, spec: ModelSpec, widths: list[int]) -> None:
        """Random weights, float32 on the CPU. widths: of the hidden layer, per layer."""
        super().__init__()
        self.layers = nn.ModuleList(
            RetainingHead(layer, width, spec.activation) for layer, width in zip(spec.layers, widths, strict=True)
        )
        self.widths = widths

    def named_weights(self) -> dict[str, Tensor]:
        """The weights under their published names."""
        return {
            NAME.format(layer=number, part=part): getattr(head, f"fc{part}").weight
            for number, head in enumerate(self.layers)
            for part in (1, 2)
        }

    def score(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Scores [H, T] of a layer's tokens; q [HQ, T, D], k and v [H, T, D], before RoPE."""
        scores: Tensor = self.layers[layer](q, k, v)
        return scores


def input_width(layer: LayerSpec) -> int:
    """(HQ + 2H) D: what a head looks at."""
    return (layer.query_heads + 2 * layer.kv_heads) * layer.head_size


def usual_width(layer: LayerSpec) -> int:
    """The hidden width of a head where nothing else is said: the paper's, or less where little goes in."""
    return min(PAPERS_WIDTH, input_width(layer) // 4)


def head_numbers(layer: LayerSpec, width: int) -> int:
    """Numbers in the head of one layer."""
    return width * (input_width(layer) + layer.kv_heads)


def head_bytes(spec: ModelSpec, given: str) -> int:
    """Bytes of the heads that `find_heads` would give, in the model's dtype; of the usual width if there are none."""
    shapes = sidecar_shapes(KIND, spec, given)
    if shapes is None:
        sizes = [head_numbers(layer, usual_width(layer)) for layer in spec.layers]
    else:
        sizes = [math.prod(shape) for shape in shapes.values()]
    return sum(sizes) * spec.dtype.itemsize


def find_heads(spec: ModelSpec, given: str) -> RetainingHeads:
    """The heads in the file `given`, or if that is empty those beside the model, in its dtype and on its device.

    Raises:
        WeightsError: there are none, or they do not fit the model.
    """
    return find(KIND, spec, given)


def _build(spec: ModelSpec, shapes: Shapes, facts: Mapping[str, str], where: str) -> RetainingHeads:
    return RetainingHeads(spec, hidden_widths(shapes, spec, where))


KIND = Kind("locret", "retaining heads", "heads", RETAINING_TENSORS, NAME.format(layer=0, part=1), _build)
FILE = KIND.file  # where heads lie beside a model


def hidden_widths(shapes: Shapes, spec: ModelSpec, where: str) -> list[int]:
    """The hidden width of each layer's head, after checking that all of them are there and fit the model.

    Args:
        shapes: of the tensors by their published names; where: the file, for messages.

    Raises:
        WeightsError: naming both sides.
    """
    count = len(spec.layers)
    beyond = max(int(match[1]) for name in shapes if (match := RETAINING_TENSORS.fullmatch(name))) + 1
    if beyond > count:
        raise WeightsError(f"{where} holds retaining heads of {beyond} layers, and this model has {count}.")
    widths = []
    for number, layer in enumerate(spec.layers):
        for part in (1, 2):
            if _name(number, part) not in shapes:
                raise WeightsError(f"{where} has no {_name(number, part)}: heads of all {count} layers are needed.")
        width = shapes[_name(number, 1)][0]
        for part, wanted in ((1, (width, input_width(layer))), (2, (layer.kv_heads, width))):
            if shapes[_name(number, part)] != wanted:
                raise WeightsError(
                    f"{_name(number, part)} in {where} has the shape {list(shapes[_name(number, part)])}, and this "
                    f"model with {layer.query_heads} query and {layer.kv_heads} KV heads of {layer.head_size} needs "
                    f"{list(wanted)}: these heads are for another model."
                )
        widths.append(width)
    return widths


def _name(layer: int, part: int) -> str:
    return NAME.format(layer=layer, part=part)
