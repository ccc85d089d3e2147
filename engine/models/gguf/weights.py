"""The weights of a GGUF file, each unpacked as it is asked for, straight into the dtype that is computed in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import EllipsisType

import numpy as np
import torch
from gguf import quants
from torch import Tensor

from engine.errors import ModelNotFound
from engine.models.gguf.header import Stored

AT_A_TIME = 1 << 22  # weights that are unpacked together, in float32


@dataclass(frozen=True)
class Place:
    """How a weight of the network is made of tensors of a file.

    sources: names there; several are joined, or laid in turns, along the second to last dimension. shape: that of the
    whole. heads: rows are of so many heads, whose halves are in turns in the file; 0 for none. offset: what the file
    has added to each weight.
    """

    sources: tuple[str, ...]
    shape: tuple[int, ...]
    heads: int = 0
    offset: float = 0.0


class Weight:
    """A weight, to be read as transformers reads a tensor of a file: by its slices."""

    def __init__(self, place: Place, tensors: Mapping[str, Stored], dtype: torch.dtype) -> None:
        self.place, self.dtype = place, dtype
        self.sources = [tensors[name] for name in place.sources]

    def __getitem__(self, every: EllipsisType) -> Tensor:
        parts = [unpacked(each, self.dtype, self.place.offset) for each in self.sources]
        weight = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)
        if self.place.heads:
            turns = weight.reshape(self.place.heads, -1, 2, *weight.shape[1:])
            weight = turns.transpose(1, 2).contiguous()
        return weight.reshape(self.place.shape)


def unpacked(stored: Stored, dtype: torch.dtype, offset: float = 0.0) -> Tensor:
    """Numbers of a tensor in dtype, less the offset; a few rows at a time go through float32.

    Raises:
        ModelNotFound: the file has become shorter since its header was read.
    """
    weight = torch.empty(stored.shape, dtype=dtype)
    rows = weight.reshape(-1, stored.shape[-1])
    step = max(1, AT_A_TIME // stored.shape[-1])
    with stored.path.open("rb", buffering=0) as file:
        file.seek(stored.at)
        for begin in range(0, len(rows), step):
            own = rows[begin : begin + step]
            codes = np.fromfile(file, np.uint8, len(own) * stored.row_bytes)
            if len(codes) < len(own) * stored.row_bytes:
                raise ModelNotFound(f"{stored.path} has been cut short while it was read: fetch it anew.")
            numbers = quants.dequantize(codes.reshape(len(own), -1), stored.kind)
            own.copy_(torch.from_numpy(numbers).sub_(offset) if offset else torch.from_numpy(numbers))
    return weight
