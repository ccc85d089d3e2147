"""Counts operations and launches of a pass per layer, on the simulated device.

Run it for a table: python -m tests.engine.counting [METHOD ...] [--where]. It runs in a process of its own, because a
device cannot be unregistered.
"""

from __future__ import annotations

import copy
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from engine import Conversation, Method, Model, Reader, make_method
from engine.decode import recorder
from engine.decode.recorder import Recording
from engine.memory import Memory
from engine.parts.archive.host_tier import HostTier
from engine.parts.archive.options import DTYPES
from engine.trained import retaining
from engine.trained.retaining import RetainingHeads
from engine.trained.sidecar_weights import save_weights
from kernels import choice, slab_facts
from kernels.slab_rows import kernel as slab_rows
from tests.engine import simulated
from tests.engine.conftest import byte_tokenizer
from tests.engine.simulated import NAME, OnDevice, Watched, register, tensors_in

VIEWS = re.compile(  # operations that launch nothing
    r"(_unsafe_|_reshape_)?(view|alias)|view_as|expand|slice|select|permute|transpose|t|(un)?squeeze|as_strided|detach|"
    r"split(_with_sizes)?|unbind|diagonal|unfold|lift_fresh|(new_)?empty(_like|_strided)?|new_empty_strided"
)
OURS = re.compile(r"(?<!tests)/(engine|kernels)/[^:]*$")
STAGES = "16:16:64:96 8:8:32:24 8:4:24:8"
METHODS = {
    "truncate": make_method("truncate", budget=160, tail=32),
    "locret": make_method("locret", budget=96, chunk=48, stabilizers=16, local=12),
    "streaming": make_method("streaming", budget=96),
    "infinitehip": make_method(
        "infinitehip", budget=160, stages=STAGES, first_keep=24, store="int4", looks=1, extend_always=True
    ),
    "recall": make_method("recall", budget=160, stages=STAGES, store="int4", looks=1),
    "exact-sketched": make_method("exact", budget=220, top_k=24, store="int4", looks=1, sketch="int2"),
    "exact": make_method("exact", budget=220, top_k=24, store="int4", looks=1),
    "infllm": make_method("infllm", budget=260, block=8, units=4, query_block=16, store="int4", looks=1),
}


class Count(NamedTuple):
    """Requests of one pass to the device, operations of the host on tensors of its own, and new tables of slabs."""

    operations: int
    launches: int
    host: int
    tables: int
    where: Counter[str]


class Counting:
    """Counts operations of PyTorch that launch a kernel, and launches of Triton, while it is on."""

    def __init__(self, device: Watched, patch: pytest.MonkeyPatch) -> None:
        from triton.runtime.interpreter import GridExecutor

        self.device, self.on = device, False
        self.operations, self.launches, self.host, self.tables, self.where = 0, 0, 0, 0, Counter[str]()
        plain, made = simulated.run_operation, slab_rows._table
        patch.setattr(slab_rows, "_table", lambda *given: self._tabled(made(*given)))
        patch.setattr(GridExecutor, "__call__", lambda executor, *args, **kwargs: self._launched(executor.fn.__name__))

        def counted(function: Any, args: Any, kwargs: Any, watched: Any) -> Any:
            self._note(function, args, kwargs)
            return plain(function, args, kwargs, watched)

        patch.setattr(simulated, "run_operation", counted)

    def _tabled(self, table: slab_rows.Table) -> slab_rows.Table:
        self.tables += self.on
        return table

    def _launched(self, name: str) -> None:
        if self.on:
            self.launches += 1
            self.where[f"launch {name}"] += 1

    def _note(self, function: Any, args: Any, kwargs: Any) -> None:
        name = function.overloadpacket.__name__
        if not self.on or VIEWS.fullmatch(name):
            return
        place = kwargs.get("device")
        there = any(isinstance(x, OnDevice) for x in [*tensors_in(args), *tensors_in(kwargs.values())])
        there = there or (place is not None and torch.device(place).type == NAME)
        if there:
            self.operations += 1
        else:
            self.host += 1
        frame = sys._getframe()
        while frame is not None and not OURS.search(frame.f_code.co_filename):
            frame = frame.f_back  # type: ignore[assignment]
        at = "model" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        self.where[f"{at} {name}{'' if there else ' on the host'}"] += 1

    def during(self, do: Callable[[], object]) -> Count:
        """Count the requests to the device while a function runs."""
        self.operations, self.launches, self.host, self.tables, self.where, self.on = 0, 0, 0, 0, Counter(), True
        do()
        self.on = False
        return Count(self.operations, self.launches, self.host, self.tables, self.where)


def world(device: Watched, layers: int) -> Model:
    """Return a model of that many layers on the device."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
    tokens = {"eos_token_id": 3, "bos_token_id": 0, "initializer_range": 0.2, "max_position_embeddings": 512}
    config = LlamaConfig(vocab_size=260, num_hidden_layers=layers, head_dim=16, **sizes, **tokens)
    folder, network = Path(tempfile.mkdtemp()), LlamaForCausalLM(config)
    cpu = Model(copy.deepcopy(network), byte_tokenizer(), "tiny", "digest", folder)
    save_weights(RetainingHeads(cpu.spec, [24] * layers), folder / retaining.FILE, cpu.spec, {})
    with device:
        network.to(f"{NAME}:0")  # type: ignore[arg-type]
        return Model(network, byte_tokenizer(), "tiny", "digest", folder)


def passes(device: Watched, layers: int, method: Method) -> dict[str, list[Count]]:
    """Return the counts of all passes of reading, of an eager token, and of a recorded one where there is one."""
    sim, found = world(device, layers), dict[str, list[Count]]()
    ids = torch.randint(4, 260, (601,), generator=torch.Generator().manual_seed(1))
    with pytest.MonkeyPatch.context() as patch, device:
        patch.setattr(choice, "implementation", lambda: "triton")
        patch.setattr(slab_facts, "_lies_on", lambda part, device: True)
        counting = Counting(device, patch)
        # Some have passes on a GPU that are longer than their window
        reader = Reader(sim, method, ids, chunk=128 if method.gpu_pass else 48)
        steps, found["reading"] = reader.run(), []
        while not reader.finished:
            found["reading"].append(counting.during(lambda: next(steps, None)))
        conversation = Conversation(reader.context())
        conversation.feed([70, 71, 72])
        conversation.memory.mass = conversation.mass
        for token in (73, 74):
            conversation.feed([token])
        found["token"] = [counting.during(lambda: conversation.feed([75]))]
        recorded = list[Count]()
        plain = Recording._pass

        def passed(recording: Recording, memory: Memory) -> Tensor:
            result = list[Tensor]()
            recorded.append(counting.during(lambda: result.append(plain(recording, memory))))
            return result[0]

        patch.setattr(recorder, "choice", lambda: "static")
        patch.setattr(sim, "recorder", recorder.Recorder(sim.network))
        patch.setattr(Recording, "_pass", passed)
        for token in range(70, 75):
            conversation.feed([token], repeated=True)
        if recorded:
            found["recorded"] = recorded[-1:]
    return found


def per_layer(name: str) -> dict[str, Count]:
    """Return the requests of each kind of pass per layer; of passes of reading, the one in the middle of all."""
    device = device_there()
    few, more = (passes(device, layers, METHODS[name]) for layers in (2, 4))
    found = {}
    for kind, counts in more.items():
        each = [_halved(*pair) for pair in zip(few[kind], counts, strict=True)]
        found[kind] = sorted(each, key=lambda count: (count.operations, count.launches))[len(each) // 2]
    return found


def _halved(few: Count, more: Count) -> Count:
    """Return the requests of one layer of a pass: the difference between four layers and two, halved."""
    where = Counter(more.where)
    where.subtract(few.where)
    rest = Counter({place: times / 2 for place, times in where.items() if times > 0})
    numbers = (round((getattr(more, each) - getattr(few, each)) / 2) for each in Count._fields[:4])
    return Count(*numbers, rest)


def appended(store: str) -> list[Count]:
    """Return what keeping one token in an archive takes, with two layers and with four; the dearest of a few groups."""
    device, found = device_there(), list[Count]()
    for layers in (2, 4):
        spec = world(device, layers).spec
        with pytest.MonkeyPatch.context() as patch, device:
            counting = Counting(device, patch)
            tier = HostTier(spec, DTYPES[store]).fork()
            new = [torch.zeros(layer.kv_heads, 1, layer.head_size, device=spec.device) for layer in spec.layers]
            source = torch.zeros(1, dtype=torch.int32)
            each = [counting.during(lambda: tier.append(new, new, source)) for _ in range(200)]  # noqa: B023
            found.append(max(each[100:], key=lambda count: count.host))
    return found


_DEVICE: list[Watched] = []


def device_there() -> Watched:
    """Return the device of this process, made once."""
    if not _DEVICE:
        _DEVICE.append(register())
    return _DEVICE[0]


if __name__ == "__main__":
    named = [each for each in sys.argv[1:] if not each.startswith("--")] or list(METHODS)
    for each in named:
        for kind, (operations, launches, host, tables, where) in per_layer(each).items():
            asked = f"{operations:4d} operations, {launches} launches"
            print(f"{each:16s} {kind:9s} {asked}, {host} on the host, {tables} tables", flush=True)
            if "--where" in sys.argv:
                print("\n".join(f"    {times:5.1f} {place}" for place, times in where.most_common()))
