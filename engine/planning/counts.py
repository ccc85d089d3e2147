"""Count what a layer asks of a GPU in a pass: kernels of PyTorch, and launches of the engine's own kernels.

The figures are those of `tests/engine/counting.py`, which counts them on a simulated device; a test compares the two.
They are the same for all sizes of a model.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.methods.base import Method

LAYER = 115.0  # small operations that take the host as long as the Python of a layer and of its packed weights
VIEWED = 1.55  # small operations that a kernel of PyTorch takes the host, with the views around it
LAUNCHED = 4.0  # the same for a launch of one of the engine's kernels
LINEAR = 4  # kernels of a layer that multiply with its weights; the time of those is counted by their bytes


@dataclass(frozen=True)
class Requests:
    """Requests of one layer in one pass. kernels: of PyTorch; launches: of the engine's kernels."""

    kernels: int
    launches: int

    @property
    def host_operations(self) -> float:
        """Small operations that take the host as long as this layer."""
        return LAYER + VIEWED * self.kernels + LAUNCHED * self.launches

    @property
    def nodes(self) -> int:
        """Kernels in a recording, without those that multiply with the layer's weights."""
        return self.kernels + self.launches - LINEAR


@dataclass(frozen=True)
class Counts:
    """Requests of a method's passes: of reading, and of a token of an answer, by itself or recorded."""

    reading: Requests
    token: Requests
    recorded: Requests


TRUNCATE = Counts(Requests(8, 6), Requests(9, 7), Requests(7, 7))
LOCRET = Counts(Requests(25, 7), Requests(15, 6), Requests(13, 7))  # with the condensing between two passes
STREAMING = Counts(Requests(9, 9), Requests(8, 10), Requests(8, 11))
INFINITEHIP = Counts(Requests(130, 20), Requests(13, 11), Requests(13, 11))
RECALL = Counts(Requests(25, 8), Requests(22, 11), Requests(20, 11))
SKETCHED = Counts(Requests(16, 11), Requests(46, 17), Requests(40, 16))
EXACT = Counts(Requests(9, 9), Requests(37, 17), Requests(30, 16))
INFLLM = Counts(Requests(52, 12), Requests(35, 11), Requests(39, 12))
BY_NAME = {"streaming": STREAMING, "infinitehip": INFINITEHIP, "recall": RECALL, "infllm": INFLLM}


def counts_of(method: Method) -> Counts:
    """Return the requests of a method's passes. Methods that condense are like `locret`, others like `truncate`."""
    if method.budget is None:
        return TRUNCATE
    if method.name == "exact":
        return EXACT if method.settings()["sketch"] == "none" else SKETCHED
    condensing = method.family == "condensing" or method.name in ("knorm", "tova")
    return BY_NAME.get(method.name, LOCRET if condensing else TRUNCATE)
