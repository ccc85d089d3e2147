"""A model's sizes from its configuration alone: layers, weights, and what quantising them would leave.

transformers builds the model on PyTorch's meta device, where tensors have shapes and no storage, so the counts are
those of the very modules that loading would fill: no weights are read and nothing is allocated. A model that is
loaded already is measured by the same function.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from engine.errors import UnsupportedModel
from engine.method import require
from engine.models import architectures
from engine.models.quantised import Published, eight_bit_bytes, four_bit_bytes
from engine.models.refusing import refusing
from engine.seam import LayerSpec, ModelSpec, projections_of, rope_of, window_of

QUANTIZATIONS = ("none", "8bit", "nf4")
NO_MODEL = "describes no model that can be built, correct it or fetch it anew"
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Skeleton:
    """Sizes of a model; weights are counted in numbers, not bytes.

    linear: (output, input) sizes of each layer that quantisation reaches: all linear ones but the head.
    other: weights that stay as they are: embeddings, head, norms, biases, and experts that are no linear layers.
    active: weights that one token is multiplied with, the head left out; head: those of the head.
    mlp: width of the widest hidden layer; published: how the linear layers come quantised already, if they do.
    """

    spec: ModelSpec
    linear: tuple[tuple[int, int], ...]
    other: int
    active: int
    head: int
    hidden: int
    mlp: int
    vocabulary: int
    published: Published | None = None

    @property
    def quantizations(self) -> tuple[str, ...]:
        """What can be asked for when it is loaded, the least lossy first."""
        return QUANTIZATIONS if self.published is None else QUANTIZATIONS[:1]

    def check(self, quantize: str) -> None:
        """Refuse a quantisation that cannot be.

        Raises:
            SettingsError: there is none of that name, or the weights are quantised already.
        """
        known = ", ".join(QUANTIZATIONS)
        require(quantize in QUANTIZATIONS, f"There is no quantisation '{quantize}': choose one of {known}.")
        require(
            quantize in self.quantizations, "The weights of this model are quantised already: leave --quantize out."
        )

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.other + sum(rows * columns for rows, columns in self.linear)

    def weight_bytes(self, quantize: str = "none") -> int:
        """Bytes of all weights, with the constants that a quantisation keeps beside them.

        nf4: two weights a byte; one constant for each 64, itself kept in 8 bits, with a float32 for each 256 of
        them (QLoRA's double quantisation, https://arxiv.org/abs/2305.14314, section 3). 8bit: a float32 per row. Of
        weights that were published quantised, what their config says.

        Raises:
            SettingsError: see `check`.
        """
        self.check(quantize)
        kept = self.other * self.spec.dtype.itemsize
        if self.published is not None:
            return kept + sum(self.published.layer_bytes(*sizes) for sizes in self.linear)
        if quantize == "none":
            return kept + sum(rows * columns for rows, columns in self.linear) * self.spec.dtype.itemsize
        if quantize == "8bit":
            return kept + sum(eight_bit_bytes(*sizes) for sizes in self.linear)
        return kept + sum(four_bit_bytes(rows * columns) for rows, columns in self.linear)

    def packed(self, quantize: str) -> bool:
        """Whether weights are unpacked before they are multiplied with."""
        return quantize != "none" or self.published is not None

    def unpacked_bytes(self, quantize: str) -> int:
        """Bytes of the largest layer as it is unpacked to be multiplied with; 0 where nothing is packed."""
        largest = max((rows * columns for rows, columns in self.linear), default=0)
        return largest * self.spec.dtype.itemsize if self.packed(quantize) else 0


def skeleton(
    config: PretrainedConfig, dtype: torch.dtype, device: torch.device = CPU, folder: Path | None = None
) -> Skeleton:
    """The sizes of the model that a configuration describes, as it would be on a device.

    folder: where it lies, for what is trained for it and lies beside it.

    Raises:
        UnsupportedModel: an architecture that the engine cannot use, or sizes that go with none.
    """
    architectures.check(config)
    with refusing(UnsupportedModel, f"The config.json of '{config.name_or_path}' {NO_MODEL}"):
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        spec = ModelSpec(
            layers_of(network),
            dtype,
            device,
            window_of(config),
            folder=folder,
            projections=projections_of(network),
        )
        return skeleton_of(network, spec)


def skeleton_of(network: PreTrainedModel, spec: ModelSpec) -> Skeleton:
    """The sizes of a network, loaded or on the meta device. Weights may be quantised: the layers say their shapes, also
    where they are of a package that quantises, and no nn.Linear.
    """
    config: Any = network.config
    head = network.get_output_embeddings()  # type: ignore[no-untyped-call]
    published = Published.of(config)
    modules: list[Any] = [
        each
        for name, each in network.named_modules()
        if hasattr(each, "in_features") and each is not head and (published is None or published.reaches(name))
    ]
    linear = tuple((each.out_features, each.in_features) for each in modules)
    reached = {id(getattr(each, "weight", None)) for each in modules}
    rest = {id(each): each for each in network.parameters() if id(each) not in reached}
    embedding = network.get_input_embeddings().weight
    experts = int(getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None) or 0)
    chosen = int(config.num_experts_per_tok) if experts else 1
    width = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    active = float(sum(rows * columns for rows, columns in linear))
    for weight in rest.values():
        if weight.dim() == 3 and weight.shape[0] == experts:
            active += weight.numel() * chosen / experts
        elif weight.dim() == 2 and weight is not embedding and (head is None or weight is not head.weight):
            active += weight.numel()
    return Skeleton(
        spec=spec,
        linear=linear,
        other=sum(weight.numel() for weight in rest.values()),
        active=round(active),
        head=config.hidden_size * config.vocab_size,
        hidden=config.hidden_size,
        mlp=max(config.intermediate_size, chosen * int(width)),
        vocabulary=config.vocab_size,
        published=published,
    )


def layers_of(network: PreTrainedModel) -> tuple[LayerSpec, ...]:
    """What the seam would find out by sending a token through: tests compare the two for every architecture."""
    config: Any = network.config
    base: Any = network.base_model
    count, heads = config.num_hidden_layers, config.num_attention_heads
    if count < 1:
        raise ValueError(f"num_hidden_layers is {count}")
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * count
    sliding = getattr(config, "sliding_window", None)
    rotary = getattr(base.rotary_emb, "original", base.rotary_emb)  # where the engine has taken over already
    ropes = [rope_of(layer.self_attn, rotary) for layer in base.layers]
    keys = [id(rope.inv_freq) if len(rope.inv_freq) else 0 for rope in ropes]
    shared = dict(zip(keys, ropes, strict=True))  # layers with the same frequencies share their tables
    return tuple(
        LayerSpec(heads, kv_heads, head_size, sliding if kind == "sliding_attention" else None, shared[key])
        for kind, key in zip(kinds, keys, strict=True)
    )
