"""The interface of a store: the entries that a memory has on the device."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from engine.models.spec import LayerSpec, ModelSpec
from engine.parts.attention import Segment
from engine.parts.mass import NOT_IN_SOURCE
from engine.records import LoadedParts, Parts, Usage
from kernels.layers import append, turn


class Positions(NamedTuple):
    """Positions of tokens of a pass, as `Rope.rows` takes them.

    Attributes:
        start: the first of consecutive ones, or int64 [T] on the device.
        limit: exclusive upper bound of those in a tensor, else None.
        key: tells them from other positions of the pass.
    """

    start: int | Tensor
    limit: int | None
    key: object


class Store(ABC):
    """Entries of all layers, on the device.

    A pass goes `begin_pass`, then `append` and `segments` once per layer, then `end_pass`. Nothing is remembered before
    `end_pass`. Between `fix` and `end_pass` the tokens of the pass (one) are at fixed addresses in shapes that do not
    change, so that the pass can be recorded.
    """

    keeps_all = False  # whether entries stay, however many there are

    def __init__(self, spec: ModelSpec) -> None:
        """Start empty, for a model like `spec`."""
        self.spec = spec
        self.seen = 0  # tokens committed since the beginning, whether still remembered or not
        self.groups: list[range] = [range(n, n + 1) for n in range(len(spec.layers))]  # numbers of a layer's slots
        self.tokens = 0  # of the pass
        self.counted = False  # whether segments of the pass say which source positions their keys have
        self.fixed = False
        self.incoming = torch.empty(0, dtype=torch.int32, device=spec.device)  # source positions of the pass [T]
        self.on_host = torch.empty(0, dtype=torch.int32)  # the same on the host
        # Results that layers of the pass share, by name and what they depend on; a recording computes them itself
        self.pass_cache: dict[Any, Any] = {}
        self._incoming_one = torch.full((1,), NOT_IN_SOURCE, dtype=torch.int32, device=spec.device)

    def reserve(self, tokens: int) -> None:
        """Prepare for a text of `tokens` tokens. May be called again for a text that goes on."""

    def begin_pass(self, source: Tensor, counted: bool) -> None:
        """Make room for a pass and forget results computed for the one before.

        Args:
            source: int32 [T] on the host, the source position of each token.
            counted: whether attention mass will be counted.
        """
        self.tokens, self.counted, self.fixed, self.pass_cache = len(source), counted, False, {}
        self.on_host = source
        self.incoming = source.to(self.spec.device, non_blocking=True)

    @property
    @abstractmethod
    def entries(self) -> int:
        """Entries that the next token can see, per KV head and layer."""

    @abstractmethod
    def addresses(self) -> tuple[int, ...]:
        """Return addresses and shapes of all that a recording reads or writes."""

    @abstractmethod
    def recordable(self) -> bool:
        """Tell whether the pass that has begun is of one token that can be kept at fixed addresses."""

    def make_room(self, tokens: int) -> None:
        """Make room for so many more tokens, so that nothing moves while they come."""

    def fix(self) -> None:
        """Put the values that depend on the position of the pass's one token into tensors at fixed addresses."""
        self.fixed = True
        self._incoming_one.copy_(self.incoming)
        self.incoming = self._incoming_one

    def write(
        self,
        layer: LayerSpec,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        at: int | Tensor,
        buffers: tuple[Tensor, Tensor, Tensor],
        positions: Positions,
    ) -> None:
        """Write keys, rotated keys and values of the pass into buffers; rotate queries of one token for `rotated`.

        Args:
            layer: that they are of.
            q: [HQ, T, D], or none of them.
            k: [H, T, D].
            v: [HV, T, D].
            at: the first row, or int64 [1] in a fixed pass.
            buffers: [H, N, D] each, for keys, rotated keys and values.
            positions: of the tokens.
        """
        asked = q if k.shape[1] == 1 else q[:0]
        turned = append(asked, k, v, *self._angles(layer, k, positions), at, *buffers)
        if len(asked):
            self.pass_cache["queries", positions.key] = q, turned

    def rotated(self, layer: LayerSpec, x: Tensor, positions: Positions) -> Tensor:
        """Rotate x [H, T, D] to positions, as `Rope.rotate` does; the table is read once a pass and not once a layer.

        What has been rotated of one token is given out again for the same x and positions.
        """
        turned: Tensor
        given, turned = self.pass_cache.get(("queries", positions.key), (None, x))
        if given is not x:
            turned = turn(x, *self._angles(layer, x, positions))
            if x.shape[-2] == 1:
                self.pass_cache["queries", positions.key] = x, turned
        return turned

    def _angles(self, layer: LayerSpec, x: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        """Return cosines and sines for x [H, T, D], looked up once a pass for layers that rotate alike."""
        known = "angles", id(layer.rope), x.dtype, x.shape[-2], positions.key
        if known not in self.pass_cache:
            self.pass_cache[known] = layer.rope.rows(positions.start, x.shape[-2], x.dtype, positions.limit)
        found: tuple[Tensor, Tensor] = self.pass_cache[known]
        return found

    @abstractmethod
    def append(self, layer: int, q: Tensor, k: Tensor, v: Tensor, importance: Tensor | None = None) -> None:
        """Write keys and values [H, T, D] of the pass, and their scores [H, T] if they have any.

        q: [HQ, T, D]. Of a pass of one token it is rotated together with the keys, for `segments`. All before RoPE.
        """

    @abstractmethod
    def segments(self, number: int, q: Tensor, offset: int = 0, sinks_for: int | None = None) -> list[Segment]:
        """Return the segments that queries attend to in slots `number`.

        Args:
            number: of the slots.
            q: [HQ, T, D], before RoPE.
            offset: tokens of the pass before these queries.
            sinks_for: how many of the first queries see the sinks, if there are any; None for all.
        """

    def evicts_from(self, number: int) -> bool:
        """Tell whether an evictor may take entries from slots `number`."""
        return False

    @abstractmethod
    def pass_rows(self, skip: int) -> tuple[list[Tensor], list[Tensor]]:
        """Return keys (before RoPE) and values of the pass for every layer, without its first `skip` tokens."""

    @abstractmethod
    def end_pass(self, novelty: Tensor | None, tokens: int) -> None:
        """Keep the first `tokens` tokens of the pass. novelty: -log p of each [T], for methods that ask for it."""

    @abstractmethod
    def position_ids(self, tokens: int) -> Tensor:
        """Return how many entries each token of the next pass may see before it, int64 [T] on the host."""

    def pass_limit(self) -> int | None:
        """Return how many tokens the next pass may carry at most, or None."""
        return None

    @abstractmethod
    def fork(self) -> Self:
        """Return a conversation's own store. Entries so far are shared and never written again."""

    def snapshot(self) -> Self:
        """Return the store as it is now, sharing all tensors."""
        return copy.copy(self)

    @abstractmethod
    def usage(self) -> Usage:
        """Return entries and bytes per tier, from the tensors themselves."""

    @abstractmethod
    def positions(self, layer: int) -> Tensor:
        """Return the source position of every entry, int32 [H, N]; -1 for entries that are not in the source."""

    @abstractmethod
    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Return tensors and JSON-able facts for `load`; of a fork, only its own entries."""

    @abstractmethod
    def load(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Restore the values saved by `state`. Called on an empty store, or on a fresh fork of the same context."""
