"""The weights of Activation Beacon: one embedding, and a twin of each projection to queries, keys or values.

In Activation Beacon (https://arxiv.org/abs/2401.03462, equation 5) beacon tokens share one embedding. In every layer
their queries, keys and values come from projections of their own; everything else is the frozen model's.

Tensors have the names that the authors publish, `model.beacon_embed_tokens.weight` [1, hidden] and
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

RATIOS = (2, 4, 8, 16, 32)  # raw tokens a beacon, in training by the authors and by `training/beacon`


class Beacons(Trained):
    """The weights of beacons. window: of their training, 0 if unknown."""

    def __init__(self, spec: ModelSpec) -> None:
        """Make random weights, float32 on the CPU."""
        super().__init__()
        self.embedding = nn.Embedding(1, spec.projections[0].inputs)
        self.projections = nn.ModuleList(nn.Linear(p.inputs, p.outputs, bias=p.bias) for p in spec.projections)
        self.names = [projection.name for projection in spec.projections]
        self.window = 0

    @property
    def modules_by_name(self) -> dict[str, nn.Module]:
        """Modules by the name of the model's module that each replaces for beacons."""
        return {EMBEDDING: self.embedding, **dict(zip(self.names, self.projections, strict=True))}

    def extra_tokens(self, count: int) -> ExtraTokens | None:
        """Return `count` beacons for a pass, None for none."""
        return ExtraTokens(count, self.modules_by_name) if count else None

    def named_weights(self) -> dict[str, Tensor]:
        """Return the weights under their published names."""
        return {
            f"model.{_twin(name)}.{part}": weight
            for name, module in self.modules_by_name.items()
            for part, weight in module.named_parameters()
        }


def _twin(name: str) -> str:
    """Turn layers.0.self_attn.q_proj into layers.0.self_attn.beacon_q_proj."""
    path, dot, last = name.rpartition(".")
    return f"{path}{dot}beacon_{last}"


def beacon_numbers(spec: ModelSpec) -> int:
    """Return how many numbers the weights for a model are."""
    each = [p.outputs * (p.inputs + p.bias) for p in spec.projections]
    return sum(each) + (spec.projections[0].inputs if each else 0)


def find_beacons(spec: ModelSpec, given: str, window: int = 0) -> Beacons:
    """Return the weights in the file or folder `given`, or if that is empty those beside the model, in its dtype.

    window: tokens of the windows that beacons will stand for; 0 if that is not checked.

    Raises:
        WeightsError: there are none, or they do not fit the model or the window.
    """
    beacons = find(KIND, spec, given)
    if window and beacons.window and beacons.window != window:
        raise WeightsError(
            f"These beacon weights were trained with windows of {beacons.window} tokens, and the window is set to "
            f"{window}: set window={beacons.window}."
        )
    return beacons


def _why_untrainable(spec: ModelSpec) -> str:
    """Return the feature of a model that rules out training beacons yet, empty if none does."""
    return "layers with a sliding window" if any(layer.sliding_window for layer in spec.layers) else ""


def _why_impossible(spec: ModelSpec) -> str:
    """Return why a model cannot have beacons, empty if it can."""
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
FILE = KIND.file  # beside a model


def check_shapes(shapes: Shapes, wanted: Shapes, where: str) -> None:
    """Check that a file holds exactly the tensors that a model needs.

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
