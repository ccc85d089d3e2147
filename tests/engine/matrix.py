"""Methods with small budgets for the tests of all methods, and the tolerances of comparisons."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine import (
    Method,
    make_method,
)

# Budgets far below the 301 tokens of the text, so that every method has to condense, cut, slide or search.
TIGHT: dict[str, Method] = {
    "full": make_method("full"),
    "full-int8": make_method("full", store="int8"),
    "full-fp8": make_method("full", store="fp8"),
    "truncate": make_method("truncate", budget=160, tail=32),
    "streaming": make_method("streaming", budget=96),
    "exact": make_method("exact", budget=96, top_k=24, store="float32"),
    "infllm": make_method("infllm", budget=160, block=8, units=4, query_block=16, store="float32"),
    "infllm-each": make_method(
        "infllm", budget=96, block=4, units=6, representatives=2, query_block=1, store="float32"
    ),
    "infllm-probabilities": make_method(
        "infllm",
        budget=160,
        block=8,
        units=4,
        query_block=16,
        representatives=3,
        scores="probabilities",
        looks=1,
        store="float32",
    ),
    "infinitehip": make_method(
        "infinitehip", budget=160, stages="16:16:64:4 8:4:24:2", first_keep=32, store="float32", extend_always=True
    ),
    "infinitehip-each": make_method(
        "infinitehip", budget=96, stages="1:8:48:1 1:2:16:1", first_keep=16, store="float32", extend_always=True
    ),
    # The first layer searches nothing: equal tokens have equal keys there, so the best one is undefined.
    "infinitehip-one-stage": make_method(
        "infinitehip",
        budget=160,
        stages="16:8:48:4",
        first_keep=48,
        store="float32",
        pruning="infllm",
        attention="dynamic",
        extend_always=True,
    ),
    "recall": make_method("recall", budget=160, stages="16:16:64:4 8:4:24:2", store="float32"),
    "recall-exact": make_method("recall", budget=160, select="exact", top_k=24, store="float32"),
    "recall-pot": make_method(
        "recall", budget=344, gist="infinipot", stages="16:16:64:4 8:4:24:2", attention="infllm", store="float32"
    ),
    "recall-int8": make_method("recall", budget=160, stages="16:16:64:4 8:4:24:2", store="int8", probes=4),
    "recall-pot-int4": make_method("recall", budget=344, gist="infinipot", select="exact", top_k=24, store="int4"),
    "exact-int8": make_method("exact", budget=160, top_k=22, store="int8"),
    "exact-sketched": make_method("exact", budget=160, top_k=24, store="float32", sketch="int2"),
    "exact-int4-sketched": make_method("exact", budget=160, top_k=24, store="int4", sketch="int4"),
    "exact-fp8": make_method("exact", budget=160, top_k=24, store="fp8", extend_always=True),
    "infllm-int4": make_method("infllm", budget=176, block=8, units=4, query_block=16, store="int4"),
    "infinitehip-int8": make_method(
        "infinitehip", budget=208, stages="16:16:64:4 8:4:24:2", first_keep=32, store="int8", extend_always=True
    ),
    "infllm-cached": make_method("infllm", budget=160, block=8, units=4, query_block=16, store="float32", cache=7),
    "infinitehip-cached": make_method(
        "infinitehip",
        budget=160,
        stages="16:16:64:4 8:4:24:2",
        first_keep=32,
        store="float32",
        extend_always=True,
        cache=16,
        probes=8,
        compares="groups",
    ),
    "infinipot-both": make_method("infinipot", budget=160, prompt="Sum up."),
    "infinipot-cap": make_method("infinipot", budget=160, prompt="Sum up.", novelty_share=0.0),
    "infinipot-nuc": make_method("infinipot", budget=160, novelty_share=1.0),
    "locret": make_method("locret", budget=96, chunk=40, stabilizers=16, local=12),
    "locret-int8": make_method("locret", budget=96, chunk=40, stabilizers=16, local=12, store="int8"),
    "locret-int4-all": make_method("locret", budget=96, chunk=40, stabilizers=16, local=12, store="int4", share="all"),
    "infinipot-int8-heads": make_method("infinipot", budget=160, prompt="Sum up.", store="int8", share="heads"),
    "beacon": make_method("beacon", budget=40, window=32, ratio=4),
    "beacon-adaptive": make_method("beacon", budget=96, window=32),
    "beacon-unbounded": make_method("beacon", budget=None, window=32, ratio=8),
    "beacon-thinned": make_method("beacon", budget=16, window=48, ratio=2),
    "locret-nothing-spared": make_method("locret", budget=96, chunk=40, stabilizers=0, local=0),
    "knorm": make_method("knorm", budget=96, chunk=40, stabilizers=16, local=12),
    "knorm-int8-heads": make_method("knorm", budget=112, chunk=40, sinks=8, local=12, store="int8", share="heads"),
    "tova": make_method("tova", budget=96, chunk=40, stabilizers=16, local=12, pooling=3),
    "infinipot-pyramid": make_method("infinipot", budget=160, prompt="Sum up.", share="pyramid"),
    "locret-pyramid": make_method("locret", budget=96, chunk=40, stabilizers=16, local=12, share="pyramid"),
    "locret-all": make_method("locret", budget=96, chunk=40, stabilizers=16, local=12, share="all"),
}
every_method = pytest.mark.parametrize("method", TIGHT.values(), ids=TIGHT.keys())
# Settings that take 98 % of the engine's branches that all of them take, found greedily, and one of each method left.
COVERING = (
    *("recall-int8", "infllm-cached", "infinipot-int8-heads", "exact-int4-sketched", "beacon", "infinitehip-one-stage"),
    *("full", "recall-pot-int4", "tova", "infinitehip-cached", "locret-pyramid", "truncate", "full-int8"),
    *("infllm-probabilities", "streaming", "knorm"),
)
covering_methods = pytest.mark.parametrize("method", [TIGHT[name] for name in COVERING], ids=COVERING)
QUESTION = torch.tensor([1, 80, 81, 82, 2])
CLOSE = {"atol": 2e-5, "rtol": 1e-4}
# Passes of another size change the last bit of a key, which may decide between two quantised values.
CODES_CLOSE = {
    "int8": {"atol": 5e-3, "rtol": 5e-3},
    "fp8": {"atol": 5e-2, "rtol": 5e-2},
    "int4": {"atol": 0.1, "rtol": 0.1},
}
# All attended entries were quantised: the error of the logits, as a share of their size.
ROUNDED = {"int8": 0.015, "fp8": 0.1, "int4": 0.25}


def close(method: Method) -> dict[str, float]:
    """Return the tolerance between two readings of one text in chunks of different sizes."""
    return CODES_CLOSE.get(getattr(method, "store", ""), CLOSE)


FORGETFUL: dict[str, Method] = {
    "infinipot": make_method("infinipot", budget=900, prompt="Sum up."),
    "infinipot-nuc": make_method("infinipot", budget=900, novelty_share=1.0, share="heads", store="int8"),
    "locret": make_method("locret", budget=400, chunk=400, stabilizers=16, local=12),
    "locret-int4": make_method("locret", budget=400, chunk=400, stabilizers=16, local=12, store="int4", share="all"),
}


def hip(**settings: Any) -> Method:
    """Make InfiniteHiP without true distances and with one look, like the presets for long windows."""
    usual = {"budget": 260 if settings.get("store") == "int8" else 160, "store": "float32", "looks": 1}
    return make_method("infinitehip", **usual | {"extend_always": True} | settings)


STATIC: dict[str, Method] = {
    "full": make_method("full"),
    "truncate": make_method("truncate", budget=160, tail=32),
    "infinipot": make_method("infinipot", budget=160, prompt="Sum up."),
    "infinipot-heads": make_method("infinipot", budget=160, prompt="Sum up.", share="heads"),
    "locret": make_method("locret", budget=96, chunk=40, stabilizers=16, local=12),
    "beacon": make_method("beacon", budget=64, window=32, ratio=4),  # every fourth token has a beacon, in a normal pass
    "locret-all": make_method("locret", budget=96, chunk=40, stabilizers=16, local=12, pooling=5, share="all"),
    "streaming": make_method("streaming", budget=96),
    "infinitehip": hip(stages="16:16:64:8 8:8:32:4 8:4:24:2", first_keep=16),
    "infinitehip-recent": hip(
        stages="8:8:48:4 8:4:24:2", first_keep=16, first_recent=20, attention="dynamic", pruning="chunk"
    ),
    "infinitehip-inside": hip(stages="8:8:48:4 8:4:24:2", first_keep=16, extend_always=False),  # and then beyond
    "infinitehip-banked": hip(stages="8:8:48:4 8:4:24:2", first_keep=16, store="int8", cache=12, probes=4),
    "recall": make_method("recall", budget=160, stages="16:16:64:8 8:8:32:4 8:4:24:2", store="float32", looks=1),
    "recall-searching": make_method("recall", budget=160, select="exact", top_k=24, store="float32", looks=1),
    "recall-chunks": make_method(
        "recall", budget=160, stages="8:8:48:4 8:4:24:2", pruning="chunk", attention="infllm", looks=1, probes=1
    ),
    "exact-sketched": make_method("exact", budget=160, top_k=24, store="float32", looks=1, sketch="int2"),
    "exact-sketched-int4": make_method("exact", budget=160, top_k=32, looks=1, sketch="int4"),
    "exact": make_method("exact", budget=96, top_k=24, store="float32", looks=1),
    "exact-int8": make_method("exact", budget=168, top_k=32, store="int8", looks=1, extend_always=True),
    "infinitehip-int8": hip(stages="8:8:48:4 8:4:24:2", first_keep=16, store="int8", attention="infllm"),
    "infllm": make_method(
        "infllm", budget=160, block=8, representatives=3, units=4, query_block=16, store="float32", looks=1
    ),
    "infllm-banked": make_method(
        "infllm", budget=160, block=8, representatives=3, units=4, query_block=16, store="float32", looks=1, cache=6
    ),
    "infllm-small": make_method(
        "infllm", budget=140, block=6, representatives=5, units=4, query_block=16, store="float32", looks=1
    ),
}
OTHERS: dict[str, Method] = {
    "infinitehip-true": hip(stages="8:8:48:4 8:4:24:2", first_keep=16, pruning="true"),
    "locret-int8": make_method("locret", budget=96, chunk=40, stabilizers=16, local=12, store="int8"),
    "recall-true": make_method("recall", budget=160, stages="16:16:64:4 8:4:24:2", looks=1, pruning="true"),
}
