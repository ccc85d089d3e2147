"""Perplexity with weights in 8 and 4 bits, beside that with plain ones.

    python -m benchmarks.quantised_weights --model FOLDER_OR_GGUF --data FOLDER --out FILE

Weights are replaced by the numbers that their codes stand for, so that a CPU shows what a GPU computes in long passes.
Books are read in windows of 512 tokens, each by itself, and every kind of weights reads the same windows. An interval
is of the mean over windows of the difference from plain weights.

Published weights that were in 4 bits before, as in most GGUF files, would lose nothing in groups that coincide with
theirs. So the channels of a Llama's hidden states, MLPs and values are put into another order first, which changes
nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from app.formatting import Z
from benchmarks import options as shared
from benchmarks.gguf import own_logits
from benchmarks.haystack import held_out_prose
from benchmarks.report import named, publish, write
from engine import Model, load_model
from engine.models.four_bits import in_four_bits

WINDOW = 512
Numbers = Callable[[Tensor], Tensor]  # what the codes of a weight stand for


def shuffled(network: Any, seed: int) -> None:
    """Put the channels of a network of Llama's architecture into a random order, in place; its function stays."""
    generator, config = torch.Generator().manual_seed(seed), network.config
    hidden = torch.randperm(config.hidden_size, generator=generator)
    base, width = network.base_model, config.head_dim
    own = [base.embed_tokens.weight, *(() if config.tie_word_embeddings else (network.lm_head.weight,))]
    rows: list[tuple[Tensor, Tensor]] = [(base.norm.weight, hidden)]
    columns = [(weight, hidden) for weight in own]
    for layer in base.layers:
        attention, mlp = layer.self_attn, layer.mlp
        inside = torch.randperm(config.intermediate_size, generator=generator)
        order = [torch.randperm(width, generator=generator) for _ in range(config.num_key_value_heads)]
        values = torch.cat([number * width + each for number, each in enumerate(order)])
        group = config.num_attention_heads // len(order)
        heads = torch.cat([number * width + order[number // group] for number in range(config.num_attention_heads)])
        rows += [(layer.input_layernorm.weight, hidden), (layer.post_attention_layernorm.weight, hidden)]
        rows += [(attention.v_proj.weight, values), (attention.o_proj.weight, hidden), (mlp.down_proj.weight, hidden)]
        rows += [(each.weight, inside) for each in (mlp.gate_proj, mlp.up_proj)]
        reading = (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj)
        columns += [(each.weight, hidden) for each in reading]
        columns += [(attention.o_proj.weight, heads), (mlp.down_proj.weight, inside)]
    for weight, order_of_rows in rows:
        weight.copy_(weight[order_of_rows].clone())
    for weight, order_of_columns in columns:
        weight.copy_(weight[:, order_of_columns].clone())


def in_eight(weight: Tensor) -> Tensor:
    """Return a weight rounded to 8 bits with a scale a row."""
    scale = weight.float().abs().amax(dim=1, keepdim=True) / 127
    return ((weight.float() / scale).round() * scale).to(weight.dtype)


def in_four(weight: Tensor, group: int, fit: bool) -> Tensor:
    """Return a weight rounded to 4 bits."""
    codes, scales = in_four_bits(weight, group, fit)
    scale, offset = scales.float().permute(2, 1, 0)[..., None]
    numbers: Tensor = ((codes.float().view(len(codes), len(scales), -1) - 8) * scale + offset).flatten(1)
    return numbers.to(weight.dtype)


def in_nf4(weight: Tensor) -> Tensor:
    """Return a weight rounded to NF4 with double quantisation, by bitsandbytes."""
    from bitsandbytes import functional  # optional

    codes, state = functional.quantize_4bit(weight, quant_type="nf4", blocksize=64, compress_statistics=True)
    numbers: Tensor = functional.dequantize_4bit(codes, state)
    return numbers.to(weight.dtype)


def kinds() -> Iterator[tuple[dict[str, Any], Numbers | None, Numbers | None]]:
    """Yield the facts of each kind of weights, and the numbers of layers and of the head; None for plain ones."""

    def four(group: int, fit: bool) -> tuple[dict[str, Any], Numbers]:
        return {"weights": "int4", "group": group, "fitted": fit}, partial(in_four, group=group, fit=fit)

    yield {"weights": "plain"}, None, None
    yield {"weights": "int8"}, in_eight, None
    yield {"weights": "nf4"}, in_nf4, None
    for group in (32, 64):
        for fit in (True, False):
            yield *four(group, fit), None
    facts, numbers = four(64, True)
    yield {**facts, "head": True}, None, numbers


def windows(model: Model, text: str, tokens: int) -> list[Tensor]:
    """Return windows of a text from all over it, int64 [WINDOW] each."""
    count, size = max(2, tokens // WINDOW), 8 * WINDOW  # characters, more than enough
    starts = [number * (len(text) - size) // count for number in range(count)]
    return [model.encode(text[start : start + size]).ids[-WINDOW:] for start in starts]


def read(model: Model, texts: list[Tensor]) -> Iterator[tuple[dict[str, Any], list[float], Tensor]]:
    """Yield the facts of each kind of weights, the mean loss of each window, and all most likely successors."""
    head = model.network.lm_head
    layers = [each for each in model.network.base_model.modules() if isinstance(each, nn.Linear)]
    plain, plain_head = [each.weight.clone() for each in layers], head.weight
    for facts, of_layers, of_head in kinds():
        with torch.no_grad():
            for layer, weight in zip(layers, plain, strict=True):
                layer.weight.copy_(weight if of_layers is None else of_layers(weight))
            head.weight = nn.Parameter(of_head(plain_head), requires_grad=False) if of_head else plain_head
        losses, best = [], []
        for ids in texts:
            logits = own_logits(model, ids.tolist())
            losses.append(float(F.cross_entropy(logits[:-1], ids[1:])))
            best.append(logits.argmax(dim=-1))
        yield facts, losses, torch.cat(best)


def compared(facts: dict[str, Any], losses: list[float], plain: list[float], same: float) -> dict[str, Any]:
    """Return one row. same: share of tokens whose most likely successor is that of plain weights."""
    more = torch.tensor(losses, dtype=torch.float64) - torch.tensor(plain, dtype=torch.float64)
    near = Z * float(more.std()) / math.sqrt(len(losses))
    return {
        **facts,
        "windows": len(losses),
        "window": WINDOW,
        "tokens": len(losses) * (WINDOW - 1),
        "perplexity": math.exp(fmean(losses)),
        "ratio": math.exp(float(more.mean())),
        "ratio_95": [math.exp(float(more.mean()) - near), math.exp(float(more.mean()) + near)],
        "same_successor": same,
    }


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser("Perplexity with weights in 8 and 4 bits.")
    parser.add_argument("--tokens", type=shared.size, default=20_480, help="of the books (default: 20,480)")
    chosen = parser.parse_args(argv)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    model = load_model(chosen.model, "cpu")
    texts = windows(model, held_out_prose(chosen.data), chosen.tokens)
    facts = {"window": WINDOW, **named(model)}
    if model.network.config.model_type == "llama":
        with torch.no_grad():
            shuffled(model.network, chosen.seed)
    rows: list[dict[str, Any]] = []
    plain: tuple[list[float], Tensor] | None = None
    for kind, losses, best in read(model, texts):
        plain = plain or (losses, best)
        rows.append(compared(kind, losses, plain[0], float((best == plain[1]).double().mean())))
        if chosen.out is not None:
            write("quantised-weights", rows, chosen.out, **facts)
    publish("quantised-weights", rows, chosen.out, chosen.json, **facts)
    return 0


if __name__ == "__main__":
    shared.run(main)
