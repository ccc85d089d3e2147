"""The base of all selectors, and the selection that each query makes by itself."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

from torch import Tensor

from engine.models.spec import LayerSpec, ModelSpec
from engine.parts.archive.archive import Archive
from engine.parts.archive.search import Found, best_by_all_sketches, best_of_room, within
from engine.parts.attention import PerQueryKeys, Segment
from engine.parts.positions import SearchedPlaces
from engine.parts.selectors.stages import Pruning
from engine.parts.store import Store
from engine.records import LoadedParts, Parts, Usage
from kernels.gathering import gather_rows
from kernels.rows import Slabs

NOTHING_FAR = -1  # the kind of recording of a token that sees all there is without selecting
SELECTED_BYTES = 256 << 20  # room for the entries that the queries of a pass select, each by itself
ON_GPU = 4  # times as much of it there, where each pass of a question has all keys sent once more


def selecting_queries(spec: ModelSpec, top: int) -> int:
    """Return for how many queries of a pass `top` entries each fit SELECTED_BYTES."""
    room = SELECTED_BYTES * (ON_GPU if spec.device.type == "cuda" else 1)
    return max(1, room // selected_bytes(spec, top))


def selected_bytes(spec: ModelSpec, top: int) -> int:
    """Return the bytes of `top` entries that a query of each head selects.

    Counted are keys before, during and after RoPE, its cosines and sines, values and logits. Keys that attention takes
    in float32 need less, since the others are gone by then.
    """
    each = max(layer.query_heads * (5 * layer.head_size * spec.dtype.itemsize + 24) for layer in spec.layers)
    return max(1, top) * each


def selected_in_pass(spec: ModelSpec, top: int, chunk: int) -> int:
    """Return the bytes of the entries that queries of a pass of up to `chunk` tokens select."""
    return min(chunk, selecting_queries(spec, top)) * selected_bytes(spec, top)


class Selector(ABC):
    """Chooses which entries of an archive the queries of a pass attend to, beside those of the store."""

    counts_parts = False  # whether attention of the last queries of a pass can be told from that of others

    def __init__(self, spec: ModelSpec, store: Store, archive: Archive) -> None:
        """Select from this archive, beside this store."""
        self.spec, self.store, self.archive = spec, store, archive
        self.pruning: Pruning | None = None  # the stages of methods that prune
        self._probed = False  # whether the pass compares its token with `Archive.probes`

    def reserve(self, tokens: int) -> None:
        """Learn how many tokens the text has."""
        self.archive.reserve(tokens)

    def begin_pass(self) -> None:
        """Make the entries readable that the pass may look up. The store has begun the pass."""

    def _begin_pruning(self, far: bool) -> None:
        """Begin a pass of the stages, if there are any. far: whether entries can be pruned."""
        if self.pruning:
            self._probed = self.store.tokens == 1 and far and self.archive.probed()
            self.pruning.begin(self.archive.answering and self.store.tokens == 1)

    def slabs(self, layer: int) -> tuple[Slabs, Slabs]:
        """Return keys and values of the archive; in a fixed pass, all rows that there is room for."""
        return self.archive.host.whole(layer) if self.store.fixed else self.archive.slabs(layer)

    def pass_limit(self) -> int | None:
        """Return how many tokens the next pass may carry at most, or None."""
        return None

    def observe(self, layer: int, q: Tensor) -> None:
        """Take the queries [HQ, T, D] of a pass, before RoPE, whose entries the store has."""

    @abstractmethod
    def segments(self, layer: int, q: Tensor, catalyst: bool = False) -> list[Segment]:
        """Return the store's segments, and beside them the selected entries.

        q: [HQ, T, D], before RoPE. catalyst: whether these are the tokens of a catalyst.
        """

    def watches(self, layer: int) -> bool:
        """Tell whether `attended` needs the attention of this pass's queries."""
        return False

    def attended(self, layer: int, attention: list[Tensor]) -> None:
        """Take the attention per key, [HQ, NB, N], of each of `segments`."""

    def positions(self) -> Tensor | None:
        """Return the source positions of all entries, int32 [N], where all heads have the same; else None."""
        return None

    @abstractmethod
    def before_end(self) -> None:
        """Add the pass to the archive, before the store keeps it."""

    def _archive_pass(self, skip: int) -> None:
        """Add the pass to the archive, without its first `skip` tokens."""
        self.archive.append(*self.store.pass_rows(skip), self.store.on_host[skip:])

    def end_pass(self) -> None:
        """Keep the selector's part of the pass. Store and archive have kept theirs."""
        if self.pruning:
            self.pruning.end_pass(self.store.fixed)

    def after_evict(self) -> None:
        """Learn that entries have been evicted from the store."""

    @abstractmethod
    def num_evicted(self) -> int:
        """Return how many entries of the archive the next token does not see without looking them up."""

    def graph_kinds(self) -> Sequence[int]:
        """Return the kinds of recordings that passes of one token need, first that of the pass that has begun.

        There are none if it cannot be recorded.
        """
        return ()

    def as_if(self, kind: int) -> AbstractContextManager[None]:
        """Let passes inside the block be of this kind, and choose nothing for good."""
        return self.pruning.restarting_at(kind) if self.pruning else nullcontext()

    def make_room(self, tokens: int) -> None:
        """Make room for so many more tokens, so that nothing moves while they come."""

    def graph_key(self) -> tuple[int, ...]:
        """Return the addresses and shapes that a recording depends on."""
        source: tuple[int, ...] = ()
        if self.store.counted and self.spec.device.type != "cpu":
            # Brought up to date here, so that the pass fetches nothing.
            source = (self.archive.host.source_on_device(self.spec.device).data_ptr(),)
        return (*self.archive.host.addresses(), *source)

    def _pruning_key(self) -> tuple[int, ...]:
        """Return addresses of copies of keys and of the stages' choices, for which it makes room."""
        if self.pruning is None:
            return ()
        self.pruning.make_room(self.archive.room)
        near = self.archive.probes.addresses() if self._probed and self.archive.probes else ()
        return (*near, *self.pruning.graph_key())

    def fix(self) -> None:
        """Put the values that depend on the position of the pass's one token into tensors at fixed addresses."""

    def fork(self, store: Store, archive: Archive) -> Self:
        """Return a conversation's selector, for forks of store and archive."""
        child = self.snapshot(store, archive)
        child.pruning = self.pruning and self.pruning.fork()
        return child

    def snapshot(self, store: Store, archive: Archive) -> Self:
        """Return the selector as it is now, for snapshots of store and archive."""
        child = copy.copy(self)
        child.store, child.archive = store, archive
        child.pruning = self.pruning and self.pruning.snapshot()
        return child

    def usage(self, usage: Usage) -> Usage:
        """Add the selector's tensors on the device, and how often each stage of pruning ran."""
        return dataclasses.replace(usage, stages=tuple(self.pruning.runs)) if self.pruning else usage

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Return tensors and JSON-able facts for `load`."""
        return {}, {}

    def load(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Restore the values saved by `state`."""


def searched(
    archive: Archive,
    layer: int,
    q: Tensor,
    turned: Tensor,
    top: int,
    limits: Tensor,
    lookup: Tensor | None = None,
    places: SearchedPlaces | None = None,
    fixed: bool = False,
) -> tuple[PerQueryKeys, Tensor]:
    """Search the archive for the `top` best entries of each query of each head, all at one distance.

    Args:
        archive: that is searched.
        layer: number of the layer.
        q: [HQ, T, D], before RoPE.
        turned: the same at the distance at which they search.
        top: entries wanted.
        limits: `limits` of `HostTier.search`; in a fixed pass `late` of `best_of_room`, of sketches if there are any.
        lookup: `among` of `HostTier.search`; not in a fixed pass.
        places: positions at which queries attend to what they have found; None for the same distance.
        fixed: whether one token passes in constant shapes.

    Returns:
        The selected keys, and the numbers of the entries, int64 [HQ, T, K], where the queries are.
    """
    host, spec = archive.host, archive.host.spec.layers[layer]
    towards = spec.rope.towards_kept(turned)
    if not fixed:
        keys, values = (within(slabs, max(1, int(limits[-1]))) for slabs in archive.slabs(layer))
        found = host.search(layer, towards, limits, top, lookup)
    else:
        keys, values = host.whole(layer)
        if host.sketch is None:
            found = best_of_room(keys, towards, limits, top)
        else:
            found = best_by_all_sketches(host.sketch, layer, keys, towards, limits, top)
    turned = turned if places is None else places.rotate_queries(spec.rope, q)
    return gathered(spec, turned, keys, values, found, places), found.entries


def gathered(
    layer: LayerSpec, q: Tensor, keys: Slabs, values: Slabs, found: Found, places: SearchedPlaces | None = None
) -> PerQueryKeys:
    """Gather the keys and values that each query selected, with keys rotated to their positions.

    q: [HQ, T, D], rotated. places: positions of the keys; None for 0.
    """
    rows, shape = found.entries.reshape(keys[0][0].shape[0], -1), (*found.entries.shape, q.shape[2])
    k = gather_rows(keys, rows, q.device, q.dtype).view(shape) if found.keys is None else found.keys
    v = k if layer.latent else gather_rows(values, rows, q.device, q.dtype).view(shape)
    # At position 0 rotation is the identity (or a scale).
    k = layer.rope.to_constant(k, 0) if places is None else places.rotate_keys(layer.rope, k, found.entries)
    return PerQueryKeys(q, k, v, found.held)
