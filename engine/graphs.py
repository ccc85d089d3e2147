"""Answers under CUDA graphs: the pass of one token, recorded once and repeated for every token after it.

A pass of one token launches hundreds of kernels, and on a GPU launching them takes longer than what they do. A CUDA
graph records the launches and repeats them at one stroke, provided that shapes and addresses stay as they were. So
`StaticAttention` is attention over a `SlotMemory` in which nothing but the numbers in tensors changes from token to
token: where the token stands is such a number, all slots are shown, and those that are not filled yet are masked.

STOCKPOT_GRAPHS=off never records; =static passes tokens the same way without recording, on any device (for tests). A
memory without slots, or with slots in codes, is passed as ever, and so is everything if recording fails.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.attention import Shown, Span, attend
from engine.measure import ran_out
from engine.memory import NOT_IN_SOURCE, Memory
from engine.seam import run
from engine.slots import SlotMemory
from kernels.rows import Fixed

CHOICES = ("auto", "off", "static")
WARM_UP = 2  # passes before recording: kernels are compiled, and libraries take what memory they need

log = logging.getLogger(__name__)


@cache
def choice() -> str:
    """How STOCKPOT_GRAPHS is set.

    Raises:
        ValueError: to nothing there is.
    """
    wanted = os.environ.get("STOCKPOT_GRAPHS", "auto")
    if wanted not in CHOICES:
        raise ValueError(f"STOCKPOT_GRAPHS is one of {', '.join(CHOICES)}, not '{wanted}'.")
    return wanted


class Recorder:
    """Of one model: passes tokens of answers, recorded where that is possible."""

    def __init__(self, network: PreTrainedModel) -> None:
        """Nothing is recorded yet."""
        self.network = network
        self.possible = choice() == "static" or (choice() == "auto" and network.device.type == "cuda")
        self._too_large: tuple[int, ...] | None = None  # the key of slots over which memory ran out

    @staticmethod
    def recorded(memory: Memory) -> bool:
        """Whether a pass over this memory has been recorded."""
        return isinstance(memory, SlotMemory) and memory.recording is not None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Tokens are passed as ever, until left: for comparisons."""
        possible, self.possible = self.possible, False
        try:
            yield
        finally:
            self.possible = possible

    def step(self, ids: Tensor, memory: Memory) -> Tensor | None:
        """The hidden state [1, hidden] after a token ids [1] whose pass has begun; None where it must go as ever."""
        if not self.possible or not isinstance(memory, SlotMemory) or not memory.static():
            return None
        key = _key(memory)
        recording = memory.recording
        if recording is None or recording.key != key:
            if key == self._too_large:
                return None
            try:
                recording = memory.recording = Recording(self.network, memory, key)
            except RuntimeError as error:
                log.warning("an answer goes without a CUDA graph: recording failed: %s", error)
                # For want of memory only over these slots, and it is not tried again for each token.
                self.possible, self._too_large, memory.recording = ran_out(error), key, None
                return None
        return recording.replay(ids, memory)


def _key(memory: SlotMemory) -> tuple[int, ...]:
    """Addresses of all that a recorded pass reads and writes."""
    slots = [address for each in [*memory.base, *memory.own] for address in (each.rotated.data_ptr(), each.capacity)]
    return (id(memory.mass), memory.base_length, *slots)


@contextmanager
def _never_waiting() -> Iterator[None]:
    """While in it nothing may wait for the GPU, as nothing can while a pass is recorded. Learnt only then, it would
    leave PyTorch's allocator in a recording that never ends, from where on it frees nothing when memory is short.

    Raises:
        RuntimeError: something waited: layers in 8 bits do, which look for outliers first.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as said:  # not "error", which would end what other threads do meanwhile
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)
    if any("called a synchronizing" in str(each.message) for each in said):
        raise RuntimeError("something in a pass of this model waits for the GPU")


class Recording:
    """The pass of one token over the slots of a memory."""

    def __init__(self, network: PreTrainedModel, memory: SlotMemory, key: tuple[int, ...]) -> None:
        """Record it, unless graphs are only played at.

        Raises:
            RuntimeError: something in the pass cannot be recorded.
        """
        self.key = key
        self.network = network
        self.attention = StaticAttention(memory)
        self.ids = torch.zeros(1, dtype=torch.int64, device=network.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        if choice() != "static":
            self.graph = torch.cuda.CUDAGraph()
            self._record(self.graph, memory)

    def _record(self, graph: torch.cuda.CUDAGraph, memory: SlotMemory) -> None:
        before = None if memory.mass is None else memory.mass.sums.clone()  # which warming up adds to
        try:
            self._warm_and_record(graph, memory)
        finally:
            if memory.mass is not None and before is not None:
                memory.mass.sums.copy_(before)

    def _warm_and_record(self, graph: torch.cuda.CUDAGraph, memory: SlotMemory) -> None:
        self.attention.move_to(memory.length)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP - 1):
                self._pass()
            with _never_waiting():
                self._pass()
        torch.cuda.current_stream().wait_stream(side)
        # What other threads ask of the GPU meanwhile is their own matter; "global" would have it end the recording.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.hidden = self._pass()
        # What the graph reads at its address must outlive it, also when longer tables take its place.
        self.tables = [rope.tables() for rope in memory.spec.ropes]

    def _pass(self) -> Tensor:
        return run(self.network, self.ids, self.attention)

    def replay(self, ids: Tensor, memory: SlotMemory) -> Tensor:
        """The hidden state [1, hidden] after a token, which stands behind all that the memory holds."""
        self.ids.copy_(ids)
        self.attention.move_to(memory.length)
        if self.graph is None:
            return self._pass()
        self.graph.replay()
        return self.hidden.clone()


class StaticAttention:
    """`SlotMemory.attend` for one token, in shapes and at addresses that do not change with it."""

    def __init__(self, memory: SlotMemory) -> None:
        """Over the slots as they are now; they must not be replaced."""
        self.memory = memory.snapshot()
        self.memory.recording = None  # of other slots, which nobody needs any more
        self.length = torch.zeros(1, dtype=torch.int64, device=memory.spec.device)  # own entries, on average
        self.shown = []
        for number, slots in enumerate(memory.own):
            filled = memory.length + slots.surplus  # what is behind is masked, but must be numbers
            slots.rotated[:, filled:], slots.values[:, filled:] = 0.0, 0.0
            slots.source[:, filled:] = NOT_IN_SOURCE
            base = memory.base[number] if memory.base else None
            keys, values, _ = slots.shown(base, slots.capacity, 1)
            self.shown.append((Fixed(keys), Fixed(values)))

    def move_to(self, length: int) -> None:
        """The next token stands behind so many own entries."""
        self.length.fill_(length)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scaling: float, softcap: float | None) -> Tensor:
        """Attention output [HQ, 1, D] for q [HQ, 1, D] and k, v [H, 1, D], all before RoPE."""
        memory = self.memory
        output = memory.by_slots(layer, q, k, v, partial(self._attend, scaling=scaling, softcap=softcap))
        for slots, score in memory.scored(layer, q, k, v):
            slots.score.index_copy_(1, self.length + slots.surplus, score)
        return output

    def _attend(self, number: int, q: Tensor, k: Tensor, v: Tensor, scaling: float, softcap: float | None) -> Tensor:
        memory, slots = self.memory, self.memory.own[number]
        rope, place = slots.layer.rope, self.length + slots.surplus
        position, limit = place + slots.first_slot, slots.first_slot + slots.capacity
        slots.keys.index_copy_(1, place, k)
        slots.values.index_copy_(1, place, v)
        slots.score.index_fill_(1, place, 0.0)
        slots.rotated.index_copy_(1, place, rope.rotate(k, position, limit))
        end, window = position + 1, slots.layer.sliding_window
        first = torch.zeros_like(end) if window is None else (end - window).clamp_min(0)
        keys, values = self.shown[number]
        segment = Shown(rope.rotate(q, position, limit), keys, values, Span(first, end, changing=True))
        output, given = attend([segment], scaling, softcap, memory.mass is not None)
        if memory.mass is not None:
            per_head = given[0][:, 0].view(slots.layer.kv_heads, -1, limit).sum(dim=1)
            memory.mass.add(slots.source, per_head[:, slots.first_slot :])
            if memory.base:
                memory.mass.add(memory.base[number].source[:, : slots.first_slot], per_head[:, : slots.first_slot])
        return output
