"""The engine on a device that is not the CPU, which `simulated.py` plays: the same answers, and what they would cost.

All of it runs in one process of its own, because a device cannot be unregistered; what fails there fails here.
"""

from __future__ import annotations

import copy
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from engine import METHODS, Answer, Context, Conversation, Model, Reader, Sampling, beacons, retaining
from engine.beacons import Beacons, save_beacons
from engine.records import LoadedParts, Parts
from engine.retaining import RetainingHeads, save_heads
from tests.engine.conftest import byte_tokenizer, tiny_config
from tests.engine.simulated import NAME, Watched, register
from tests.engine.test_methods import TIGHT

SIMILAR = {"pyramid", "each", "cap", "adaptive", "spared"}  # the same lines as another of the matrix
METHODS_HERE = [name for name in TIGHT if name.rpartition("-")[2] not in SIMILAR]
Elsewhere = Callable[..., object]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    """Runs functions of this module in the process that has the device."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


class World(NamedTuple):
    """One tiny model on both, and the device."""

    cpu: Model
    sim: Model
    device: Watched


@cache
def world() -> World:
    """Made once in the process that has the device."""
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    folder, network, device = Path(tempfile.mkdtemp()), LlamaForCausalLM(tiny_config()), register()
    cpu = Model(copy.deepcopy(network), byte_tokenizer(), "tiny", "tiny-digest", folder)
    save_heads(RetainingHeads(cpu.spec, [24] * len(cpu.spec.layers)), folder / retaining.FILE, cpu.spec, {})
    save_beacons(Beacons(cpu.spec), folder / beacons.FILE, cpu.spec, {})
    with device:
        network.to(f"{NAME}:0")  # type: ignore[arg-type]
        sim = Model(network, byte_tokenizer(), "tiny", "tiny-digest", folder)
    return World(cpu, sim, device)


def text() -> Tensor:
    """301 tokens of noise."""
    return torch.randint(4, 260, (301,), generator=torch.Generator().manual_seed(1))


def from_disk(parts: Parts) -> LoadedParts:
    """As they come back: on the CPU."""
    return {name: {key: x.to("cpu", copy=True) for key, x in part.tensors.items()} for name, part in parts.items()}


def said(conversation: Conversation, question: str, tokens: int = 5) -> tuple[str, list[tuple[int, int, float]]]:
    """An answer and what it rested on."""
    *_, last = conversation.ask(question, Sampling(max_tokens=tokens))
    assert isinstance(last, Answer)
    return last.text, [(p.start, p.end, round(p.weight, 3)) for p in last.passages]


def told(model: Model, name: str) -> list[object]:
    """A reading that is interrupted, saved and resumed, two conversations over it, one of them saved and restored."""
    method, ids = TIGHT[name], text()
    reader = Reader(model, method, ids, chunk=37)
    for _, _progress in zip(range(4), reader.run(), strict=False):
        pass
    parts, meta = reader.state()
    resumed = Reader.resume(model, method, ids, from_disk(parts), meta, chunk=37)
    for _ in resumed.run():
        pass
    context = resumed.context()
    found: list[object] = [context.memory.positions(layer).tolist() for layer in range(len(model.spec.layers))]
    first, second = Conversation(context), Conversation(context)
    found += [said(first, "What is it?"), said(second, "Who?")]
    again = Conversation.load(context, from_disk(first.state()[0]), first.state()[1])
    opened = Context.load(model, method, from_disk(context.state()[0]), context.state()[1])
    found += [said(each, "And then, and where?") for each in (first, again, Conversation(opened))]
    return [*found, first.usage().entries, context.usage().entries]


def told_alike(name: str) -> None:
    cpu, sim, device = world()
    expected = told(cpu, name)
    with device, device.counting() as counted:
        found = told(sim, name)
    assert counted["wait"], "it was on the device"
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == theirs, f"{ours} on the device, {theirs} on the CPU"


def test_every_registered_method_is_tried_there() -> None:
    assert {TIGHT[name].name for name in METHODS_HERE} == set(METHODS)


@pytest.mark.parametrize("name", METHODS_HERE)
def test_a_method_does_there_what_it_does_on_a_cpu(elsewhere: Elsewhere, name: str) -> None:
    elsewhere(told_alike, name)
