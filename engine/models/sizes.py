"""A model's sizes from its configuration alone: layers, weights, and what quantising them would leave.

transformers builds the model on PyTorch's meta device, where tensors have shapes and no storage, so the counts are
those of the very modules that loading would fill: no weights are read and nothing is allocated. A model that is
loaded already is measured by the same function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from engine.errors import UnsupportedModel
from engine.method import require
from engine.models import architectures
from engine.models.building import outline
from engine.models.experts import MXFP4, PACKINGS, PackedExperts, Packing, has_experts, shapes_of, together_on
from engine.models.integers import INTEGERS, layer_bytes
from engine.models.load_errors import load_errors_as
from engine.models.quantised import Published, eight_bit_bytes, four_bit_bytes
from engine.models.recurrence import Recurrence, recurrence_of
from engine.models.rotary import rope_of, rotary_of
from engine.models.spec import LayerSpec, ModelSpec, projections_of, window_of

QUANTIZATIONS = ("none", "8bit", "nf4")  # that a plan may choose; INTEGERS must be asked for
NO_MODEL = "describes no model that can be built, correct it or fetch it anew"
CPU = torch.device("cpu")


@dataclass(frozen=True)
class ModelSizes:
    """Sizes of a model; weights are counted in numbers, not bytes.

    linear: (output, input) sizes of each layer that quantisation reaches: all linear ones but the head.
    experts: (experts, output, input) sizes of each stack of them, in turn of their first and second halves; `chosen`:
    how many of each a token goes through; `biased`: whether they have biases.
    other: weights that stay as they are: embeddings, head, norms, biases, and what chooses among experts; `multiplied`:
    those of them that every token is multiplied with, the head left out; head: those of the head.
    mlp: width of the widest hidden layer; depth: layers of all kinds; published: how the linear layers come quantised
    already, if they do; recurrence: what recurrent layers take, if there are any.
    """

    spec: ModelSpec
    linear: tuple[tuple[int, int], ...]
    experts: tuple[tuple[int, int, int], ...]
    chosen: int
    biased: bool
    other: int
    multiplied: int
    head: int
    hidden: int
    mlp: int
    vocabulary: int
    depth: int
    published: Published | None = None
    recurrence: Recurrence | None = None

    @property
    def quantizations(self) -> tuple[str, ...]:
        """What can be asked for when it is loaded, the least lossy first."""
        return QUANTIZATIONS if self.published is None else QUANTIZATIONS[:1]

    def check(self, quantize: str) -> None:
        """Refuse a quantisation that cannot be.

        Raises:
            SettingsError: there is none of that name, the weights are quantised already, or it is for other models or
                devices.
        """
        known = (*QUANTIZATIONS, *INTEGERS)
        require(quantize in known, f"There is no quantisation '{quantize}': choose one of {', '.join(known)}.")
        require(
            quantize == "none" or self.published is None,
            "The weights of this model are quantised already: leave --quantize out.",
        )
        require(
            quantize not in INTEGERS or (self.spec.device.type == "cpu" and not self.experts),
            f"--quantize {quantize} is for models without experts on a CPU: choose 8bit or nf4.",
        )

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.other + self.linear_weights + self.expert_weights

    @cached_property
    def alike(self) -> Counter[tuple[int, int]]:
        """How many linear layers have each size: a planner asks for bytes of all of them thousands of times."""
        return Counter(self.linear)

    @cached_property
    def linear_weights(self) -> int:
        """Those of the layers that quantisation reaches."""
        return sum(rows * columns for rows, columns in self.linear)

    @cached_property
    def expert_weights(self) -> int:
        """Those of all experts."""
        return sum(count * rows * columns for count, rows, columns in self.experts)

    @property
    def active(self) -> int:
        """Weights that one token is multiplied with, the head left out."""
        through = self.chosen * sum(rows * columns for _, rows, columns in self.experts)
        return self.linear_weights + through + self.multiplied

    def weight_bytes(self, quantize: str = "none") -> int:
        """Bytes of all weights, with the constants that a quantisation keeps beside them.

        nf4: two weights a byte; one constant for each 64, itself kept in 8 bits, with a float32 for each 256 of
        them (QLoRA's double quantisation, https://arxiv.org/abs/2305.14314, section 3). 8bit: a float32 per row. Of
        weights that were published quantised, what their config says.

        Raises:
            SettingsError: see `check`.
        """
        return self.other * self.spec.dtype.itemsize + self.linear_bytes(quantize) + self.expert_bytes(quantize)

    def linear_bytes(self, quantize: str) -> int:
        """Of the linear layers alone.

        Raises:
            SettingsError: see `check`.
        """
        self.check(quantize)
        if self.published is not None:
            return sum(count * self.published.layer_bytes(*sizes) for sizes, count in self.alike.items())
        if quantize == "none":
            return self.linear_weights * self.spec.dtype.itemsize
        if quantize in INTEGERS:
            size = self.spec.dtype.itemsize
            return sum(count * layer_bytes(quantize, *sizes, size) for sizes, count in self.alike.items())
        if quantize == "8bit":
            return sum(count * eight_bit_bytes(*sizes) for sizes, count in self.alike.items())
        return sum(count * four_bit_bytes(rows * columns) for (rows, columns), count in self.alike.items())

    def packing(self, quantize: str) -> type[Packing] | None:
        """How experts are held; None: as they are."""
        return MXFP4 if self.published is not None and self.published.experts else PACKINGS.get(quantize)

    def expert_bytes(self, quantize: str) -> int:
        """Of all experts alone."""
        packing = self.packing(quantize)
        if packing is None:
            return self.expert_weights * self.spec.dtype.itemsize
        return sum(count * packing(*sizes).nbytes for count, *sizes in self.experts)

    def loading_bytes(self, quantize: str) -> int:
        """Bytes that loading takes where the weights are to be: theirs, and of experts that are packed one layer's
        larger stack, which transformers has twice as it puts it together. What becomes integers is there whole before.
        """
        if quantize in INTEGERS:
            return self.weight_bytes("none")
        stacks = (count * rows * columns for count, rows, columns in self.experts if quantize != "none")
        return self.weight_bytes(quantize) + 2 * max(stacks, default=0) * self.spec.dtype.itemsize

    def packed(self, quantize: str) -> bool:
        """Whether weights are unpacked before they are multiplied with; of integers see `integers.py`."""
        return quantize not in ("none", *INTEGERS) or self.published is not None

    def unpacked_bytes(self, quantize: str) -> int:
        """Bytes of the most that is unpacked at once to be multiplied with; 0 where nothing is packed.

        It is a linear layer or an expert, on a GPU as a rule all that a token chooses; their codes are there again.
        """
        if not self.packed(quantize) and quantize != "int8":
            return 0
        size = self.spec.dtype.itemsize
        largest = max((rows * columns * size for rows, columns in self.alike), default=0)
        packing = self.packing(quantize)
        if packing is None:
            return largest
        experts = (packing(*sizes).unpacking_bytes(size) for _, *sizes in self.experts)
        count = self.chosen if together_on(self.spec.device) and not packing.direct else 1
        return max(largest, count * max(experts, default=0))

    def mlp_bytes(self, rows: int, quantize: str) -> int:
        """Bytes of what a pass of so many tokens holds between the layers of one block, at most.

        Packed experts take their own tokens one after another, and it may be all of them; transformers has each token
        go through all that it chooses at once. Beside that there is what was chosen, in order and as it was.
        """
        size = self.spec.dtype.itemsize
        mlp = rows * 3 * self.mlp * size
        if not self.experts:
            return mlp
        count, _, width = self.experts[1]
        if self.packing(quantize) is None:
            outside, inside = (6, 9) if self.biased else (4, 4)  # numbers of a token for each expert, in widths
            each = self.chosen * max(outside * self.hidden, self.hidden + inside * width) * size
        else:
            each = self.hidden * (2 * size + 12) + 4 * width * size
        return max(mlp, rows * (each + 6 * 8 * self.chosen + count * (size + 4)))

    def hit(self, rows: float) -> float:
        """Share of the experts that a pass of so many tokens goes through, where each token chooses at random."""
        return 1 - (1 - self.chosen / self.experts[0][0]) ** rows if self.experts else 0.0


def model_sizes(
    config: PretrainedConfig, dtype: torch.dtype, device: torch.device = CPU, folder: Path | None = None
) -> ModelSizes:
    """The sizes of the model that a configuration describes, as it would be on a device.

    folder: where it lies, for what is trained for it and lies beside it.

    Raises:
        UnsupportedModel: an architecture that the engine cannot use, or sizes that go with none.
    """
    architectures.check(config)
    with load_errors_as(UnsupportedModel, f"The config.json of '{config.name_or_path}' {NO_MODEL}"):
        network = outline(config)
        spec = ModelSpec(
            layers_of(network),
            dtype,
            device,
            window_of(config),
            folder=folder,
            projections=projections_of(network),
        )
        sizes = sizes_of(network, spec)
        states = sizes.recurrence.state_bytes if sizes.recurrence else 0
        return replace(sizes, spec=replace(spec, state_bytes=states))


def sizes_of(network: PreTrainedModel, spec: ModelSpec) -> ModelSizes:
    """The sizes of a network, loaded or on the meta device. Weights may be quantised: the layers say their shapes, also
    where they are of a package that quantises, and no nn.Linear.
    """
    config: Any = network.config
    head = network.get_output_embeddings()  # type: ignore[no-untyped-call]
    published, kept = Published.of(config), architectures.KEPT.get(config.model_type, ())
    modules: list[Any] = [
        each
        for name, each in network.named_modules()
        if hasattr(each, "in_features") and each is not head and not name.endswith(tuple(kept))
        if published is None or published.reaches(name)
    ]
    linear = tuple((each.out_features, each.in_features) for each in modules)
    stacks = [own for own in network.modules() if isinstance(own, PackedExperts) or has_experts(own)]
    experts = tuple(sizes for own in stacks for sizes in shapes_of(own))
    of_experts = [weight for own in stacks for weight in own.parameters()]  # stacks if not packed, and biases
    reached = {id(getattr(each, "weight", None)) for each in modules} | {
        id(weight) for weight in of_experts if weight.dim() == 3
    }
    rest = {id(each): each for each in network.parameters() if id(each) not in reached}
    chosen = int(getattr(config, "num_experts_per_tok", None) or config.top_k_experts) if experts else 1
    dense = getattr(config, "intermediate_size", None) or 0
    width = getattr(config, "moe_intermediate_size", None) or dense
    looked_up = [each.weight for each in network.modules() if isinstance(each, nn.Embedding)]
    apart = {id(each) for each in (*looked_up, None if head is None else head.weight, *of_experts)}
    multiplied = [own for own in rest.values() if own.dim() == 2 and id(own) not in apart]
    return ModelSizes(
        spec=spec,
        linear=linear,
        experts=experts,
        chosen=chosen,
        biased=any(bool(own.has_bias) for own in stacks),
        other=sum(weight.numel() for weight in rest.values()),
        multiplied=sum(weight.numel() for weight in multiplied),
        head=config.hidden_size * config.vocab_size,
        hidden=config.hidden_size,
        mlp=max(dense, chosen * int(width)),
        vocabulary=config.vocab_size,
        depth=config.num_hidden_layers,
        published=published,
        recurrence=recurrence_of(network, spec.dtype),
    )


def layers_of(network: PreTrainedModel) -> tuple[LayerSpec, ...]:
    """What `attach` would find out by sending a token through: tests compare the two for every architecture.

    Raises:
        UnsupportedModel: no layer attends.
    """
    config: Any = network.config
    base = network.base_model
    count, heads = config.num_hidden_layers, config.num_attention_heads
    if count < 1:
        raise ValueError(f"num_hidden_layers is {count}")
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * count
    sliding = getattr(config, "sliding_window", None)
    rotary = rotary_of(network)
    modules: Iterable[Any] = base.modules()
    attending = [each for each in modules if hasattr(each, "is_causal") and hasattr(each, "layer_idx")]
    ropes = [rope_of(each, rotary) for each in attending]
    keys = [id(rope.inv_freq) if len(rope.inv_freq) else 0 for rope in ropes]
    shared = dict(zip(keys, ropes, strict=True))  # layers with the same frequencies share their tables
    layers = []
    for each, key in zip(attending, keys, strict=True):
        own = architectures.of_layer(config, each.layer_idx)
        latent = config.model_type in architectures.LATENT
        kv_heads = 1 if latent else getattr(own, "num_key_value_heads", None) or heads
        head_size = getattr(own, "head_dim", None) or config.hidden_size // heads
        if latent:
            head_size = config.qk_rope_head_dim + config.kv_lora_rank
        window = sliding if kinds[each.layer_idx] == "sliding_attention" else None
        layers.append(LayerSpec(heads, kv_heads, head_size, window, shared[key], latent))
    if not layers:
        raise UnsupportedModel(f"No layer of this '{config.model_type}' attends to tokens: choose another model.")
    return tuple(layers)
