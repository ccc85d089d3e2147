"""Read the weights of a GGUF file one by one, unpacked into the dtype of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """The place of a weight of the network in a file."""

    sources: tuple[str, ...]  # names of the tensors in the file
    shape: tuple[int, ...]  # of the weight in the network
    views: Callable[[Tensor], tuple[Tensor, ...]] = lambda weight: (weight,)  # the part that each source fills
    offset: float = 0.0  # that the file has added to each number


class Weight:
    """A weight that transformers can read like a slice of a safetensors file."""

    def __init__(self, place: Place, tensors: Mapping[str, Stored], dtype: torch.dtype) -> None:
        self.place, self.dtype = place, dtype
        self.sources = [tensors[name] for name in place.sources]

    def __getitem__(self, every: EllipsisType) -> Tensor:
        weight = torch.empty(self.place.shape, dtype=self.dtype)
        for stored, view in zip(self.sources, self.place.views(weight), strict=True):
            fill(view, stored, self.place.offset)
        return weight


def fill(view: Tensor, stored: Stored, offset: float = 0.0) -> None:
    """Copy the numbers of a tensor, less the offset, into a view. A few rows at a time go through float32.

    Raises:
        ModelNotFound: the file has become shorter since its header was read.
    """
    view = view if view.dim() > 1 else view[None]
    rows = view[0].numel() // stored.shape[-1]  # in the file, for each row of the view
    step = max(1, AT_A_TIME // view[0].numel())
    with stored.path.open("rb", buffering=0) as file:
        file.seek(stored.at)
        for own in view.split(step):  # type: ignore[no-untyped-call]
            codes = np.fromfile(file, np.uint8, len(own) * rows * stored.row_bytes)
            if len(codes) < len(own) * rows * stored.row_bytes:
                raise ModelNotFound(f"{stored.path} has been cut short while it was read: fetch it anew.")
            numbers = torch.from_numpy(quants.dequantize(codes.reshape(-1, stored.row_bytes), stored.kind))
            own.copy_((numbers - offset if offset else numbers).reshape(own.shape))
