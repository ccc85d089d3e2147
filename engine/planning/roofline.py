"""Predict how long passes take, by a roofline.

A pass takes as long as its matrix products or as reading its weights, whichever is longer, and then its attention. The
rates were measured on this machine or stated for another (`rates.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.models.experts import together_on
from engine.models.integers import DIRECT
from engine.models.sizes import ModelSizes
from engine.parts.attention import FEW_QUERIES
from engine.parts.footprint import Footprint
from engine.planning.flops import operations
from engine.planning.rates import Rates
from engine.records import DISK, HOST

QUESTION = 50  # tokens of the question whose first token is timed
BETWEEN = 3  # times that a small operation slows down on a CPU within a pass: Python, cold caches
LOGIT_BYTES = 24  # moved per explicit logit: written, masked, exponentiated, read again
MOVED_PER_SCORE = 12  # bytes moved by a search: written, and read again to find the best
UNPACKING = 10  # operations that unpack and multiply with one of an expert's two stacks
AROUND = 60  # operations of norms and an MLP around a layer that does not attend
SLOWER_INT4 = 2.5  # factor of the time of products with weights of 4 bits in long passes
CODED_MOVES = 8  # times that a quantised entry is read or written while it is decoded


@dataclass(frozen=True)
class Roofline:
    """Predicts times of a model on a machine."""

    model: ModelSizes
    rates: Rates
    shared: bool  # there is no GPU
    quantize: str  # of the weights, see `ModelSizes.weight_bytes`

    def times(self, footprint: Footprint, chunk: int, scored: bool) -> tuple[float, float, float]:
        """Return seconds of the reading, seconds to a first token, and tokens per second of an answer.

        chunk: most tokens of a pass; scored: the text's tokens go through the head.
        """
        work, lookup = footprint.work, footprint.lookup
        through = work.passed + work.inserted
        rows = min(chunk * through / work.passed, through)
        head = self.model.head if scored else 0
        each = self._pass_sec(footprint, rows, work.attended, head, work.explicit)
        kept = _far_bytes(footprint) / self.rates.link
        if lookup.sketched and not self.shared:  # keys come back to be sketched
            kept += _far_bytes(footprint) * self.model.spec.key_share / self.rates.link
        reading = through / rows * each + kept + self._fetch_sec(footprint, through * lookup.fetched)
        # By a second look some passages usually stand out, which leaves little to search.
        searching = self._search_sec(footprint) if lookup.looks == 1 else 0.0
        passes = math.ceil(QUESTION / lookup.asked_together)
        asking = passes * self._pass_sec(footprint, QUESTION / passes, work.attended_per_answer_token, 0, True)
        asking += self._fetch_sec(footprint, QUESTION * lookup.picking * lookup.fetched_per_answer_token)
        answering = self._pass_sec(footprint, 1, work.attended_per_answer_token, self.model.head, True)
        answering += self._fetch_sec(footprint, max(lookup.picking, 1) * lookup.fetched_per_answer_token)
        first = lookup.looks * asking + self._search_sec(footprint, QUESTION) + answering + searching
        return reading, first, 1 / (answering + searching / lookup.search_every)

    def _pass_sec(self, footprint: Footprint, rows: float, attended: float, head: int, explicit: bool) -> float:
        """Return the seconds of one pass, which reads all weights once, of experts only those that tokens choose.

        Experts in codes are usually unpacked in every pass, linear layers on a GPU if several tokens share them.
        """
        model, rates, passing = self.model, self.rates, footprint.work
        size = model.spec.dtype.itemsize
        hit = model.hit(rows)
        weights: float = model.linear_bytes(self.quantize) + hit * model.expert_bytes(self.quantize)
        weights += (model.multiplied + head) * size
        unpacked = rows > DIRECT if self.quantize == "int8" else model.packed(self.quantize)
        if unpacked and (rows > 1 or self.shared):
            weights += 2 * model.linear_weights * size
        packing, at_once = model.packing(self.quantize), rows == 1 and together_on(model.spec.device)
        if packing and not (at_once and packing.direct):
            weights += 2 * hit * model.expert_weights * size
        work = operations(model, rows, attended, rows if head else 0)
        # Retaining heads score every token; beacon weights are for beacons only.
        share = passing.inserted / (passing.passed + passing.inserted) if passing.inserted else 1.0
        beside = 2 * rows * share * footprint.weight_bytes / size
        weights += footprint.weight_bytes
        slower = SLOWER_INT4 if self.quantize == "int4" and rows > DIRECT else 1.0
        products = max(
            (slower * work.linear + work.head + work.recurrence + beside) / rates.flops, weights / rates.memory
        )
        logits = LOGIT_BYTES * model.spec.query_heads * rows * attended if explicit else 0
        attention = work.attention / rates.flops
        decoded = passing.coded and (self.shared or rows > FEW_QUERIES)  # kernels read codes for few queries
        entries = attended * model.spec.entry_bytes * (1 + (CODED_MOVES if decoded else 0))
        moved = (entries + logits + self._recurring_bytes(rows)) / rates.memory
        small = passing.operations * len(model.spec.layers) + self._recurring_operations(rows)
        if packing:
            small += UNPACKING * sum(1 if at_once else hit * count for count, *_ in model.experts)
        small *= rates.operation_sec
        if self.shared:
            return products + attention + moved + BETWEEN * small
        if rows == 1 and passing.recorded and self.quantize != "8bit":
            return products + attention + moved  # the pass is one launch
        return max(products + attention + moved, small)  # a GPU computes while its host prepares the next launch

    def _recurring_bytes(self, rows: float) -> float:
        """Return the bytes that recurrent layers move in a pass: outputs are read again, and states are copied."""
        recurrence = self.model.recurrence
        return 2 * (rows * recurrence.moved + 2 * recurrence.state_bytes) if recurrence else 0.0

    def _recurring_operations(self, rows: float) -> float:
        """Return the number of PyTorch operations in and around recurrent layers in a pass."""
        recurrence = self.model.recurrence
        if recurrence is None:
            return 0.0
        token, each = recurrence.operations
        return AROUND * recurrence.layers + (token if rows == 1 else max(token, rows * each))

    def _search_sec(self, footprint: Footprint, tokens: int = 1) -> float:
        """Return the seconds of comparing queries with keys of the host tier, or with sketches and the keys of some."""
        spec, rates, lookup = self.model.spec.looking_far, self.rates, footprint.lookup
        if not lookup.searched or not spec.query_heads:
            return 0.0
        passes, each = math.ceil(tokens / lookup.asked_together), _entry_bytes(footprint) * spec.key_share
        keys = passes * each * lookup.searched
        products = 2 * tokens * lookup.searched * spec.query_width
        scores = MOVED_PER_SCORE * tokens * spec.query_heads * lookup.searched
        if lookup.sketched:
            looked_at = passes * lookup.sketched * lookup.searched
            fetched = tokens * lookup.picking * lookup.candidates * each  # less those fetched anyway
            fetched -= min(fetched, tokens * lookup.picking * lookup.fetched_per_answer_token * each)
            flops = rates.host_flops if self.shared else rates.flops
            return products / flops + (looked_at + scores) / rates.memory + fetched / rates.link
        if lookup.in_place and not self.shared:  # it compares some keys while others are on the link
            return max(products / rates.flops + scores / rates.memory, keys / rates.link)
        return products / rates.host_flops + (keys + scores) / rates.host_memory

    def _fetch_sec(self, footprint: Footprint, entries: float) -> float:
        """Return the seconds of fetching entries to a GPU; 0 on a CPU, which attends to them in place."""
        return 0.0 if self.shared or not entries else entries * _entry_bytes(footprint) / self.rates.link


def _entry_bytes(footprint: Footprint) -> float:
    """Return the bytes of one entry of the host tier, in all layers."""
    entries = footprint.usage.entries
    return _far_bytes(footprint) / (entries[HOST] + entries.get(DISK, 0))


def _far_bytes(footprint: Footprint) -> int:
    return footprint.usage.bytes.get(HOST, 0) + footprint.usage.bytes.get(DISK, 0)
