"""Predict how long passes take, by a roofline.

A pass takes as long as its matrix products or as reading its weights, whichever is longer, and then its attention. On a
GPU it takes at least as long as the host needs to ask for its kernels, and a replayed token as long as all its kernels
take at least. What kernels read in host memory comes on top: passes were seen to wait for it. The rates were measured
on this machine or stated for another (`rates.py`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from engine.models.experts import together_on
from engine.models.integers import DIRECT
from engine.models.sizes import ModelSizes
from engine.parts.attention import FEW_QUERIES
from engine.parts.footprint import Footprint
from engine.planning.counts import STREAMING, TRUNCATE, Counts
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
CODED_MOVES = 8  # times that a quantised entry is read or written while it is decoded
KERNEL_SHARE = 0.55  # of a GPU's memory rate, at which attention reads entries for one token
SUMMED_BYTES = 12  # moved per key and query head, where an answer's attention is summed
ELEMENTWISE = 180  # bytes that norms, rotations and activations move on a GPU per number of a hidden state and layer
APPENDED = 0.5  # small operations that take as long as copying one key or value of a token to the host
CODED_BYTES = 24  # moved on a GPU for each number that it quantises: joined, normalised in float32, and read again


@dataclass(frozen=True)
class Roofline:
    """Predicts times of a model on a machine."""

    model: ModelSizes
    rates: Rates
    shared: bool  # there is no GPU
    quantize: str  # of the weights, see `ModelSizes.weight_bytes`
    counts: Counts = TRUNCATE  # of the method

    def times(self, footprint: Footprint, chunk: int, scored: bool) -> tuple[float, float, float]:
        """Return seconds of the reading, seconds to a first token, and tokens per second of an answer.

        chunk: most tokens of a pass; scored: the text's tokens go through the head.
        """
        work, lookup = footprint.work, footprint.lookup
        through = work.passed + work.inserted
        rows = min(chunk * through / work.passed, through)
        head = self.model.head if scored else 0
        reading = through / rows * self._reading_pass_sec(footprint, rows, head)
        if self.shared:
            reading += _far_bytes(footprint) / self.rates.link
        if lookup.sketched and not self.shared:  # keys come back to be sketched
            reading += _far_bytes(footprint) * self.model.spec.key_share / self._far_rate(footprint)
        # By a second look some passages usually stand out, which leaves little to search.
        searching = self._search_sec(footprint) if lookup.looks == 1 else 0.0
        passes = math.ceil(QUESTION / lookup.asked_together)
        asking = passes * self._pass_sec(footprint, QUESTION / passes, work.attended_per_answer_token, 0, True)
        asking += self._link_sec(footprint, QUESTION * (lookup.fetched + self._picked(footprint)))
        # The beginning of an answer is a pass of its own in most templates, which is not recorded.
        begun = dataclasses.replace(footprint, work=dataclasses.replace(work, recorded=False))
        link = self._link_sec(footprint, lookup.asked or max(lookup.picking, 1) * lookup.fetched_per_answer_token)
        link += searching / lookup.search_every
        beginning, answering = (
            self._pass_sec(each, 1, work.attended_per_answer_token, self.model.head, True, link)
            + self._append_sec(footprint)
            for each in (begun, footprint)
        )
        first = lookup.looks * asking + self._search_sec(footprint, QUESTION) + beginning
        first += searching * (1 - 1 / lookup.search_every)
        return reading, first, 1 / answering

    def _reading_pass_sec(self, footprint: Footprint, rows: float, head: int) -> float:
        """Return the seconds of a pass of the text, copies to host memory and from it included."""
        work = footprint.work
        each = self._pass_sec(footprint, rows, work.attended, head, work.explicit)
        if self.shared or not _far_bytes(footprint):
            return each
        away = 0 if footprint.resident else rows * _entry_bytes(footprint)
        copying = away / self.rates.link  # on a stream of its own
        coding = rows * work.numbers_coded * CODED_BYTES / self.rates.memory
        return max(each, copying) + coding + self._link_sec(footprint, rows * footprint.lookup.fetched)

    def _append_sec(self, footprint: Footprint) -> float:
        """Return the seconds for keeping a token of an answer in host memory, after its pass."""
        if self.shared or not _far_bytes(footprint):
            return 0.0
        return 2 * len(self.model.spec.layers) * APPENDED * self.rates.operation_sec

    def _picked(self, footprint: Footprint) -> float:
        """Return the entries that a token of a question picks for itself, in all its heads."""
        return footprint.lookup.picking * footprint.lookup.fetched_per_answer_token

    def _pass_sec(
        self, footprint: Footprint, rows: float, attended: float, head: int, explicit: bool, link: float = 0.0
    ) -> float:
        """Return the seconds of one pass, which reads all weights once, but only the experts that tokens choose.

        Experts in codes are usually unpacked in every pass, linear layers on a GPU if several tokens share them.
        link: seconds in which a device waits for host memory meanwhile.
        """
        model, rates, passing = self.model, self.rates, footprint.work
        size = model.spec.dtype.itemsize
        hit = model.hit(rows)
        coded: float = model.linear_bytes(self.quantize) + hit * model.expert_bytes(self.quantize)
        weights: float = model.multiplied * size + (model.head_bytes(self.quantize) if head else 0)
        if not self.shared and rows == 1 and model.packed(self.quantize):
            weights += coded / rates.packed_share
        else:
            weights += coded
        if model.unpacks(self.quantize, rows):
            weights += 2 * model.linear_weights * size
        packing, at_once = model.packing(self.quantize), rows == 1 and together_on(model.spec.device)
        if packing and not (at_once and packing.direct):
            weights += 2 * hit * model.expert_weights * size
        work = operations(model, rows, attended, rows if head else 0)
        # Retaining heads score every token; beacon weights are for beacons only.
        share = passing.inserted / (passing.passed + passing.inserted) if passing.inserted else 1.0
        trained = 2 * rows * share * footprint.weight_bytes / size
        weights += footprint.weight_bytes
        slower = SLOWER_INT4 if self.shared and self.quantize == "int4" and rows > DIRECT else 1.0
        products = max(
            (slower * work.linear + work.head + work.recurrence + trained) / rates.flops, weights / rates.memory
        )
        logits = LOGIT_BYTES * model.spec.query_heads * rows * attended if explicit else 0
        attention = work.attention / rates.flops
        decoded = passing.coded and (self.shared or rows > FEW_QUERIES)  # kernels read codes for few queries
        entries = attended * model.spec.entry_bytes * (1 + (CODED_MOVES if decoded else 0))
        moved = entries + logits + self._recurring_bytes(rows)
        beside = self._recurring_operations(rows)
        if packing:
            beside += UNPACKING * sum(1 if at_once else hit * count for count, *_ in model.experts)
        if self.shared:
            small = passing.operations * len(model.spec.layers) + beside
            return link + products + attention + moved / rates.memory + BETWEEN * small * rates.operation_sec
        if rows == 1:  # keys once more, for the sums of the attention
            entries *= 1 + model.spec.key_share
            summed = SUMMED_BYTES * attended * model.spec.query_heads
            moved = (entries + summed) / KERNEL_SHARE + self._recurring_bytes(rows)
        else:
            moved += ELEMENTWISE * rows * model.hidden * model.depth
        device = link + products + attention + moved / rates.memory
        if rows == 1 and passing.recorded and self.quantize != "8bit":
            nodes = self._over_layers(footprint, lambda counts: counts.recorded.nodes)
            return device + (nodes + beside) * rates.node_sec
        host = self._over_layers(
            footprint, lambda counts: (counts.token if rows == 1 else counts.reading).host_operations
        )
        return max(device, (host + beside) * rates.operation_sec)  # a GPU computes while its host prepares the next

    def _over_layers(self, footprint: Footprint, of: Callable[[Counts], float]) -> float:
        """Sum what is counted over the layers that attend. Those that never look far are like a window's."""
        spec = self.model.spec
        depth = len(spec.layers)
        far = sum(layer.kv_heads > 0 for layer in spec.looking_far.layers) if footprint.lookup.searched else depth
        return far * of(self.counts) + (depth - far) * of(STREAMING)

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
