"""The engine on the device that `simulated.py` plays: the same answers as on the CPU, and their costs.

All tests run in one process of their own, because a device cannot be unregistered. A failure there fails the test here.
"""

from __future__ import annotations

import copy
import multiprocessing
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, SmolLM3Config, SmolLM3ForCausalLM

from engine import METHODS, Answer, Context, Conversation, Method, Model, Reader, Sampling, make_method
from engine.decode import recorder
from engine.decode.recorder import Recording
from engine.memory import Memory
from engine.parts import attention
from engine.parts.archive import transfers
from engine.pinned_memory import use_exact_pinned_sizes
from engine.records import LoadedParts, Parts
from engine.trained import beacons, retaining
from engine.trained.beacons import Beacons
from engine.trained.retaining import RetainingHeads
from engine.trained.sidecar_weights import save_weights
from kernels import choice, slab_facts
from kernels.rows import Slabs
from tests.engine.conftest import byte_tokenizer, tiny_config
from tests.engine.matrix import STATIC, TIGHT
from tests.engine.reading import read
from tests.engine.simulated import NAME, Watched, register

# Of a pass of reading and of a token of an answer, both in three layers: how often the host waits, and how often it
# sends without waiting, at most. Others of the matrix go through the same lines.
COSTS = {
    "full": (0, 3, 0, 3),
    "full-int8": (0, 3, 0, 3),
    "truncate": (0, 3, 0, 3),
    "streaming": (0, 5, 0, 5),
    "exact": (1, 5, 7, 22),
    "exact-int8": (1, 5, 7, 27),
    "exact-sketched": (1, 8, 10, 18),
    "infllm": (7, 35, 4, 39),
    "infllm-cached": (13, 56, 4, 24),  # its cache is smaller than what a pass selects
    "infinitehip": (4, 27, 34, 55),  # keys come to the device for a pass
    "recall": (1, 3, 33, 45),
    "infinipot-both": (0, 5, 0, 4),  # its pass fills the pot, which is distilled as well
    "locret": (0, 3, 0, 3),
    "knorm": (0, 3, 0, 3),
    "tova": (0, 4, 0, 3),
    "locret-int4-all": (0, 8, 0, 8),
    "beacon": (0, 4, 0, 4),
}
# By the number of kinds of passes: one for each stage that choosing may restart at, and one where none is due
PRUNED = {"infinitehip": 4, "infinitehip-recent": 3, "infinitehip-int8": 3, "infinitehip-inside": 3}
PRUNED |= {"infinitehip-banked": 3}
PRUNED |= {"recall": 4, "recall-chunks": 3}
SEARCHED = (
    "recall-searching",
    "exact",
    "exact-int8",
    "exact-sketched",
    "exact-sketched-int4",
    "infllm",
    "infllm-small",
    "infllm-banked",
)
IN_PLACE = {**PRUNED, **dict.fromkeys(SEARCHED, 1)}
Elsewhere = Callable[..., Any]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    """Return a function that runs functions of this module in the process with the device."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


class World(NamedTuple):
    """One tiny model on both devices."""

    cpu: Model
    sim: Model
    device: Watched


@cache
def device_there() -> Watched:
    """Return the device of the process, registered once."""
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True)
    return register()


@cache
def world(kind: str = "llama") -> World:
    """Return the models of the process, made once. kind: smollm3 has a layer without RoPE."""
    device = device_there()
    torch.manual_seed(0)
    folder = Path(tempfile.mkdtemp())
    network = (
        LlamaForCausalLM(tiny_config())
        if kind == "llama"
        else SmolLM3ForCausalLM(SmolLM3Config(**facts_of(tiny_config()), no_rope_layer_interval=2))
    )
    cpu = Model(copy.deepcopy(network), byte_tokenizer(), "tiny", "tiny-digest", folder)
    save_weights(RetainingHeads(cpu.spec, [24] * len(cpu.spec.layers)), folder / retaining.FILE, cpu.spec, {})
    save_weights(Beacons(cpu.spec), folder / beacons.FILE, cpu.spec, {})
    with device:
        network.to(f"{NAME}:0")  # type: ignore[arg-type]
        sim = Model(network, byte_tokenizer(), "tiny", "tiny-digest", folder)
    return World(cpu, sim, device)


def facts_of(config: LlamaConfig) -> dict[str, Any]:
    """Return the sizes in a configuration."""
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    more = ("num_key_value_heads", "max_position_embeddings", "initializer_range")
    tokens = ("eos_token_id", "bos_token_id", "pad_token_id")
    return {name: getattr(config, name) for name in (*names, *more, *tokens)}


def text() -> Tensor:
    """Make 301 random tokens."""
    return torch.randint(4, 260, (301,), generator=torch.Generator().manual_seed(1))


def from_disk(parts: Parts) -> LoadedParts:
    """Return parts as loaded from disk, on the CPU."""
    return {name: {key: x.to("cpu", copy=True) for key, x in part.tensors.items()} for name, part in parts.items()}


def said(conversation: Conversation, question: str, tokens: int = 3) -> tuple[str, list[tuple[int, int, float]]]:
    """Return an answer and its sources."""
    *_, last = conversation.ask(question, Sampling(max_tokens=tokens))
    assert isinstance(last, Answer)
    return last.text, [(p.start, p.end, round(p.weight, 3)) for p in last.passages]


def dearest(counted: list[Counter[str]]) -> tuple[int, int]:
    """Return the most waits of the host and the most copies without a wait."""
    waits = (each["wait"] + each["down"] + each["up"] + each["shape"] for each in counted)
    return max(waits), max(each["sent"] for each in counted)


def told(
    model: Model, method: Method, device: Watched, chunk: int
) -> tuple[list[object], tuple[int, int], tuple[int, int]]:
    """Read with an interruption, save, resume, and hold two conversations, one of them saved and restored.

    chunk: tokens of a pass of the text.

    Returns the results, and the costs of the dearest pass of the reading and of the dearest token; see `dearest`.
    """
    ids = text()
    reader = Reader(model, method, ids, chunk=chunk)
    for _, _progress in zip(range(1 + len(ids) // 2 // chunk), reader.run(), strict=False):
        pass
    parts, meta = reader.state()
    resumed = Reader.resume(model, method, ids, from_disk(parts), meta, chunk=chunk)
    passes, tokens = [Counter[str]()], []
    reading = resumed.run()
    while not resumed.finished:
        with device.counting() as counted:
            progress = next(reading)
        if progress.stage == "reading":
            passes.append(counted)
    context = resumed.context()
    found: list[object] = [context.memory.positions(layer).tolist() for layer in range(len(model.spec.layers))]
    first, second = Conversation(context), Conversation(context)
    found += [said(first, "What is it?"), said(second, "Who?", 5)]
    again = Conversation.load(context, from_disk(first.state()[0]), first.state()[1])
    opened = Conversation(Context.load(model, method, from_disk(context.state()[0]), context.state()[1]))
    found += [said(each, "And then?") for each in (first, again, opened)]
    second.memory.mass = second.mass
    for token in (70, 71, 72):
        with device.counting() as counted:
            second.feed([token], repeated=True)
        tokens.append(counted)
    return [*found, first.usage().entries, context.usage().entries], dearest(passes), dearest(tokens[1:])


def told_alike(
    name: str, kind: str = "llama", tier: str | None = None, chunk: int = 37
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Check that both devices give the same results, and return the costs.

    tier: on the device, if another; chunk: tokens of a pass of the text.
    """
    cpu, sim, device = world(kind)
    method = TIGHT[name]
    expected, *_ = told(cpu, method, device, chunk)
    if tier is not None:
        method = replace(method, tier=tier)  # type: ignore[type-var]
    if tier == "device":
        expected[-2:] = [{"device": sum(entries.values())} for entries in expected[-2:]]  # type: ignore[attr-defined]
    with device:
        found, reading, token = told(sim, method, device, chunk)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == theirs, f"{ours} on the device, {theirs} on the CPU"
    return reading, token


def test_every_registered_method_is_tried_there() -> None:
    assert {TIGHT[name].name for name in COSTS} == set(METHODS)


@pytest.mark.parametrize("name", COSTS)
def test_a_method_does_there_what_it_does_on_a_cpu(elsewhere: Elsewhere, name: str) -> None:
    chunk, token = elsewhere(told_alike, name)
    for found, most in zip((*chunk, *token), COSTS[name], strict=True):
        assert found <= most, (chunk, token)


@pytest.mark.parametrize("name", ["infllm", "infinitehip", "recall"])
def test_layers_without_rope_have_no_table_elsewhere(elsewhere: Elsewhere, name: str) -> None:
    elsewhere(told_alike, name, "smollm3")


@pytest.mark.parametrize(
    ("name", "most"),
    [("exact-int8", (0, 5, 12, 9)), ("infllm-int4", (0, 8, 0, 8)), ("recall-pot-int4", (0, 4, 0, 4))],
)
def test_an_archive_on_the_device_gives_the_same(elsewhere: Elsewhere, name: str, most: tuple[int, ...]) -> None:
    """Check readings that are saved, resumed on it, forked and opened again. No pass is copied to the host."""
    chunk, token = elsewhere(told_alike, name, "llama", "device")
    for found, limit in zip((*chunk, *token), most, strict=True):
        assert found <= limit, (chunk, token)


@pytest.mark.parametrize(("name", "tier"), [("infinitehip-int8", "host"), ("infllm-cached", "disk")])
def test_passes_longer_than_a_window_give_the_same_there(elsewhere: Elsewhere, name: str, tier: str) -> None:
    """Check entries that are in no slab yet, beside keys that come for a pass, and beside slabs that the host reads."""
    elsewhere(told_alike, name, "llama", tier, 160)


def costs_of_a_recorded_pass(name: str, kernels: str, few_bytes: int, kinds: int) -> list[tuple[str, int]]:
    """Return operations of a recorded pass that cannot be recorded; there should be none.

    New tables of slabs count too, since nothing keeps them alive for the graph. kinds: expected number of static
    passes.
    """
    from kernels.slab_rows import kernel as slab_rows  # Triton is optional

    sim, device = world()[1:]
    unwanted: Counter[str] = Counter()
    passes: Counter[Recording] = Counter()
    tables: Counter[str] = Counter()
    plain, made = Recording._pass, slab_rows._table

    def passed(recording: Recording, memory: Memory) -> Tensor:
        tables.clear()
        with device.counting():
            hidden = plain(recording, memory)
        if recording in passes:  # the first pass makes tables; on a GPU it warms up
            unwanted.update(device.last + tables)
        passes[recording] += 1
        return hidden

    def table(slabs: Slabs, place: torch.device, count: int) -> slab_rows.Table:
        tables["a table of slabs"] += 1
        return made(slabs, place, count)

    with pytest.MonkeyPatch.context() as patch, device:
        conversation = Conversation(read(sim, STATIC[name], text(), 37))
        conversation.feed([70, 71, 72])
        patch.setattr(recorder, "choice", lambda: "static")
        patch.setattr(sim, "recorder", recorder.Recorder(sim.network))
        patch.setattr(Recording, "_pass", passed)
        patch.setattr(choice, "implementation", lambda: kernels)
        patch.setattr(attention, "FEW_BYTES", few_bytes)
        patch.setattr(slab_facts, "_lies_on", lambda part, device: True)  # as slabs are on a GPU
        patch.setattr(slab_rows, "_table", table)
        for mass in (conversation.mass, None):  # watched, and not
            conversation.memory.mass = mass
            for token in range(70, 73 if kinds == 1 else 87):
                conversation.feed([token], repeated=True)
    repeated = [count for count in passes.values() if count > 1]
    assert len(repeated) >= 2 * kinds, f"passes were static, of each kind twice and more: {passes.values()}"
    return list(unwanted.items())


@pytest.mark.parametrize(
    ("name", "kernels", "few_bytes"),
    [
        # beacons share the recording of `full` between condensings
        *((name, "torch", attention.FEW_BYTES) for name in STATIC if name not in ("beacon", *IN_PLACE)),
        ("locret-all", "torch", 0),
        ("locret-all", "triton", attention.FEW_BYTES),
        *((name, "triton", attention.FEW_BYTES) for name in IN_PLACE),
    ],
)
def test_a_pass_that_is_recorded_neither_waits_nor_copies(
    elsewhere: Elsewhere, name: str, kernels: str, few_bytes: int
) -> None:
    """Check this since recording would fail on a GPU. Only the code around kernels is seen here."""
    assert elsewhere(costs_of_a_recorded_pass, name, kernels, few_bytes, IN_PLACE.get(name, 1)) == []


def recorded_where(name: str, kernels: str, tier: str) -> bool:
    """Return whether tokens of a method run static passes."""
    sim, device = world()[1:]
    with pytest.MonkeyPatch.context() as patch, device:
        method = replace(STATIC[name], tier=tier)  # type: ignore[type-var]
        conversation = Conversation(read(sim, method, text(), 37))
        conversation.feed([70, 71, 72])
        patch.setattr(recorder, "choice", lambda: "static")
        patch.setattr(sim, "recorder", recorder.Recorder(sim.network))
        patch.setattr(choice, "implementation", lambda: kernels)
        patch.setattr(slab_facts, "_lies_on", lambda part, device: True)
        for token in (70, 71, 72):
            conversation.feed([token], repeated=True)
    return bool(conversation.memory.recordings)


@pytest.mark.parametrize(
    ("name", "kernels", "tier", "recorded"),
    [
        *[
            (name, *where)
            for name in ("exact", "exact-sketched", "infllm", "infinitehip", "recall")
            for where in (("triton", "host", True), ("triton", "disk", False), ("torch", "host", False))
        ],
        ("exact-int8", "triton", "device", True),
        ("infinitehip", "triton", "device", True),
    ],
)
def test_a_pass_is_not_recorded_where_the_host_reads_the_host_tier(
    elsewhere: Elsewhere, name: str, kernels: str, tier: str, recorded: bool
) -> None:
    """Regression: it was tried and failed, and then no method's passes were recorded."""
    assert elsewhere(recorded_where, name, kernels, tier) == recorded


def costs_of_searching(looks: int) -> Counter[str]:
    """Return the costs of answer tokens that search the host tier in place."""
    sim, device = world()[1:]
    with pytest.MonkeyPatch.context() as patch, device:
        patch.setattr(choice, "implementation", lambda: "triton")
        patch.setattr(slab_facts, "_lies_on", lambda part, device: True)  # as slabs are on a GPU
        conversation = Conversation(read(sim, replace(TIGHT["exact"], looks=looks), text(), 37))  # type: ignore[type-var]
        conversation.feed([70, 71, 72])
        if looks > 1:
            mass = torch.zeros(conversation.context.source_tokens).index_fill(0, torch.arange(100, 160), 1.0)
            conversation.memory.archive.focus(mass, conversation.memory.num_evicted)
        conversation.memory.mass = conversation.mass
        conversation.feed([73], repeated=True)
        with device.counting() as counted:
            conversation.feed([74], repeated=True)
    return counted


@pytest.mark.parametrize("looks", [1, 2])
def test_a_search_does_not_wait_for_the_device(elsewhere: Elsewhere, looks: int) -> None:
    counted = elsewhere(costs_of_searching, looks)
    assert not counted["down"] + counted["up"] + counted["shape"], counted
    assert counted["wait"] == 1, "what the pass before has left must be in slabs"


def packed_alike(most_bytes: int) -> int:
    """Return the number of copies for five tensors, which must arrive unchanged."""
    device = world().device
    tensors = [torch.randn(2, count, 8) for count in (3, 1, 5, 2, 40)]
    with pytest.MonkeyPatch.context() as patch, device:
        patch.setattr(transfers, "PACKED_BYTES", most_bytes)
        there = [x.to(NAME)[:, ::1] for x in tensors]
        with device.counting() as counted:
            home = transfers.copy_to_host_async(there, transfers.Staging())()
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(home, tensors, strict=True))
    assert counted["wait"] == 1
    assert not counted["behind"], "the next pass does not wait for them"
    return counted["coming"]


@pytest.mark.parametrize(("most_bytes", "copies"), [(1 << 20, 1), (600, 3), (1, 5)])
def test_what_a_pass_leaves_for_the_host_comes_in_few_copies(
    elsewhere: Elsewhere, most_bytes: int, copies: int
) -> None:
    assert elsewhere(packed_alike, most_bytes) == copies


def come_after_each_other() -> list[bool]:
    """Return whether tensors of longer and shorter passes arrive unchanged through the same staging memory."""
    device, staging, alike = world().device, transfers.Staging(), []
    with device:
        for count in (5, 9, 3):
            tensors = [torch.randn(2, count, 8, dtype=torch.bfloat16) for _ in range(4)]
            wait = transfers.copy_to_host_async([x.to(NAME) for x in tensors], staging)
            alike.append(all(torch.equal(ours, theirs) for ours, theirs in zip(wait(), tensors, strict=True)))
    return alike


def test_passes_come_to_the_host_through_the_same_memory(elsewhere: Elsewhere) -> None:
    assert elsewhere(come_after_each_other) == [True] * 3


def test_pinned_memory_is_kept_by_pytorch_only_where_it_was_rounded() -> None:
    """Check both limits, since PyTorch 2.13 hands out too small blocks between them."""
    use_exact_pinned_sizes()
    limits = re.findall(r"pinned_max_\w+_mb:(\d+)", torch._C._accelerator_getAllocatorSettings())
    assert limits[-2:] == ["1", "1"], "what is said last counts"


def kept_on_the_way() -> list[tuple[int, int]]:
    """Return how many tokens are in the host tier after each pass, and after the next forward."""
    sim, device = world().sim, world().device
    method, found = make_method("exact", budget=320, top_k=24, store="float32"), []
    with device:
        memory = method.new_memory(sim.spec, sim.turn_length)
        assert memory.archive is not None
        for ids in text().split(100):
            sim.forward(ids, memory, torch.zeros(len(ids), dtype=torch.int32))
            before = memory.archive.host.stored
            memory.end_pass()
            found.append((before, memory.archive.host.stored))
    return found


def test_a_pass_goes_on_while_the_keys_of_the_last_one_are_on_their_way(elsewhere: Elsewhere) -> None:
    """Check with four sinks, passes of 100 tokens, and a window that holds two of them."""
    assert elsewhere(kept_on_the_way) == [(0, 0), (0, 96), (96, 196), (196, 296)]
