"""Forward pass for training: the weights of a stock Llama, with attention that can also reach far.

`Reading` selects one of two ways to attend:

full  every token attends to all tokens before it (as the model does inside its window);
far   the document is read with sinks and a sliding window. Each token of the conversation attends, in one softmax,
      to sinks and its window at true distances, and to every other document key at one constant distance. Documents
      of other rows in the batch are included as distractors (Focused Transformer, arXiv 2307.03170).

Only attention differs from `transformers`' Llama; a test checks that `full` gives the same logits.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from engine import SettingsError


@dataclass(frozen=True)
class Reading:
    """How a batch attends.

    Attributes:
        window: entries of the sliding window; 0 means full attention.
        sinks: first entries, always attended.
        distance: RoPE distance of far keys.
        documents, ends: int64 [B], start and end of each row's conversation (far only).
        across: far tokens also attend to the other rows' documents.
    """

    window: int = 0
    sinks: int = 4
    distance: int = 255
    documents: Tensor | None = None
    ends: Tensor | None = None
    across: bool = True


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x [B, H, T, D] by RoPE in Hugging Face's half-split layout; cos, sin: broadcastable to x."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def normed(norm: Any, x: Tensor) -> Tensor:
    """Return x [..., C] after one of a Llama's norms."""
    return F.rms_norm(x, x.shape[-1:], norm.weight, norm.variance_epsilon)


class PocketNetwork(nn.Module):
    """A `LlamaForCausalLM` and a forward pass over its weights that returns final hidden states."""

    inverse: Tensor  # float32 [D/2], RoPE frequencies

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.llama = LlamaForCausalLM(config)
        shape: dict[str, Any] = config.to_dict()
        self.heads: int = shape["num_attention_heads"]
        self.kv_heads: int = shape["num_key_value_heads"]
        self.size: int = shape["head_dim"]
        theta = float(shape["rope_parameters"]["rope_theta"])
        inverse = 1.0 / theta ** (torch.arange(0, self.size, 2, dtype=torch.float32) / self.size)
        self.register_buffer("inverse", inverse, persistent=False)

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin [..., D] for integer positions [...]."""
        phase = positions[..., None].float() * self.inverse
        phase = torch.cat((phase, phase), dim=-1)
        return phase.cos(), phase.sin()

    def forward(
        self,
        ids: Tensor,
        positions: Tensor | None = None,
        reading: Reading | None = None,
    ) -> Tensor:
        """Return hidden states after the last norm, float32 [B, T, C].

        Args:
            ids: int64 [B, T].
            positions: int64 [B, T], or None for 0 to T-1.
            reading: how to attend; None for full attention.
        """
        # cos, sin: [B or 1, 1, T, D]
        if positions is None:
            positions = torch.arange(ids.shape[1])[None]
        cos, sin = (t[:, None] for t in self.angles(positions))
        masks = _far_masks(ids.shape, reading) if reading and reading.window else None
        x = self.llama.model.embed_tokens(ids)
        for layer in self.llama.model.layers:
            q, k, v = self.projected(layer, x)
            if masks is None:
                out = self._full(rotate(q, cos, sin), rotate(k, cos, sin), v)
            else:
                assert reading is not None
                out = self._far(q, k, v, cos, sin, masks, reading)
            x = self.passed_on(layer, x, out)
        return normed(self.llama.model.norm, x)

    def projected(self, layer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries [B, HQ, T, D], keys and values [B, H, T, D] of a layer before RoPE.

        x: [B, T, C], the layer's input.
        """
        attention, h = layer.self_attn, normed(layer.input_layernorm, x)
        q = attention.q_proj(h).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        k = attention.k_proj(h).unflatten(-1, (self.kv_heads, self.size)).transpose(1, 2)
        v = attention.v_proj(h).unflatten(-1, (self.kv_heads, self.size)).transpose(1, 2)
        return q, k, v

    @staticmethod
    def passed_on(layer: Any, x: Tensor, out: Tensor) -> Tensor:
        """Return a layer's output [B, T, C] for its input x and its attention's output `out` [B, HQ, T, D]."""
        x = x + layer.self_attn.o_proj(out.transpose(1, 2).flatten(2))
        h, mlp = normed(layer.post_attention_layernorm, x), layer.mlp
        result: Tensor = x + mlp.down_proj(F.silu(mlp.gate_proj(h)) * mlp.up_proj(h))
        return result

    def _grouped(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.heads // self.kv_heads, dim=1)

    def _full(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, self._grouped(k), self._grouped(v), is_causal=True)

    def _far(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cos: Tensor,
        sin: Tensor,
        masks: "FarMasks",
        reading: Reading,
    ) -> Tensor:
        # q: [B, HQ, T, D]; k, v: [B, H, T, D]; the conversation is C tokens from a row's start
        B, _, T, D = q.shape
        scale, starts, C = D**-0.5, masks.starts, masks.count
        rq, rk, gv = rotate(q, cos, sin), self._grouped(rotate(k, cos, sin)), self._grouped(v)
        read = F.scaled_dot_product_attention(rq, rk, gv, attn_mask=masks.window)
        # slices, not index tensors: on a CPU the backward pass of indexing would dominate
        near_q = torch.stack([rq[b, :, s : s + C] for b, s in enumerate(starts)])  # [B, HQ, C, D]
        near = (near_q @ rk.transpose(-1, -2) * scale).masked_fill(~masks.near, -torch.inf)
        far_cos, far_sin = self.angles(torch.tensor([reading.distance]))
        far_q = rotate(torch.stack([q[b, :, s : s + C] for b, s in enumerate(starts)]), far_cos, far_sin)
        # every row's keys side by side: [HQ, B*T, D]
        keys = self._grouped(k).transpose(0, 1).reshape(self.heads, B * T, D)
        values = gv.transpose(0, 1).reshape(self.heads, B * T, D)
        far = torch.einsum("bhqd,hkd->bhqk", far_q, keys) * scale
        far = far.masked_fill(~masks.far, -torch.inf)
        weights = torch.split(torch.cat((near, far), dim=-1).softmax(dim=-1), [T, B * T], dim=-1)
        out = weights[0] @ gv + torch.einsum("bhqk,hkd->bhqd", weights[1], values)
        rows = [torch.cat((read[b, :, :s], out[b], read[b, :, s + C :]), dim=1) for b, s in enumerate(starts)]
        return torch.stack(rows)


def load_network(folder: Path) -> PocketNetwork:
    """Load the finished model in `folder`, in float32.

    Raises:
        SettingsError: there is no pocket model.
    """
    config = folder / "config.json"
    if not config.is_file():
        raise SettingsError(f"There is no model in {folder}.")
    try:
        shape = json.loads(config.read_text(encoding="utf-8"))
        if shape.get("model_type") != "llama" or not shape.get("tie_word_embeddings"):
            raise SettingsError(f"{folder} holds no pocket model: those are Llamas with tied embeddings.")
        model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    except (OSError, ValueError, SafetensorError) as error:
        raise SettingsError(f"The model in {folder} cannot be loaded: {error}.") from error
    network = PocketNetwork(model.config)
    network.llama = model
    return network


@dataclass(frozen=True)
class FarMasks:
    """Positions and boolean masks of far reading. C: tokens of the longest conversation in the batch.

    Attributes:
        starts, count: a row's conversation is `count` tokens from its start (shorter ones begin within the
            document).
        window: [T, T], sinks and sliding window.
        near: [B, 1, C, T], the same for the conversations.
        far: [B, 1, C, B*T], document keys at the constant distance.
    """

    starts: list[int]
    count: int
    window: Tensor
    near: Tensor
    far: Tensor


def _far_masks(shape: torch.Size, reading: Reading) -> FarMasks:
    B, T = shape
    assert reading.documents is not None
    assert reading.ends is not None
    at = torch.arange(T)
    behind = at[:, None] - at[None]
    window = (behind >= 0) & ((behind < reading.window) | (at[None] < reading.sinks))
    count = max(1, int((reading.ends - reading.documents).max()))
    # last `count` used tokens of a row; those before its conversation are document and attend to no far key
    starts = (reading.ends - count).clamp(min=0)
    asking = starts[:, None] + torch.arange(count)
    talks = asking >= reading.documents[:, None]  # [B, C]
    own = (behind[asking] >= reading.window) & (at >= reading.sinks)  # [B, C, T]
    others = (at >= reading.sinks) & (at < reading.documents[:, None])  # [B, T]
    far = torch.zeros(B, count, B, T, dtype=torch.bool)
    if reading.across:
        far |= others[None, None]
    row = torch.arange(B)
    far[row, :, row] = own
    far &= talks[..., None, None]
    far = far.reshape(B, 1, count, B * T)
    return FarMasks(starts.tolist(), count, window, window[asking][:, None], far)
