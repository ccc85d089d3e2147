"""Part 4: transformers' own caches and kvpress, with the same weights."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from benchmarks.gpu_check.check import Check, Row
from benchmarks.gpu_check.gauge import FILLED, READ, Gauge, wait
from benchmarks.gpu_check.growing import LAST, entries, noise
from benchmarks.gpu_check.methods import DECODED, QUESTION, READING_SHARE
from benchmarks.gpu_check.token_kinds import LEAST
from benchmarks.presses import NoPresses, load_kvpress
from engine import Model, Planner
from engine.loops.reader import default_chunk
from engine.models.rotary import NoRotation
from engine.models.spec import ModelSpec
from engine.pinned_memory import default_pinned_sizes, free_unused_pinned
from kernels.rows import BANKS

KVPRESS = "kvpress"
OFFLOADED = "offloaded"
CACHES = ("dense", OFFLOADED, KVPRESS)


@contextmanager
def stock(network: PreTrainedModel) -> Iterator[None]:
    """Restore transformers' own rotary embedding and attention in the network inside this context."""
    base: Any = network.base_model
    ours, implementation = base.rotary_emb, network.config._attn_implementation
    assert isinstance(ours, NoRotation)
    try:
        base.rotary_emb = ours.original
        network.set_attn_implementation("sdpa" if network._supports_sdpa else "eager")
        yield
    finally:
        base.rotary_emb = ours
        network.set_attn_implementation(implementation)


def check_cache(check: Check, model: Model, planner: Planner, name: str, over: float) -> None:
    """Measure transformers' cache, dense or offloaded to the host, read in the same chunks; or kvpress."""
    facts = {"model": model.name, "method": name}
    if model.architecture.latent:
        check.missed(facts, status="not measured: the engine has changed this model's projections")
        return
    if name == KVPRESS:
        _check_kvpress(check, model, check.row("reading", **facts, tokens=check.lengths[0]))
        return
    if name == OFFLOADED:
        room, bytes_of = check.host, pinned_bytes
    else:
        room, bytes_of = check.limit - planner.model.weight_bytes("nf4"), cache_bytes
    fitting = []
    for length in check.lengths:
        if (needed := bytes_of(model.spec, length)) <= room:
            fitting.append(length)
        else:
            why = f"{needed / 1e9:.1f} GB of entries, and {room / 1e9:.1f} GB for them"
            check.missed({**facts, "tokens": length}, status=f"does not fit: {why}")
    wait(check.place)
    with default_pinned_sizes():
        _measure(check, model, facts, fitting, over)


def cache_bytes(spec: ModelSpec, tokens: int) -> int:
    """Return the bytes of a text's entries; sliding-window layers hold at most their window."""
    return sum(2 * size for size in _bank_bytes(spec, tokens))


def pinned_bytes(spec: ModelSpec, tokens: int) -> int:
    """Return the bytes of host memory that PyTorch pins for these entries and for an answer.

    Keys and values of a layer take the next power of two each, and the previous buffer of half the size is kept.
    """
    return sum(3 << (size - 1).bit_length() for size in _bank_bytes(spec, tokens + QUESTION + DECODED))


def _bank_bytes(spec: ModelSpec, tokens: int) -> Iterator[int]:
    """Yield the bytes of the keys (or of the values) of each layer."""
    for layer in spec.layers:
        yield layer.kv_heads * layer.head_size * min(tokens, layer.sliding_window or tokens) * spec.dtype.itemsize


def _measure(check: Check, model: Model, facts: Row, lengths: list[int], over: float) -> None:
    """Bring one cache to one length after another: read as far as time allows, fill the rest with noise."""
    network, place = model.network, check.place
    cache = DynamicCache(config=network.config, offloading=facts["method"] == OFFLOADED and place.type == "cuda")
    ids = noise(model, check.lengths[-1]).to(place)
    chunk, done, read = default_chunk(place.type == "cpu"), 0, 0
    reading_over = time.monotonic() + READING_SHARE * (over - time.monotonic())
    gauge = Gauge(place)
    with stock(network), torch.no_grad():
        for length in lengths:
            last, before = length - LAST * chunk, len(gauge.passes())
            while done < length and time.monotonic() < over:
                if read and time.monotonic() > reading_over and done < last:
                    with gauge.halted():
                        fill(model, cache, last - done, chunk)
                        empty_pinned(place)
                    done = last
                tokens = min(chunk, length - done)
                network.base_model(input_ids=ids[None, done : done + tokens], past_key_values=cache, use_cache=True)
                done, read = done + tokens, read + tokens
                gauge.look(tokens)
            if done < length:
                check.missed({**facts, "tokens": length}, status=f"not reached: {done:,} tokens in its time")
                return
            filled = read < done
            held = {"held": FILLED if filled else READ, "filled": filled}
            row = check.row("reading", **facts, tokens=length)
            row |= {**gauge.facts(before), **held, "read": read}
            row |= {"host_bytes": offloaded_bytes(cache, place), "status": "done"}
            with gauge.halted():
                empty_pinned(place)
                answering = check.row("answering", **facts, tokens=length)
                answering |= held
                with gauge.peak() as peak:
                    _answer(answering, network, cache, ids[:QUESTION], over)
                answering |= peak


def fill(model: Model, cache: DynamicCache, tokens: int, chunk: int) -> None:
    """Add noise for `tokens` more tokens to a cache, without the model's layers.

    Layers without a sliding window get all at once, as each addition copies their whole cache.
    """
    for number, layer in enumerate(model.spec.layers):
        size = tokens if layer.sliding_window is None else chunk
        new = [entries(model, layer.kv_heads, size, layer.head_size)[None] for _ in BANKS]
        for begin in range(0, tokens, size):
            keys, values = (x[:, :, : tokens - begin] for x in new)
            cache.update(keys, values, number)


def offloaded_bytes(cache: DynamicCache, place: torch.device) -> int:
    """Return the bytes of a cache that are not on the device."""
    held = (getattr(layer, name, None) for layer in cache.layers for name in ("keys", "values"))
    return sum(x.nbytes for x in held if isinstance(x, Tensor) and x.device.type != place.type)


def empty_pinned(place: torch.device) -> None:
    """Free unused pinned memory."""
    wait(place)
    free_unused_pinned()


def _answer(row: Row, network: PreTrainedModel, cache: DynamicCache, question: Tensor, over: float) -> None:
    """Ask at the end of the cache's text; the question stays there, as some caches cannot remove tokens."""
    head: Any = network.get_output_embeddings()  # type: ignore[no-untyped-call]
    place = question.device
    began = wait(place)
    pending, times = question, list[float]()
    while len(times) < DECODED and (len(times) < 2 or time.monotonic() < over):
        hidden = network.base_model(input_ids=pending[None], past_key_values=cache, use_cache=True).last_hidden_state
        pending = head(hidden[0, -1:]).float().argmax(-1)
        times.append(wait(place))
    row |= {
        "first_token_seconds": times[0] - began,
        "tokens_per_second": (len(times) - 1) / (times[-1] - times[0]) if len(times) >= LEAST else None,
        "answer_tokens": len(times),
        "status": "done",
    }


def _check_kvpress(check: Check, model: Model, row: Row) -> None:
    """Read the first length in one pass, pressed to a quarter by key norms."""
    try:
        kvpress = load_kvpress()
    except NoPresses as error:
        row["status"] = f"not reached: {error}"
        return
    network, length = model.network, check.lengths[0]
    ids = noise(model, length).to(check.place)
    cache = DynamicCache(config=network.config)
    gauge = Gauge(check.place)
    try:
        with stock(network), torch.no_grad(), kvpress.KnormPress(compression_ratio=0.75)(network):
            places = torch.arange(length, device=check.place)
            network.base_model(input_ids=ids[None], past_key_values=cache, use_cache=True, cache_position=places)
    except (TypeError, AttributeError, LookupError, ValueError, AssertionError) as error:  # another version of either
        row["status"] = f"not reached: kvpress says {error}"
        return
    gauge.look(length)
    row |= {**gauge.facts(), "status": "done"}
