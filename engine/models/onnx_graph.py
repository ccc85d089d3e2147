"""Write a small graph as ONNX Runtime reads it, without the package `onnx`.

Source: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto; numbers of fields are those of its messages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TYPES = {"float32": 1, "uint8": 2, "int64": 7}  # TensorProto.DataType
IR_VERSION, OPSET = 10, 21
MICROSOFT = "com.microsoft"  # domain of ONNX Runtime's own operators
_FLOAT, _INTEGER, _INTEGERS = 1, 2, 7  # AttributeProto.AttributeType
_EXTERNAL = 1  # TensorProto.DataLocation
THIS_FILE = Path(__file__)  # ONNX Runtime wants the name of a file that exists for numbers beside a graph

Message = list[Any]  # pieces of bytes, joined once at the end so that weights are copied once


class Graph:
    """A graph of nodes. Its inputs and outputs are float32 [rows, columns], all of the same number of rows."""

    def __init__(self) -> None:
        """Begin without inputs."""
        self._fields: Message = []
        self._count = 0
        self.inputs: dict[str, int] = {}  # columns by name
        self.outputs: list[str] = []
        self.weights: dict[str, NDArray[Any]] = {}  # by name

    def input(self, columns: int) -> str:
        """Add an input, and return its name."""
        name = self._name()
        self._fields += _field(11, _tensor_type(name, columns))
        self.inputs[name] = columns
        return name

    def output(self, name: str, columns: int) -> None:
        """Make the result of a node an output."""
        self._fields += _field(12, _tensor_type(name, columns))
        self.outputs.append(name)

    def constant(self, value: NDArray[Any]) -> str:
        """Add a tensor of numbers, and return its name."""
        value = np.ascontiguousarray(value)
        return self._tensor(value, _field(9, [value.reshape(-1).data.cast("B")]))

    def weight(self, value: NDArray[Any]) -> str:
        """Add a tensor whose numbers the session is given beside the graph, and return its name."""
        location = _field(13, [*_field(1, [b"location"]), *_field(2, [THIS_FILE.name.encode()])])
        name = self._tensor(value, [*location, *_number(14, _EXTERNAL)])
        self.weights[name] = value
        return name

    def _tensor(self, value: NDArray[Any], numbers: Message) -> str:
        """Add a tensor with the fields that say where its numbers are, and return its name."""
        name = self._name()
        dims = [piece for size in value.shape for piece in _number(1, size)]
        self._fields += _field(5, [*dims, *_number(2, TYPES[str(value.dtype)]), *_field(8, [name.encode()]), *numbers])
        return name

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: int | float | list[int]) -> str:
        """Add an operation, and return the name of its output. Inputs that are left out are empty."""
        name = self._name()
        body = [piece for each in inputs for piece in _field(1, [each.encode()])]
        body += [*_field(2, [name.encode()]), *_field(4, [operator.encode()]), *_field(7, [domain.encode()])]
        for key, value in attributes.items():
            body += _field(5, [*_field(1, [key.encode()]), *_value(value)])
        self._fields += _field(1, body)
        return name

    def model(self) -> bytes:
        """Return the model."""
        versions = [(b"", OPSET), (MICROSOFT.encode(), 1)]
        opsets = [
            piece for domain, number in versions for piece in _field(8, [*_field(1, [domain]), *_number(2, number)])
        ]
        graph = _field(7, [*self._fields, *_field(2, [b"graph"])])
        return b"".join([*_number(1, IR_VERSION), *graph, *opsets])

    def _name(self) -> str:
        self._count += 1
        return f"n{self._count}"


def _varint(value: int) -> bytes:
    """Return an integer, seven bits a byte, the lowest first."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _number(field: int, value: int) -> Message:
    return [_varint(field << 3), _varint(value)]


def _field(field: int, message: Message) -> Message:
    """Return a field that holds a text, bytes or another message."""
    return [_varint(field << 3 | 2), _varint(sum(len(piece) for piece in message)), *message]


def _value(value: int | float | list[int]) -> Message:
    if isinstance(value, float):
        return [_varint(2 << 3 | 5), np.float32(value).tobytes(), *_number(20, _FLOAT)]
    if isinstance(value, list):
        return [*(piece for each in value for piece in _number(8, each)), *_number(20, _INTEGERS)]
    return [*_number(3, value), *_number(20, _INTEGER)]


def _tensor_type(name: str, columns: int) -> Message:
    """Describe a float32 tensor of any number of rows."""
    rows = _field(1, _field(2, [b"rows"]))
    shape = _field(2, [*rows, *_field(1, _number(1, columns))])
    return [*_field(1, [name.encode()]), *_field(2, _field(1, [*_number(1, TYPES["float32"]), *shape]))]
