"""Weights that were packed for products, in a file that later starts of the model map.

It is a safetensors file, written while the weights are packed. Its header says which weights they are, and has the
checksum of each tensor. What is missing, damaged or of other weights is packed anew.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import mmap
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.models.gguf.kept import Kept
from engine.models.products import Packed

log = logging.getLogger(__name__)

ENDING = ".safetensors"
UNFINISHED = ".tmp"
TYPES: dict[str, Any] = {"U8": np.uint8, "F32": np.float32}  # by their names in the file
METADATA = "__metadata__"
HEADER_OF_PIECE = 2048  # most bytes of the header for each piece of a weight
MOST_BYTES = 1 << 34  # of all files in a folder
SPARE_BYTES = 2 * 10**9  # that stay free on the disk
ABANDONED_SEC = 600  # after which nobody writes a file any more


class PackedFile:
    """The packed weights of a model: those of its file, or else packed anew and written to it."""

    def __init__(self, path: Path, stamp: str, weights: Sequence[Kept], unchanged: Callable[[], bool]) -> None:
        """Open a file, or begin to write it.

        Args:
            path: of the file, in a folder that is made if it is missing.
            stamp: of the model's file before its header was read, and of the code that packs it.
            weights: all that will be asked for.
            unchanged: whether the stamp would still be the same.
        """
        self.path, self.stamp, self._unchanged = path, stamp, unchanged
        self._found: dict[str, NDArray[Any]] = {}
        self._sums: dict[str, int] = {}
        self._mapped: mmap.mmap | None = None
        self._writer: _Writer | None = None
        self._damaged = False
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # none, damaged, or of other weights
            self._map()
        if self._mapped is None:
            with self._telling():
                self._begin(weights)

    def pieces(self, weight: Kept) -> Iterator[Packed]:
        """Yield the packed rows of a weight."""
        for number in range(weight.count if self._mapped is not None else 0):
            try:
                piece = self._piece(f"{weight.name}.{number}")
            except (KeyError, ValueError):
                self._damaged = True
                piece = next(itertools.islice(weight.packed(), number, None))
            yield piece
            self.let_go()
        for number, piece in enumerate(weight.packed() if self._mapped is None else ()):
            if self._writer is not None:
                with self._telling():
                    self._writer.add(f"{weight.name}.{number}", piece)
            yield piece

    def let_go(self) -> None:
        """Leave the pages that were read so far to the system. They are read again if they are asked for."""
        if self._mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)

    def __enter__(self) -> PackedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.let_go()
        if self._damaged:
            log.warning("%s is damaged: its weights were packed anew.", self.path)
            with suppress(OSError):
                self.path.unlink()
        if self._writer is not None and kind is None:
            with self._telling():
                if not self._unchanged():
                    raise OSError("the model's file was replaced while it was read")
                self._writer.finish()
        elif self._writer is not None:
            self._writer.drop()

    def _begin(self, weights: Sequence[Kept]) -> None:
        """Begin to write the file, in place of one that is of no use, unless another program writes it.

        Raises:
            OSError: there is too little room, or the folder cannot be written.
        """
        folder, begin = self.path.parent, 8 + HEADER_OF_PIECE * (1 + sum(each.count for each in weights))
        folder.mkdir(mode=0o700, exist_ok=True)
        for each in packed_files(folder).keys() & {self.path, self.path.with_suffix(UNFINISHED)}:
            each.unlink(missing_ok=True)
        make_room(folder, begin + sum(each.packed_bytes for each in weights))
        with suppress(FileExistsError):
            self._writer = _Writer(self.path, self.stamp, begin)

    def _map(self) -> None:
        with self.path.open("rb") as file:
            begin = 8 + int.from_bytes(file.read(8), "little")
            size = os.fstat(file.fileno()).st_size
            if begin > size:
                raise ValueError("it is cut short")
            header = json.loads(file.read(begin - 8))
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        facts = header.pop(METADATA)
        self._sums = json.loads(facts["sums"])
        if facts["stamp"] != self.stamp or int(facts["sum"]) != _sum_of(header, self._sums):
            raise ValueError("it is of other weights, or damaged")
        if not self._unchanged():  # the rest of the network may be of the new file
            raise ValueError("the model's file was replaced after its stamp was taken")
        for name, entry in header.items():
            kind, shape = TYPES[entry["dtype"]], entry["shape"]
            at = begin + entry["data_offsets"][0]
            self._found[name] = np.frombuffer(mapped, kind, math.prod(shape), at).reshape(shape)
        self._mapped = mapped
        with suppress(OSError):
            os.utime(self.path)  # what was used last is removed last

    def _piece(self, name: str) -> Packed:
        bits = 4 if f"{name}.4" in self._found else 8
        offsets = None
        if f"{name}.offsets" in self._found:
            offsets = Packed(8, self._whole(f"{name}.offsets"), self._whole(f"{name}.offset_scales"), None)
        return Packed(bits, self._whole(f"{name}.{bits}"), self._whole(f"{name}.scales"), offsets)

    def _whole(self, name: str) -> NDArray[Any]:
        found = self._found[name]
        if zlib.crc32(found.data.cast("B")) != self._sums[name]:
            raise ValueError(f"{name} is damaged")
        return found

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Give up writing the file if that fails, and say so."""
        try:
            yield
        except OSError as error:
            if self._writer is not None:
                self._writer.drop()
                self._writer = None
            reason = error.strerror or str(error)
            log.warning("The next start packs the weights anew, since %s cannot be written: %s.", self.path, reason)


class _Writer:
    """Writes tensors one by one. Space for the header is left at the beginning."""

    def __init__(self, path: Path, stamp: str, begin: int) -> None:
        """Begin a file beside the path. begin: bytes of its header.

        Raises:
            FileExistsError: another program writes it.
        """
        self.path, self.stamp, self.begin = path, stamp, begin
        self.temporary = path.with_suffix(UNFINISHED)
        self.file = self.temporary.open("xb")
        self.begun = os.fstat(self.file.fileno())
        self.file.seek(self.begin)
        self.at = 0
        self.header: dict[str, Any] = {}
        self.sums: dict[str, int] = {}

    def add(self, name: str, piece: Packed) -> None:
        """Write a piece of a weight."""
        tensors = {str(piece.bits): piece.codes, "scales": piece.scales}
        if piece.offsets is not None:
            tensors |= {"offsets": piece.offsets.codes, "offset_scales": piece.offsets.scales}
        for what, tensor in tensors.items():
            self.file.write(tensor.data.cast("B"))
            end = self.at + tensor.nbytes
            kind = "U8" if tensor.dtype == np.uint8 else "F32"
            entry = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [self.at, end]}
            self.header[f"{name}.{what}"], self.sums[f"{name}.{what}"] = entry, zlib.crc32(tensor.data.cast("B"))
            self.at = end

    def finish(self) -> None:
        """Write the header, and give the file its name, unless another program took its place meanwhile.

        A crash of the machine is found by the checksums.
        """
        facts = {"stamp": self.stamp, "sums": json.dumps(self.sums), "sum": str(_sum_of(self.header, self.sums))}
        written = json.dumps({METADATA: facts, **self.header}).encode()
        if len(written) > self.begin - 8:
            raise OSError("its header is too long")
        self.file.seek(0)
        self.file.write((self.begin - 8).to_bytes(8, "little") + written.ljust(self.begin - 8))
        own = self._is_own()
        self.file.close()
        if own:
            os.replace(self.temporary, self.path)

    def drop(self) -> None:
        """Remove what was written."""
        own = self._is_own()
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            if own:
                self.temporary.unlink()

    def _is_own(self) -> bool:
        """Return whether no other program found the file abandoned, and removed it or began one of its own."""
        with suppress(OSError):
            return os.path.samestat(self.begun, self.temporary.stat())
        return False


def _sum_of(header: dict[str, Any], sums: dict[str, int]) -> int:
    """Return the checksum of a header."""
    return zlib.crc32(json.dumps([header, sums], sort_keys=True).encode())


def make_room(folder: Path, needed: int) -> None:
    """Remove files of a folder, those used longest ago first, until they take `MOST_BYTES` with a new one.

    Raises:
        OSError: it would take more alone, or leave too little free on the disk; then none is removed.
    """
    left = sorted(packed_files(folder).items(), key=lambda each: each[1].st_mtime)
    taken, freed = sum(stat.st_size for _, stat in left), 0
    leaving: list[Path] = []
    while left and taken - freed + needed > MOST_BYTES:
        path, stat = left.pop(0)
        leaving.append(path)
        freed += stat.st_size
    if needed > min(MOST_BYTES, shutil.disk_usage(folder).free + freed - SPARE_BYTES):
        raise OSError("the disk has too little room")
    for path in leaving:
        path.unlink(missing_ok=True)


def packed_files(folder: Path) -> dict[Path, os.stat_result]:
    """Return the files of packed weights in a folder, without those that another program may be writing."""
    found = {}
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):  # another program renamed or removed it
            stat = path.stat()
            abandoned = path.suffix == UNFINISHED and time.time() - stat.st_mtime > ABANDONED_SEC
            if path.suffix == ENDING or abandoned:
                found[path] = stat
    return found
