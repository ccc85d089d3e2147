"""Time per token against the length of the text, beside full attention in the same run.

    python -m benchmarks.growth --tokens 2K,8K,32K

All methods read one text side by side: each in turn reads up to the next length. The last thousand tokens give the
reading time; decoding is timed on a fork of its memory. So other load on the machine affects all methods alike.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from benchmarks import options as shared
from benchmarks.haystack import Haystack
from benchmarks.report import named, publish
from engine import Model, Reader
from engine.memories.memory import no_source
from engine.passes import feed
from engine.records import ReadProgress

LAST = 1024  # tokens whose reading is timed
DECODED = 16
FULL = "full"


def read_to(run: Iterator[ReadProgress], tokens: int) -> float:
    """Read up to `tokens` tokens and return the seconds per token of the last thousand."""
    records: list[ReadProgress] = []
    for record in run:
        records.append(record)
        if record.tokens_done >= tokens or record.stage == "ready":
            break
    end = records[-1]
    begin = max(
        (r for r in records if r.tokens_done <= end.tokens_done - LAST), key=lambda r: r.tokens_done, default=records[0]
    )
    return (end.seconds - begin.seconds) / max(1, end.tokens_done - begin.tokens_done)


def decode(model: Model, reader: Reader, question: Tensor) -> float:
    """Return the seconds per token of an answer over the text so far."""
    fork = reader.memory.fork()

    def put(ids: Tensor) -> None:
        source = no_source(len(ids))
        for _ in feed(model, reader.method, fork, ids, source, len(ids)):
            pass

    put(question)
    started = time.perf_counter()
    for token in question[:DECODED]:
        put(token[None])
    return (time.perf_counter() - started) / DECODED


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser(
        "Reading and decoding time per token against length, beside full attention.", "stockpot bench growth"
    )
    usual = ["infllm", "infinitehip", "exact", "recall", "locret"]
    said = f"beside full, {shared.SEPARATED} (default: {','.join(usual)})"
    parser.add_argument("--methods", type=shared.words, default=usual, help=said)
    parser.add_argument("--budget", type=shared.size, default=1024, help="entries (default: 1024)")
    parser.add_argument(
        "--tokens", type=shared.lengths, default=[2048, 4096, 8192, 16384, 32768], help="lengths (default: 2K to 32K)"
    )
    chosen = parser.parse_args(argv)
    shared.check_methods(parser, chosen.methods, [chosen.budget])
    model = shared.open_model(chosen)
    ids = Haystack(model, chosen.data).stretch(max(chosen.tokens), chosen.seed)
    question = model.encode("What is the name of the man who lived in the house by the river, and what was he?").ids
    names = [FULL, *(name for name in chosen.methods if name != FULL)]
    methods = {name: shared.variant(name, chosen.budget) for name in names}
    readers = {name: Reader(model, method, ids) for name, method in methods.items()}
    runs = {name: reader.run() for name, reader in readers.items()}
    rows: list[dict[str, Any]] = []
    for tokens in sorted(chosen.tokens):
        for name in names:
            reading = read_to(runs[name], tokens)
            row = {"method": name, "budget": None if name == FULL else chosen.budget, "tokens": tokens}
            row |= {"settings": methods[name].settings()}
            rows.append(row | {"read_seconds": reading, "decode_seconds": decode(model, readers[name], question)})
            print(rows[-1], file=sys.stderr, flush=True)
    publish("growth", rows, chosen.out, chosen.json, **named(model))
    return 0


if __name__ == "__main__":
    shared.run(main)
