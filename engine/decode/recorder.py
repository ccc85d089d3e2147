"""Answers under CUDA graphs: the pass of one token, recorded once and replayed for every later token.

A pass of one token launches hundreds of kernels, and on a GPU the launches take longer than the kernels. A CUDA graph
records the launches and replays them as one, provided that shapes and addresses stay the same. So a memory can `fix`
the pass of one token: then only numbers in tensors change from token to token, and the same code runs eagerly or is
recorded. A pruning selector has one recording for each stage that may come first; all are made before an answer begins.

STOCKPOT_GRAPHS=off never records. STOCKPOT_GRAPHS=static runs passes in fixed shapes without recording, on any device
(for tests). A pass that cannot be recorded, or whose recording fails, runs eagerly.
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
WARM_UP = 2  # passes before recording: kernels are compiled, libraries allocate
WAITED = "called a synchronizing"  # PyTorch's words for an operation that waits for the GPU

log = logging.getLogger(__name__)
_watching = threading.Lock()  # watching for waits changes settings of the process


@cache
def choice() -> str:
    """Return the setting of STOCKPOT_GRAPHS.

    Raises:
        SettingsError: its value is unknown.
    """
    wanted = os.environ.get("STOCKPOT_GRAPHS", "auto")
    if wanted not in CHOICES:
        raise SettingsError(f"STOCKPOT_GRAPHS is one of {', '.join(CHOICES)}, not '{wanted}'.")
    return wanted


class Recorder:
    """Runs answer tokens through CUDA graphs, one recording per memory layout.

    Falls back to the normal pass where recording is impossible.
    """

    def __init__(self, network: PreTrainedModel) -> None:
        """Start without any recording."""
        self.network = network
        self.possible = choice() == "static" or (choice() == "auto" and network.device.type == "cuda")
        self._too_large: tuple[int, ...] | None = None  # the key whose recording ran out of memory
        # Stores, selectors and kinds of passes that cannot be recorded
        self._failed: set[tuple[type, type, int]] = set()
        self._state = RecurrentState()  # filled for each token

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Run tokens through the normal pass inside the block, for comparisons."""
        possible, self.possible = self.possible, False
        try:
            yield
        finally:
            self.possible = possible

    def step(self, ids: Tensor, memory: Memory) -> Tensor | None:
        """Run one token through a recording.

        Args:
            ids: int64 [1], a token whose pass has begun.
            memory: the memory that it is added to.

        Returns:
            The hidden state [1, hidden], or None if the pass must run eagerly.
        """
        kind = self.prepare(memory)
        return None if kind is None else memory.recordings[kind].replay(ids, memory)

    def prepare(self, memory: Memory) -> int | None:
        """Record what is missing for the pass of one token that has begun, and for all later ones of other kinds.

        Returns:
            The kind of the pass, which is recorded; None if it must run eagerly.
        """
        kinds, key = memory.recordings_needed() if self.possible else ((), ())
        if not kinds:
            return None
        # Recordings with another key would hold memory that is no longer used
        memory.recordings = {other: each for other, each in memory.recordings.items() if each.key == key}
        for kind in kinds:
            if kind not in memory.recordings and not self._record(memory, kind, key):
                break
        return kinds[0] if kinds[0] in memory.recordings else None

    def _record(self, memory: Memory, kind: int, key: tuple[int, ...]) -> bool:
        """Record a pass of this kind; return whether that succeeded. What failed is not tried again for each token."""
        how = type(memory.store), type(memory.selector), kind
        if how in self._failed or key == self._too_large:
            return False
        state = self._state if memory.recurrent.now else None
        try:
            with memory.as_if(kind):
                memory.recordings = {**memory.recordings, kind: Recording(self.network, memory, kind, key, state)}
        except RuntimeError as error:
            log.warning("an answer goes without a CUDA graph: recording failed: %s", error)
            if is_out_of_memory(error):
                self._too_large = key
            else:
                self._failed.add(how)
            return False
        return True


@contextmanager
def _never_waiting() -> Iterator[None]:
    """Raise if anything inside the block waits for the GPU, since nothing can wait while a pass is recorded.

    If a wait happened during the recording, PyTorch's allocator would stay in a recording that never ends, and would
    not free memory any more. So it is found out before. PyTorch only warns of a wait, because mode "error" would also
    end other threads. Warnings of other threads are dropped, since those may wait.

    Raises:
        RuntimeError: something waited. Layers in 8 bits do, which look for outliers first.
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
def side_stream() -> torch.cuda.Stream:
    """Return the stream that warms up and records passes.

    It is always the same one, because cuBLAS keeps a workspace per stream, 32 MiB on an H100.
    """
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


@contextmanager
def _beside(side: torch.cuda.Stream) -> Iterator[None]:
    """Run the block on another stream, and make this stream wait for it.

    It also waits after an error, because memory that the other stream still reads may be reused on this one.
    """
    here = torch.cuda.current_stream()
    side.wait_stream(here)
    try:
        with torch.cuda.stream(side):
            yield
    finally:
        here.wait_stream(side)


def record(graph: torch.cuda.CUDAGraph, call: Callable[[], Tensor]) -> Tensor:
    """Warm up a call and record it.

    Returns:
        The tensor that each replay writes its result to.

    Raises:
        RuntimeError: something in the call cannot be recorded.
    """
    side = side_stream()
    with _beside(side):
        for _ in range(WARM_UP - 1):
            call()
        with _never_waiting():
            call()
        # With mode "global", work of other threads would end the recording.
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            result = call()
    return result


class Recording:
    """The recorded pass of one token over a memory."""

    def __init__(
        self,
        network: PreTrainedModel,
        memory: Memory,
        kind: int,
        key: tuple[int, ...],
        state: RecurrentState | None = None,
    ) -> None:
        """Record the pass, unless graphs are static.

        Args:
            network: the model.
            memory: the memory to record over.
            kind: the recording's place in `memory.recordings`.
            key: addresses and sizes; with others the recording is invalid.
            state: the states of recurrent layers, shared by all recordings. None without such layers.

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
        memory.fix()
        if choice() != "static":
            self.graph = torch.cuda.CUDAGraph()
            self._record(self.graph, memory)
        self.tensors_of = memory.snapshot()  # keeps the recorded tensors alive
        self.tensors_of.recordings = {}

    def _record(self, graph: torch.cuda.CUDAGraph, memory: Memory) -> None:
        mass = memory.mass.save() if memory.mass else None  # warming up adds to it
        try:
            self._warm_and_record(graph, memory)
        finally:
            if memory.mass and mass is not None:
                memory.mass.restore(mass)

    def _warm_and_record(self, graph: torch.cuda.CUDAGraph, memory: Memory) -> None:
        if self.state:
            self.state.load(memory.recurrent.now)
        self.hidden = record(graph, functools.partial(self._pass, memory))
        # The graph reads these tables by address, also after longer ones have replaced them.
        self.tables = [rope.tables() for rope in memory.spec.ropes]

    def _pass(self, memory: Memory) -> Tensor:
        memory.store.pass_cache.clear()
        return run(self.network, self.ids, memory, state=self.state, position_ids=self.place)

    def replay(self, ids: Tensor, memory: Memory) -> Tensor:
        """Return the hidden state [1, hidden] of a token that follows all entries of the memory."""
        self.ids.copy_(ids)
        if self.place is not None:
            self.place.copy_(memory.position_ids(1))
        memory.fix()
        if self.state:
            self.state.load(memory.recurrent.now)
        if self.graph is None:
            hidden = self._pass(self.tensors_of)  # a graph also knows nothing but tensors of later passes
        else:
            self.graph.replay()
            hidden = self.hidden.clone()
        if self.state:
            memory.recurrent.coming = self.state.copies()
        return hidden
