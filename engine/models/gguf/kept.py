"""Weights that stay in their file: their rows are read when they are wanted."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES
from torch import Tensor

from engine.errors import ModelNotFound
from engine.models.gguf.blocks import GROUP, WITH_OFFSETS, Blocks, Type, bits_of, decode, unpack, unpacked
from engine.models.gguf.header import BLOCKS, Stored
from engine.models.gguf.weights import AT_A_TIME, Place
from engine.models.products import Packed, coarse, packed_bytes, rounded


class OpenFile:
    """A file that stays open, so that it may be renamed or removed while its weights are used."""

    def __init__(self, path: Path) -> None:
        """Open it when it is first read."""
        self.path, self._lock = path, threading.Lock()
        self._file: FileIO | None = None

    def read(self, at: int, into: Tensor) -> None:
        """Fill a tensor uint8, contiguous, with the bytes from `at` on.

        Raises:
            ModelNotFound: the file has become shorter since its header was read.
        """
        left = memoryview(into.numpy()).cast("B")  # type: ignore[arg-type]
        with self._lock:
            if self._file is None:
                self._file = FileIO(self.path)
                weakref.finalize(self, self._file.close)
            self._file.seek(at)
            while left and (count := self._file.readinto(left)):
                left = left[count:]
        if left:
            raise ModelNotFound(f"{self.path} has been cut short while it was read: fetch it anew.")

    def __deepcopy__(self, memo: object) -> OpenFile:
        return self


class Kept:
    """A weight [rows, columns] of the network whose rows lie in a file, in any order."""

    def __init__(self, stored: Sequence[Stored], shape: tuple[int, ...], order: Tensor | None, file: OpenFile) -> None:
        """Take a weight's place.

        Args:
            stored: tensors of one type in one file that together have the rows.
            shape: of the weight in the network.
            order: int64 [rows], for each row of the network its number in the tensors; None if they are the same.
            file: that holds the tensors.
        """
        self.stored, self.shape, self.order, self.file = stored, shape, order, file
        self.name = ""  # of the layer, once there is one
        self.kind, self.row_bytes = stored[0].kind, stored[0].row_bytes
        rows = torch.tensor([math.prod(each.shape[:-1]) for each in stored])
        self._ends = rows.cumsum(0)  # of each tensor, in rows
        self._shift = torch.tensor([each.at for each in stored]) - (self._ends - rows) * self.row_bytes

    @classmethod
    def of(
        cls, place: Place, tensors: Mapping[str, Stored], files: dict[Path, OpenFile], kinds: Collection[Type] = BLOCKS
    ) -> Kept | None:
        """Return the weight at a place; None if it is no matrix of these types, or not rows of tensors as they are.

        files: those that are open already; others are added.
        """
        if len(place.shape) != 2 or place.undo is not None:
            return None
        stored = [tensors[name] for name in dict.fromkeys(place.sources)]
        path, kind, columns = stored[0].path, stored[0].kind, place.shape[1]
        alike = all((each.path, each.kind, each.shape[-1]) == (path, kind, columns) for each in stored)
        repeated = len(stored) > 1 and len(stored) < len(place.sources)
        whole = place.views(torch.empty(place.shape, device="meta"))
        if not alike or repeated or kind not in kinds or not all(_of_rows(view, columns) for view in whole):
            return None
        order = torch.cat([view.reshape(-1) for view in place.views(torch.arange(place.shape[0])[:, None])]).argsort()
        if path not in files:
            files[path] = OpenFile(path)
        same = bool((order == torch.arange(len(order))).all())
        return cls(stored, place.shape, None if same else order, files[path])

    def _at(self, rows: Tensor) -> Tensor:
        """Return where rows of the network begin in the file, int64 [T]."""
        numbers = rows if self.order is None else self.order[rows]
        return self._shift[torch.searchsorted(self._ends, numbers, right=True)] + numbers * self.row_bytes

    def numbers(self, rows: Tensor) -> Tensor:
        """Return some rows, float32 [T, columns], for their numbers int64 [T]."""
        coded = torch.empty(len(rows), self.row_bytes, dtype=torch.uint8)
        for row, at in zip(coded, self._at(rows).tolist(), strict=True):
            self.file.read(at, row)
        return unpacked(coded, self.kind)

    def sampled(self, flat: Tensor) -> Tensor:
        """Return single numbers, float32 [N], for their places int64 [N] in the flattened weight."""
        weights, size = GGML_QUANT_SIZES[self.kind]
        row, column = flat // self.shape[1], flat % self.shape[1]
        begin = self._at(row) + column // weights * size
        mapped = np.memmap(self.file.path, np.uint8, "r")
        blocks = torch.from_numpy(mapped[(begin[:, None] + torch.arange(size)).numpy()])
        return unpacked(blocks, self.kind).gather(1, (column % weights)[:, None])[:, 0]

    def _whole(self) -> Tensor:
        """Return the bytes of all rows as they lie in the file, uint8 [R, bytes of a row]."""
        found = torch.empty(self.shape[0], self.row_bytes, dtype=torch.uint8)
        rows_of = [math.prod(each.shape[:-1]) for each in self.stored]
        for rows, each in zip(torch.split(found, rows_of), self.stored, strict=True):
            self.file.read(each.at, rows)
        return found

    @property
    def _step(self) -> int:
        """Rows of a piece."""
        return max(1, AT_A_TIME // self.shape[1])

    @property
    def count(self) -> int:
        """Number of pieces."""
        return -(-self.shape[0] // self._step)

    def pieces(self) -> Iterator[Tensor]:
        """Yield the bytes of all rows uint8 [R, bytes of a row], in order, `AT_A_TIME` weights together."""
        step = self._step
        if self.order is not None or len(self.stored) > 1:  # weights of one layer, which are not large
            whole = self._whole() if self.order is None else self._whole()[self.order]
            yield from whole.split(step)  # type: ignore[no-untyped-call]
            return
        for begin in range(0, self.shape[0], step):
            rows = torch.empty(min(step, self.shape[0] - begin), self.row_bytes, dtype=torch.uint8)
            self.file.read(self.stored[0].at + begin * self.row_bytes, rows)
            yield rows

    def packed(self) -> Iterator[Packed]:
        """Yield all rows for a product, in order; in 8 bits if 4 do not hold them, exactly if blocks of 32 do."""
        if self.bits:
            yield from (Packed.of(each, self.bits) for each in self.blocks())
        else:
            yield from (Packed.of(rounded(unpacked(rows, self.kind)), 8) for rows in self.pieces())

    def blocks(self) -> Iterator[Blocks]:
        """Yield the codes of all rows, in order, with their scales and offsets. Only for a type that has `bits`."""
        return (decode(rows, self.kind) for rows in self.pieces())

    @property
    def bits(self) -> int:
        """Bits in which a product holds the codes as they are, 4 or 8; 0 if it does not."""
        return bits_of(self.kind)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the rows in a product."""
        rows, columns = self.shape
        if not self.bits:
            return packed_bytes(rows, columns, 8, coarse(columns))
        return packed_bytes(rows, columns, self.bits, GROUP, self.kind in WITH_OFFSETS)

    def weight(self, dtype: torch.dtype) -> Tensor:
        """Return the whole weight [R, C]."""
        found = torch.empty(self.shape, dtype=dtype)
        begin = 0
        for rows in self.pieces():
            unpack(rows, self.kind, found[begin : begin + len(rows)])
            begin += len(rows)
        return found


def _of_rows(view: Tensor, columns: int) -> bool:
    """Return whether a view of a contiguous matrix consists of whole rows."""
    steps = (*view.stride()[:-1], view.storage_offset())
    return view.shape[-1] == columns and view.stride(-1) == 1 and all(each % columns == 0 for each in steps)
