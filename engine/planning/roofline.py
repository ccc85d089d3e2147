"""How long passes take: a roofline.

Each takes as long as its matrix products or as the weights it reads, whichever is longer, and then its attention, at
rates that were measured on this machine or stated for another (`rates.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.footprint import Footprint
from engine.models.experts import together_on
from engine.models.integers import DIRECT
from engine.models.sizes import ModelSizes
from engine.planning.flops import operations
from engine.planning.rates import Rates
from engine.records import DISK, HOST

QUESTION = 50  # tokens of the question whose first token is timed
BETWEEN = 3  # times that a small operation takes on a CPU what it takes by itself: Python, caches that went cold
LOGIT_BYTES = 24  # moved per logit where they are built: written, masked, exponentiated, read again
MOVED_PER_SCORE = 12  # bytes, of a search: written, and read again to find the best
UNPACKING = 10  # operations that unpack and multiply with one of an expert's two stacks
AROUND = 60  # operations of norms and an MLP around a layer that does not attend
SLOWER_INT4 = 2.5  # times as long take products with weights of 4 bits in long passes
CODED_MOVES = 8  # times that an entry in codes is read or written on its way to a number


@dataclass(frozen=True)
class Roofline:
    """Of a model on a machine. shared: there is no GPU; quantize: how its weights are, see `Skeleton.weight_bytes`."""

    model: ModelSizes
    rates: Rates
    shared: bool
    quantize: str

    def times(self, footprint: Footprint, chunk: int, scored: bool) -> tuple[float, float, float]:
        """Seconds of the reading, seconds to a first token, tokens per second of an answer.

        chunk: tokens per pass at most; scored: whether the text's tokens go through the head.
        """
        through = footprint.passed + footprint.inserted
        rows = min(chunk * through / footprint.passed, through)
        head = self.model.head if scored else 0
        each = self._pass_sec(footprint, rows, footprint.attended, head, footprint.explicit)
        kept = _far_bytes(footprint) / self.rates.link
        if footprint.sketched and not self.shared:  # keys come back for that
            kept += _far_bytes(footprint) * self.model.spec.key_share / self.rates.link
        reading = through / rows * each + kept + self._brought_sec(footprint, through * footprint.brought)
        # At a second look something has stood out as a rule, and there is little left to search.
        searching = self._search_sec(footprint) if footprint.looks == 1 else 0.0
        passes = math.ceil(QUESTION / footprint.asked_together)
        asking = passes * self._pass_sec(footprint, QUESTION / passes, footprint.answering, 0, True)
        asking += self._brought_sec(footprint, QUESTION * footprint.picking * footprint.brought_answering)
        answering = self._pass_sec(footprint, 1, footprint.answering, self.model.head, True)
        answering += self._brought_sec(footprint, max(footprint.picking, 1) * footprint.brought_answering)
        first = footprint.looks * asking + self._search_sec(footprint, QUESTION) + answering + searching
        return reading, first, 1 / (answering + searching / footprint.search_every)

    def _pass_sec(self, footprint: Footprint, rows: float, attended: float, head: int, explicit: bool) -> float:
        """Of one pass through the model: its weights are read once, of experts those that a token goes through.

        Experts in codes are unpacked at every pass as a rule, linear layers on a GPU if several tokens share them.
        """
        model, rates = self.model, self.rates
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
        # Retaining heads score every token; beacon weights are for beacons alone.
        share = footprint.inserted / (footprint.passed + footprint.inserted) if footprint.inserted else 1.0
        beside = 2 * rows * share * footprint.weight_bytes / size
        weights += footprint.weight_bytes
        slower = SLOWER_INT4 if self.quantize == "int4" and rows > DIRECT else 1.0
        products = max(
            (slower * work.linear + work.head + work.recurrence + beside) / rates.flops, weights / rates.memory
        )
        logits = LOGIT_BYTES * model.spec.query_heads * rows * attended if explicit else 0
        attention = work.attention / rates.flops
        decoded = footprint.coded and (self.shared or rows > footprint.codes_read_by)
        entries = attended * model.spec.entry_bytes * (1 + (CODED_MOVES if decoded else 0))
        moved = (entries + logits + self._recurring_bytes(rows)) / rates.memory
        small = footprint.operations * len(model.spec.layers) + self._recurring_operations(rows)
        if packing:
            small += UNPACKING * sum(1 if at_once else hit * count for count, *_ in model.experts)
        small *= rates.operation_sec
        if self.shared:
            return products + attention + moved + BETWEEN * small
        if rows == 1 and footprint.recorded and self.quantize != "8bit":
            return products + attention + moved  # nothing is launched one by one
        return max(products + attention + moved, small)  # a GPU works while its host prepares what comes next

    def _recurring_bytes(self, rows: float) -> float:
        """Moved by recurrent layers in a pass: what they write is read again as a rule, and their states are copied."""
        recurrence = self.model.recurrence
        return 2 * (rows * recurrence.moved + 2 * recurrence.state_bytes) if recurrence else 0.0

    def _recurring_operations(self, rows: float) -> float:
        """Of PyTorch, that recurrent layers and what is around them take in a pass."""
        recurrence = self.model.recurrence
        if recurrence is None:
            return 0.0
        token, each = recurrence.operations
        return AROUND * recurrence.layers + (token if rows == 1 else max(token, rows * each))

    def _search_sec(self, footprint: Footprint, tokens: int = 1) -> float:
        """Of comparing tokens' queries with keys of the host tier, or with sketches of all and the keys of some."""
        spec, rates = self.model.spec.looking_far, self.rates
        if not footprint.searched or not spec.query_heads:
            return 0.0
        passes, each = math.ceil(tokens / footprint.asked_together), _entry_bytes(footprint) * spec.key_share
        keys = passes * each * footprint.searched
        products = 2 * tokens * footprint.searched * spec.query_width
        scores = MOVED_PER_SCORE * tokens * spec.query_heads * footprint.searched
        if footprint.sketched:
            looked_at = passes * footprint.sketched * footprint.searched
            fetched = tokens * footprint.picking * footprint.candidates * each  # keys of what is brought among them
            fetched -= min(fetched, tokens * footprint.picking * footprint.brought_answering * each)
            flops = rates.host_flops if self.shared else rates.flops
            return products / flops + (looked_at + scores) / rates.memory + fetched / rates.link
        if footprint.in_place and not self.shared:  # it compares some keys while others come
            return max(products / rates.flops + scores / rates.memory, keys / rates.link)
        return products / rates.host_flops + (keys + scores) / rates.host_memory

    def _brought_sec(self, footprint: Footprint, entries: float) -> float:
        """Of reading entries of the host tier from a GPU; on a CPU they count as attended to, and no more."""
        return 0.0 if self.shared or not entries else entries * _entry_bytes(footprint) / self.rates.link


def _entry_bytes(footprint: Footprint) -> float:
    """Of one entry of the host tier, in all layers."""
    entries = footprint.usage.entries
    return _far_bytes(footprint) / (entries[HOST] + entries.get(DISK, 0))


def _far_bytes(footprint: Footprint) -> int:
    return footprint.usage.bytes.get(HOST, 0) + footprint.usage.bytes.get(DISK, 0)
