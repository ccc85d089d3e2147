"""InfLLM's selection beside a window: each block of queries looks up its most relevant memory units.

Tokens that leave the local window are cut into units of l_bs tokens. Of each unit the r_k tokens that mattered most to
the queries of their own window stand for it (section 2.2); a block of queries looks up the k_m units whose
representatives fit it best. All that lies beyond the window stands at one constant distance, l_L. Reading and
answering look up alike.

A recorded pass always writes the unit that fills up next, into the row behind the others, where it is seen once it is
full.

By `PRODUCTS`, queries and keys are taken as the paper writes them, as vectors of all heads together: representatives
are those with the highest mean dot product with the queries of their window, the same for all heads of a layer.

By `PROBABILITIES`, representatives are chosen as in the authors' code: each query head takes its own, those that its
softmax gave most while they were in the window. That softmax is the one that the pass attends with. So a pass is one
block of queries: the units that it looks up were judged by the blocks before it. No such pass is recorded.

A look-up sums dot products, so of a unit only the sum of its representatives' keys is kept, and a block of queries is
looked up by its sum.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.spec import LayerSpec, ModelSpec
from engine.parts.archive.archive import Archive
from engine.parts.attention import Segment
from engine.parts.positions import QueryBlocks
from engine.parts.selectors.beside_window import WindowSelector
from engine.parts.selectors.stages import EMPTY
from engine.parts.selectors.unit_keys import FixedUnits, Units
from engine.parts.store import Store
from engine.parts.window import WindowStore
from engine.records import DEVICE, LoadedParts, Part, Parts, Usage
from kernels.gathering import gather_rows
from kernels.rows import Slabs

PRODUCTS, PROBABILITIES = "products", "probabilities"
SCORES = (PRODUCTS, PROBABILITIES)


def unit_heads(layer: LayerSpec, scores: str) -> int:
    """Return how many heads have a key in every unit. scores: one of `SCORES`."""
    return layer.kv_heads if scores == PRODUCTS else layer.query_heads


class UnitSelector(WindowSelector):
    """Selects initial tokens, looked-up units and tokens that do not fill a unit yet, beside the window."""

    def __init__(
        self,
        spec: ModelSpec,
        store: WindowStore,
        archive: Archive,
        size: int,
        representatives: int,
        count: int,
        scores: str = PRODUCTS,
    ) -> None:
        """Look units up beside this store.

        Args:
            spec: sizes of the model.
            store: sinks and window.
            archive: everything that has been read.
            size: l_bs, tokens per unit.
            representatives: r_k.
            count: k_m, units looked up for each block of queries.
            scores: one of `SCORES`.
        """
        super().__init__(spec, store, archive, extend_always=True)
        self.size, self.representatives, self.count = size, representatives, count
        self.by_head = scores == PROBABILITIES
        like = torch.empty(0, dtype=spec.dtype, device=spec.device)
        every = archive.host.spec.layers
        self.units = [Units(like.new_empty(0, unit_heads(layer, scores) * layer.head_size)) for layer in every]
        looking = [number for number, layer in enumerate(spec.layers) if layer.sliding_window is None]
        self._row = {layer: row for row, layer in enumerate(looking)}  # of `scores`
        # Of the entries behind the last unit, as far as their window has passed; replaced, never changed. By head
        # [layers, HQ, entries], else r_m [layers, entries].
        heads = {spec.layers[layer].query_heads for layer in looking} if self.by_head else set()
        assert len(heads) <= 1, "the scores of all layers are kept in one tensor"
        self.scores = torch.zeros(len(looking), *heads, 0, device=spec.device)
        self._coming: dict[int, tuple[Tensor, Tensor]] = {}  # layer -> units and scores after this pass
        self._fixed: dict[int, FixedUnits] = {}  # by the buffer's capacity
        self._filled = False  # whether a unit fills up in the fixed pass

    def reserve(self, tokens: int) -> None:
        """Make room for all units at once."""
        super().reserve(tokens)
        for units in self.units:
            units.reserve(tokens // self.size)

    @property
    def _counted(self) -> tuple[int, int]:
        """Own units, and those of the context with them; the same in all layers that look far."""
        return next(((self.units[layer].count, self.units[layer].total) for layer in self._row), (0, 0))

    def begin_pass(self) -> None:
        """Make the archive readable, and forget a pass that failed."""
        super().begin_pass()
        self._coming = {}

    def picks(self) -> int:
        """Return, at a second look, as many entries as all units together have."""
        return 0 if self.archive.focused is None else self.count * self.size

    def observe(self, layer: int, q: Tensor) -> None:
        """Judge the entries behind the last unit by these queries, and make the units that fill up."""
        super().observe(layer, q)
        if layer not in self._row:
            return
        if self.store.fixed:
            self._observe_fixed(layer, q)
        else:
            scores = self._known_scores(layer, q) if self.by_head else self._representative_scores(layer, q)
            self._coming[layer] = self._new_units(layer, scores, self._lookers().last // self.size)

    def _summed(self, layer: int, q: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Return queries [H, T, D], summed over the heads of a group."""
        return q.view(self.spec.layers[layer].kv_heads, -1, *q.shape[1:]).sum(dim=1, dtype=dtype)

    def _known_scores(self, layer: int, q: Tensor) -> Tensor:
        """Return the scores of each head until now, with room for the entries of this pass; float32 [HQ, entries]."""
        return F.pad(self.scores[self._row[layer]], (0, q.shape[1] - self.store.new_sinks))

    def _lookers(self) -> QueryBlocks:
        """Return the queries in the blocks that look units up together."""
        return self.query_blocks(self.store.query_block)

    def select(self, layer: int, q: Tensor) -> list[Segment]:
        """Return window, sinks, looked-up units and the tokens that do not fill a unit yet."""
        blocks, shared = self._lookers(), self.store.pass_cache
        if "complete" not in shared:
            fixed = self._fixed[self.store.layers[0].capacity] if self.store.fixed else None
            # Units that each block of queries may look up
            shared["complete"] = blocks.evicted // self.size if fixed is None else fixed.facts[:1]
            shared["inside"] = torch.arange(self.size, device=q.device)
            # Entries behind the last unit; those in the window are left out later
            shared["rest"] = shared["complete"][:, None] * self.size + shared["inside"][:-1]
        fresh = None if self.store.fixed else self._coming[layer][0]
        index = torch.cat([self._look_up(layer, q, fresh), shared["rest"]], dim=1)
        return self.beside_window(layer, q, blocks, index, "infllm")

    def _products(self, layer: int, q: Tensor, keys: Tensor) -> Tensor:
        """Return dot products float32 [N] of the query of one token with rotated keys [H, N, D], heads together."""
        held, view = self.store.layers[layer], self.store.view(None)
        turned = self.store.rotated(held.layer, q, view.in_window)
        summed = self._summed(layer, turned, torch.promote_types(q.dtype, torch.float32))
        return (summed @ keys.to(summed.dtype).transpose(1, 2)).sum(dim=0)[0]

    def _representative_scores(self, layer: int, q: Tensor) -> Tensor:
        """Return r_m of all entries behind the last unit, the queries of this pass counted in; float32 [entries].

        r_m is the mean of q_{m+j} . k_m over j = 1 .. l_L at true distances (section 2.2), so a pass adds one dot
        product of k_m with a difference of running sums of the queries.

        q: [HQ, T, D], before RoPE.
        """
        store = self.store
        held, window = store.layers[layer], store.window
        count, fresh = q.shape[1], store.new_sinks
        end, start = store.length + count - fresh, max(0, store.length - window)
        scores = F.pad(self.scores[self._row[layer]], (0, count - fresh))
        first = len(scores) - (end - start)
        if count == 1:  # the window before it hears one query
            heard = self._products(layer, q, held.rotated[:, start : store.length])
            scores[first : first + len(heard)] += heard * (1 / window)
            return scores
        view, summed = store.view(None), self._summed(layer, q)
        turned = store.rotated(held.layer, summed, view.in_window).float()
        running = F.pad(turned.cumsum(dim=1), (0, 0, 1, 0))
        after = torch.arange(start, end, device=q.device) - store.length + fresh + 1  # the query after each entry
        reach = running[:, (after + window).clamp(0, count)] - running[:, after.clamp(0, count)]
        scores[first:] += (reach * held.rotated[:, start:end].float()).sum(dim=(0, 2)) / window
        return scores

    def _observe_fixed(self, layer: int, q: Tensor) -> None:
        """Judge the entries in the window, and write the next unit, which is seen once it is full."""
        held, row, units = self.store.layers[layer], self._row[layer], self.units[layer]
        fixed = self._fixed[held.capacity]
        torch.mul(self._products(layer, q, held.rotated), fixed.share, out=fixed.added[row, :-1])
        if not self._looks_far:
            return
        scores = fixed.known[row] + fixed.added[row].index_select(0, fixed.facts[4:])
        best = scores.topk(self.representatives).indices + fixed.facts[2]
        there = torch.minimum(best, fixed.facts[3])  # of a unit that is not full, not all are in the archive
        keys = self._keys(self.slabs(layer)[0], layer, there)
        units.own.index_copy_(0, fixed.facts[1:2], keys.sum(dim=1).view(1, -1))

    def _keys(self, slabs: Slabs, layer: int, entries: Tensor) -> Tensor:
        """Return the keys [H, N, D] of entries [N] of the archive."""
        index = entries.expand(self.spec.layers[layer].kv_heads, -1)
        return gather_rows(slabs, index, self.spec.device, self.spec.dtype)

    def _new_units(self, layer: int, scores: Tensor, complete: int) -> tuple[Tensor, Tensor]:
        """Return rows [N, H * D] of the units that fill up in this pass, and the scores behind them."""
        known, size = self.units[layer].total, self.size
        new = complete - known
        if new <= 0:
            return self.units[layer].own[:0], scores
        best = (
            scores[..., : new * size].reshape(*scores.shape[:-1], new, size).topk(self.representatives, dim=-1).indices
        )
        first = torch.arange(known, complete, device=scores.device) * size
        keys = self._representatives(layer, first[:, None] + best)
        return keys.transpose(0, 1).reshape(new, -1), scores[..., new * size :]

    def _representatives(self, layer: int, best: Tensor) -> Tensor:
        """Return the sums of keys [H, N, D] of the entries int64 [N, r_k], or of each query head's [HQ, N, r_k]."""
        if self.by_head:
            own = best.reshape(self.spec.layers[layer].kv_heads, -1)
            keys = gather_rows(self.archive.slabs(layer)[0], own, self.spec.device, self.spec.dtype)
            return keys.view(*best.shape, -1).sum(dim=2)
        keys = self._keys(self.archive.slabs(layer)[0], layer, best.view(-1))
        return keys.view(len(keys), *best.shape, -1).sum(dim=2)

    def _look_up(self, layer: int, q: Tensor, fresh: Tensor | None) -> Tensor:
        """Return the entries int64 [NB, k_m * l_bs] of each block's units with the highest sim(X, B) (section 2.2)."""
        shared, block, rope = self.store.pass_cache, self.store.query_block, self.spec.layers[layer].rope
        # Sums over a block and its heads outgrow float16, and bfloat16 cannot tell them apart.
        turned = self.at_distance(rope, q, self.store.window)
        total = turned.float() if self.by_head else self._summed(layer, turned, torch.float32)
        if q.shape[1] > 1:
            padded = F.pad(total, (0, 0, 0, -q.shape[1] % block))
            total = padded.view(len(total), -1, block, q.shape[2]).sum(dim=2)
        turned = rope.towards_kept(total).transpose(0, 1)
        fit = self.units[layer].fit(turned.reshape(len(turned), -1), fresh)
        if ("hidden", fit.shape[1]) not in shared:
            number = torch.arange(fit.shape[1], device=fit.device)
            shared["hidden", fit.shape[1]] = number >= shared["complete"][:, None]
        fit = fit.masked_fill(shared["hidden", fit.shape[1]], float("-inf"))
        best, unit = fit.topk(min(self.count, fit.shape[1]), dim=1)
        start = (unit * self.size).masked_fill(best == float("-inf"), EMPTY)
        found: Tensor = (start[..., None] + shared["inside"]).flatten(1)
        return found

    def pass_limit(self) -> int:
        """Return how many tokens the next pass may carry: one block where its attention judges the next one's units."""
        limit = super().pass_limit()
        return min(limit, self.store.query_block) if self.by_head else limit

    def watches(self, layer: int) -> bool:
        """Tell whether attention judges entries: of the window by head, of the bank by its policy."""
        return (self.by_head and layer in self._row) or super().watches(layer)

    def attended(self, layer: int, attention: list[Tensor]) -> None:
        """Add the attention to the entries in the window, which comes last or before what is selected."""
        if super().watches(layer):
            super().attended(layer, attention)
        if self.by_head:
            window = attention[-2 if self._looks_far else -1][:, 0]
            fresh, scores = self._coming[layer]
            count = min(window.shape[1], scores.shape[1])
            scores[:, scores.shape[1] - count :] += window[:, window.shape[1] - count :]
            self._coming[layer] = fresh, scores

    def graph_kinds(self) -> Sequence[int]:
        """Return none where a token's attention is added to scores whose number grows."""
        return () if self.by_head else super().graph_kinds()

    def make_room(self, tokens: int) -> None:
        """Make room in the archive, and for the units that so many more tokens fill."""
        super().make_room(tokens)
        for units in self.units:
            units.make_room(tokens // self.size + 1)

    def _far_kinds(self) -> Sequence[int]:
        """Return the only kind, for a token that fills up one unit at most."""
        return (0,) if self.num_evicted() // self.size <= self._counted[1] + 1 else ()

    def graph_key(self) -> tuple[int, ...]:
        """Return addresses of slabs and of the units, which have room for one more."""
        for units in self.units:
            units.make_room(1)
        every = (fact for units in self.units for fact in (units.own.data_ptr(), len(units.own), len(units.shared)))
        return (*super().graph_key(), *every)

    def fix(self) -> None:
        """Write into tensors at fixed addresses which unit comes next, and where its entries are."""
        super().fix()
        store, size, capacity = self.store, self.size, self.store.layers[0].capacity
        if capacity not in self._fixed:
            self._fixed[capacity] = FixedUnits.empty(len(self._row), size, capacity, self.spec.device)
        fixed, known = self._fixed[capacity], self.scores[:, :size]
        complete = self.num_evicted() // size
        count, total = self._counted
        self._filled = complete > total
        rows = torch.arange(total * size, (total + 1) * size) - (store.seen - store.sinks - store.length)
        rows.masked_fill_((rows < 0) | (rows >= store.length), capacity)
        facts = torch.cat([torch.tensor([complete, count, total * size, self.num_evicted() - 1]), rows])
        fixed.facts.copy_(facts, non_blocking=True)
        fixed.known[:, : known.shape[1]].copy_(known)
        fixed.share.zero_()
        fixed.share[max(0, store.length - store.window) : store.length] = 1 / store.window

    def end_pass(self) -> None:
        """Keep the units that filled up, and the scores behind them."""
        super().end_pass()
        if self.store.fixed:
            self._end_fixed()
        elif self._coming:
            for layer, (fresh, _) in self._coming.items():
                self.units[layer].append(fresh)
            self.scores = torch.stack([scores for _, scores in self._coming.values()])

    def _end_fixed(self) -> None:
        """Keep what a fixed pass has added; the store counts its token already."""
        last = self.store.length - 1
        heard, scores = min(self.store.window, last), F.pad(self.scores, (0, 1))
        scores[:, -1 - heard : -1] += self._fixed[self.store.layers[0].capacity].added[:, last - heard : last]
        if self._filled:
            scores = scores[:, self.size :]
            for layer in self._row:
                self.units[layer].count += 1
        self.scores = scores

    def usage(self, usage: Usage) -> Usage:
        """Add the units' keys, which are on the device."""
        usage = super().usage(usage)
        units = sum(rows.nbytes for units in self.units for rows in (units.shared, units.own))
        return dataclasses.replace(usage, bytes={**usage.bytes, DEVICE: usage.bytes[DEVICE] + units})

    def fork(self, store: Store, archive: Archive) -> Self:
        """Return a conversation's selector; units are shared."""
        child = super().fork(store, archive)
        child.units, child._fixed = [units.fork() for units in self.units], {}
        return child

    def snapshot(self, store: Store, archive: Archive) -> Self:
        """Return the selector as it is now; units are only ever appended to, scores replaced."""
        child = super().snapshot(store, archive)
        child.units = [copy.copy(units) for units in self.units]
        return child

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Return own units and the scores behind them."""
        tensors = {}
        for layer, units in enumerate(self.units):
            tensors[f"{layer}.units"] = units.own[: units.count]
            tensors[f"{layer}.scores"] = (
                self.scores[self._row[layer]] if layer in self._row else self.scores.new_empty(0)
            )
        return {"units": Part(tensors)}, {}

    def load(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Take back own units and scores."""
        tensors = parts["units"]
        for layer, units in enumerate(self.units):
            units.append(tensors[f"{layer}.units"][:, : units.own.shape[1]].to(units.own))
        if self._row:
            self.scores = torch.stack([tensors[f"{layer}.scores"] for layer in self._row]).to(self.spec.device)
