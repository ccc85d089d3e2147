"""Passes through a network whose weights stay in the blocks of a GGUF file: one call between two attentions.

Projection of the attention output, MLP, and the next layer's queries, keys and values, with norms and additions, are
one graph of ONNX Runtime, in float32. PyTorch would call some twenty operations for them, which takes longer than the
products if a pass has few tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.memory_usage import give_back
from engine.models.file_layers import UNPACKED_FROM, FileLinear
from engine.models.fusing import GATES, norm_of
from engine.models.gguf.kept import Kept
from engine.models.onnx_graph import MICROSOFT, Graph
from engine.models.packed_file import PackedFile
from engine.models.placement import fast_in_bfloat16
from engine.models.products import Session, product

KINDS = {  # values of `model_type`
    "gemma",
    "gemma2",
    "gemma3_text",
    "granite",
    "llama",
    "mistral",
    "phi3",
    "qwen2",
    "qwen3",
    "seed_oss",
    "smollm3",
}
OPERATORS: dict[str, tuple[str, dict[str, float]]] = {
    "silu": ("QuickGelu", {"alpha": 1.0}),
    "gelu_tanh": ("FastGelu", {}),
}

FEW = 64  # tokens of a pass, below which PyTorch's attention is quicker with one thread between the graphs
Attention = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]


def is_known(network: PreTrainedModel) -> bool:
    """Return whether a network's layers can be computed by graphs: their kind is known, and all weights in blocks."""
    if network.config.model_type not in KINDS:
        return False
    base: Any = network.base_model
    linear = [each for each in base.layers.modules() if hasattr(each, "in_features")]
    in_blocks = all(isinstance(each, FileLinear) for each in linear)
    return in_blocks and all(type(_activation_of(each.mlp)) in GATES for each in base.layers)


def _activation_of(mlp: Any) -> nn.Module:
    found: nn.Module = mlp.activation_fn if hasattr(mlp, "activation_fn") else mlp.act_fn
    return found


class LayerGraphs:
    """The layers of a network, without its attention, as graphs."""

    def __init__(self, network: Any, packed: PackedFile | None = None) -> None:
        """Pack the weights of all layers, one after another. packed: has the packed weights, or takes them."""
        self._base = network.base_model
        self._layers = list(self._base.layers)
        self._sessions = []
        for before, after in zip([None, *self._layers], [*self._layers, None], strict=True):
            self._sessions.append(_Builder(self._base, packed).session(before, after))
            give_back()

    def serves(self, tokens: int) -> bool:
        """Return whether a pass of so many tokens is quicker by graphs than by layers that are unpacked for it."""
        weight = self._base.embed_tokens.weight
        return tokens < UNPACKED_FROM or weight.dtype != torch.bfloat16 or not fast_in_bfloat16(weight.device)

    def run(self, ids: Tensor, attention: Attention) -> Tensor:
        """Pass tokens through the layers.

        Args:
            ids: int64 [T].
            attention: computes [HQ, T, D] from the module, queries [HQ, T, D], keys and values [H, T, D].

        Returns:
            Hidden states [T, hidden] after the last norm.
        """
        with _one_thread() if len(ids) < FEW else nullcontext():
            return self._run(ids, attention)

    def _run(self, ids: Tensor, attention: Attention) -> Tensor:
        tokens = len(ids)
        embedded: Tensor = self._base.embed_tokens(ids) * getattr(self._base, "embedding_multiplier", 1.0)
        *projected, stream = self._sessions[0].run(embedded.float().numpy())
        for layer, session in zip(self._layers, self._sessions[1:], strict=True):
            module = layer.self_attn
            heads = (each.reshape(tokens, -1, module.head_dim).swapaxes(0, 1) for each in projected)
            q, k, v = (torch.from_numpy(each).to(embedded.dtype) for each in heads)
            attended = attention(module, q, k, v).float().numpy()
            *projected, stream = session.run(attended.swapaxes(0, 1).reshape(tokens, -1), stream)
        return torch.from_numpy(stream).to(embedded.dtype)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let PyTorch compute with one thread: where its others wait for work, they take the cores of ONNX Runtime's."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Builder:
    """Writes the graph between two attentions."""

    def __init__(self, base: Any, packed: PackedFile | None) -> None:
        self._base, self._graph = base, Graph()
        self._pieces = Kept.packed if packed is None else packed.pieces
        self._sums: dict[str, dict[int, str]] = {}  # of each product's input

    def session(self, before: Any, after: Any) -> Session:
        """Return the session from the attention of one layer to that of the next.

        Its inputs are the attention output and the residual stream, or embeddings if there is no layer before; its
        outputs queries, keys and values and the residual stream, or hidden states if there is no layer after.
        """
        graph = self._graph
        stream, width = "", self._base.norm.weight.shape[0]
        if before is None:
            stream = graph.input(width)
        else:
            x = self._linear(before.self_attn.o_proj, graph.input(before.self_attn.o_proj.in_features))
            stream = graph.input(width)
            around = hasattr(before, "pre_feedforward_layernorm")  # some models normalise outputs too
            stream = self._added(before, stream, self._norm(before.post_attention_layernorm, x) if around else x)
            x = self._norm(before.pre_feedforward_layernorm if around else before.post_attention_layernorm, stream)
            x = self._mlp(before.mlp, x)
            stream = self._added(before, stream, self._norm(before.post_feedforward_layernorm, x) if around else x)
        if after is None:
            stream = self._norm(self._base.norm, stream)
        else:
            self._project(after.self_attn, self._norm(after.input_layernorm, stream))
        graph.output(stream, width)
        return Session(graph)

    def _added(self, layer: Any, stream: str, x: str) -> str:
        """Return the residual stream with x added; some models scale x."""
        if (factor := getattr(layer, "residual_multiplier", 1.0)) != 1.0:
            x = self._graph.node("Mul", x, self._graph.constant(np.array([factor], np.float32)))
        return self._graph.node("Add", stream, x)

    def _mlp(self, mlp: Any, x: str) -> str:
        if hasattr(mlp, "gate_up_proj"):
            gate, up = self._columns(self._linear(mlp.gate_up_proj, x), [mlp.down_proj.in_features] * 2)
        else:
            gate, up = self._linear(mlp.gate_proj, x), self._linear(mlp.up_proj, x)
        operator, facts = OPERATORS[GATES[type(_activation_of(mlp))]]
        gated = self._graph.node(operator, gate, domain=MICROSOFT, **facts)
        return self._linear(mlp.down_proj, self._graph.node("Mul", gated, up))

    def _project(self, attention: Any, x: str) -> None:
        """Add queries, keys and values as outputs; some models normalise queries and keys."""
        queries = attention.o_proj.in_features
        sizes = [queries, *[queries // attention.num_key_value_groups] * 2]
        if hasattr(attention, "qkv_proj"):
            parts = self._columns(self._linear(attention.qkv_proj, x), sizes)
        else:
            parts = [self._linear(getattr(attention, f"{name}_proj"), x) for name in "qkv"]
        for name, found, size in zip("qkv", parts, sizes, strict=True):
            norm = getattr(attention, f"{name}_norm", None)
            if norm is not None:
                heads = self._graph.node("Reshape", found, self._shape(-1, attention.head_dim))
                found = self._graph.node("Reshape", self._norm(norm, heads), self._shape(-1, size))
            self._graph.output(found, size)

    def _columns(self, x: str, sizes: Sequence[int]) -> list[str]:
        """Return neighbouring columns of x: so many for each."""
        ends = itertools.accumulate(sizes)
        return [
            self._graph.node("Slice", x, self._shape(end - size), self._shape(end), self._shape(1))
            for size, end in zip(sizes, ends, strict=True)
        ]

    def _shape(self, *sizes: int) -> str:
        return self._graph.constant(np.array(sizes))

    def _linear(self, layer: FileLinear, x: str) -> str:
        pieces = self._pieces(layer.kept)
        found = product(self._graph, x, layer.in_features, pieces, self._sums.setdefault(x, {}))
        if layer.bias is None:
            return found
        return self._graph.node("Add", found, self._graph.constant(layer.bias.detach().float().numpy()))

    def _norm(self, norm: Any, x: str) -> str:
        known = norm_of(type(norm))
        assert known is not None, "the norms of all `KINDS` are known"
        weight = self._graph.constant((norm.weight.detach().float() + known.shift).numpy())
        epsilon = float(getattr(norm, known.eps))
        return self._graph.node("SimplifiedLayerNormalization", x, weight, axis=-1, epsilon=epsilon)
