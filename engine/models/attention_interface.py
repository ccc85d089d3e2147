"""Replace the attention of a stock transformers model by that of a memory.

transformers computes projections, norms, MLPs and embeddings. The model's rotary embedding asks for no rotation, so
queries and keys reach the attention function before RoPE. That function calls the memory that was passed along with
the forward call. Nothing here knows one architecture from another: their peculiarities are in `architectures.py`.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from engine.errors import NO_NUMBERS, ModelError
from engine.models import mla
from engine.models.architectures import architecture_of
from engine.models.file_layers import prepare_products
from engine.models.fusing import fuse
from engine.models.integers import SAMPLE, Head, spread
from engine.models.layer_graphs import LayerGraphs, is_known
from engine.models.packed_file import PackedFile
from engine.models.recurrent_state import RecurrentState, limit_kernels_to_gpu
from engine.models.rope import NoRope, Rope
from engine.models.rotary import NoRotation, leave_unrotated, rope_of, rotary_of
from engine.models.spec import LayerSpec, ModelSpec, Scoring, projections_of, window_of

IMPLEMENTATION = "stockpot"
EMBEDDING = "embed_tokens"


class AttentionMemory(Protocol):
    """The part of a memory that the attention function calls."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Return the attention output [HQ, T, D] for q [HQ, T, D] and k, v [H, T, D], all before RoPE."""


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    *,
    memory: AttentionMemory,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Let the memory attend: the function that is registered with transformers.

    query [1, HQ, T, D], key and value [1, H, T, D] come before RoPE; s_aux is `Scoring.sink`. Returns the output
    [1, T, HQ, D], and no attention weights.
    """
    scoring = Scoring(scaling if scaling is not None else float(query.shape[-1]) ** -0.5, softcap, s_aux)
    if isinstance(memory, _Probe):
        memory.note(module, kwargs.get("sliding_window"), query.shape[-1])
    latent, paired = module.attention_latent, module.attention_interleaved
    q, k, v = (mla.absorb_query(module, query) if latent else query)[0], key[0], value[0]
    if paired:
        q, k = _in_halves(q, paired), _in_halves(k, paired)
    output = memory.attend(module.attention_layer, q, k, k if latent else v, scoring)
    output = mla.expand_output(module, output) if latent else output
    return output.transpose(0, 1)[None], None


def _in_halves(x: Tensor, width: int) -> Tensor:
    """Reorder heads [..., D] from neighbouring pairs to halves, the layout of the engine's RoPE.

    Queries and keys are reordered alike, so their products stay the same. width: dimensions that are in pairs.
    """
    return torch.cat([x[..., :width:2], x[..., 1:width:2], x[..., width:]], dim=-1)


def _attend_between(memory: AttentionMemory, module: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Let the memory attend between two graphs: see `LayerGraphs.run`."""
    if isinstance(memory, _Probe):
        window = getattr(module, "sliding_window", getattr(module.config, "sliding_window", None))
        memory.note(module, window, q.shape[-1])
    softcap = getattr(module, "attn_logit_softcapping", None)
    return memory.attend(module.attention_layer, q, k, v, Scoring(module.scaling, softcap))


# No mask function is registered: masks are the memory's concern, and without one transformers makes none. Making one
# would read positions from the device, and wait for them, in every pass.
AttentionInterface.register(IMPLEMENTATION, _attention)


class _Probe:
    """A memory that records the `LayerSpec` of each layer as one token passes through the model."""

    def __init__(self, rotary: nn.Module | None) -> None:
        self.rotary = rotary
        self.layers: list[LayerSpec] = []
        self._ropes: dict[tuple[int, float], Rope] = {}  # layers with the same frequencies share their tables
        self._window: int | None = None
        self._rope: Rope = NoRope()

    def note(self, module: Any, sliding_window: int | None, head_size: int) -> None:
        self._window = sliding_window
        architecture, module.attention_layer = architecture_of(module.config), len(self.layers)
        module.attention_latent = architecture.latent
        module.attention_interleaved = architecture.interleaved_width(module.config, head_size)
        rope = rope_of(module, self.rotary)
        self._rope = self._ropes.setdefault((rope.inv_freq.data_ptr(), rope.attention_scaling), rope)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        self.layers.append(LayerSpec(q.shape[0], k.shape[0], k.shape[-1], self._window, self._rope, v is k))
        output = v.repeat_interleave(q.shape[0] // v.shape[0], dim=0)  # attention to a single token
        return output if bool((q.sum() + k.sum()).isfinite()) else output * torch.nan


@dataclass(frozen=True)
class ExtraTokens:
    """Copies of one token of a method's own that follow the tokens of a pass (`Memory.extra_tokens`)."""

    count: int  # at least one
    modules: Mapping[str, nn.Module]  # replacements for them, by name inside the base model; `embed_tokens` gets zeros


def run(
    network: PreTrainedModel,
    ids: Tensor,
    memory: AttentionMemory,
    extra_tokens: ExtraTokens | None = None,
    state: RecurrentState | None = None,
    position_ids: Tensor | None = None,
) -> Tensor:
    """Pass tokens through the model, followed by the extra tokens.

    Args:
        network: that `attach` has prepared.
        ids: int64 [T], on the model's device.
        memory: that attends.
        extra_tokens: of the method, if any.
        state: of recurrent layers; None if there are none, or if the pass begins a text and nothing follows.
        position_ids: int64 [T], for models that scale queries by position; None for 0, 1, 2, ...

    Returns:
        Hidden states [T, hidden] after the last norm, without those of the extra tokens.
    """
    graphs: LayerGraphs | None = network.layer_graphs  # type: ignore[assignment]
    if graphs is not None and extra_tokens is None and graphs.serves(len(ids)):
        return graphs.run(ids, functools.partial(_attend_between, memory))
    count = 0 if extra_tokens is None else extra_tokens.count
    with _extra_rows(network, extra_tokens):
        padded = torch.cat([ids, ids.new_zeros(count)])[None]
        positions = None if position_ids is None else F.pad(position_ids, (0, count))[None]
        output = network.base_model(
            input_ids=padded, position_ids=positions, use_cache=False, past_key_values=state, memory=memory
        )
    hidden: Tensor = output.last_hidden_state[0, : len(ids)]
    return hidden


@contextmanager
def _extra_rows(network: PreTrainedModel, extra_tokens: ExtraTokens | None) -> Iterator[None]:
    """Take the last rows of some modules' outputs from their replacements; on exit no hook remains."""
    if extra_tokens is None:
        yield
        return

    def hook(own: nn.Module) -> Any:
        def replace(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
            output[:, -extra_tokens.count :] = own(inputs[0][:, -extra_tokens.count :])
            return output

        return replace

    handles = [
        network.base_model.get_submodule(name).register_forward_hook(hook(own))
        for name, own in extra_tokens.modules.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def attach(model: PreTrainedModel, folder: Path | None = None, packed: PackedFile | None = None) -> ModelSpec:
    """Replace the attention of a loaded model in place, join what it computes (`fusing.py`), and return its sizes.

    folder: that it was loaded from, for `ModelSpec.folder`. packed: see `prepare_products`.

    Raises:
        ModelError: the model computes NaN.
    """
    base, architecture = model.base_model, architecture_of(model.config)
    graphs = LayerGraphs(model, packed) if is_known(model) else None
    model.layer_graphs = graphs  # type: ignore[assignment]
    fuse(model)
    head: nn.Module = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    prepare_products([head] if graphs else model.modules(), packed)
    rotary = rotary_of(model)
    if rotary is not None:
        setattr(base, architecture.rotary, NoRotation(rotary))
        leave_unrotated(type(base).__module__)
    model.set_attn_implementation(IMPLEMENTATION)
    if architecture.latent:
        mla.keep_latents(base)
    state = None
    if architecture.recurrent:
        limit_kernels_to_gpu(type(base).__module__)
        state = RecurrentState()
    probe = _Probe(rotary)
    with torch.no_grad():
        hidden = run(model, torch.zeros(1, dtype=torch.long, device=model.device), probe, state=state)
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
        state_bytes=state.nbytes if state else 0,
    )


def _embedding_digest(model: PreTrainedModel) -> str:
    """Return a hash of a sample of the token embeddings in bfloat16."""
    sample = sampled(model.get_input_embeddings(), model.dtype).bfloat16().cpu().contiguous()
    return hashlib.sha256(sample.view(torch.int16).numpy().tobytes()).hexdigest()


def samples_of(network: PreTrainedModel) -> Iterator[tuple[str, tuple[int, ...], Tensor]]:
    """Yield name, shape and `SAMPLE` numbers of each weight, in the order of `state_dict`; of those not in it too."""
    for path, module in network.named_modules(remove_duplicate=False):
        begin = f"{path}." if path else ""
        if (kept := getattr(module, "kept", None)) is not None:
            yield f"{begin}weight", kept.shape, sampled(module, network.dtype)
        if isinstance(module, Head) and module.sample is not None:
            yield f"{begin}weight", (module.out_features, module.in_features), module.sample
        own: dict[str, Tensor] = {}
        module._save_to_state_dict(own, begin, False)
        for name, tensor in own.items():
            yield name, tuple(tensor.shape), spread(tensor)


def sampled(module: Any, dtype: torch.dtype) -> Tensor:
    """Return about `SAMPLE` numbers of a module's weight, in `dtype` if they are read from a file."""
    kept = getattr(module, "kept", None)
    if kept is None:
        return spread(module.weight.detach())
    count = math.prod(kept.shape)
    numbers: Tensor = kept.sampled(torch.arange(0, count, max(1, count // SAMPLE)))
    return numbers.to(dtype)
