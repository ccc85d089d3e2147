"""Paired timings in one run: our `full` against transformers' `generate`, and reading against the bare model.

The bare model passes over the same chunks without memory: once with each chunk alone, and once with as many entries
before each as the method's budget. This separates the cost of attention from that of the method. The cost of Locret's
heads is the reading time with them divided by the time with all scores zero, for the pocket model and for one layer of
Llama-3.1-8B's shape with random weights.

    python -m benchmarks.speed

The sides take turns, so that other load affects both; medians and their ratio are reported.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig

from benchmarks import options as shared
from benchmarks.asking import read
from benchmarks.haystack import Haystack
from benchmarks.model_shapes import config_of
from benchmarks.random_models import random_model
from benchmarks.report import named, publish
from engine import Model
from engine.loops.passes import feed
from engine.loops.reader import CHUNK
from engine.methods.locret import Locret
from engine.methods.scored import ScoredMethod
from engine.parts.mass import no_source
from engine.trained.retaining import FILE, RetainingHeads
from engine.trained.sidecar_weights import save_weights

GENERATED = 64  # tokens of an answer
REPEATS = 5
LARGE, WIDTH = "Llama-3.1-8B", 1024  # shape for timing heads, and their width in the paper


def seconds(run: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def ours(model: Model, ids: Tensor) -> list[int]:
    """Return greedy tokens by the engine's `full`."""
    method = shared.variant("full", None)
    memory = method.new_memory(model.spec, model.turn_length)
    memory.reserve(len(ids) + GENERATED)
    tokens: list[int] = []
    pending = ids
    while len(tokens) < GENERATED:
        source = no_source(len(pending))
        *_, last = feed(model, method, memory, pending, source, CHUNK)
        assert last.hidden is not None
        tokens.append(int(model.logits(last.hidden[-1]).argmax()))
        pending = torch.tensor(tokens[-1:])
    return tokens


def against_generate(model: Model, folder: str, ids: Tensor) -> dict[str, Any]:
    """Compare `full` with transformers and its cache: prompt and greedy decoding."""
    theirs: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    config = GenerationConfig(  # type: ignore[no-untyped-call]
        do_sample=False, max_new_tokens=GENERATED, min_new_tokens=GENERATED, pad_token_id=0
    )

    def generate() -> list[int]:
        with torch.no_grad():
            output = theirs.generate(ids[None], generation_config=config, attention_mask=torch.ones_like(ids[None]))
        return [int(token) for token in output[0, len(ids) :]]

    same = generate() == ours(model, ids)
    pairs = [(seconds(lambda: ours(model, ids)), seconds(generate)) for _ in range(REPEATS)]
    return _row("full against transformers generate", len(ids), pairs) | {"same_tokens": same}


def against_bare(model: Model, name: str, budget: int, entries: int, ids: Tensor) -> dict[str, Any]:
    """Compare reading with a method to the model's forward over the same chunks, with `entries` entries before each."""
    method, full = shared.variant(name, budget), shared.variant("full", None)

    memory = full.new_memory(model.spec, model.turn_length)
    memory.reserve(entries + CHUNK)
    for chunk in torch.split(ids[:entries], CHUNK) if entries else ():
        model.forward(chunk, memory, torch.zeros(len(chunk), dtype=torch.int32))
        memory.end_pass()

    def bare() -> None:
        for chunk in torch.split(ids, CHUNK):  # no pass is ended, so each chunk replaces the one before
            model.forward(chunk, memory, torch.zeros(len(chunk), dtype=torch.int32))

    pairs = [(seconds(lambda: read(model, method, ids)), seconds(bare)) for _ in range(REPEATS)]
    seeing = f"seeing {entries} entries more" if entries else "seeing each chunk alone"
    return _row(f"{name} {budget} against the bare model {seeing}", len(ids), pairs)


class WithoutHeads(ScoredMethod):
    """Evict like Locret, but run no heads."""

    name: ClassVar[str] = Locret.name

    def score(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return zero for every entry, float32 [H, T]."""
        return k.new_zeros(k.shape[:2], dtype=torch.float32)


def heads_cost(model: Model, what: str, budget: int, ids: Tensor) -> dict[str, Any]:
    """Compare reading with Locret's heads to reading without them."""
    judged, unjudged = Locret(budget=budget), WithoutHeads(budget=budget)
    pairs = [
        (seconds(lambda: read(model, judged, ids)), seconds(lambda: read(model, unjudged, ids))) for _ in range(REPEATS)
    ]
    return _row(f"locret {budget}, {what}, with its heads against without", len(ids), pairs)


def large_model(folder: Path) -> Model:
    """Return one layer of `LARGE` with a small vocabulary and heads beside it, with random weights."""
    config = config_of(LARGE, layers=1)
    config.vocab_size = 512
    model = random_model(LARGE, config, torch.device("cpu"), torch.float32, False, folder)
    save_weights(RetainingHeads(model.spec, [WIDTH]), folder / FILE, model.spec, {})
    return model


def _row(what: str, tokens: int, pairs: list[tuple[float, float]]) -> dict[str, Any]:
    mine, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    return {"comparison": what, "tokens": tokens, "ours_seconds": mine, "theirs_seconds": other, "ratio": ratio}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser("Paired timings: full against transformers, reading against the bare model.")
    parser.add_argument("--tokens", type=shared.length, default=16384, help="text read for the second comparison")
    chosen = parser.parse_args(argv)
    model = shared.open_model(chosen)
    haystack = Haystack(model, chosen.data)
    short = [haystack.trial("prose", length, 0.5, chosen.seed).ids for length in (512, 1536)]
    rows = [against_generate(model, shared.model_source(chosen), ids) for ids in short]
    text = haystack.trial("prose", chosen.tokens, 0.5, chosen.seed).ids
    for name, budget in (("streaming", 512), ("exact", 512), ("infinipot", 512), ("infinipot", 2048), ("locret", 1024)):
        rows += [against_bare(model, name, budget, entries, text) for entries in (0, budget)]
    rows.append(heads_cost(model, "the pocket model" if chosen.model == "pocket" else chosen.model, 1024, text))
    with tempfile.TemporaryDirectory() as folder:
        large = large_model(Path(folder))
        rows.append(heads_cost(large, f"a layer of {LARGE}", 256, torch.arange(1024) % 256))
    publish("speed", rows, chosen.out, chosen.json, **named(model))
    return 0


if __name__ == "__main__":
    shared.run(main)
