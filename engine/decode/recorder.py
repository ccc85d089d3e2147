"""Answers under CUDA graphs: the pass of one token, recorded once and repeated for every token after it.

A pass of one token launches hundreds of kernels, and on a GPU launching them takes longer than running them. A CUDA
graph records the launches and repeats them at one stroke, provided that shapes and addresses stay the same. So a memory
can `fix` the pass of one token: then only the numbers in tensors change from token to token, and the same code runs
eagerly or is recorded. A selector that prunes has one recording for each stage from which it may begin anew.

STOCKPOT_GRAPHS=off never records; =static passes tokens in fixed shapes without recording, on any device (for tests). A
pass that cannot be recorded, or whose recording fails, runs eagerly.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.errors import SettingsError
from engine.memory import Memory
from engine.memory_usage import is_out_of_memory
from engine.models.architectures import architecture_of
from engine.models.attention_interface import run
from engine.models.recurrent_state import RecurrentState

CHOICES = ("auto", "off", "static")
WARM_UP = 2  # passes before recording: kernels are compiled, and libraries take what memory they need
WAITED = "called a synchronizing"  # CUDA operation: how PyTorch says that the host waits for the GPU

log = logging.getLogger(__name__)
_watching = threading.Lock()  # whoever watches for waiting changes the process, and puts back what there was


@cache
def choice() -> str:
    """How STOCKPOT_GRAPHS is set.

    Raises:
        SettingsError: to nothing there is.
    """
    wanted = os.environ.get("STOCKPOT_GRAPHS", "auto")
    if wanted not in CHOICES:
        raise SettingsError(f"STOCKPOT_GRAPHS is one of {', '.join(CHOICES)}, not '{wanted}'.")
    return wanted


class Recorder:
    """Of one model: passes tokens of answers, recorded where that is possible."""

    def __init__(self, network: PreTrainedModel) -> None:
        """Nothing is recorded yet."""
        self.network = network
        self.possible = choice() == "static" or (choice() == "auto" and network.device.type == "cuda")
        self._too_large: tuple[int, ...] | None = None  # the key of what memory ran out over
        self._failed: set[tuple[type, type, int]] = (
            set()
        )  # stores, selectors and kinds of passes that cannot be recorded
        self._state = RecurrentState()  # filled anew for each token

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Tokens are passed as ever, until left: for comparisons."""
        possible, self.possible = self.possible, False
        try:
            yield
        finally:
            self.possible = possible

    def step(self, ids: Tensor, memory: Memory) -> Tensor | None:
        """The hidden state [1, hidden] after a token ids [1] whose pass has begun; None if it has to go unrecorded."""
        found = memory.recording() if self.possible else None
        if found is None:
            return None
        kind, key = found
        how = type(memory.store), type(memory.selector), kind
        if how in self._failed:
            return None
        if kind not in memory.recordings or memory.recordings[kind].key != key:
            if key == self._too_large:
                return None
            same = {other: each for other, each in memory.recordings.items() if each.key == key}
            memory.recordings = same  # those over what is no longer used hold it
            try:
                state = self._state if memory.recurrent.now else None
                memory.recordings = {**same, kind: Recording(self.network, memory, kind, key, state)}
            except RuntimeError as error:
                log.warning("an answer goes without a CUDA graph: recording failed: %s", error)
                if is_out_of_memory(error):  # over these addresses, and it is not tried again for each token
                    self._too_large = key
                else:
                    self._failed.add(how)
                return None
        return memory.recordings[kind].replay(ids, memory)


@contextmanager
def _never_waiting() -> Iterator[None]:
    """While in it nothing may wait for the GPU, as nothing can while a pass is recorded. Learnt only then, it would
    leave PyTorch's allocator in a recording that never ends, from where on it frees nothing when memory is short.

    PyTorch warns of it (mode "error" would end what other threads do) in whichever thread waits, as what is asked of it
    goes for the whole process. Only this thread counts; of others nothing is said, since they may wait.

    Raises:
        RuntimeError: something waited: layers in 8 bits do, which look for outliers first.
    """
    recording, waited = threading.get_ident(), False

    def note(message: Warning | str, *where: Any, **more: Any) -> None:
        nonlocal waited
        if WAITED not in str(message):
            shown(message, *where, **more)
        elif threading.get_ident() == recording:
            waited = True

    with _watching, warnings.catch_warnings():
        warnings.filterwarnings("always", f".*{WAITED}")
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        shown, warnings.showwarning = warnings.showwarning, note
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)
    if waited:
        raise RuntimeError("something in a pass of this model waits for the GPU")


@cache
def _side_stream() -> torch.cuda.Stream:
    """Where passes are warmed up and recorded: always the same, because cuBLAS keeps room for each stream it was used
    on, 32 MiB on an H100.
    """
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


@contextmanager
def _beside(side: torch.cuda.Stream) -> Iterator[None]:
    """Work goes to another stream, for which this one then waits: also if it fails half-way, because what that stream
    still reads is let go of, and given to others on this one.
    """
    here = torch.cuda.current_stream()
    side.wait_stream(here)
    try:
        with torch.cuda.stream(side):
            yield
    finally:
        here.wait_stream(side)


def record(graph: torch.cuda.CUDAGraph, call: Callable[[], Tensor]) -> Tensor:
    """Warm a call up and record it; where its result will lie.

    Raises:
        RuntimeError: something in it cannot be recorded.
    """
    side = _side_stream()
    with _beside(side):
        for _ in range(WARM_UP - 1):
            call()
        with _never_waiting():
            call()
        # What other threads ask of the GPU meanwhile is their own matter; "global" would have it end the recording.
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            result = call()
    return result


class Recording:
    """The pass of one token over a memory."""

    def __init__(
        self,
        network: PreTrainedModel,
        memory: Memory,
        kind: int,
        key: tuple[int, ...],
        state: RecurrentState | None = None,
    ) -> None:
        """Record it, unless graphs are only played at. carry: for the states of recurrent layers, shared by all.

        Raises:
            RuntimeError: something in the pass cannot be recorded.
        """
        self.key = key
        self.network = network
        self.ids = torch.zeros(1, dtype=torch.int64, device=network.device)
        self.state = state
        scaled = architecture_of(network.config).scales_queries
        self.place = torch.zeros_like(self.ids) if scaled else None
        self.graph: torch.cuda.CUDAGraph | None = None
        if choice() != "static":
            self.graph = torch.cuda.CUDAGraph()
            self._record(self.graph, memory)
        self.tensors_of = memory.snapshot()  # which the recording reads and writes
        self.tensors_of.recordings = {}

    def _record(self, graph: torch.cuda.CUDAGraph, memory: Memory) -> None:
        mass = memory.mass.save() if memory.mass else None  # which warming up adds to
        try:
            self._warm_and_record(graph, memory)
        finally:
            if memory.mass and mass is not None:
                memory.mass.restore(mass)

    def _warm_and_record(self, graph: torch.cuda.CUDAGraph, memory: Memory) -> None:
        memory.fix()
        if self.state:
            self.state.load(memory.recurrent.now)
        self.hidden = record(graph, functools.partial(self._pass, memory))
        # What the graph reads at its address must outlive it, also when longer tables take its place.
        self.tables = [rope.tables() for rope in memory.spec.ropes]

    def _pass(self, memory: Memory) -> Tensor:
        memory.start_layers()
        return run(self.network, self.ids, memory, state=self.state, position_ids=self.place)

    def replay(self, ids: Tensor, memory: Memory) -> Tensor:
        """The hidden state [1, hidden] after a token, which stands behind all that the memory holds."""
        self.ids.copy_(ids)
        if self.place is not None:
            self.place.copy_(memory.position_ids(1))
        memory.fix()
        if self.state:
            self.state.load(memory.recurrent.now)
        if self.graph is None:
            hidden = self._pass(memory)
        else:
            self.graph.replay()
            hidden = self.hidden.clone()
        if self.state:
            memory.recurrent.coming = self.state.copies()
        return hidden
