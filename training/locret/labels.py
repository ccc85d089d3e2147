"""Inputs and labels of retaining heads, from one reading by the frozen model.

Locret, section 3.3: the label of a token is the largest dot product of its key with the answer's queries, before
softmax, over the query heads of a group. It is scaled as in the authors' code, unlike the paper's formula.

In a reconstruction the text is repeated behind itself, a window at a time, with its own tokens as input. The label of a
token is the logarithm of the most attention that a token of the repetition gives it. The softmax is over the prompt's
beginning, the window and the repetition, so that labels do not depend on the length of the text. The idea is KVzip's
(https://arxiv.org/abs/2505.23416).

The reading goes chunk by chunk, so that no full attention matrix exists. The prompt's queries are kept; with the cache
they are the heads' inputs.

Sizes: L layers, H KV heads, HQ query heads, P prompt tokens, T tokens of a pass, D head size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine import Model
from engine.memory import Memory
from engine.models.spec import ModelSpec, Scoring
from engine.parts.mass import no_source
from engine.parts.slots import SlotStore
from kernels.softmax import attend, scores
from training.locret.examples import Example

TOP = 0.1  # top share of the prompt's tokens


class Watched(Memory):
    """Full attention that records the prompt's queries [HQ, P, D] and labels [H, P] of each layer."""

    store: SlotStore

    def __init__(self, spec: ModelSpec, example: Example, behind: int = 0) -> None:
        """Start with an empty memory and reserve it for the example and `behind` tokens after it."""
        super().__init__(spec, SlotStore(spec, keeps_windows=False))  # so that token i is in slot i
        self.reserve(len(example.ids) + behind)
        self._asking = example.asking.to(spec.device)
        self._example = example
        self.repeated: slice | None = None  # prompt tokens that the pass repeats
        self.prompt = prompt = example.prompt
        sizes = [(layer.query_heads, prompt, layer.head_size) for layer in spec.layers]
        self.queries = [torch.empty(size, dtype=spec.dtype, device=spec.device) for size in sizes]
        self.labels = [torch.full((layer.kv_heads, prompt), float("-inf"), device=spec.device) for layer in spec.layers]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Return causal attention, and record queries and labels."""
        output = super().attend(layer, q, k, v, scoring)
        begin, end = self.store.length, self.store.length + q.shape[1]
        if begin < self.prompt:
            self.queries[layer][:, begin:end] = q[:, : self.prompt - begin]
        asking = self._asking[begin:end]
        if self.repeated is not None:
            self._label_repeated(layer, q, scoring, self.repeated)
        elif asking.any():
            slots = self.store.own[layer]
            rotated = slots.layer.rope.rotate(q, begin)[:, asking]
            grouped = rotated.reshape(slots.layer.kv_heads, -1, rotated.shape[-1])
            logits = scores(grouped.float(), slots.rotated[:, : self.prompt].float(), scoring.scaling, scoring.softcap)
            best = logits.amax(dim=1)
            self.labels[layer] = torch.maximum(self.labels[layer], best)
        return output

    def _label_repeated(self, layer: int, q: Tensor, scoring: Scoring, window: slice) -> None:
        """Label the window and the prompt's beginning by the attention of a pass with request and repetition."""
        slots, labels, begin, count = self.store.own[layer], self.labels[layer], self.store.length, q.shape[1]
        asked = len(self._example.request) - 1  # its last token predicts the first of the repetition
        rotated = slots.layer.rope.rotate(q, begin)[:, asked:]
        first, own = slice(self._example.prefix), slice(begin, begin + count)
        keys = torch.cat([slots.rotated[:, rows] for rows in (first, window, own)], dim=1)
        each = keys.repeat_interleave(len(q) // len(keys), dim=0)[None]
        later = rotated.new_full((count - asked, count), float("-inf")).triu(asked + 1)
        mask = F.pad(later, (keys.shape[1] - count, 0))
        total = attend(rotated[None], each, each, scoring.scaling, scoring.softcap, mask)[1][0]
        if scoring.sink is not None:
            total = torch.logaddexp(total, scoring.sink[:, None].to(total.dtype))
        logits = scores(rotated, each[0, :, :-count], scoring.scaling, scoring.softcap).sub_(total[..., None])
        given = logits.view(len(keys), -1, logits.shape[-1]).amax(dim=1)
        for rows, best in ((first, given[:, first]), (window, given[:, self._example.prefix :])):
            labels[:, rows] = torch.maximum(labels[:, rows], best)

    def inputs(self, layer: int, begin: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values before RoPE of prompt tokens begin .. end - 1, float32 [HQ or H, end - begin,
        D].
        """
        span = slice(begin, end)
        keys, values = (bank[:, span].float() for bank in self.store.own[layer].unrotated)
        return self.queries[layer][:, span].float(), keys, values


def watch(model: Model, example: Example, chunk: int, window: int = 0) -> Watched:
    """Read an example in passes of `chunk` tokens and return the recording memory.

    window: tokens that a repetition repeats at a time. Each window is repeated right behind the prompt.
    """
    memory = Watched(model.spec, example, len(example.request) + window)
    for ids in torch.split(example.ids, chunk):
        model.forward(ids, memory, no_source(len(ids)))
        memory.end_pass()
    if len(example.request):
        for begin in range(example.prefix, example.prompt, window):
            memory.repeated = slice(begin, min(begin + window, example.prompt))
            ids = torch.cat([example.request, example.ids[memory.repeated]])
            model.forward(ids, memory, no_source(len(ids)))  # without end_pass, so that the next one replaces it
    return memory


def overlap(score: Tensor, label: Tensor) -> float:
    """Return the share of the top tenth of labels [H, P] that is in the top tenth of scores [H, P] too, 0 to 1."""
    count = max(1, round(TOP * label.shape[1]))
    chosen, wanted = (torch.zeros_like(x).scatter_(1, x.topk(count, dim=1).indices, 1.0) for x in (score, label))
    return float((chosen * wanted).sum() / wanted.sum())
