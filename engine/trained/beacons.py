"""The weights of Activation Beacon: one embedding, and a twin of every projection that makes queries, keys or values.

Activation Beacon (https://arxiv.org/abs/2401.03462, equation 5): beacon tokens share one embedding, and in every layer
their queries, keys and values come from projections of their own; all else is the frozen model's.

Files are those that the authors publish, by the names `model.beacon_embed_tokens.weight` [1, hidden] and
`model.layers.{i}.self_attn.beacon_{q,k,v}_proj.weight` and `.bias`, the latter where the model's own projection has one
(a model with a fused `qkv_proj` has a `beacon_qkv_proj`). They may lie among the model's own weights, see
`sidecar_weights.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from engine.errors import WeightsError
from engine.models.attention_interface import EMBEDDING, ExtraTokens
from engine.models.checkpoint import BEACON_TENSORS
from engine.models.spec import ModelSpec
from engine.trained.sidecar_weights import Kind, Shapes, Trained, find

RATIOS = (2, 4, 8, 16, 32)  # raw tokens a beacon; what the authors, and `training/beacon`, train for


class Beacons(Trained):
    """The weights. window: of their training, 0 if nobody knows."""

    def __init__(self, spec: ModelSpec) -> None:
        """Random weights, float32 on the CPU."""
        super().__init__()
        self.embedding = nn.Embedding(1, spec.projections[0].inputs)
        self.projections = nn.ModuleList(nn.Linear(p.inputs, p.outputs, bias=p.bias) for p in spec.projections)
        self.names = [projection.name for projection in spec.projections]
        self.window = 0

    @property
    def modules_by_name(self) -> dict[str, nn.Module]:
        """By the name of the model's module whose place each takes for beacons."""
        return {EMBEDDING: self.embedding, **dict(zip(self.names, self.projections, strict=True))}

    def extra_tokens(self, count: int) -> ExtraTokens | None:
        """So many beacons for a pass."""
        return ExtraTokens(count, self.modules_by_name) if count else None

    def named_weights(self) -> dict[str, Tensor]:
        """The weights under their published names."""
        return {
            f"model.{_twin(name)}.{part}": weight
            for name, module in self.modules_by_name.items()
            for part, weight in module.named_parameters()
        }


def _twin(name: str) -> str:
    """layers.0.self_attn.q_proj as layers.0.self_attn.beacon_q_proj."""
    path, dot, last = name.rpartition(".")
    return f"{path}{dot}beacon_{last}"


def beacon_numbers(spec: ModelSpec) -> int:
    """How many numbers the weights for a model are."""
    each = [p.outputs * (p.inputs + p.bias) for p in spec.projections]
    return sum(each) + (spec.projections[0].inputs if each else 0)


def find_beacons(spec: ModelSpec, given: str) -> Beacons:
    """The weights in the file or folder `given`, or if that is empty those beside the model, in its dtype.

    Raises:
        WeightsError: there are none, or they do not fit the model.
    """
    return find(KIND, spec, given)


def _why_untrainable(spec: ModelSpec) -> str:
    """What a model has for which beacons cannot be trained yet, in words; nothing if they can be."""
    return "layers with a sliding window" if any(layer.sliding_window for layer in spec.layers) else ""


def _why_impossible(spec: ModelSpec) -> str:
    """Why a model cannot have beacons, in words; nothing if it can."""
    if not spec.recurrent:
        return ""
    return "puts tokens of its own between those of a text, and this model's recurrent layers would carry them on"


def _build(spec: ModelSpec, shapes: Shapes, facts: Mapping[str, str], where: str) -> Beacons:
    beacons = Beacons(spec)
    check_shapes(shapes, {name: tuple(weight.shape) for name, weight in beacons.named_weights().items()}, where)
    beacons.window = int(facts.get("window", 0))
    return beacons


KIND = Kind(
    "beacon",
    "beacon weights",
    "weights",
    BEACON_TENSORS,
    "model.beacon_embed_tokens.weight",
    _build,
    _why_untrainable,
    _why_impossible,
)
FILE = KIND.file  # where beacons lie beside a model


def check_shapes(shapes: Shapes, wanted: Shapes, where: str) -> None:
    """See that a file holds just the tensors that a model needs.

    Args:
        shapes, wanted: by published names; where: the file, for messages.

    Raises:
        WeightsError: naming both sides.
    """
    missing = [name for name in wanted if name not in shapes]
    strange = [name for name in shapes if name not in wanted]
    if missing or strange:
        raise WeightsError(
            f"The beacon weights in {where} are for another model, or incomplete: of the {len(wanted)} tensors that "
            f"this model needs, "
            + (f"{len(missing)} are missing, {missing[0]} first" if missing else "none is missing")
            + (f", and there is {strange[0]}, which it has no place for." if strange else ".")
        )
    for name, shape in shapes.items():
        if shape != wanted[name]:
            raise WeightsError(
                f"{name} in {where} has the shape {list(shape)}, and this model needs {list(wanted[name])}: these "
                f"beacon weights are for another model."
            )
