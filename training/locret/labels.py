"""Inputs and labels of retaining heads, from one reading by the frozen model.

Locret, section 3.3: the label of a token is the largest dot product of its key with the answer's queries, before
softmax, over the query heads of a group. It is scaled as in the authors' code, unlike the paper's formula. The reading
goes chunk by chunk, so that no full attention matrix exists. The prompt's queries are kept; with the cache they are the
heads' inputs.

Sizes: L layers, H KV heads, HQ query heads, P prompt tokens, T tokens of a pass, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine import Model
from engine.memories.memory import no_source
from engine.memories.slots import SlotMemory
from engine.models.spec import ModelSpec, Scoring
from kernels.softmax import scores
from training.locret.examples import Example

TOP = 0.1  # top share of the prompt's tokens


class Watched(SlotMemory):
    """Full attention that records the prompt's queries [HQ, P, D] and labels [H, P] of each layer."""

    def __init__(self, spec: ModelSpec, example: Example) -> None:
        """Start with an empty memory and reserve it for the example."""
        super().__init__(spec, lets_go=False)  # so that token i is in slot i
        self.reserve(len(example.ids))
        self._asking = example.asking.to(spec.device)
        self.prompt = prompt = example.prompt
        sizes = [(layer.query_heads, prompt, layer.head_size) for layer in spec.layers]
        self.queries = [torch.empty(size, dtype=spec.dtype, device=spec.device) for size in sizes]
        self.labels = [torch.full((layer.kv_heads, prompt), float("-inf"), device=spec.device) for layer in spec.layers]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Return causal attention, and record queries and labels."""
        output = super().attend(layer, q, k, v, scoring)
        begin, end = self.length, self.length + q.shape[1]
        if begin < self.prompt:
            self.queries[layer][:, begin:end] = q[:, : self.prompt - begin]
        asking = self._asking[begin:end]
        if asking.any():
            slots = self.own[layer]
            rotated = slots.layer.rope.rotate(q, begin)[:, asking]
            grouped = rotated.reshape(slots.layer.kv_heads, -1, rotated.shape[-1])
            logits = scores(grouped.float(), slots.rotated[:, : self.prompt].float(), scoring.scaling, scoring.softcap)
            best = logits.amax(dim=1)
            self.labels[layer] = torch.maximum(self.labels[layer], best)
        return output

    def inputs(self, layer: int, begin: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values before RoPE of prompt tokens begin .. end - 1, float32 [HQ or H, end - begin,
        D].
        """
        span = slice(begin, end)
        keys, values = (bank[:, span].float() for bank in self.own[layer].as_kept)
        return self.queries[layer][:, span].float(), keys, values


def watch(model: Model, example: Example, chunk: int) -> Watched:
    """Read an example in passes of `chunk` tokens and return the recording memory."""
    memory = Watched(model.spec, example)
    for ids in torch.split(example.ids, chunk):
        model.forward(ids, memory, no_source(len(ids)))
        memory.commit()
    return memory


def overlap(score: Tensor, label: Tensor) -> float:
    """Return the share of the top tenth of labels [H, P] that is in the top tenth of scores [H, P] too, 0 to 1."""
    count = max(1, round(TOP * label.shape[1]))
    chosen, wanted = (torch.zeros_like(x).scatter_(1, x.topk(count, dim=1).indices, 1.0) for x in (score, label))
    return float((chosen * wanted).sum() / wanted.sum())
