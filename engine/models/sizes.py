"""Count the layers and weights of a model from its configuration alone, and their bytes when quantised.

transformers builds the model on PyTorch's meta device, where tensors have shapes and no storage. So the counts are
those of the modules that loading would fill; no weights are read and nothing is allocated. A loaded model is measured
by the same function.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from engine.errors import UnsupportedModel, require
from engine.models import architectures, products
from engine.models.building import outline
from engine.models.expert_packing import MXFP4, PACKINGS, Packing
from engine.models.experts import experts_in, shapes_of, together_on
from engine.models.file_layers import FileEmbedding
from engine.models.four_bits import AT_ONCE, TILE, UNPACKED
from engine.models.gguf.header import is_gguf
from engine.models.gguf.model_file import kept_weights
from engine.models.integers import DIRECT, INTEGERS, fits, layer_bytes
from engine.models.load_errors import load_errors_as
from engine.models.quantised import Published, eight_bit_bytes, four_bit_bytes
from engine.models.recurrence import Recurrence, recurrence_of
from engine.models.rotary import rope_of, rotary_of
from engine.models.spec import LayerSpec, ModelSpec, projections_of, window_of

AS_STORED = "blocks"  # a CPU leaves the weights of a GGUF file in its blocks (`file_layers.py`)
QUANTIZATIONS = ("none", "8bit", "nf4")  # that a plan may choose; only the user chooses INTEGERS
NO_MODEL = "describes no model that can be built, correct it or fetch it anew"
CPU = torch.device("cpu")
IN_SESSIONS = 90_000  # bytes of a linear layer beside its weights, if they are in blocks; measured with three models
PACKING = 6  # bytes of a weight while it is packed for a product, garbage of the ones before included


def form_on(place: torch.device, dtype: torch.dtype, quantize: str, *, in_gguf: bool) -> str:
    """Return the form of loaded weights for a quantisation.

    By default the weights of a GGUF file stay in its blocks if a CPU computes in float32. A text is then read as fast
    as with plain weights, and answers are faster. In bfloat16 reading would be slower.
    """
    stay = quantize == "none" and in_gguf and place.type == "cpu" and dtype == torch.float32
    return AS_STORED if stay else quantize


@dataclass(frozen=True)
class InFile:
    """Needs of the weights that a CPU leaves in their GGUF file (`file_layers.py`)."""

    linear_bytes: int  # of linear layers in memory, those that do not stay in the file too
    head_bytes: int
    head_apart: bool  # the head takes memory of its own
    embeddings: int  # numbers that are looked up in the file, and not held


@dataclass(frozen=True)
class ModelSizes:
    """Sizes of a model; weights are counted in numbers, not bytes."""

    spec: ModelSpec
    linear: tuple[tuple[int, int], ...]  # (output, input) of each layer that quantisation reaches: all but the head
    experts: tuple[tuple[int, int, int], ...]  # (experts, output, input) of each stack: up, down, up, down, ...
    chosen: int  # experts that a token goes through in each layer
    biased: bool  # experts have biases
    other: int  # weights that are never quantised: embeddings, norms, biases, routers; a head that is the embeddings
    multiplied: int  # those of them that every token is multiplied with, without the head
    head: int
    tied: bool  # the head is the embeddings
    hidden: int
    mlp: int  # width of the widest hidden layer
    vocabulary: int
    depth: int  # layers of all kinds
    published: Published | None = None  # form of linear layers that were published quantised
    recurrence: Recurrence | None = None  # needs of recurrent layers, None if there are none
    file: PretrainedConfig | None = None  # of a model in a GGUF file

    @property
    def quantizations(self) -> tuple[str, ...]:
        """Quantisations that a plan may choose, the least lossy first."""
        if self.file is not None and self.spec.device.type == "cpu":
            return tuple(dict.fromkeys((self.form("none"), AS_STORED)))  # the others would round again
        return QUANTIZATIONS if self.published is None else QUANTIZATIONS[:1]

    def form(self, quantize: str) -> str:
        """Return the form of loaded weights for a quantisation; see `form_on`."""
        return form_on(self.spec.device, self.spec.dtype, quantize, in_gguf=self.file is not None)

    def check(self, quantize: str) -> None:
        """Refuse a quantisation that does not go with this model.

        Raises:
            SettingsError: its name is unknown, the weights are quantised already, or it is for other models or devices.
        """
        known = (*QUANTIZATIONS, *INTEGERS, AS_STORED)
        require(quantize in known, f"There is no quantisation '{quantize}': choose one of {', '.join(known)}.")
        require(
            quantize == "none" or self.published is None,
            "The weights of this model are quantised already: leave --quantize out.",
        )
        require(
            quantize not in INTEGERS or not self.experts,
            f"--quantize {quantize} is for models without experts: choose 8bit or nf4.",
        )
        require(
            quantize != "int8" or self.spec.device.type == "cpu",
            "--quantize int8 is for a CPU: choose 8bit, int4 or nf4.",
        )
        require(
            quantize != AS_STORED or (self.file is not None and self.spec.device.type == "cpu"),
            "--quantize blocks is for a GGUF file on a CPU: leave it out.",
        )

    @property
    def parameters(self) -> int:
        """Number of all weights."""
        return self.other + self.linear_weights + self.expert_weights + (0 if self.tied else self.head)

    @cached_property
    def in_file(self) -> InFile:
        """Needs of the weights if they stay in their file."""
        assert self.file is not None
        return _in_file(self.file, self.spec.dtype.itemsize)

    @cached_property
    def alike(self) -> Counter[tuple[int, int]]:
        """Number of linear layers of each size, since the planner asks for their bytes thousands of times."""
        return Counter(self.linear)

    @cached_property
    def linear_weights(self) -> int:
        """Weights of the linear layers that quantisation reaches."""
        return sum(rows * columns for rows, columns in self.linear)

    @cached_property
    def expert_weights(self) -> int:
        """Weights of all experts."""
        return sum(count * rows * columns for count, rows, columns in self.experts)

    @property
    def active(self) -> int:
        """Weights that one token is multiplied with, without the head."""
        through = self.chosen * sum(rows * columns for _, rows, columns in self.experts)
        return self.linear_weights + through + self.multiplied

    def weight_bytes(self, quantize: str = "none") -> int:
        """Return the bytes of all weights, and of the constants that a quantisation keeps beside them.

        nf4 takes two weights a byte, and a constant for each 64 weights in 8 bits, with a float32 for each 256 of
        them (QLoRA's double quantisation, https://arxiv.org/abs/2305.14314, section 3). 8bit takes a float32 per row.
        Weights that were published quantised take the bytes that their config implies.

        Raises:
            SettingsError: see `check`.
        """
        size = self.spec.dtype.itemsize
        if quantize == AS_STORED:
            self.check(quantize)
            beside = self.in_file.linear_bytes + (self.in_file.head_bytes if self.in_file.head_apart else 0)
            beside += IN_SESSIONS * len(self.linear)
            return (self.other - self.in_file.embeddings) * size + beside + self.expert_bytes(quantize)
        head = 0 if self.tied and not self.head_in_eight_bits(quantize) else self.head_bytes(quantize)
        plain = self.other * size
        return plain + head + self.linear_bytes(quantize) + self.expert_bytes(quantize)

    def head_in_eight_bits(self, quantize: str) -> bool:
        """Return whether products with the head are in 8 bits: a copy, if it is the embeddings."""
        return quantize in INTEGERS and self.spec.device.type == "cpu" and fits(self.vocabulary, self.hidden)

    def head_bytes(self, quantize: str) -> int:
        """Return the bytes of the head, which every token of an answer is multiplied with."""
        if quantize == AS_STORED:
            return self.in_file.head_bytes
        if self.head_in_eight_bits(quantize):
            return products.packed_bytes(self.vocabulary, self.hidden, 8, products.coarse(self.hidden))
        if quantize != "int4" or self.tied or not fits(self.vocabulary, self.hidden):
            return self.head * self.spec.dtype.itemsize
        return layer_bytes(quantize, self.vocabulary, self.hidden, self.spec.dtype.itemsize)

    def linear_bytes(self, quantize: str) -> int:
        """Return the bytes of the linear layers.

        Raises:
            SettingsError: see `check`.
        """
        self.check(quantize)
        if self.published is not None:
            return sum(count * self.published.layer_bytes(*sizes) for sizes, count in self.alike.items())
        if quantize == AS_STORED:
            return self.in_file.linear_bytes
        if quantize == "none":
            return self.linear_weights * self.spec.dtype.itemsize
        if quantize in INTEGERS:
            size = self.spec.dtype.itemsize
            return sum(count * layer_bytes(quantize, *sizes, size) for sizes, count in self.alike.items())
        if quantize == "8bit":
            return sum(count * eight_bit_bytes(*sizes) for sizes, count in self.alike.items())
        return sum(count * four_bit_bytes(rows * columns) for (rows, columns), count in self.alike.items())

    def packing(self, quantize: str) -> type[Packing] | None:
        """Return the packing of experts, None for plain weights."""
        return MXFP4 if self.published is not None and self.published.experts else PACKINGS.get(quantize)

    def expert_bytes(self, quantize: str) -> int:
        """Return the bytes of all experts."""
        packing = self.packing(quantize)
        if packing is None:
            return self.expert_weights * self.spec.dtype.itemsize
        return sum(count * packing(*sizes).nbytes for count, *sizes in self.experts)

    def loading_bytes(self, quantize: str) -> int:
        """Return the most bytes that loading takes on the device of the weights.

        That is the weights, and for packed experts two copies of one layer's larger stack, which transformers makes as
        it joins it. For integers the whole plain checkpoint is loaded into host memory first; on their way to a GPU
        layers are packed one by one.
        """
        if quantize in INTEGERS and self.spec.device.type == "cpu":
            head = self.head_bytes(quantize) + PACKING * products.AT_ONCE if self.head_in_eight_bits(quantize) else 0
            return self.weight_bytes("none") + head
        if quantize == AS_STORED:
            return self.weight_bytes(quantize) + PACKING * products.AT_ONCE
        if quantize in INTEGERS:
            largest = max(self.head, *(rows * columns for rows, columns in self.alike))
            return self.weight_bytes(quantize) + (self.spec.dtype.itemsize + 2) * largest + 32 * AT_ONCE
        stacks = (
            count * rows * columns for count, rows, columns in self.experts if quantize not in ("none", AS_STORED)
        )
        return self.weight_bytes(quantize) + 2 * max(stacks, default=0) * self.spec.dtype.itemsize

    def packed(self, quantize: str) -> bool:
        """Return whether weights are unpacked before products of many rows; for int8 see `integers.py`."""
        on_gpu = self.spec.device.type != "cpu"
        return (
            quantize not in ("none", AS_STORED, *INTEGERS)
            or (quantize == "int4" and on_gpu)
            or self.published is not None
        )

    def unpacks(self, quantize: str, rows: float) -> bool:
        """Return whether linear layers are unpacked in a pass of `rows` tokens."""
        if quantize in INTEGERS:
            on_gpu = self.spec.device.type != "cpu"
            return rows > DIRECT if quantize == "int8" else on_gpu and rows > TILE
        return self.packed(quantize) and (rows > 1 or self.spec.device.type == "cpu")

    def unpacked_bytes(self, quantize: str) -> int:
        """Return the most bytes that are unpacked at once, 0 if nothing is packed.

        That is a linear layer or an expert, with a copy of its codes; on a GPU mostly all experts that a token chooses.
        """
        if not self.packed(quantize) and quantize != "int8":
            return 0
        size = self.spec.dtype.itemsize
        largest = max((rows * columns * size for rows, columns in self.alike), default=0)
        if quantize == "int4":
            return 2 * min(max(largest // size, self.head), UNPACKED)
        packing = self.packing(quantize)
        if packing is None:
            return largest
        experts = (packing(*sizes).unpacking_bytes(size) for _, *sizes in self.experts)
        count = self.chosen if together_on(self.spec.device) and not packing.direct else 1
        return max(largest, count * max(experts, default=0))

    def mlp_bytes(self, rows: int, quantize: str) -> int:
        """Return the most bytes of activations that a pass of `rows` tokens holds in one MLP or mixture.

        Packed experts take their tokens one expert after another, in the worst case all tokens each. transformers
        passes each token through all of its experts at once. The choices are held too, sorted and unsorted.
        """
        size = self.spec.dtype.itemsize
        mlp = rows * 3 * self.mlp * size
        if not self.experts:
            return mlp
        count, _, width = self.experts[1]
        if self.packing(quantize) is None:
            outside, inside = (6, 9) if self.biased else (4, 4)  # numbers of a token per expert, in units of a width
            each = self.chosen * max(outside * self.hidden, self.hidden + inside * width) * size
        else:
            each = self.hidden * (2 * size + 12) + 4 * width * size
        return max(mlp, rows * (each + 6 * 8 * self.chosen + count * (size + 4)))

    def hit(self, rows: float) -> float:
        """Return the share of experts that a pass of `rows` tokens reaches if each token chooses at random."""
        return 1 - (1 - self.chosen / self.experts[0][0]) ** rows if self.experts else 0.0


def model_sizes(
    config: PretrainedConfig, dtype: torch.dtype, device: torch.device = CPU, folder: Path | None = None
) -> ModelSizes:
    """Return the sizes of the model that a configuration describes, as if it were loaded on a device.

    folder: of the model, where its sidecar weights lie.

    Raises:
        UnsupportedModel: an architecture that the engine cannot use, or sizes that fit no model.
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
    """Return the sizes of a network, loaded or on the meta device.

    Weights may be quantised: layers state their shapes, also those of packages that are no nn.Linear.
    """
    config: Any = network.config
    head = network.get_output_embeddings()  # type: ignore[no-untyped-call]
    published, unreached = Published.of(config), architectures.architecture_of(config).unquantised
    modules: list[Any] = [
        each
        for name, each in network.named_modules()
        if hasattr(each, "in_features") and each is not head and not name.endswith(unreached)
        if published is None or published.reaches(name)
    ]
    linear = tuple((each.out_features, each.in_features) for each in modules)
    stacks = experts_in(network)
    experts = tuple(sizes for own in stacks for sizes in shapes_of(own))
    of_experts = [weight for own in stacks for weight in own.parameters()]  # biases, and stacks that are not packed
    reached = {id(getattr(each, "weight", None)) for each in modules} | {
        id(weight) for weight in of_experts if weight.dim() == 3
    }
    rest = {id(each): each for each in network.parameters() if id(each) not in reached}
    chosen = int(getattr(config, "num_experts_per_tok", None) or config.top_k_experts) if experts else 1
    dense = getattr(config, "intermediate_size", None) or 0
    dense = max(dense) if isinstance(dense, list) else dense  # by layers
    width = getattr(config, "moe_intermediate_size", None) or dense
    looked_up = [each.weight for each in network.modules() if isinstance(each, nn.Embedding)]
    of_head = getattr(head, "weight", None)  # None if it is in codes and not the embeddings
    tied = bool(config.tie_word_embeddings) if of_head is None else any(of_head is each for each in looked_up)
    apart = {id(each) for each in (*looked_up, of_head, *of_experts)}
    multiplied = [own for own in rest.values() if own.dim() == 2 and id(own) not in apart]
    in_file = sum(math.prod(each.kept.shape) for each in network.modules() if isinstance(each, FileEmbedding))
    return ModelSizes(
        spec=spec,
        linear=linear,
        experts=experts,
        chosen=chosen,
        biased=any(bool(own.has_bias) for own in stacks),
        other=sum(weight.numel() for weight in rest.values() if tied or weight is not of_head) + in_file,
        tied=tied,
        multiplied=sum(weight.numel() for weight in multiplied),
        head=config.hidden_size * config.vocab_size,
        hidden=config.hidden_size,
        mlp=max(dense, chosen * int(width)),
        vocabulary=config.vocab_size,
        depth=config.num_hidden_layers,
        published=published,
        recurrence=recurrence_of(network, spec.dtype),
        file=config if is_gguf(config.name_or_path) else None,
    )


def _in_file(config: PretrainedConfig, size: int) -> InFile:
    """Return the needs of a model whose weights stay in its file. size: of a number that does not stay there."""
    network = outline(config)
    kept = kept_weights(str(config.name_or_path), config, network)
    head = network.get_output_embeddings()  # type: ignore[no-untyped-call]
    linear, heads, embeddings = 0, 0, 0
    apart = False
    layers: Iterable[tuple[str, Any]] = network.named_modules()
    for name, layer in layers:
        weight = kept.get(name)
        if weight is not None and isinstance(layer, nn.Embedding):
            embeddings += math.prod(weight.shape)
        elif hasattr(layer, "in_features"):
            held = layer.in_features * layer.out_features * size if weight is None else weight.packed_bytes
            if layer is head:
                heads, apart = held, weight is not None or not config.tie_word_embeddings
            else:
                linear += held
    return InFile(linear, heads, apart, embeddings)


def layers_of(network: PreTrainedModel) -> tuple[LayerSpec, ...]:
    """Return the layers with attention, as `attach` finds them by sending a token through the network.

    Tests compare the two for every architecture.

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
        latent = architectures.architecture_of(config).latent
        kv_heads = 1 if latent else getattr(own, "num_key_value_heads", None) or heads
        head_size = getattr(own, "head_dim", None) or config.hidden_size // heads
        if latent:
            head_size = config.qk_rope_head_dim + config.kv_lora_rank
        window = sliding if kinds[each.layer_idx] == "sliding_attention" else None
        layers.append(LayerSpec(heads, kv_heads, head_size, window, shared[key], latent))
    if not layers:
        raise UnsupportedModel(f"No layer of this '{config.model_type}' attends to tokens: choose another model.")
    return tuple(layers)
