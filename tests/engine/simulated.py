"""A device that is not there: the engine's tensors live on "sim" as they would on a GPU, and operations are watched.

A tensor on "sim" wraps an ordinary one in which its numbers are really kept, so results are those of a CPU. Operations
that mix "sim" with CPU tensors are refused as CUDA refuses them, and what a GPU would have to wait for, or be sent, is
counted:

- `wait`: the host asks for a number on the device (`item`, `int(x)`, `bool(x)`, `torch.equal`);
- `down`: a tensor is copied to the host;
- `coming`: the same, but with `non_blocking`: until an event of the stream has been waited for (a `wait`), there is
  nothing but NaN, or the least integer, where it will be;
- `behind`: such a copy on the stream of the passes, of which the next one then waits for it;
- `up`: a tensor is copied to the device, an index on the host included, and the host waits until it has gone;
- `sent`: the same, but with `non_blocking`, so that the host goes on;
- `shape`: an operation whose output is as long as its numbers say (`nonzero`, `unique`, indexing by a mask).

What it cannot show: that CUDA has a kernel for an operation and a dtype; Triton kernels (what is around them runs, and
they themselves write nothing: their arithmetic is for `tests/kernels`); pinned memory, other races, streams that do not
wait for one another, speed and the bytes of a real allocator; what a library does inside one operation. Registering a
device is for a whole process and cannot be taken back, so `register` is called in a process of its own
(`test_device.py`).
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "sim"
CPU = torch.device("cpu")
WAITS = {"_local_scalar_dense", "equal", "is_nonzero"}
SHAPES = {"nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount"}
INDEXING = {"index", "index_put", "index_put_", "_unsafe_index", "_unsafe_index_put"}
CROSSING = {"_to_copy", "copy_"}
OURS = re.compile(r"(?<!tests)/(engine|kernels)/")  # files of the product


class OnDevice(Tensor):
    """A tensor on the simulated device; `inner` holds its numbers, and is a view where this is one."""

    inner: Tensor
    is_cuda = True  # so that the engine goes the ways it goes on a GPU

    @staticmethod
    def __new__(cls, inner: Tensor) -> OnDevice:
        found = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device(NAME, 0),
            requires_grad=False,
        )
        found.inner = inner
        return found

    def __repr__(self) -> str:
        return f"{NAME}({self.inner})"

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def record_stream(self, stream: Any) -> None:  # type: ignore[override]
        pass

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run_operation(function, args, kwargs or {}, None)


class Event:
    """A CUDA event: copies sent to the host before it was recorded are complete once it was waited for."""

    def __init__(self, watched: Watched) -> None:
        self.watched, self.coming = watched, list(watched.coming)

    def synchronize(self) -> None:
        """Wait, which completes the copies."""
        self.watched.note("wait", "event")
        with no_dispatch():  # the copy engine writes them, not the host
            for there, numbers in self.coming:
                there.copy_(numbers)
        done = {id(pair) for pair in self.coming}
        self.watched.coming = [pair for pair in self.watched.coming if id(pair) not in done]


class Watched(TorchDispatchMode):
    """The active device; `counts` holds the costs on a real GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.coming: list[tuple[Tensor, Tensor]] = []  # on the host, where numbers will be, and the numbers
        self.beside = False  # whether what is done goes to another stream than that of the passes
        self.counts: Counter[str] = Counter()
        self.places: Counter[str] = Counter()  # the same, by operation and the line of ours that called it

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Leave out a wrapper around each operation, as nothing is compiled here."""
        return False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run_operation(function, args, kwargs or {}, self)

    @contextmanager
    def on_another_stream(self) -> Iterator[None]:
        """Run the block on another stream than that of the passes."""
        self.beside = True
        try:
            yield
        finally:
            self.beside = False

    def note(self, kind: str, what: str) -> None:
        """Count one operation by kind and place."""
        frame: FrameType | None = sys._getframe()
        while frame is not None and not OURS.search(frame.f_code.co_filename):
            frame = frame.f_back
        at = "elsewhere" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        self.counts[kind] += 1
        self.places[f"{kind} {what} {at}"] += 1

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Yield the counts of operations inside the block."""
        before, fresh = self.counts, Counter[str]()
        self.counts, places, self.places = fresh, self.places, Counter()
        try:
            yield fresh
        finally:
            self.last = self.places
            self.counts, self.places = before + fresh, places + self.places


def register() -> Watched:
    """Make the device known to this process, for good."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
    from triton.runtime.interpreter import GridExecutor

    _setup_privateuseone_for_python_backend(NAME)
    made = torch.tensor

    def tensor(data: Any, *, device: Any = None, **options: Any) -> Tensor:
        """Made on the host and sent, as CUDA does it too; `torch.tensor` itself is not seen by a dispatch mode."""
        plain = made(data, **options)
        return plain if device is None else plain.to(device)

    watched = Watched()
    torch.tensor = tensor  # type: ignore[assignment]
    torch.cuda.current_stream = lambda device: SimpleNamespace(  # type: ignore
        record_event=lambda: None, wait_event=lambda event: None, wait_stream=lambda other: None
    )
    torch.cuda.Stream = lambda device: SimpleNamespace(  # type: ignore
        wait_stream=lambda other: None, record_event=lambda: Event(watched)
    )
    torch.cuda.stream = lambda stream: watched.on_another_stream()  # type: ignore
    GridExecutor.__call__ = lambda grid, *arguments, **constants: None
    return watched


def inner(x: Any) -> Any:
    """The tensor that holds the numbers; in lists, of each."""
    if isinstance(x, OnDevice):
        return x.inner
    return type(x)(map(inner, x)) if type(x) in (list, tuple) else x


def _outer(x: Any) -> Any:
    if isinstance(x, Tensor):
        return OnDevice(x)
    return type(x)(map(_outer, x)) if type(x) in (list, tuple) else x


def tensors_in(arguments: Iterable[Any]) -> Iterator[Tensor]:
    for x in arguments:
        if isinstance(x, Tensor):
            yield x
        elif type(x) in (list, tuple):
            yield from tensors_in(x)


def run_operation(function: Any, args: Any, kwargs: Any, watched: Watched | None) -> Any:
    tensors = [*tensors_in(args), *tensors_in(kwargs.values())]
    ours = [x for x in tensors if isinstance(x, OnDevice)]
    asked = kwargs.get("device")
    goes = bool(ours) if asked is None else torch.device(asked).type == NAME
    if not ours and not goes:
        return function(*args, **kwargs)
    if asked is not None and goes:
        kwargs = kwargs | {"device": CPU}
    name = function.overloadpacket.__name__
    if name == "copy_":
        goes = isinstance(args[0], OnDevice)
    freely = bool(kwargs.get("non_blocking")) or (name == "copy_" and len(args) > 2 and bool(args[2]))
    kind = _kind(name, args, ours, [x for x in tensors if not isinstance(x, OnDevice)], goes, freely)
    if kind is not None and watched is not None:
        watched.note(kind, name)
        if kind == "coming" and not watched.beside:
            watched.note("behind", name)
    if kind == "coming" and name == "copy_" and watched is not None:
        there, numbers = args[0], inner(args[1]).to(args[0].dtype, copy=True)
        watched.coming.append((there, numbers))
        return there.fill_(_nothing(there))
    result = function(*map(inner, args), **{key: inner(x) for key, x in kwargs.items()})
    if torch.Tag.inplace_view in function.tags:  # the wrapper takes the new shape as well
        with no_dispatch():
            function(*args, **kwargs)
        return args[0]
    if function._schema.is_mutable:  # what was written to is what comes back
        named = zip(function._schema.arguments, args, strict=False)
        written = [x for argument, x in named if argument.is_write] + [kwargs[key] for key in ("out",) if key in kwargs]
        return written[0]
    if kind == "coming" and watched is not None:
        there = torch.full_like(result, _nothing(result))
        watched.coming.append((there, result))
        return there
    return _outer(result) if goes else result


def _nothing(x: Tensor) -> float:
    """Return the contents of memory that no copy has reached: NaN, or the least integer."""
    return float("nan") if x.is_floating_point() else torch.iinfo(x.dtype).min


def _kind(name: str, args: Any, ours: list[OnDevice], others: list[Tensor], goes: bool, freely: bool) -> str | None:
    """Return the cost of an operation on a GPU, or None if it neither waits nor copies. goes: whether it copies to the
    device.

    Raises:
        RuntimeError: the tensors are on different devices.
    """
    if name in CROSSING:
        if ours and not goes:
            return "coming" if freely else "down"
        return None if not (goes and others) else "sent" if freely else "up"
    if not ours:
        return None
    strangers = [x for x in others if x.dim()]
    if name in INDEXING:
        masks = [x for x in tensors_in(args[1]) if x.dtype in (torch.bool, torch.uint8)]
        if not isinstance(args[0], OnDevice) or (name.startswith("index_put") and any(x is args[2] for x in strangers)):
            raise RuntimeError(f"{name}: a tensor on the CPU is indexed by one on {NAME}, or written from one")
        if masks:
            return "shape"
        return "up" if strangers else None
    if strangers:
        raise RuntimeError(f"{name}: expected all tensors to be on the same device, found {NAME} and cpu")
    return "wait" if name in WAITS else "shape" if name in SHAPES else None
