"""Estimate how long passes take, roughly: by products, by bytes of memory, and by small operations.

A pass takes as long as its matrix products or as reading its weights, whichever is longer, then its attention, then
what it reads in host memory. The small operations of a layer come on top on a CPU; a GPU computes while its host asks
for them, and does not wait where it replays a recorded pass. The rates are measured here or stated (`rates.py`).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from engine.models.experts import together_on
from engine.models.integers import DIRECT
from engine.models.sizes import ModelSizes
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
SLOWER_INT4 = 2.5  # factor of the time of a CPU's products with weights of 4 bits in long passes
PACKED_SHARE = 0.33  # of a GPU's memory rate, at which weights of 4 bits are multiplied with one token
KERNEL_SHARE = 0.55  # of the same, at which attention reads entries for one token
REPLAYED_SEC = 1e-4  # of a layer's small kernels, where a GPU replays a token's pass
CODED_MOVES = 8  # times that a quantised entry is read or written while a pass of text decodes it


@dataclass(frozen=True)
class PassTimes:
    """Estimates the times of a model on a machine."""

    model: ModelSizes
    rates: Rates
    shared: bool  # there is no GPU
    quantize: str  # of the weights, see `ModelSizes.weight_bytes`

    def of(self, footprint: Footprint, chunk: int, scored: bool) -> tuple[float, float, float]:
        """Return seconds of the reading, seconds to a first token, and tokens per second of an answer.

        chunk: most tokens of a pass; scored: the text's tokens go through the head.
        """
        work, lookup = footprint.work, footprint.lookup
        through = work.passed + work.inserted
        rows = min(chunk * through / work.passed, through)
        each = self._pass_sec(footprint, rows, work.attended, scored, work.explicit)
        reading = through / rows * (each + self._link_sec(footprint, rows * lookup.fetched))
        if self.shared or not footprint.resident:  # entries are copied to host memory
            reading += _far_bytes(footprint) / self.rates.link
        if lookup.sketched and not self.shared:  # keys come back to be sketched
            reading += _far_bytes(footprint) * self.model.spec.key_share / self._far_rate(footprint)
        # By a second look some passages usually stand out, which leaves little to search.
        searching = self._search_sec(footprint) if lookup.looks == 1 else 0.0
        passes = math.ceil(QUESTION / lookup.asked_together)
        asking = passes * self._pass_sec(footprint, QUESTION / passes, work.attended_per_answer_token, False, True)
        picked = lookup.picking * lookup.fetched_per_answer_token
        asking += self._link_sec(footprint, QUESTION * (lookup.fetched + picked))
        link = self._link_sec(footprint, lookup.asked or max(lookup.picking, 1) * lookup.fetched_per_answer_token)
        link += searching / lookup.search_every
        # The beginning of an answer is a pass of its own in most templates, which is not recorded.
        begun = dataclasses.replace(footprint, work=dataclasses.replace(work, recorded=False))
        beginning, answering = (
            link + self._pass_sec(each, 1, work.attended_per_answer_token, True, True) for each in (begun, footprint)
        )
        first = lookup.looks * asking + self._search_sec(footprint, QUESTION) + beginning
        first += searching * (1 - 1 / lookup.search_every)
        return reading, first, 1 / answering

    def _pass_sec(self, footprint: Footprint, rows: float, attended: float, scored: bool, explicit: bool) -> float:
        """Return the seconds of one pass without what it reads in host memory."""
        model, rates, work = self.model, self.rates, footprint.work
        size = model.spec.dtype.itemsize
        products = operations(model, rows, attended, rows if scored else 0)
        # Retaining heads score every token; beacon weights are for beacons only.
        share = work.inserted / (work.passed + work.inserted) if work.inserted else 1.0
        trained = 2 * rows * share * footprint.weight_bytes / size
        slower = SLOWER_INT4 if self.shared and self.quantize == "int4" and rows > DIRECT else 1.0
        computing = slower * products.linear + products.head + products.recurrence + trained
        weights = self._weight_bytes(rows, scored) + footprint.weight_bytes
        entries = attended * model.spec.entry_bytes
        if rows == 1 and not self.shared:
            entries /= KERNEL_SHARE
        elif work.coded:
            entries *= 1 + CODED_MOVES
        moved = entries + (LOGIT_BYTES * model.spec.query_heads * rows * attended if explicit else 0)
        if model.recurrence:  # outputs are read again, and states are copied
            moved += 2 * (rows * model.recurrence.moved + 2 * model.recurrence.state_bytes)
        device = max(computing / rates.flops, weights / rates.memory)
        device += products.attention / rates.flops + moved / rates.memory
        small = self._small_operations(footprint, rows) * rates.operation_sec
        if self.shared:
            return device + BETWEEN * small
        replayed = rows == 1 and work.recorded and self.quantize != "8bit"
        return device + REPLAYED_SEC * len(model.spec.layers) if replayed else max(device, small)

    def _weight_bytes(self, rows: float, scored: bool) -> float:
        """Return the bytes of weights that a pass moves: all of them once, but only the experts that tokens choose.

        Experts in codes are usually unpacked in every pass, linear layers on a GPU if several tokens share them.
        """
        model, size = self.model, self.model.spec.dtype.itemsize
        hit = model.hit(rows)
        coded: float = model.linear_bytes(self.quantize) + hit * model.expert_bytes(self.quantize)
        if not self.shared and rows == 1 and model.packed(self.quantize):
            coded /= PACKED_SHARE
        moved: float = coded + model.multiplied * size + (model.head_bytes(self.quantize) if scored else 0)
        if model.unpacks(self.quantize, rows):
            moved += 2 * model.linear_weights * size
        packing = model.packing(self.quantize)
        if packing and not (rows == 1 and packing.direct and together_on(model.spec.device)):
            moved += 2 * hit * model.expert_weights * size
        return moved

    def _small_operations(self, footprint: Footprint, rows: float) -> float:
        """Return the number of PyTorch operations of a pass, however little they compute."""
        model = self.model
        count: float = footprint.work.operations * len(model.spec.layers)
        if model.recurrence:
            token, each = model.recurrence.operations
            count += AROUND * model.recurrence.layers + (token if rows == 1 else max(token, rows * each))
        if model.packing(self.quantize):
            at_once = rows == 1 and together_on(model.spec.device)
            count += UNPACKING * sum(1 if at_once else model.hit(rows) * experts for experts, *_ in model.experts)
        return count

    def _search_sec(self, footprint: Footprint, tokens: int = 1) -> float:
        """Return the seconds of comparing queries with keys of the host tier, or with sketches and the keys of some."""
        spec, rates, lookup = self.model.spec.looking_far, self.rates, footprint.lookup
        if not lookup.searched or not spec.query_heads:
            return 0.0
        if lookup.asked and not self.shared:  # its kernels read host memory in place, which counts there
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
            return products / flops + (looked_at + scores) / rates.memory + fetched / self._far_rate(footprint)
        if lookup.in_place and not self.shared:  # it compares some keys while others are on the link
            return max(products / rates.flops + scores / rates.memory, keys / self._far_rate(footprint))
        return products / rates.host_flops + (keys + scores) / rates.host_memory

    def _link_sec(self, footprint: Footprint, entries: float) -> float:
        """Return the seconds for sending entries to a GPU; 0 on a CPU, as it attends to them in place."""
        return 0.0 if self.shared or not entries else entries * _entry_bytes(footprint) / self._far_rate(footprint)

    def _far_rate(self, footprint: Footprint) -> float:
        """Return the bytes of the archive that a GPU reads per second: over the link, or from its own memory."""
        return self.rates.memory if footprint.resident else self.rates.link


def _entry_bytes(footprint: Footprint) -> float:
    """Return the bytes of one entry of the archive, in all layers."""
    entries = footprint.usage.entries
    return _far_bytes(footprint) / (entries.get(HOST, 0) + entries.get(DISK, 0) + footprint.resident)


def _far_bytes(footprint: Footprint) -> int:
    """Return the bytes of the archive."""
    held = footprint.usage.bytes
    return held.get(HOST, 0) + held.get(DISK, 0) + footprint.resident_bytes
