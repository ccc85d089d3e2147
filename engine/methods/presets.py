"""Presets: the settings of published runs, and those for the pocket model. Also InfiniPot's catalyst prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Presets = Mapping[str, Mapping[str, Any]]


def _infllm(window: int, units: int, query_block: int = 512, representatives: int = 4) -> Mapping[str, Any]:
    """Return the settings of the authors' published runs: 128 initial tokens, units of 128.

    The paper's tables have larger windows (Llama-3 8K, Mistral 16K on its longest task), for which there is no file.
    """
    sizes = {"sinks": 128, "block": 128, "units": units, "representatives": representatives, "looks": 1}
    return {"budget": 128 + window + 128 * (units + 1) + query_block - 2, "query_block": query_block, **sizes}


INFLLM: Presets = {
    "pocket": {},
    "mistral": _infllm(4096, 16),
    "mistral-12k": _infllm(4096, 64),
    "llama-3": _infllm(4096, 16),
    "qwen-1.5": _infllm(4096, 16),
    "vicuna": _infllm(2048, 16),
    "minicpm": _infllm(2048, 16),
    "million": _infllm(4096, 16, query_block=2048, representatives=1),  # appendix F.1
}


def _infinitehip(stages: str, most: int, **others: int) -> Mapping[str, Any]:
    """Return the settings of appendix F: 256 sinks, a stream of 1024, query blocks of 64.

    most: far entries that any layer sees.
    """
    return {"budget": 256 + 1024 + most + 63, "sinks": 256, "stages": stages, "first_layers": 3, "looks": 1, **others}


_3K = "64:256:32768:{} 64:32:8192:{} 64:8:2048:{}"

INFINITEHIP: Presets = {
    "pocket": {},
    "pocket-far": {"stages": "64:256:16384:16 32:32:4096:8 32:4:256:4"},
    "3k": _infinitehip(_3K.format(16, 8, 4), 4096, first_keep=4096),
    "3k-fast": _infinitehip(_3K.format(32, 16, 8), 4096, first_keep=4096),
    "3k-flash": _infinitehip(_3K.format(96, 24, 8), 4096, first_keep=4096),
    "5k": _infinitehip("64:64:32768:16 64:32:16384:8 64:16:4096:4", 4096, first_keep=4096),
    # Appendix E.2: a window of 128K in the first layers, less sinks, stream and a block, which stand in it as well.
    "16k-shallow": _infinitehip("64:32:16384:16", 129729, first_keep=16384, first_recent=129729),
}

# Of the paper's Table 2
PROMPTS = {
    "G": "Summarize the critical points highlighted in this section.",
    "G1": "Summarize this section's critical points.",
    "G2": "Highlight the critical points from this section.",
    "Q": "Considering the following question, summarize the critical points highlighted in this section. "
    "Question: {question}",
    "U": "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.",
    "P": "\n\n\n\n\n\n\n\n",
}

# The pocket model cannot summarise; asked for a name, it looks at statements. Found on documents of another seed than
# the benchmarks'. The defaults are what the paper states, and pooling (docs/methods/infinipot.md).
INFINIPOT: Presets = {
    "paper": {},
    "pocket": {"prompt": "What is the name?", "novelty_share": 0.0, "keep": 0.75, "pooling": 21},
}

RECALL: Presets = {
    "pocket": {},
    "wide": {"budget": 6144, "stages": INFINITEHIP["3k-flash"]["stages"], "top_k": 2048, "looks": 1},
}

EXACT: Presets = {
    "pocket": {},
    "light": {"budget": 1024, "sinks": 16, "top_k": 256, "looks": 1, "store": "int4"},  # small models without a GPU
    "wide": {"budget": 6144, "sinks": 128, "top_k": 2048, "looks": 1},  # sees as much as the papers' methods do
    "sketched": {"budget": 3072, "sinks": 128, "top_k": 512, "looks": 1, "sketch": "int2"},
}
