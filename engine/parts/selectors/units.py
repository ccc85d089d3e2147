"""InfLLM's selection beside a window: each block of queries looks up its most relevant memory units.

Tokens that leave the local window are cut into units of l_bs tokens. Of each unit the r_k tokens that mattered most to
the queries of their own window stand for it (section 2.2); a block of queries looks up the k_m units whose
representatives fit it best. All that lies beyond the window stands at one constant distance, l_L. Reading and
answering look up alike.

Queries and keys are taken as the paper writes them, as vectors of all heads together: representatives and units are
the same for all heads of a layer. Both scores are sums of dot products, so of a unit only the sum of its
representatives' keys is kept, and a block of queries is looked up by its sum.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.spec import ModelSpec
from engine.parts.archive.archive import Archive
from engine.parts.attention import Segment
from engine.parts.positions import QueryBlocks
from engine.parts.selectors.base import EMPTY
from engine.parts.selectors.beside_window import WindowSelector
from engine.parts.store import Store
from engine.parts.window import WindowStore
from engine.records import DEVICE, LoadedParts, Part, Parts, Usage
from kernels.gathering import gather_rows

FIT_BYTES = 64 << 20  # of units' keys in float32 at a time


class Units:
    """The memory units of one layer: their representatives' keys before RoPE, summed, [U, H * D]."""

    def __init__(self, shared: Tensor) -> None:
        """shared: [U, H * D], units of a context, never written."""
        self.shared = shared
        self.own = shared.new_empty(0, shared.shape[1])
        self.count = 0  # own units

    @property
    def total(self) -> int:
        """Units, shared ones included."""
        return len(self.shared) + self.count

    def reserve(self, units: int) -> None:
        """Make room for `units` own units."""
        grown = self.own.new_empty(units, self.own.shape[1])
        grown[: self.count] = self.own[: self.count]
        self.own = grown

    def append(self, rows: Tensor) -> None:
        """Add units [N, H * D]; room grows by doubling."""
        end = self.count + len(rows)
        if end > len(self.own):
            self.reserve(max(end, 2 * len(self.own), 64))
        self.own[self.count : end] = rows
        self.count = end

    def fit(self, queries: Tensor, fresh: Tensor) -> Tensor:
        """Return dot products float32 [NB, U + N] of queries [NB, H * D] with all units and N that are to be added."""
        step = max(1, FIT_BYTES // (4 * queries.shape[1]))
        every = [part for rows in (self.shared, self.own[: self.count], fresh) for part in torch.split(rows, step)]
        return torch.cat([queries.float() @ rows.float().T for rows in every], dim=1)

    def fork(self) -> Units:
        """Return units of a conversation's own behind these."""
        assert len(self.shared) == 0, "a conversation is a fork of a context, not of another conversation"
        return Units(self.own[: self.count])


class UnitSelector(WindowSelector):
    """Selects initial tokens, looked-up units and tokens that do not fill a unit yet, beside the window."""

    def __init__(
        self, spec: ModelSpec, store: WindowStore, archive: Archive, size: int, representatives: int, count: int
    ) -> None:
        """size: l_bs, tokens per unit. representatives: r_k. count: k_m, units looked up for each block of queries."""
        super().__init__(spec, store, archive)
        self.size, self.representatives, self.count = size, representatives, count
        like = torch.empty(0, dtype=spec.dtype, device=spec.device)
        self.units = [Units(like.new_empty(0, layer.kv_heads * layer.head_size)) for layer in archive.host.spec.layers]
        # r_m of the entries behind the last unit, as far as their window has passed; per layer float32 [entries]
        self.scores = [torch.zeros(0, device=spec.device) for _ in spec.layers]
        self._coming: dict[int, tuple[Tensor, Tensor]] = {}  # layer -> units and scores after this pass

    def reserve(self, tokens: int) -> None:
        """Make room for all units at once."""
        for units in self.units:
            units.reserve(tokens // self.size)

    def begin_pass(self) -> None:
        """Make the archive readable, and forget a pass that failed."""
        super().begin_pass()
        self._coming = {}

    def picks(self) -> int:
        """Return, at a second look, as many entries as all units together have."""
        return 0 if self.archive.focused is None else self.count * self.size

    def observe(self, layer: int, q: Tensor) -> None:
        """Judge the entries behind the last unit by these queries, and make the units that fill up."""
        if self.spec.layers[layer].sliding_window is None:
            scores = self._representative_scores(layer, self._summed(layer, q))
            self._coming[layer] = self._new_units(layer, scores, self._lookers().last // self.size)

    def _summed(self, layer: int, q: Tensor) -> Tensor:
        """Return queries [H, T, D], summed over the heads of a group."""
        return q.view(self.spec.layers[layer].kv_heads, -1, *q.shape[1:]).sum(dim=1)

    def _lookers(self) -> QueryBlocks:
        """Return the queries in the blocks that look units up together."""
        return self.query_blocks(self.store.query_block)

    def select(self, layer: int, q: Tensor) -> list[Segment]:
        """Return window, sinks, looked-up units and the tokens that do not fill a unit yet."""
        blocks = self._lookers()
        complete = blocks.evicted // self.size  # units that each block of queries may look up
        summed, (fresh, _) = self._summed(layer, q), self._coming[layer]
        index = torch.cat([self._look_up(layer, summed, fresh, complete), self._remainder(complete)], dim=1)
        return self.beside_window(layer, q, blocks, index, "infllm")

    def _representative_scores(self, layer: int, summed: Tensor) -> Tensor:
        """Return r_m of all entries behind the last unit, the queries of this pass counted in; float32 [entries].

        r_m is the mean of q_{m+j} . k_m over j = 1 .. l_L at true distances (section 2.2), so a pass adds one dot
        product of k_m with a difference of running sums of the queries.

        summed: [H, T, D], queries before RoPE, summed over the heads of a group.
        """
        store = self.store
        held, window = store.layers[layer], store.window
        count, fresh = summed.shape[1], store.new_sinks
        end, start = store.length + count - fresh, max(0, store.length - window)
        view = store.view(None)
        turned = held.layer.rope.rotate(summed, view.places, view.limit).float()
        running = F.pad(turned.cumsum(dim=1), (0, 0, 1, 0))
        after = torch.arange(start, end, device=summed.device) - store.length + fresh + 1  # the query after each entry
        reach = running[:, (after + window).clamp(0, count)] - running[:, after.clamp(0, count)]
        added = (reach * held.rotated[:, start:end].float()).sum(dim=(0, 2)) / window
        scores = F.pad(self.scores[layer], (0, count - fresh))
        scores[len(scores) - (end - start) :] += added
        return scores

    def _new_units(self, layer: int, scores: Tensor, complete: int) -> tuple[Tensor, Tensor]:
        """Return rows [N, H * D] of the units that fill up in this pass, and the scores behind them."""
        spec, known, size = self.spec.layers[layer], self.units[layer].total, self.size
        new = complete - known
        if new <= 0:
            return scores.new_empty(0, spec.kv_heads * spec.head_size, dtype=self.spec.dtype), scores
        best = scores[: new * size].view(new, size).topk(self.representatives, dim=1).indices
        first = torch.arange(known, complete, device=scores.device) * size
        index = (first[:, None] + best).view(1, -1).expand(spec.kv_heads, -1)
        keys = gather_rows(self.archive.host.keys(layer), index, self.spec.device, self.spec.dtype)
        grouped = keys.view(spec.kv_heads, new, -1, spec.head_size).sum(dim=2)
        return grouped.transpose(0, 1).reshape(new, -1), scores[new * size :]

    def _look_up(self, layer: int, summed: Tensor, fresh: Tensor, complete: Tensor) -> Tensor:
        """Return the entries int64 [NB, k_m * l_bs] of each block's units with the highest sim(X, B) (section 2.2)."""
        heads, _, width = summed.shape
        block = self.store.query_block
        padded = F.pad(summed, (0, 0, 0, -summed.shape[1] % block))
        # Sums over a block and its heads outgrow float16, and bfloat16 cannot tell them apart.
        total = padded.view(heads, -1, block, width).float().sum(dim=2)
        rope = self.spec.layers[layer].rope
        turned = rope.towards_kept(rope.to_constant(total, self.store.window))
        fit = self.units[layer].fit(turned.transpose(0, 1).reshape(len(complete), -1), fresh)
        number = torch.arange(fit.shape[1], device=fit.device)
        fit = fit.masked_fill(number >= complete[:, None], float("-inf"))
        best, unit = fit.topk(min(self.count, fit.shape[1]), dim=1)
        start = (unit * self.size).masked_fill(best == float("-inf"), EMPTY)
        return (start[..., None] + torch.arange(self.size, device=fit.device)).flatten(1)

    def _remainder(self, complete: Tensor) -> Tensor:
        """Return the entries int64 [NB, l_bs - 1] behind the last unit; those in the window are left out later."""
        return complete[:, None] * self.size + torch.arange(self.size - 1, device=complete.device)

    def end_pass(self) -> None:
        """Keep the units that filled up."""
        for layer, (fresh, scores) in self._coming.items():
            self.units[layer].append(fresh)
            self.scores[layer] = scores

    def usage(self, usage: Usage) -> Usage:
        """Add the units' keys, which are on the device."""
        usage = super().usage(usage)
        units = sum(rows.nbytes for units in self.units for rows in (units.shared, units.own))
        return dataclasses.replace(usage, bytes={**usage.bytes, DEVICE: usage.bytes[DEVICE] + units})

    def fork(self, store: Store, archive: Archive) -> Self:
        """Return a conversation's selector; units are shared."""
        child = super().fork(store, archive)
        child.units = [units.fork() for units in self.units]
        return child

    def snapshot(self, store: Store, archive: Archive) -> Self:
        """Return the selector as it is now; units are only ever appended to, scores replaced."""
        child = super().snapshot(store, archive)
        child.units = [copy.copy(units) for units in self.units]
        child.scores = list(self.scores)
        return child

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Return own units and the scores behind them."""
        tensors = {}
        for layer, units in enumerate(self.units):
            tensors[f"{layer}.units"] = units.own[: units.count]
            tensors[f"{layer}.scores"] = self.scores[layer]
        return {"units": Part(tensors)}, {}

    def load(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Take back own units and scores."""
        tensors = parts["units"]
        for layer, units in enumerate(self.units):
            units.append(tensors[f"{layer}.units"][:, : units.own.shape[1]].to(units.own))
            self.scores[layer] = tensors[f"{layer}.scores"].to(self.spec.device)
