"""Attention mass: the share of full attention's probability on the entries a method selects, by layer and length.

    python -m benchmarks.mass --tokens 4K,16K

InfiniteHiP's Figure 6a. A method reads real prose. Further tokens are passed to its memory one by one, like those of an
answer. For each layer, head and token, the probabilities over the whole text are computed from the same queries and
keys, with true distances up to half of the model's window and that distance beyond. Counted is the share of the entries
the query attended to, without sinks. `random` attends to as much as `infinitehip`, with random chunks in place of its
selection.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from benchmarks import options as shared
from benchmarks.asking import read
from benchmarks.haystack import Haystack
from benchmarks.report import named, publish
from engine import Model
from engine.host.host_tier import HostTier
from engine.memories.memory import AttentionMass, Memory
from engine.methods.infinitehip import InfiniteHiPMemory
from engine.models.attention_interface import ExtraTokens
from engine.models.spec import LayerSpec, Scoring
from kernels.rows import take

QUERIES = 32
METHODS = ["infllm", "infinitehip", "exact", "recall"]
RANDOM = "random"
FLAT = 1e-3  # with logits scaled so, the same entries are selected and none of their probabilities rounds to zero


class Seen(AttentionMass):
    """Records which source positions the query heads of one layer attended to, instead of summing probabilities."""

    def __init__(self, heads: int, source_tokens: int) -> None:
        super().__init__(0, torch.device("cpu"))
        self.heads, self.size = heads, source_tokens
        self.clear()

    def clear(self) -> None:
        """Reset the record before each layer."""
        super().clear()
        self.entries = torch.zeros(self.heads, self.size + 1, dtype=torch.bool)

    def add(self, source: Tensor, probability: Tensor) -> None:
        """Record source positions. probability: [HQ, 1, N], or [H, N] for entries shared by all queries of a group."""
        source, probability = (
            x.flatten(0, -2).repeat_interleave(self.heads // x.shape[0], 0)
            for x in (source.expand(probability.shape), probability)
        )
        place = torch.where((source >= 0) & (probability > 0), source.long(), self.size)  # the last column is a dummy
        self.entries.scatter_(1, place, value=True)


class Probe:
    """Wraps a memory in passes of one token, and measures each layer."""

    def __init__(self, memory: Memory, host: HostTier, tokens: int) -> None:
        """Wrap a memory. `host` is its tier of everything read; `tokens` counts the text and the passes."""
        self.memory, layers = memory, memory.spec.layers
        self.seen = Seen(layers[0].query_heads, tokens)
        self.text = text = (host.source() >= 0).nonzero()[:, 0]  # entries of the text in the host tier
        self.source = host.source()[text].long()
        self.kept = [  # keys of the text
            take(host.keys(number), text.expand(layer.kv_heads, -1)).to(memory.spec.dtype)
            for number, layer in enumerate(layers)
        ]
        self.own = [torch.zeros(layer.kv_heads, 0, layer.head_size) for layer in layers]  # keys of the passes
        self.covered: list[list[float]] = [[] for _ in layers]
        self.at_random: list[list[float]] = [[] for _ in layers]
        self.lot = torch.Generator().manual_seed(tokens)

    def begin(self, source: Tensor) -> None:
        """Forward the call to the memory."""
        self.memory.begin(source)

    def extra_tokens(self) -> ExtraTokens | None:
        """Return the memory's extra tokens."""
        return self.memory.extra_tokens()

    @property
    def states(self) -> dict[str, Tensor]:
        """The memory's recurrent states."""
        return self.memory.states

    def carried(self, states: dict[str, Tensor]) -> None:
        """Forward the call to the memory."""
        self.memory.carried(states)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Attend twice: once to record the selection and compare it with full attention, once for the output."""
        self.seen.clear()
        self.memory.mass = self.seen
        self.memory.attend(layer, q, k, v, replace(scoring, scaling=scoring.scaling * FLAT))
        self.memory.mass = None
        spec, kept = self.memory.spec, self.kept[layer]
        self.own[layer] = torch.cat([self.own[layer].to(k.dtype), k], dim=1)
        scaling, reach = scoring.scaling, spec.window // 2
        probabilities = full_attention(spec.layers[layer], q, kept, self.own[layer], scaling, reach)[:, 0]
        far, own = probabilities[:, : kept.shape[1]], probabilities[:, kept.shape[1] :].sum(dim=1)
        seen = self.seen.entries[:, self.source]
        self.covered[layer].append(float(((far * seen).sum(dim=1) + own).mean()))
        if isinstance(self.memory, InfiniteHiPMemory):
            far_entries = int((self.text < self.memory.far).sum())
            chance = random_chunks(self.memory, layer, len(self.source), far_entries, self.lot)
            self.at_random[layer].append(float(((far * chance).sum(dim=1) + own).mean()))
        return self.memory.attend(layer, q, k, v, scoring)


def full_attention(layer: LayerSpec, q: Tensor, kept: Tensor, own: Tensor, scaling: float, reach: int) -> Tensor:
    """Return probabilities [HQ, T, N + M] of the last T tokens over N kept keys and the M keys of the passes.

    Distances are capped at `reach`.
    """
    group, count = q.shape[0] // kept.shape[0], q.shape[1]
    near = min(reach, kept.shape[1])
    recent = torch.cat([kept[:, kept.shape[1] - near :], own], dim=1)
    far = kept[:, : kept.shape[1] - near].repeat_interleave(group, 0)
    turned = layer.rope.rotate(recent, 0).repeat_interleave(group, 0)
    logits = torch.cat(
        [
            layer.rope.to_constant(q, reach) @ layer.rope.to_constant(far, 0).transpose(1, 2),
            layer.rope.rotate(q, near + own.shape[1] - count) @ turned.transpose(1, 2),
        ],
        dim=2,
    ).float()
    later = torch.ones(count, count, dtype=torch.bool).triu(1)
    logits[..., -count:].masked_fill_(later, float("-inf"))
    return (logits * scaling).softmax(dim=2)


def random_chunks(memory: InfiniteHiPMemory, layer: int, entries: int, far: int, lot: torch.Generator) -> Tensor:
    """Return the visible entries, bool [N], if chunks of the first `far` ones were selected at random.

    As many chunks are drawn as InfiniteHiP keeps.
    """
    chunk, keep = memory.stages[-1].chunk, memory.pruning.rules[layer].keep
    chunks = -(-far // chunk)
    drawn = torch.randperm(chunks, generator=lot)[: keep // chunk]
    chosen = torch.zeros(max(1, chunks), dtype=torch.bool)
    chosen[drawn] = True
    result = torch.ones(entries, dtype=torch.bool)
    result[:far] = chosen.repeat_interleave(chunk)[:far]
    return result


def measure(model: Model, name: str, budget: int, ids: Tensor) -> list[dict[str, Any]]:
    """Return the rows of one method (and of `random`) for one text, with its last tokens as queries."""
    memory = read(model, shared.variant(name, budget), ids[:-QUERIES]).context().memory.fork()
    host = getattr(memory, "host")  # noqa: B009 - only memories with a host tier are measured
    probe = Probe(memory, host, len(ids))
    for at in range(len(ids) - QUERIES, len(ids)):
        model.forward(ids[at : at + 1], cast(Memory, probe), torch.tensor([at], dtype=torch.int32))
        memory.commit()
    found = {name: probe.covered, RANDOM: probe.at_random}
    return [
        {"method": method, "budget": budget, "tokens": len(ids), "layer": layer, "covered": statistics.mean(shares)}
        for method, layers in found.items()
        for layer, shares in enumerate(layers)
        if shares
    ]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser(
        "Share of full attention's probability that each method's selection covers.", "stockpot bench mass"
    )
    parser.add_argument("--methods", type=shared.words, default=METHODS, help=f"of {', '.join(METHODS)} (default: all)")
    parser.add_argument("--budget", type=shared.size, default=1024, help="entries (default: 1024)")
    parser.add_argument("--tokens", type=shared.lengths, default=[4096, 16384], help="lengths (default: 4K,16K)")
    parser.add_argument("--trials", type=shared.count, default=2, help="texts per length (default: 2)")
    chosen = parser.parse_args(argv)
    shared.check_methods(parser, chosen.methods, [chosen.budget])
    if other := [name for name in chosen.methods if name.split(":")[0] not in METHODS]:
        parser.error(f"{', '.join(other)} does not keep everything that was read: choose of {', '.join(METHODS)}")
    model = shared.open_model(chosen)
    haystack = Haystack(model, chosen.data)
    rows: list[dict[str, Any]] = []
    for tokens in chosen.tokens:
        for name in chosen.methods:
            texts = [haystack.stretch(tokens, chosen.seed + number) for number in range(chosen.trials)]
            found = [measure(model, name, chosen.budget, ids) for ids in texts]
            for same in zip(*found, strict=True):
                rows.append(same[0] | {"covered": statistics.mean(row["covered"] for row in same)})
                print(rows[-1], file=sys.stderr, flush=True)
    publish("mass", rows, chosen.out, chosen.json, **named(model), trials=chosen.trials)
    return 0


if __name__ == "__main__":
    shared.run(main)
