"""Read the header of a GGUF file: the facts about the model, and the places of its tensors.

Every count, length and size is checked against the size of the file before anything is allocated. So a file that is
damaged, or made to do harm, is refused with a sentence. The package `gguf` trusts a header.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import functools
import math
import mmap
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.errors import ModelNotFound, UnsupportedModel
from engine.models.load_errors import refuse_pointers

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # by value type
STRING, ARRAY = 8, 9  # the other two value types
ALIGNMENT = 32  # if general.alignment is missing
MOST_DIMENSIONS = 4
MOST_ENTRIES = 20_000  # facts, or tensors; the largest models have some thousands
MOST_VALUES = 1 << 21  # of all lists together; the largest vocabulary has 262,144 tokens and 514,906 merges
MOST_PARTS = 1_000  # files of a model
MOST_NAME = 63  # bytes of a tensor's or an architecture's name, as in llama.cpp
SHOWN = 80  # letters of any other name or value that a message shows
BLOCK = re.compile(r"^blk\.(\d{1,6})\.")
SMALLEST_FACT, SMALLEST_TENSOR = 13, 32  # least bytes of an entry
PART = re.compile(r"^(?P<name>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")  # the name of one of several files

Type = GGMLQuantizationType
FLOATS = frozenset({Type.F32, Type.F16, Type.BF16})
BLOCKS = frozenset(
    {
        *(Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1),
        *(Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K),
        *(Type.IQ1_S, Type.IQ1_M, Type.IQ2_XXS, Type.IQ2_XS, Type.IQ2_S, Type.IQ3_XXS, Type.IQ3_S),
        *(Type.IQ4_NL, Type.IQ4_XS, Type.TQ1_0, Type.TQ2_0, Type.MXFP4, Type.NVFP4),
    }
)


@dataclass(frozen=True)
class Stored:
    """A tensor in a file."""

    path: Path
    at: int  # bytes from the beginning of the file
    kind: GGMLQuantizationType
    shape: tuple[int, ...]  # as in torch, rows first

    @property
    def row_bytes(self) -> int:
        """Bytes of a row; no block reaches across rows."""
        weights, size = GGML_QUANT_SIZES[self.kind]
        return self.shape[-1] // weights * size

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape[:-1]) * self.row_bytes


@dataclass(frozen=True, eq=False)
class Header:
    """The header of a model's file or files."""

    path: Path  # of the first file
    facts: dict[str, Any]  # metadata by key, arrays as lists
    tensors: dict[str, Stored]  # of all files, by name

    @property
    def architecture(self) -> str:
        """Name of the architecture in llama.cpp."""
        return str(self.facts["general.architecture"])

    @functools.cached_property
    def widest(self) -> int:
        """Largest dimension of any tensor."""
        return max((width for stored in self.tensors.values() for width in stored.shape), default=0)

    @functools.cached_property
    def blocks(self) -> int:
        """Number of layers that have tensors."""
        return len({block[1] for name in self.tensors if (block := BLOCK.match(name))})

    def get(self, key: str, default: Any = None) -> Any:
        """Return a fact of this architecture: "block_count" is llama.block_count."""
        return self.facts.get(f"{self.architecture}.{key}", default)


def is_gguf(source: str | Path) -> bool:
    """Return whether a source is a file or named like one, and no folder or hub id."""
    return Path(source).is_file() or (str(source).lower().endswith(".gguf") and not Path(source).is_dir())


def read_header(source: str | Path) -> Header:
    """Return the header of a model's file, or of all its files if there are several; source: any of them.

    Raises:
        ModelNotFound: there is no such file, it is no GGUF file, it is damaged, or a part is missing.
        UnsupportedModel: a version or a type of weights that is not read.
    """
    stamps = tuple((path, stat.st_size, stat.st_mtime_ns, stat.st_ino) for path, stat in _stats(parts_of(source)))
    return _read(stamps)


def parts_of(source: str | Path) -> list[Path]:
    """Return all files of a model, in order. source: any of them.

    Raises:
        ModelNotFound: one is not there.
    """
    path = Path(source)
    named = PART.match(path.name)
    count = int(named["count"]) if named else 1
    if count > MOST_PARTS:
        raise ModelNotFound(f"'{source}' is one of {count:,} files by its name: no model has more than {MOST_PARTS:,}.")
    if not named or count <= 1:
        paths = [path]
    else:
        paths = [path.with_name(f"{named['name']}-{each:05}-of-{count:05}.gguf") for each in range(1, count + 1)]
    missing = [each for each in paths if not each.is_file()]
    if missing and len(paths) == 1:
        raise ModelNotFound(
            f"There is no model at '{source}': give a folder with config.json, a .gguf file or a hub id."
        )
    if missing:
        raise ModelNotFound(f"The model at '{source}' is incomplete: fetch {missing[0].name}, which is a part of it.")
    refuse_pointers(paths)
    return paths


def _stats(paths: list[Path]) -> list[tuple[Path, os.stat_result]]:
    return [(path, path.stat()) for path in paths]


@functools.lru_cache(maxsize=2)  # loading asks for the header several times, and reading it takes a second
def _read(stamps: tuple[tuple[Path, int, int, int], ...]) -> Header:
    first, *others = [_Bytes(path).header() for path, *_ in stamps]
    tensors = dict(first.tensors)
    for other in others:
        if twice := sorted(tensors.keys() & other.tensors.keys()):
            raise ModelNotFound(f"{other.path} is damaged, fetch it anew: {twice[0]} is in another part as well.")
        tensors |= other.tensors
    architecture = first.facts.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelNotFound(f"{first.path} does not say what model it is: it has no general.architecture.")
    if len(architecture) > MOST_NAME:
        raise ModelNotFound(f"{first.path} does not say what model it is, but {architecture:.{SHOWN}}: fetch it anew.")
    return Header(first.path, first.facts, tensors)


class _Bytes:
    """Reads the bytes of a file from its beginning."""

    def __init__(self, path: Path) -> None:
        self.path, self.at, self.values_left = path, 0, MOST_VALUES
        self.size = path.stat().st_size

    def header(self) -> Header:
        """Read and check the whole header.

        Raises:
            ModelNotFound, UnsupportedModel: see `read_header`.
        """
        with self.path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ModelNotFound(f"{self.path} is no GGUF file: give a folder with config.json, or a .gguf file.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as self.bytes:
                return self._header()

    def _header(self) -> Header:
        self.at = len(MAGIC)
        (version,) = self._unpack("I")
        if version not in VERSIONS:
            raise UnsupportedModel(
                f"{self.path} is of version {version} of GGUF, or of another byte order: only versions "
                f"{' and '.join(map(str, VERSIONS))}, in little-endian order, are read. Fetch a newer file."
            )
        tensor_count, fact_count = self._unpack("QQ")
        self._require(fact_count * SMALLEST_FACT + tensor_count * SMALLEST_TENSOR, "entries")
        if max(tensor_count, fact_count) > MOST_ENTRIES:
            raise self._damaged(f"it says that it has {fact_count:,} facts and {tensor_count:,} tensors")
        facts: dict[str, Any] = {}
        for _ in range(fact_count):
            key = self._string()
            if key in facts:
                raise self._damaged(f"it says {key:.{SHOWN}} twice")
            facts[key] = self._value(*self._unpack("I"))
        entries = {}
        for _ in range(tensor_count):
            name = self._string()
            if len(name) > MOST_NAME:
                raise self._damaged(f"a tensor has a name of {len(name):,} letters: {name:.{SHOWN}}")
            if name in entries:
                raise self._damaged(f"it has {name} twice")
            entries[name] = self._entry(name)
        alignment = facts.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._damaged(f"its alignment is {alignment}")
        begin = math.ceil(self.at / alignment) * alignment
        tensors = {name: self._placed(name, begin, *entry) for name, entry in entries.items()}
        return Header(self.path, facts, tensors)

    def _entry(self, name: str) -> tuple[tuple[int, ...], int, int]:
        """Read the shape, type and offset of a tensor."""
        (dimensions,) = self._unpack("I")
        if not 1 <= dimensions <= MOST_DIMENSIONS:
            raise self._damaged(f"{name} has {dimensions} dimensions")
        shape = self._unpack(f"{dimensions}Q")
        kind, offset = self._unpack("IQ")
        return tuple(reversed(shape)), kind, offset

    def _placed(self, name: str, begin: int, shape: tuple[int, ...], kind: int, offset: int) -> Stored:
        """Return a tensor after checking that it lies within the file."""
        known = {each.value for each in FLOATS | BLOCKS}
        if kind not in known:
            named = Type(kind).name if kind in set(Type) else f"type {kind}"
            readable = ", ".join(sorted(each.name for each in FLOATS | BLOCKS))
            raise UnsupportedModel(f"{name} in {self.path} is in {named}, which is not read: choose one of {readable}.")
        stored = Stored(self.path, begin + offset, Type(kind), shape)
        if math.prod(shape) < 1 or shape[-1] % GGML_QUANT_SIZES[stored.kind][0]:
            raise self._damaged(f"{name} has the shape {list(shape)}, which {stored.kind.name} does not allow")
        if stored.at + stored.nbytes > self.size:
            raise self._damaged(f"{name} would end at byte {stored.at + stored.nbytes:,}, and it has {self.size:,}")
        return stored

    def _value(self, kind: int) -> Any:
        if kind in SCALARS:
            (value,) = self._unpack(SCALARS[kind])
            return value
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            raise self._damaged(f"it has a value of type {kind}, which there is not")
        inner, count = self._unpack("IQ")
        if inner in SCALARS:
            self._require(count * struct.calcsize(f"<{SCALARS[inner]}"), "values")
            self._take(count)
            return list(self._unpack(f"{count}{SCALARS[inner]}"))
        if inner != STRING:
            raise self._damaged(f"it has a list of values of type {inner}, which is not read")
        self._require(count * struct.calcsize("<Q"), "strings")
        self._take(count)
        return [self._string() for _ in range(count)]

    def _string(self) -> str:
        (length,) = self._unpack("Q")
        self._require(length, "characters")
        self.at += length
        try:
            return self.bytes[self.at - length : self.at].decode()
        except UnicodeDecodeError:
            raise self._damaged(f"what begins at byte {self.at - length:,} is no text") from None

    def _unpack(self, form: str) -> tuple[Any, ...]:
        size = struct.calcsize(f"<{form}")
        self._require(size, "numbers")
        self.at += size
        return struct.unpack_from(f"<{form}", self.bytes, self.at - size)

    def _require(self, count: int, what: str) -> None:
        """Raise ModelNotFound unless at least `count` bytes follow."""
        if count > self.size - self.at:
            raise self._damaged(f"its {what} from byte {self.at:,} on would go beyond its end, at {self.size:,}")

    def _take(self, count: int) -> None:
        """Raise ModelNotFound if this list has more values than all lists may have together."""
        self.values_left -= count
        if self.values_left < 0:
            raise self._damaged(f"its lists have more than {MOST_VALUES:,} values")

    def _damaged(self, cause: str) -> ModelNotFound:
        return ModelNotFound(f"{self.path} is damaged or cut short, fetch it anew: {cause}.")
