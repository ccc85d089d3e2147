"""Replace the attention of a stock transformers model by that of a memory.

transformers computes projections, norms, MLPs and embeddings. The model's rotary embedding asks for no rotation, so
queries and keys reach the attention function before RoPE. That function calls the memory that was passed along with
the forward call. Nothing here knows one architecture from another: their peculiarities are in `architectures.py`.
"""

from __future__ import annotations

import hashlib
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
from engine.models.architectures import INTERLEAVED, LATENT, RECURRENT, ROTARY
from engine.models.recurrent_state import RecurrentState, spare_kernels
from engine.models.rope import NoRope, Rope
from engine.models.rotary import NoRotation, leave_unrotated, rope_of, rotary_of
from engine.models.spec import LayerSpec, ModelSpec, Scoring, projections_of, window_of

IMPLEMENTATION = "stockpot"
EMBEDDING = "embed_tokens"


class AttentionMemory(Protocol):
    """What the attention function needs of a memory."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Attention output [HQ, T, D] for q [HQ, T, D] and k, v [H, T, D], all before RoPE."""


def _attention(
    module: nn.Module,
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
    """The one attention function: query [1, HQ, T, D], key and value [1, H, T, D]; output [1, T, HQ, D].

    s_aux: see `Scoring.sink`.
    """
    scoring = Scoring(scaling if scaling is not None else float(query.shape[-1]) ** -0.5, softcap, s_aux)
    if isinstance(memory, _Probe):
        memory.note(module, kwargs.get("sliding_window"))
    config: Any = module.config
    latent = config.model_type in LATENT
    q, k, v = (mla.absorb_query(module, query) if latent else query)[0], key[0], value[0]
    if paired := _paired(config, q.shape[-1]):
        q, k = _in_halves(q, paired), _in_halves(k, paired)
    output = memory.attend(int(module.attention_layer), q, k, k if latent else v, scoring)  # type: ignore[arg-type]
    output = mla.expand_output(module, output) if latent else output
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


@dataclass(frozen=True)
class ExtraTokens:
    """Tokens of a method's own that go through the model behind those of a pass (`Memory.extra_tokens`).

    count: how many, at least one; they are all the same token. modules: by name inside the base model, what takes the
    place of its own module for them; `embed_tokens` is among them, and is given zeros.
    """

    count: int
    modules: Mapping[str, nn.Module]


def run(
    network: PreTrainedModel,
    ids: Tensor,
    memory: AttentionMemory,
    extra_tokens: ExtraTokens | None = None,
    state: RecurrentState | None = None,
    places: Tensor | None = None,
) -> Tensor:
    """Pass tokens through the model, extra tokens behind them.

    Args:
        ids: int64 [T], on the model's device.
        carry: the states of recurrent layers; None where there are none, or where a text begins and nothing follows.
        places: int64 [T], where tokens stand, for models that scale queries by it; None for 0, 1, 2, ...

    Returns:
        Hidden states [T, hidden] after the last norm, those of the extra tokens left out.
    """
    count = 0 if extra_tokens is None else extra_tokens.count
    with _extra_rows(network, extra_tokens):
        padded = torch.cat([ids, ids.new_zeros(count)])[None]
        positions = None if places is None else F.pad(places, (0, count))[None]
        output = network.base_model(
            input_ids=padded, position_ids=positions, use_cache=False, past_key_values=state, memory=memory
        )
    hidden: Tensor = output.last_hidden_state[0, : len(ids)]
    return hidden


@contextmanager
def _extra_rows(network: PreTrainedModel, extra_tokens: ExtraTokens | None) -> Iterator[None]:
    """While a pass goes through, the last rows of some modules come from others; afterwards no hook remains."""
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
        leave_unrotated(type(base).__module__)
    model.set_attn_implementation(IMPLEMENTATION)
    if model.config.model_type in LATENT:
        mla.keep_latents(base)
    state = None
    if model.config.model_type in RECURRENT:
        spare_kernels(type(base).__module__)
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
    """A hash of a sample of the token embeddings in bfloat16."""
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, Tensor)
    sample = sampled(weight.detach()).bfloat16().cpu().contiguous()
    return hashlib.sha256(sample.view(torch.int16).numpy().tobytes()).hexdigest()


def sampled(weight: Tensor) -> Tensor:
    """About a thousand of a weight's numbers, evenly spread: enough to tell it from another."""
    flat = weight.reshape(-1)
    return flat[:: max(1, flat.numel() // 997)]
