"""A GGUF file read by Stockpot and by llama.cpp: agreement of the most likely tokens, and KL divergence.

    python -m benchmarks.gguf --model FILE.gguf --llama-cpp-python PATH_TO_PYTHON

Both get the same tokens of the sample book, in windows of 500. PATH_TO_PYTHON is an interpreter with llama-cpp-python,
which may be in another environment. Stockpot computes in float32. llama.cpp rounds activations to eight bits in
products with quantised weights. So it also gets a copy of the file with the same weights as float32, where it rounds
nothing but keys and values, to float16.
"""

from __future__ import annotations

import html
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import options as shared
from benchmarks.llama_cpp import add_interpreter, run_script
from benchmarks.report import named, publish
from engine import Model, load_model
from engine.memory import Memory
from engine.parts.mass import no_source
from engine.parts.slots import SlotStore

BOOK = Path(__file__).parent.parent / "assets" / "sample" / "three-adventures-and-a-register.html"
WINDOW = 500
AT_A_TIME = 50  # rows of logits compared at a time, in float64
ASKED = """
import json, sys
import numpy as np
from llama_cpp import Llama
asked = json.load(sys.stdin)
model = Llama(asked["model"], n_ctx=asked["window"], n_batch=asked["window"], n_threads=asked["threads"],
              logits_all=True, verbose=False)
for number, ids in enumerate(asked["windows"]):
    model.reset()
    model.eval(ids)
    np.save(f"{asked['out']}/{number}.npy", model.scores[: len(ids)])
"""
WIDENED = """
import ctypes, json, sys
import llama_cpp
asked = json.load(sys.stdin)
options = llama_cpp.llama_model_quantize_default_params()
options.ftype, options.allow_requantize = 0, True
sys.exit(llama_cpp.llama_model_quantize(asked["model"].encode(), asked["out"].encode(), ctypes.byref(options)))
"""


def llama_logits(python: Path, model: Path, windows: list[list[int]]) -> Iterator[Tensor]:
    """Yield llama.cpp's logits [T, vocabulary] for each window of tokens, read separately.

    python: an interpreter with llama-cpp-python.

    Raises:
        RuntimeError: llama.cpp cannot read the file; with its message.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked = {
            "model": str(model),
            "windows": windows,
            "window": max(map(len, windows)),
            "threads": torch.get_num_threads(),
            "out": folder,
        }
        run_script(python, ASKED, asked)
        for number in range(len(windows)):
            yield torch.from_numpy(np.load(f"{folder}/{number}.npy"))


def own_logits(model: Model, ids: list[int]) -> Tensor:
    """Return the engine's logits [T, vocabulary], with full attention."""
    memory = Memory(model.spec, SlotStore(model.spec))
    return model.logits(model.forward(torch.tensor(ids), memory, no_source(len(ids))))


def compared(own: Tensor, theirs: Tensor) -> tuple[int, float, float]:
    """Return how many most likely tokens agree, and the sum and maximum of KL(llama.cpp || engine)."""
    agreed, total, largest = 0, 0.0, 0.0
    for one, other in zip(own.split(AT_A_TIME), theirs.split(AT_A_TIME), strict=True):  # type: ignore[no-untyped-call]
        agreed += int((one.argmax(-1) == other.argmax(-1)).sum())
        ours, rest = one.double().log_softmax(-1), other.double().log_softmax(-1)
        divergence = (ours.exp() * (ours - rest)).sum(-1)
        total, largest = total + float(divergence.sum()), max(largest, float(divergence.max()))
    return agreed, total, largest


def measure(model: Model, file: Path, python: Path, tokens: int, text: str) -> Iterator[dict[str, Any]]:
    """Yield how far both readers are from each other: with the file's weights in llama.cpp, then with them widened."""
    ids = model.encode(text).ids[:tokens].tolist()
    windows = [ids[begin : begin + WINDOW] for begin in range(0, len(ids), WINDOW)]
    own = [own_logits(model, window) for window in windows]
    yield row(file.name, "file", own, llama_logits(python, file, windows))
    with tempfile.TemporaryDirectory() as folder:
        wide = Path(folder) / file.name
        run_script(python, WIDENED, {"model": str(file), "out": str(wide)})
        yield row(file.name, "float32", own, llama_logits(python, wide, windows))


def row(name: str, weights: str, own: list[Tensor], others: Iterator[Tensor]) -> dict[str, Any]:
    """Return one row of the result, for the logits of all windows."""
    agreed, total, largest, tokens = 0, 0.0, 0.0, 0
    for ours, theirs in zip(own, others, strict=True):
        same, divergence, most = compared(ours, theirs)
        agreed, total, largest, tokens = agreed + same, total + divergence, max(largest, most), tokens + len(ours)
    return {
        "file": name,
        "weights": weights,
        "tokens": tokens,
        "top_1_agreement": agreed / tokens,
        "mean_kl": total / tokens,
        "largest_kl": largest,
    }


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser("A GGUF file as Stockpot and as llama.cpp read it.")
    add_interpreter(parser)
    parser.add_argument("--tokens", type=shared.size, default=2000, help="of the sample book (default: 2000)")
    chosen = parser.parse_args(argv)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    file, text = Path(chosen.model), html.unescape(re.sub(r"<[^>]+>", "", BOOK.read_text(encoding="utf-8")))
    model = load_model(file, "cpu", torch.float32)
    rows = list(measure(model, file, chosen.llama_cpp_python, chosen.tokens, text))
    publish("gguf", rows, chosen.out, chosen.json, window=WINDOW, text=BOOK.name, **named(model))
    return 0


if __name__ == "__main__":
    shared.run(main)
