"""Products with weights of 4 or 8 bits on a CPU, by ONNX Runtime's `MatMulNBits`.

It multiplies integers with integers: activations are rounded to 8 bits, each 32 of them with a scale of their own, as
llama.cpp does. It is fast with symmetric blocks only. So blocks with an offset take a second product: the sums of the
activations over each block, times the offsets. That one reads a tenth of the bytes.
"""

from __future__ import annotations

import functools
import itertools
import mmap
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from engine.memory_usage import give_back
from engine.models.gguf.blocks import Blocks
from engine.models.onnx_graph import MICROSOFT, THIS_FILE, Graph

COARSE = (128, 64, 32, 16)  # weights that share a scale if they are rounded here: the largest that divides a row
OF_OFFSETS = 16  # offsets that share a scale
INTEGERS = 4  # accuracy_level: activations are rounded to 8 bits
AT_ONCE = 1 << 24  # weights of a session: while it is made, they are held several times
ALIGNMENT = 64  # bytes between the beginnings of tensors
PRIVATE: Any = {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
FOLDER_OF_WEIGHTS = "session.model_external_initializers_file_folder_path"
TESTED_ROWS = (1, 8)  # of products that show whether codes and scales are still read


def rounded(weight: Tensor) -> Blocks:
    """Return weights float32 [R, C], C a multiple of 16, rounded to 8 bits."""
    return rounded_in(weight, coarse(weight.shape[1]))


def coarse(columns: int) -> int:
    """Return how many weights of such a row share a scale if they are rounded here."""
    return next(each for each in COARSE if columns % each == 0)


def rounded_in(weight: Tensor, group: int) -> Blocks:
    """Return weights float32 [R, C], rounded to 8 bits in groups that share a scale."""
    groups = weight.reshape(len(weight), -1, group)
    scales = groups.abs().amax(dim=2) / 127
    codes = (groups / scales.clamp_min(torch.finfo(torch.float32).tiny)[..., None]).round_()
    return Blocks(codes.to(torch.int8), scales, None)


class Packed:
    """Some rows of a layer as `MatMulNBits` takes them."""

    def __init__(self, bits: int, codes: NDArray[Any], scales: NDArray[Any], offsets: Packed | None) -> None:
        """Take codes uint8 [R, G, bytes of a group] and scales float32 [R, G]."""
        self.bits, self.codes, self.scales, self.offsets = bits, codes, scales, offsets
        self.rows, self.groups = scales.shape
        self.group = codes.shape[2] * 8 // bits

    @classmethod
    def of(cls, blocks: Blocks, bits: int) -> Packed:
        """Pack blocks whose codes fit in `bits`, 4 or 8."""
        offsets = None if blocks.offsets is None else cls.of(_of_offsets(blocks.offsets), 8)
        return cls(bits, _packed(blocks.codes, bits).numpy(), blocks.scales.contiguous().numpy(), offsets)

    def product(self, graph: Graph, x: str, columns: int, sums: dict[int, str]) -> str:
        """Add the product with x [T, columns] to a graph, and return its name. sums: those of x, by size of a group."""
        facts = {"K": columns, "N": self.rows, "bits": self.bits, "block_size": self.group, "accuracy_level": INTEGERS}
        codes, scales = graph.weight(self.codes), graph.weight(self.scales)
        found = graph.node("MatMulNBits", x, codes, scales, domain=MICROSOFT, **facts)
        if self.offsets is None:
            return found
        if self.group not in sums:
            shape = graph.constant(torch.tensor([-1, self.groups, self.group]).numpy())
            groups = graph.node("Reshape", x, shape)
            sums[self.group] = graph.node("ReduceSum", groups, graph.constant(torch.tensor([2]).numpy()), keepdims=0)
        return graph.node("Add", found, self.offsets.product(graph, sums[self.group], self.groups, {}))


def _of_offsets(offsets: Tensor) -> Blocks:
    """Return offsets [R, G] in 8 bits, with zeros behind them as far as a whole group."""
    return rounded_in(F.pad(offsets, (0, -offsets.shape[1] % OF_OFFSETS)), OF_OFFSETS)


def _packed(codes: Tensor, bits: int) -> Tensor:
    """Return codes int8 [R, G, S] as uint8, counted from the middle of their range; in 4 bits two a byte."""
    if bits == 8:
        return codes.contiguous().view(torch.uint8).bitwise_xor(128)
    above = codes.view(torch.uint8).add(8)
    return above[..., ::2] | above[..., 1::2].bitwise_left_shift(4)


def packed_bytes(rows: int, columns: int, bits: int, group: int, offsets: bool = False) -> int:
    """Return the bytes that ONNX Runtime holds for rows: codes, and for each group its scale and its sum."""
    groups = columns // group
    found = rows * columns * bits // 8 + 4 * groups * (rows + -(-rows // 16) * 16)
    return found + (packed_bytes(rows, groups + -groups % OF_OFFSETS, 8, OF_OFFSETS) if offsets else 0)


class Product:
    """Computes the products of activations with the rows of one layer, or of several with the same input."""

    def __init__(self, columns: int, pieces: Iterable[Packed]) -> None:
        """Hand over the rows in their order, piece by piece: none is held for long."""
        self.sessions: list[Session] = []
        for each in _together(columns, pieces):
            if self.sessions:
                give_back()
            graph = Graph()
            x = graph.input(columns)
            graph.output(product(graph, x, columns, each, {}), sum(piece.rows for piece in each))
            self.sessions.append(Session(graph))

    def __call__(self, x: Tensor) -> Tensor:
        """Return the products float32 [T, rows] of x [T, columns]."""
        fed = x.float().contiguous().numpy()
        found = [torch.from_numpy(each.run(fed)[0]) for each in self.sessions]
        return found[0] if len(found) == 1 else torch.cat(found, dim=1)


def product(graph: Graph, x: str, columns: int, pieces: Iterable[Packed], sums: dict[int, str]) -> str:
    """Add the product of x [T, columns] with the rows of all pieces, and return its name.

    sums: see `Packed.product`.
    """
    products = [each.product(graph, x, columns, sums) for each in pieces]
    return products[0] if len(products) == 1 else graph.node("Concat", *products, axis=1)


def _together(columns: int, pieces: Iterable[Packed]) -> Iterator[list[Packed]]:
    """Yield pieces in lists of at most `AT_ONCE` weights, or of one piece."""
    held: list[Packed] = []
    for piece in pieces:
        if held and columns * (piece.rows + sum(each.rows for each in held)) > AT_ONCE:
            yield held
            held = []
        held.append(piece)
    yield held


class Session:
    """A session of ONNX Runtime that computes a graph."""

    def __init__(self, graph: Graph) -> None:
        """Pack the weights of a graph."""
        from onnxruntime import InferenceSession, OrtValue, SessionOptions  # type: ignore[import-untyped]

        _share_threads()
        self.inputs, self.outputs = dict(graph.inputs), list(graph.outputs)
        weights = list(graph.weights.values())
        mapped = not any(each.flags.writeable for each in weights)  # from a file, which the system reads again
        self._pages: Any
        self._pages, held = (None, weights) if mapped else _in_pages(weights)
        self._values = [OrtValue.ortvalue_from_numpy(each) for each in held]  # the session only points to them
        options = SessionOptions()
        options.use_per_session_threads, options.enable_cpu_mem_arena, options.log_severity_level = False, False, 3
        options.add_session_config_entry(FOLDER_OF_WEIGHTS, str(THIS_FILE.parent))
        for name, value in zip(graph.weights, self._values, strict=True):
            options.add_initializer(name, value)  # or the session would keep a copy beside its own packing
        session = InferenceSession(graph.model(), options, providers=["CPUExecutionProvider"])
        self._session = session._sess  # the rest holds the model's bytes
        self._let_go(weights, held)

    def run(self, *inputs: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the outputs float32 [T, columns] for inputs float32 [T, columns], both in the order of the graph."""
        found: list[NDArray[Any]] = self._session.run(self.outputs, dict(zip(self.inputs, inputs, strict=True)), None)
        return found

    def __deepcopy__(self, memo: object) -> Session:
        return self  # it never changes

    def _let_go(self, weights: list[NDArray[Any]], held: list[NDArray[Any]]) -> None:
        """Free the new pages of codes and scales, unless products still read them beside the packed weights."""
        if self._pages is None or sys.platform != "linux":
            return  # only there do freed pages become zeros, which the products below would show
        wanted = [self._tested(rows) for rows in TESTED_ROWS]
        self._pages.madvise(mmap.MADV_DONTNEED)
        if not all(np.array_equal(self._tested(each), right) for each, right in zip(TESTED_ROWS, wanted, strict=True)):
            for page, weight in zip(held, weights, strict=True):
                page[...] = weight

    def _tested(self, rows: int) -> NDArray[Any]:
        """Return all outputs for numbers from -1 to 1, float32 [rows, sum of columns]."""
        sizes = [rows * columns for columns in self.inputs.values()]
        tests = [np.linspace(-1, 1, size, dtype=np.float32).reshape(rows, -1) for size in sizes]
        return np.concatenate(self.run(*tests), axis=1)


def _in_pages(values: list[NDArray[Any]]) -> tuple[mmap.mmap, list[NDArray[Any]]]:
    """Return new pages of memory, and copies of the values in them."""
    begins = list(itertools.accumulate((each.nbytes + -each.nbytes % ALIGNMENT for each in values), initial=0))
    pages = mmap.mmap(-1, begins[-1], **PRIVATE)
    held = []
    for value, begin in zip(values, begins, strict=False):
        copy = np.frombuffer(pages, value.dtype, value.size, begin).reshape(value.shape)
        copy[...] = value
        held.append(copy)
    return pages, held


@functools.cache
def _share_threads() -> None:
    """Let all sessions share one pool, of as many threads as PyTorch has."""
    from onnxruntime import set_global_thread_pool_sizes

    set_global_thread_pool_sizes(torch.get_num_threads(), 1)
