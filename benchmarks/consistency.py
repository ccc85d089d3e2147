"""Consistency of scorers: does a score from a prefix choose the same entries as one from the whole text?

    python -m benchmarks.consistency --tokens 2K

Locret's Figure 1. Take the top tenth of a prefix's entries by the scores of the whole text, and count how many are in
the top tenth by the scores of the prefix alone. A scorer that depends only on earlier tokens reaches 100 %. One that
needs later tokens does not, and cannot evict while it reads. Every prefix is read anew with full attention; scores are
not pooled.

| scorer | score of an entry |
|---|---|
| locret | from the retaining head |
| nuc | -log p of its token (InfiniPot's NuC) |
| cap | attention from a catalyst prompt after the prefix (InfiniPot's CaP) |
| snapkv-like | attention from the last 64 tokens (SnapKV, https://arxiv.org/abs/2404.14469, section 4) |
| h2o-like | attention from all tokens (H2O, https://arxiv.org/abs/2306.14048, section 4) |
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from benchmarks import options as shared
from benchmarks.haystack import Haystack
from benchmarks.report import named, publish
from engine import Model, WeightsError
from engine.memories.attention import Shown, attend, causal_span
from engine.memories.memory import no_source
from engine.memories.slots import SlotMemory
from engine.methods.infinipot import PROMPTS
from engine.models.spec import ModelSpec, Scoring
from engine.passes import novelties
from engine.trained.retaining import RetainingHeads, find_heads
from training.locret.labels import overlap

WINDOW = 64  # tokens of the SnapKV-like scorer's queries; they get no score
ROWS = 256  # queries whose attention is in memory at a time
PASS = 256  # tokens of a pass


class Noting(SlotMemory):
    """Full attention that also keeps the queries before RoPE, [HQ, T, D] per layer."""

    def __init__(self, spec: ModelSpec) -> None:
        """Start with an empty memory."""
        super().__init__(spec, lets_go=False)  # so that token i is in slot i
        self.scoring = Scoring(0.0)

    def reserve(self, tokens: int) -> None:
        """Reserve slots and queries for this many tokens."""
        super().reserve(tokens)
        layers, like = self.spec.layers, self.own[0].keys
        self.queries = [like.new_empty(layer.query_heads, tokens, layer.head_size) for layer in layers]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Return causal attention, and keep the queries."""
        if self.observed is None:
            self.queries[layer][:, self.length : self.length + q.shape[1]] = q
            self.scoring = scoring
        return super().attend(layer, q, k, v, scoring)

    def received(self, layer: int, first: int) -> Tensor:
        """Return the attention [H, T] that entries get from queries `first` on, as a mean over a group's heads."""
        slots, end = self.own[layer], self.length
        total = torch.zeros(slots.layer.kv_heads, end)
        for begin in range(first, end, ROWS):
            stop = min(begin + ROWS, end)
            rotated = slots.layer.rope.rotate(self.queries[layer][:, begin:stop], begin)
            span = causal_span(stop - begin, stop, slots.layer.sliding_window, rotated.device)
            shown = Shown(rotated, [(slots.rotated, stop)], [(slots.as_kept[1], stop)], span)
            _, given = attend([shown], self.scoring, watched=True)
            total[:, :stop] += given[0].view(slots.layer.kv_heads, -1, stop).mean(dim=1).cpu()
        return total


def scores(model: Model, ids: Tensor, heads: RetainingHeads | None) -> dict[str, Tensor]:
    """Return each scorer's scores of a text: [layers * heads, T], or [1, T] for one score per token."""
    memory = Noting(model.spec)
    memory.reserve(len(ids) + PASS)
    hidden = []
    for part in torch.split(ids, PASS):
        hidden.append(model.forward(part, memory, no_source(len(part))))
        memory.commit()
    layers = range(len(model.spec.layers))
    found = {"nuc": novelties(model, None, torch.cat(hidden), ids)[None]}
    if heads is not None:
        slots, end = memory.own, memory.length
        inputs = [(memory.queries[layer], *slots[layer].as_kept) for layer in layers]
        found["locret"] = torch.cat(
            [heads.score(layer, *(x[:, :end] for x in qkv)) for layer, qkv in enumerate(inputs)]
        )
    catalyst = torch.tensor(model.chat.turn(PROMPTS["G"]))
    with memory.observing(len(catalyst)):
        model.forward(catalyst, memory, no_source(len(catalyst)))
        assert memory.observed is not None
        each = zip(memory.observed.values(), model.spec.layers, strict=True)
        found["cap"] = torch.cat([seen.view(layer.kv_heads, -1, len(ids)).amax(dim=1) for seen, layer in each])
    found["snapkv-like"] = torch.cat([memory.received(layer, len(ids) - WINDOW) for layer in layers])
    found["h2o-like"] = torch.cat([memory.received(layer, 0) for layer in layers])
    return found


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser("Consistency of what scorers find important in a prefix and in the whole.")
    parser.add_argument("--tokens", type=shared.length, default=2048, help="length of the whole (default: 2K)")
    parser.add_argument("--trials", type=shared.count, default=5, help="documents (default: 5)")
    chosen = parser.parse_args(argv)
    if chosen.tokens // 8 <= WINDOW:
        parser.error(f"an eighth of the text must be more than {WINDOW} tokens, so give {8 * (WINDOW + 1)} or more")
    model = shared.open_model(chosen)
    try:
        heads = find_heads(model.spec, "")
    except WeightsError as error:
        heads = None
        print(f"Without locret: {error}", file=sys.stderr)
    haystack = Haystack(model, chosen.data)
    prefixes = [chosen.tokens * eighth // 8 for eighth in range(1, 9)]
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for number in range(chosen.trials):
        ids = haystack.trial("facts", chosen.tokens, 0.0, chosen.seed + number).ids
        whole = scores(model, ids, heads)
        for prefix in prefixes:
            early, judged = scores(model, ids[:prefix], heads), prefix - WINDOW
            for name, late in whole.items():
                found[name, prefix].append(overlap(early[name][:, :judged], late[:, :judged]))
        print(f"document {number + 1} of {chosen.trials}", file=sys.stderr, flush=True)
    rows: list[dict[str, Any]] = [
        {"scorer": name, "prefix": prefix, "tokens": chosen.tokens, "consistency": sum(each) / len(each)}
        for (name, prefix), each in found.items()
    ]
    publish("consistency", rows, chosen.out, chosen.json, **named(model), documents=chosen.trials)
    return 0


if __name__ == "__main__":
    shared.run(main)
