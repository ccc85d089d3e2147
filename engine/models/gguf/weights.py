"""Read the weights of a GGUF file one by one, unpacked into the dtype of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import EllipsisType

import numpy as np
import torch
from gguf import quants
from torch import Tensor

from engine.errors import ModelNotFound
from engine.models.gguf.header import Stored

AT_A_TIME = 1 << 22  # weights that are read together, and unpacked into float32


@dataclass(frozen=True)
class Place:
    """The place of a weight of the network in a file."""

    sources: tuple[str, ...]  # names of the tensors in the file; one that stands here again goes on where it ended
    shape: tuple[int, ...]  # of the weight in the network
    views: Callable[[Tensor], tuple[Tensor, ...]] = lambda weight: (weight,)  # the part that each source fills
    undo: Callable[[Tensor], Tensor] | None = None  # takes back what the file's writer did to each number


class Weight:
    """A weight that transformers can read like a slice of a safetensors file."""

    def __init__(self, place: Place, tensors: Mapping[str, Stored], dtype: torch.dtype) -> None:
        self.place, self.dtype = place, dtype
        self.tensors = {name: tensors[name] for name in place.sources}

    def __getitem__(self, every: EllipsisType) -> Tensor:
        weight = torch.empty(self.place.shape, dtype=self.dtype)
        taken: Counter[str] = Counter()  # bytes of each source that earlier views got
        for name, view in zip(self.place.sources, self.place.views(weight), strict=True):
            taken[name] += fill(view, self.tensors[name], self.place.undo, taken[name])
        return weight


def fill(view: Tensor, stored: Stored, undo: Callable[[Tensor], Tensor] | None = None, begin: int = 0) -> int:
    """Copy the numbers of a tensor into a view. A few rows at a time go through float32.

    undo: takes back what the file's writer did to each number; begin: bytes of the tensor to leave out.

    Returns:
        The bytes that were read.

    Raises:
        ModelNotFound: the file has become shorter since its header was read.
    """
    view = view if view[0].numel() % stored.shape[-1] == 0 else view[None]  # a vector is one row in the file
    rows = view[0].numel() // stored.shape[-1]  # in the file, for each row of the view
    step = max(1, AT_A_TIME // view[0].numel())
    with stored.path.open("rb", buffering=0) as file:
        file.seek(stored.at + begin)
        for own in view.split(step):  # type: ignore[no-untyped-call]
            codes = np.fromfile(file, np.uint8, len(own) * rows * stored.row_bytes)
            if len(codes) < len(own) * rows * stored.row_bytes:
                raise ModelNotFound(f"{stored.path} has been cut short while it was read: fetch it anew.")
            numbers = torch.from_numpy(quants.dequantize(codes.reshape(-1, stored.row_bytes), stored.kind))
            own.copy_((undo(numbers) if undo else numbers).reshape(own.shape))
    return len(view) * rows * stored.row_bytes
