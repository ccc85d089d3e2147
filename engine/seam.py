"""The seam with transformers: stock models, our attention.

transformers computes projections, norms, MLPs and embeddings; the model's rotary embedding is replaced by one that asks
for no rotation, so queries and keys reach the attention function before RoPE, and that function asks the memory that
was passed along with the forward call. Nothing here knows one architecture from another; which ones are known to come
out right, and what is peculiar to them, is the table in `architectures.py`.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel

from engine import latents
from engine.carry import Carry
from engine.errors import NO_NUMBERS, ModelError
from engine.models.architectures import INTERLEAVED, LATENT, RECURRENT, ROPE_WITHIN_WINDOWS, ROTARY
from engine.rope import NoRope, Rope

IMPLEMENTATION = "stockpot"
EMBEDDING = "embed_tokens"
ROTATIONS = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave", "apply_rotary_emb")  # in their modules
ANGLES = ("cos", "freqs_cis")  # their first parameter behind what they rotate
RECURRENCES = ("causal_conv1d_", "mamba2_", "torch_")  # how names of what recurrent layers call begin
PROJECTIONS = frozenset(  # what makes queries, keys and values of a layer
    {"q_proj", "k_proj", "v_proj", "qkv_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa"}
)


class _Unrotated:
    """Instead of cosine and sine, both together, and any part of them."""

    def __getitem__(self, part: object) -> _Unrotated:
        return self

    def __iter__(self) -> Iterator[_Unrotated]:
        return iter((self, self))

    def to(self, device: torch.device) -> _Unrotated:
        return self


UNROTATED = _Unrotated()


@dataclass(frozen=True)
class Scoring:
    """How a layer makes probabilities of the products of queries and keys.

    scaling: of the products; softcap: what logits are bent to stay within; sink: a logit of each query head [HQ] that
    all its queries see beside those of keys, and what it is given goes to no value.
    """

    scaling: float
    softcap: float | None = None
    sink: Tensor | None = None

    @property
    def plain(self) -> bool:
        """Whether it is a softmax over scaled products and nothing else."""
        return self.softcap is None and self.sink is None

    def parted(self, count: int) -> list[Scoring]:
        """Of so many equal shares of the query heads, in their order."""
        sinks = [None] * count if self.sink is None else self.sink.chunk(count)
        return [replace(self, sink=sink) for sink in sinks]


class Attending(Protocol):
    """What the attention function needs of a memory."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Attention output [HQ, T, D] for q [HQ, T, D] and k, v [H, T, D], all before RoPE."""


@dataclass(frozen=True)
class LayerSpec:
    """What a memory must know of one layer.

    latent: whether keys before RoPE are the values too, of which nobody looks at the part that RoPE turns.
    """

    query_heads: int
    kv_heads: int
    head_size: int
    sliding_window: int | None
    rope: Rope
    latent: bool = False

    @property
    def value_heads(self) -> int:
        """KV heads whose values are kept beside their keys."""
        return 0 if self.latent else self.kv_heads


@dataclass(frozen=True)
class Projection:
    """A linear layer that makes queries, keys or values. name: inside the base model, `layers.3.self_attn.q_proj`."""

    name: str
    inputs: int
    outputs: int
    bias: bool


@dataclass(frozen=True)
class ModelSpec:
    """What a memory must know of a model.

    activation: the non-linearity of its MLPs, by transformers' name; embedding: a digest of its token embeddings, the
    same in every dtype that holds them; folder: where it was loaded from, if that is a folder here; projections: of
    all layers, in their order; state_bytes: of what recurrent layers carry from token to token, 0 if there are none.
    layers: those with attention, in their order; they are numbered among themselves.
    """

    layers: tuple[LayerSpec, ...]
    dtype: torch.dtype
    device: torch.device
    window: int  # positions that the model was trained for
    activation: str = "silu"
    embedding: str = ""
    folder: Path | None = None
    projections: tuple[Projection, ...] = ()
    state_bytes: int = 0

    @property
    def recurrent(self) -> bool:
        """Whether layers carry states from token to token."""
        return self.state_bytes > 0

    @property
    def looking_far(self) -> ModelSpec:
        """The same without heads in layers that have a sliding window, which look at nothing that has left it."""
        return self.with_heads(lambda layer: layer.sliding_window is None)

    def with_heads(self, where: Callable[[LayerSpec], bool]) -> ModelSpec:
        """The same without heads in other layers than those."""
        layers = (layer if where(layer) else replace(layer, query_heads=0, kv_heads=0) for layer in self.layers)
        return replace(self, layers=tuple(layers))

    @property
    def reach(self) -> int:
        """How many tokens back any layer looks: the window, or where all have a sliding one, the widest of those."""
        return max(self.window if each.sliding_window is None else each.sliding_window for each in self.layers)

    @property
    def query_heads(self) -> int:
        """Of all layers together."""
        return sum(layer.query_heads for layer in self.layers)

    @property
    def query_width(self) -> int:
        """Numbers in the queries of one token, of all layers together."""
        return sum(layer.query_heads * layer.head_size for layer in self.layers)

    def averaged(self, of_layer: Callable[[LayerSpec], float]) -> float:
        """What it is for all layers' queries together."""
        each = (of_layer(layer) * layer.query_heads * layer.head_size for layer in self.layers)
        return sum(each) / self.query_width

    @property
    def ropes(self) -> set[Rope]:
        """Of all layers; those with the same frequencies share one."""
        return {layer.rope for layer in self.layers}

    @property
    def entry_width(self) -> int:
        """Numbers in one key and one value of every KV head in every layer, or in what is both."""
        return sum((layer.kv_heads + layer.value_heads) * layer.head_size for layer in self.layers)

    @property
    def entry_bytes(self) -> int:
        """Bytes of the same, in the model's own type."""
        return self.entry_width * self.dtype.itemsize

    @property
    def key_share(self) -> float:
        """The share of keys among them."""
        return self.key_bytes / self.entry_bytes

    @property
    def key_bytes(self) -> int:
        """Bytes of the keys among them."""
        return sum(layer.kv_heads * layer.head_size for layer in self.layers) * self.dtype.itemsize


class NoRotation(nn.Module):
    """Stands in for a model's rotary embedding: queries and keys are left as they are."""

    def __init__(self, original: nn.Module) -> None:
        """Keeps the original module, whose frequencies the engine reads."""
        super().__init__()
        self.original = original
        self.layer_types: list[str] = list(getattr(original, "layer_types", []))  # some models go through them
        self._asked: set[str | None] = set()  # of these

    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> _Unrotated:
        """In place of cosine and sine, what `_spare_unrotated` is about."""
        if layer_type not in self._asked:  # only when it is asked does LongRoPE work out its frequencies for long texts
            self._asked.add(layer_type)
            self.original(*((x, position_ids) if layer_type is None else (x, position_ids, layer_type)))
        return UNROTATED


@functools.cache
def _spare_unrotated(modeling: str) -> None:
    """Let the models of a module of transformers pass on as they are queries and keys that are `UNROTATED`.

    To rotate these by nothing would take a twentieth of the time of a token of an answer, in the pocket model.
    """
    module = sys.modules[modeling]
    for name in ROTATIONS:
        if hasattr(module, name):
            setattr(module, name, _sparing(getattr(module, name)))


def _sparing(rotation: Callable[..., Any]) -> Callable[..., Any]:
    names = list(inspect.signature(rotation).parameters)
    together = next(at for at, name in enumerate(names) if name in ANGLES)  # queries and keys, or either by itself

    @functools.wraps(rotation)
    def rotate(*args: Any, **kwargs: Any) -> Any:
        if args[together] is not UNROTATED:
            return rotation(*args, **kwargs)
        return args[0] if together == 1 else args[:together]

    return rotate


@functools.cache
def spare_kernels(modeling: str) -> None:
    """Let recurrent layers of a module of transformers call kernels of other packages for tensors on a GPU alone.

    Whether there are any (flash-linear-attention, mamba_ssm, causal_conv1d) is settled as the module is imported, for
    tensors on every device, and they run on no other.
    """
    module = sys.modules[modeling]
    for name, function in list(vars(module).items()):
        if name.startswith(RECURRENCES) and hasattr(function, "__wrapped__"):
            setattr(module, name, _by_device(function, function.__wrapped__))


def _by_device(kernel: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def call(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return (kernel if x.is_cuda else plain)(x, *args, **kwargs)

    del call.__wrapped__  # it is not to be taken apart again
    return call


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    *,
    memory: Attending,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The one attention function: query [1, HQ, T, D], key and value [1, H, T, D]; output [1, T, HQ, D].

    s_aux: see `Scoring.sink`.
    """
    scoring = Scoring(scaling if scaling is not None else float(query.shape[-1]) ** -0.5, softcap, s_aux)
    if isinstance(memory, _Probe):
        memory.note(module, kwargs.get("sliding_window"))
    config: Any = module.config
    latent = config.model_type in LATENT
    q, k, v = (latents.towards(module, query) if latent else query)[0], key[0], value[0]
    if paired := _paired(config, q.shape[-1]):
        q, k = _in_halves(q, paired), _in_halves(k, paired)
    output = memory.attend(int(module.attention_layer), q, k, k if latent else v, scoring)  # type: ignore[arg-type]
    output = latents.back(module, output) if latent else output
    return output.transpose(0, 1)[None], None


def _paired(config: Any, size: int) -> int:
    """How many dimensions of a head of so many RoPE turns with their neighbours: all that it turns, or 0."""
    kind = config.model_type
    if kind in LATENT:
        interleaved = LATENT[kind]
        return int(config.qk_rope_head_dim) if (config.rope_interleave if interleaved is None else interleaved) else 0
    if kind not in INTERLEAVED:
        return 0
    share = config.rope_parameters.get("partial_rotary_factor") if INTERLEAVED[kind] else None
    return int(size * float(share or 1))


def _in_halves(x: Tensor, width: int) -> Tensor:
    """Heads [..., D] in the order that the engine's RoPE takes, of which the first of each pair come before the second.

    Queries and keys are put in the same order, so that their products stay what they are. width: what is in pairs.
    """
    return torch.cat([x[..., :width:2], x[..., 1:width:2], x[..., width:]], dim=-1)


# No mask function goes with it: masks are the memory's matter, and transformers makes none for a name that has none. To
# make one it would look at positions on the device, and wait for them, in every pass.
AttentionInterface.register(IMPLEMENTATION, _attention)


class _Probe:
    """Sees one token pass through every layer, and writes down what each layer is like."""

    def __init__(self, rotary: nn.Module | None) -> None:
        self.rotary = rotary
        self.layers: list[LayerSpec] = []
        self._ropes: dict[tuple[int, float], Rope] = {}  # layers with the same frequencies share their tables
        self._window: int | None = None
        self._rope: Rope = NoRope()

    def note(self, module: nn.Module, sliding_window: int | None) -> None:
        self._window = sliding_window
        module.attention_layer = len(self.layers)  # type: ignore[assignment]
        rope = rope_of(module, self.rotary)
        self._rope = self._ropes.setdefault((rope.inv_freq.data_ptr(), rope.attention_scaling), rope)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        self.layers.append(LayerSpec(q.shape[0], k.shape[0], k.shape[-1], self._window, self._rope, v is k))
        shown = v.repeat_interleave(q.shape[0] // v.shape[0], dim=0)  # what attention to the one token there is gives
        return shown if bool((q.sum() + k.sum()).isfinite()) else shown * torch.nan


def rope_of(module: nn.Module, rotary: nn.Module | None) -> Rope:
    """What an attention module's queries and keys are rotated by; rotary: the model's own rotary embedding, if any."""
    if rotary is None:
        return NoRope(next(module.parameters()).device)
    config: Any = module.config
    kinds = getattr(config, "layer_types", None)
    kind = kinds[int(module.layer_idx)] if kinds else ""  # type: ignore[arg-type]
    within = config.model_type in ROPE_WITHIN_WINDOWS and config.sliding_window and kind != "sliding_attention"
    if within or getattr(module, "use_rope", 1) in (0, False):
        return NoRope(next(rotary.buffers()).device)
    prefix = f"{kind}_" if hasattr(rotary, f"{kind}_inv_freq") else ""
    # LongRoPE has two sets, for short texts and for long ones. A reading takes one of them, as its keys change places.
    inv_freq = getattr(rotary, f"{prefix}long_inv_freq", getattr(rotary, f"{prefix}inv_freq"))
    return Rope(inv_freq, float(getattr(rotary, f"{prefix}attention_scaling", 1.0)))


@dataclass(frozen=True)
class Guests:
    """Tokens of a method's own that go through the model behind those of a pass (`Memory.guests`).

    count: how many, at least one; they are all the same token. modules: by name inside the base model, what takes the
    place of its own module for them; `embed_tokens` is among them, and is given zeros.
    """

    count: int
    modules: Mapping[str, nn.Module]


def run(
    network: PreTrainedModel,
    ids: Tensor,
    memory: Attending,
    guests: Guests | None = None,
    carry: Carry | None = None,
    places: Tensor | None = None,
) -> Tensor:
    """Pass tokens through the model, guests behind them.

    Args:
        ids: int64 [T], on the model's device.
        carry: the states of recurrent layers; None where there are none, or where a text begins and nothing follows.
        places: int64 [T], where tokens stand, for models that scale queries by it; None for 0, 1, 2, ...

    Returns:
        Hidden states [T, hidden] after the last norm, those of the guests left out.
    """
    count = 0 if guests is None else guests.count
    with _hosting(network, guests):
        padded = torch.cat([ids, ids.new_zeros(count)])[None]
        positions = None if places is None else F.pad(places, (0, count))[None]
        output = network.base_model(
            input_ids=padded, position_ids=positions, use_cache=False, past_key_values=carry, memory=memory
        )
    hidden: Tensor = output.last_hidden_state[0, : len(ids)]
    return hidden


@contextmanager
def _hosting(network: PreTrainedModel, guests: Guests | None) -> Iterator[None]:
    """While a pass goes through, the last rows of some modules come from others; afterwards no hook remains."""
    if guests is None:
        yield
        return

    def hook(own: nn.Module) -> Any:
        def replace(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
            output[:, -guests.count :] = own(inputs[0][:, -guests.count :])
            return output

        return replace

    handles = [
        network.base_model.get_submodule(name).register_forward_hook(hook(own)) for name, own in guests.modules.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def projections_of(network: PreTrainedModel) -> tuple[Projection, ...]:
    """The projections of all layers; their weights may be on the meta device, or in layers of a package that quantises,
    which are like nn.Linear and none.
    """
    modules: Iterable[tuple[str, Any]] = network.base_model.named_modules()
    return tuple(
        Projection(name, module.in_features, module.out_features, module.bias is not None)
        for name, module in modules
        if name.rpartition(".")[2] in PROJECTIONS
    )


def attach(model: PreTrainedModel, folder: Path | None = None) -> ModelSpec:
    """Take attention over from a loaded model, in place, and report what its layers are like.

    folder: where it was loaded from, for the report.

    Raises:
        ModelError: what it computes is no number, whatever it is given.
    """
    base = model.base_model
    rotary = rotary_of(model)
    if rotary is not None:
        setattr(base, ROTARY.get(model.config.model_type, "rotary_emb"), NoRotation(rotary))
        _spare_unrotated(type(base).__module__)
    model.set_attn_implementation(IMPLEMENTATION)
    if model.config.model_type in LATENT:
        latents.spare_expanding(base)
    carry = None
    if model.config.model_type in RECURRENT:
        spare_kernels(type(base).__module__)
        carry = Carry()
    probe = _Probe(rotary)
    with torch.no_grad():
        hidden = run(model, torch.zeros(1, dtype=torch.long, device=model.device), probe, carry=carry)
    if bool(hidden.isnan().any()):
        raise ModelError(f"The model gives no numbers: {NO_NUMBERS}")
    config = model.config
    activation = getattr(config, "hidden_act", None) or getattr(config, "hidden_activation", None) or "silu"
    return ModelSpec(
        layers=tuple(probe.layers),
        dtype=model.dtype,
        device=model.device,
        window=window_of(config),
        activation=str(activation),
        embedding=_embedding_digest(model),
        folder=folder,
        projections=projections_of(model),
        state_bytes=carry.nbytes if carry else 0,
    )


def rotary_of(model: PreTrainedModel) -> nn.Module | None:
    """A model's own rotary embedding, also where the engine has taken over already; None where it has none."""
    rotary = getattr(model.base_model, ROTARY.get(model.config.model_type, "rotary_emb"), None)
    return rotary.original if isinstance(rotary, NoRotation) else rotary


def window_of(config: PretrainedConfig) -> int:
    """Positions that a model was trained for."""
    return int(config.max_position_embeddings)


def _embedding_digest(model: PreTrainedModel) -> str:
    """A hash of a sample of the token embeddings in bfloat16."""
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, Tensor)
    sample = sampled(weight.detach()).bfloat16().cpu().contiguous()
    return hashlib.sha256(sample.view(torch.int16).numpy().tobytes()).hexdigest()


def sampled(weight: Tensor) -> Tensor:
    """About a thousand of a weight's numbers, evenly spread: enough to tell it from another."""
    flat = weight.reshape(-1)
    return flat[:: max(1, flat.numel() // 997)]
