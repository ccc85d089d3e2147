"""Perplexity of a GGUF file in each form that a CPU gives its weights, beside that of its numbers in float32.

    python -m benchmarks.file_weights --model FILE.gguf --data FOLDER --out FILE

Books are read in windows of 512 tokens, each by itself and in one pass, and every form reads the same windows. An
interval is of the mean over windows of the difference from float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import options as shared
from benchmarks.gguf import own_logits
from benchmarks.haystack import held_out_prose
from benchmarks.quantised_weights import WINDOW, compared, windows
from benchmarks.report import named, publish
from engine import load_model

FORMS = ("none:float32", "none:bfloat16", "blocks:float32", "blocks:bfloat16")


def read(source: str, form: str, text: str, tokens: int) -> tuple[dict[str, Any], list[float], Tensor]:
    """Return the versions that the result depends on, the mean loss of each window, and the most likely next tokens."""
    quantize, dtype = form.split(":")
    model = load_model(source, "cpu", getattr(torch, dtype), quantize)
    losses, best = [], []
    for ids in windows(model, text, tokens):
        logits = own_logits(model, ids.tolist())
        losses.append(float(F.cross_entropy(logits[:-1], ids[1:])))
        best.append(logits.argmax(dim=-1))
    return named(model), losses, torch.cat(best)


def measure(source: str, forms: Sequence[str], text: str, tokens: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield the versions and the row of each form. All are compared with the first one."""
    first: tuple[list[float], Tensor] | None = None
    for form in forms:
        facts, losses, best = read(source, form, text, tokens)
        first = first or (losses, best)
        quantize, dtype = form.split(":")
        named_as = {"file": facts["model"], "quantize": quantize, "dtype": dtype}
        yield facts, compared(named_as, losses, first[0], float((best == first[1]).double().mean()))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser("Perplexity of a GGUF file in each form of its weights.")
    parser.add_argument("--tokens", type=shared.size, default=4096, help="of the books (default: 4,096)")
    parser.add_argument("--forms", type=shared.words, default=list(FORMS), help=f"default: {','.join(FORMS)}")
    chosen = parser.parse_args(argv)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    found = list(measure(chosen.model, chosen.forms, held_out_prose(chosen.data), chosen.tokens))
    facts = found[0][0]
    publish("file-weights", [row for _, row in found], chosen.out, chosen.json, window=WINDOW, **facts)
    return 0


if __name__ == "__main__":
    shared.run(main)
