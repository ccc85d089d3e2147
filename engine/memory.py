"""The key-value memory of one reader: a store on the device, perhaps an archive with a selector, and an evictor.

A forward pass goes `begin_pass`, then `attend` once per layer, then `end_pass`. Nothing is remembered before that,
so a pass that fails leaves the memory as it was. Keys are kept before RoPE; rotated keys are a cache
of them. Sizes: L layers, H KV heads, HQ query heads, T tokens, D head size.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from engine.models.spec import ModelSpec, Scoring
from engine.parts.archive.archive import Archive
from engine.parts.attention import attend
from engine.parts.evictors.base import Evictor
from engine.parts.mass import AttentionMass
from engine.parts.selectors.base import Selector
from engine.parts.store import Store
from engine.records import DEVICE, LoadedParts, Part, Parts, Usage

STATES = "states"  # name on disk of recurrent layers' states
EVICTOR = "evictor"  # and of an evictor's observations


class Recorded(Protocol):
    """A recording of the pass of one token."""

    key: tuple[int, ...]

    def replay(self, ids: Tensor, memory: Memory) -> Tensor:
        """Return the hidden state [1, hidden] after a token whose pass has begun."""


class RecurrentStates:
    """The states of recurrent layers behind the last token that was kept, by name."""

    def __init__(self) -> None:
        """Start without any state."""
        self.now: dict[str, Tensor] = {}  # replaced, never changed
        self.base: dict[str, Tensor] = {}  # of the context that it is a fork of
        self.coming: dict[str, Tensor] = {}  # after the pass that has been, until `end_pass`

    def end_pass(self) -> None:
        """Keep the states after the pass."""
        if self.coming:
            self.now, self.coming = self.coming, {}

    def fork(self) -> RecurrentStates:
        """Return the states of a fork."""
        child = copy.copy(self)
        child.base = self.now
        return child

    def nbytes(self) -> int:
        """Return the bytes of all states; of a fork, those that it began with too."""
        held = {state.data_ptr(): state.nbytes for state in (*self.base.values(), *self.now.values())}
        return sum(held.values())


class Memory:
    """The live KV state of one reader, for all layers."""

    def __init__(
        self,
        spec: ModelSpec,
        store: Store,
        *,
        selector: Selector | None = None,
        evictor: Evictor | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            spec: of the model.
            store: entries on the device.
            selector: chooses for each query from an archive, which keeps entries whole outside the store; or None.
            evictor: decides which entries leave a full store; None to keep all.
        """
        self.spec = spec
        self.store = store
        self.selector = selector
        self.evictor = evictor or Evictor(store)
        self.last_hidden: Tensor | None = None  # [hidden], predicts the next token; kept for novelty
        self.predicted: Tensor | None = None  # its logits [vocabulary], where they are known; never saved
        self.mass: AttentionMass | None = None  # counts attention while an answer is given
        self.uncounted = 0  # tokens that come before the first whose attention it counts
        self.recurrent = RecurrentStates()
        self.recordings: dict[int, Recorded] = {}  # of passes of one token, by kind; replaced, never changed
        self._text = 0  # tokens of the pass before those that the evictor observes

    @property
    def seen(self) -> int:
        """Tokens kept since the beginning, whether still remembered or not."""
        return self.store.seen

    @property
    def archive(self) -> Archive | None:
        """The entries that the selector chooses from."""
        return None if self.selector is None else self.selector.archive

    @property
    def num_evicted(self) -> int:
        """Entries of the archive that the next token sees only if they are looked up."""
        return self.selector.num_evicted() if self.selector else 0

    def shows(self, tokens: int) -> bool:
        """Tell whether queries attend to all of a text of so many tokens: nothing is missing, or to be looked up."""
        return self.store.entries == self.seen >= tokens and not self.num_evicted

    @property
    def counts_parts(self) -> bool:
        """True if `uncounted` tokens may share a pass with counted ones."""
        return self.evictor.in_order and (self.selector is None or self.selector.counts_parts)

    @property
    def keeps_all(self) -> bool:
        """True if no entry is ever evicted or looked up, so that a pass may keep any number of its first tokens."""
        return self.store.keeps_all and self.selector is None and type(self.evictor) is Evictor

    def reserve(self, tokens: int) -> None:
        """Prepare for a text of `tokens` tokens in all. May be called again for a text that goes on."""
        self.store.reserve(tokens)
        self.evictor.reserve(tokens)
        if self.selector:
            self.selector.reserve(tokens)

    def begin_pass(self, source: Tensor) -> None:
        """Begin a pass of T tokens. source: int32 [T] on the host, the source position of each, -1 for none."""
        self.store.begin_pass(self.evictor.begin_pass(source), self.mass is not None)
        self._text = self.store.tokens - self.evictor.observed(self.store.tokens)
        if self.selector:
            self.selector.begin_pass()

    def append(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Write the entries of a pass, as `attend` does first. By itself it fills a memory without attention.

        Args:
            layer: number of the layer.
            q: [HQ, T, D], before RoPE, extra tokens last.
            k: [H, T, D], before RoPE.
            v: [H, T, D].
        """
        judge = self.evictor.importance
        self.store.append(layer, q, k, v, judge and judge(layer, q, k, v))
        if self.selector:
            self.selector.observe(layer, q)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Return the attention output [HQ, T, D] for the tokens of the pass, with those as `append` takes them."""
        order = self.evictor.order
        if order is not None:
            q, k, v = (x[:, order[1]] for x in (q, k, v))
        self.append(layer, q, k, v)
        group = self.store.groups[layer]
        if len(group) == 1:
            output = self._attend(group[0], q, scoring)
        else:
            each = zip(group, q.chunk(len(group)), scoring.parted(len(group)), strict=True)
            output = torch.cat([self._attend(*head) for head in each])
        if self.mass and layer == len(self.spec.layers) - 1:
            self.mass.flush()
        return output if order is None else output[:, order[0]]

    def _attend(self, number: int, q: Tensor, scoring: Scoring) -> Tensor:
        """Attend to the entries of slots `number`; observed tokens by themselves."""
        text = self._text
        if text in (0, q.shape[1]):
            return self._attend_to(number, q, scoring, 0, not text)
        last = self._attend_to(number, q[:, text:], scoring, text, True)
        first = self._attend_to(number, q[:, :text], scoring, 0, False)
        return torch.cat([first, last], dim=1)

    def _attend_to(self, number: int, q: Tensor, scoring: Scoring, offset: int, observed: bool) -> Tensor:
        """Attend to segments in one softmax, and hand attention per key to those who asked for it.

        Args:
            number: of the slots.
            q: [HQ, T, D], before RoPE.
            scoring: of the layer.
            offset: tokens of the pass before these queries.
            observed: whether the evictor observes them.
        """
        catalyst = self.evictor.catalyst_tokens > 0
        if self.selector:
            segments = self.selector.segments(number, q, observed and catalyst)
        else:
            segments = self.store.segments(number, q, offset)
        observed = observed and self.evictor.judges(number)
        watches = self.selector is not None and self.selector.watches(number)
        uncounted = max(0, self.uncounted - offset)
        # A catalyst's attention is no question's
        counts = self.mass is not None and not catalyst and uncounted < q.shape[1]
        uncounted = uncounted if counts else 0
        apart = counts and self.mass is not None and self.mass.holds
        output, attention = attend(segments, scoring, observed or watches or counts, uncounted, apart)
        if observed:
            kept = attention[0].shape[2] - self.evictor.catalyst_tokens
            self.evictor.observe(number, attention[0][:, 0, :kept])
        if watches and self.selector:
            self.selector.attended(number, attention)
        if counts and self.mass:
            for segment, given in zip(segments, attention, strict=True):
                counted = segment.behind(uncounted) if uncounted else segment
                if counted.mass_rows is not None:
                    self.mass.add(counted.mass_rows, given)
        return output

    def end_pass(self, novelty: Tensor | None = None, kept: int | None = None) -> None:
        """Keep the tokens of the pass, but for a catalyst's.

        Args:
            novelty: -log p of each [T], for methods that ask for it.
            kept: how many of the first tokens to keep, where the memory `keeps_all`; None for all.
        """
        tokens = self.store.tokens - self.evictor.catalyst_tokens if kept is None else kept
        if self.selector:
            self.selector.before_end()
        self.store.end_pass(novelty, tokens)
        self.evictor.end_pass(tokens)
        self.uncounted = max(0, self.uncounted - tokens)
        if self.selector:
            self.selector.end_pass()
        self.recurrent.end_pass()

    def evict(self) -> None:
        """Make room by the evictor's rule.

        Raises:
            OutOfMemory: no room for the entries that stay, beside the old ones.
        """
        self.evictor.evict()
        if self.selector:
            self.selector.after_evict()

    def position_ids(self, tokens: int) -> Tensor:
        """Return how many entries each token of the next pass may see before it, int64 [T] on the host."""
        return self.store.position_ids(tokens)

    def pass_limit(self) -> int:
        """Return how many tokens the next pass may carry at most, however much room there is; never 0."""
        limits = self.store.pass_limit(), self.selector.pass_limit() if self.selector else None
        return min((limit for limit in limits if limit is not None), default=sys.maxsize)

    def recordings_needed(self) -> tuple[Sequence[int], tuple[int, ...]]:
        """Return the kinds of recordings that passes of one token need, and the key with which they serve.

        The kind of the pass that has begun comes first. There are none if it cannot be recorded.
        """
        if not self.store.recordable() or not self.evictor.recordable():
            return (), ()
        key = id(self.mass), *self.store.addresses()
        if self.selector is None:
            return (0,), key
        kinds = self.selector.graph_kinds()
        return kinds, (*key, *self.selector.graph_key()) if kinds else ()

    def as_if(self, kind: int) -> AbstractContextManager[None]:
        """Let passes inside the block be of this kind, to record one before it comes. They choose nothing for good."""
        return self.selector.as_if(kind) if self.selector else nullcontext()

    def make_room(self, tokens: int) -> None:
        """Make room for so many more tokens, so that nothing moves while they come.

        Raises:
            torch.OutOfMemoryError: there is none; what is remembered stays as it was.
        """
        self.store.make_room(tokens)
        if self.selector:
            self.selector.make_room(tokens)

    def same_place(self, other: Memory) -> bool:
        """Tell whether another line of history has its entries at the same addresses, so that recordings serve both."""
        slabs = [each.archive.host.addresses() if each.archive else () for each in (self, other)]
        return self.store.addresses() == other.store.addresses() and slabs[0] == slabs[1]

    def fix(self) -> None:
        """Keep this pass's one token at fixed addresses, in shapes that do not change, so that it can be recorded."""
        self.store.fix()
        if self.selector:
            self.selector.fix()

    def fork(self) -> Self:
        """Return a conversation's own continuation. Entries so far are shared and never written again."""
        child, store = copy.copy(self), self.store.fork()
        child.store, child.evictor = store, self.evictor.fork(store)
        child.selector = self.selector and self.selector.fork(store, self.selector.archive.fork())
        child.recurrent, child.recordings = self.recurrent.fork(), {}
        return child

    def snapshot(self) -> Self:
        """Return the memory as it is now, to go back to within one line of history. It shares all tensors."""
        child, store = copy.copy(self), self.store.snapshot()
        child.store, child.evictor = store, self.evictor.fork(store)
        child.selector = self.selector and self.selector.snapshot(store, self.selector.archive.snapshot())
        child.recurrent = copy.copy(self.recurrent)
        return child

    def usage(self) -> Usage:
        """Return entries and bytes per tier, from the tensors themselves."""
        usage = self.store.usage()
        if self.selector:
            usage = self.selector.usage(self.selector.archive.usage(usage))
        states = usage.bytes[DEVICE] + self.recurrent.nbytes()
        return dataclasses.replace(usage, bytes={**usage.bytes, DEVICE: states})

    def positions(self, layer: int) -> Tensor:
        """Return the source position of every entry, int32 [H, N]; -1 for entries that are not in the source."""
        row = self.selector.positions() if self.selector else None
        return self.store.positions(layer) if row is None else row.expand(self.spec.layers[layer].kv_heads, -1)

    def remembered(self, tokens: int) -> Tensor:
        """Return the share of KV heads that hold an entry of each source token, float32 [tokens] on the host, 0 to 1.

        Counted are the heads of layers without a sliding window, if there are any: with one they would not see it.
        """
        row = self.selector.positions() if self.selector else None
        if row is not None:
            known = torch.zeros(tokens)
            known[row[row >= 0].long()] = 1.0
            return known
        held = torch.zeros(tokens + 1, dtype=torch.int64)  # the last: not in the source
        layers = list(enumerate(self.spec.layers))
        layers = [(number, layer) for number, layer in layers if layer.sliding_window is None] or layers
        for number, _ in layers:
            place = self.store.positions(number).flatten().long()
            held += torch.where(place < 0, tokens, place).bincount(minlength=tokens + 1).cpu()
        shares = held[:tokens] / sum(layer.kv_heads for _, layer in layers)
        return torch.maximum(shares, self.archive.remembered(tokens)) if self.archive else shares

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Return tensors and JSON-able facts for `load`; of a fork, only its own share."""
        parts: Parts = {STATES: Part(self.recurrent.now)} if self.recurrent.now else {}
        own, meta = self.store.state()
        if self.last_hidden is not None and "slots" in own:
            own["slots"].tensors["last_hidden"] = self.last_hidden
        parts |= own
        judged, facts = self.evictor.state()
        parts |= {EVICTOR: Part(judged)} if judged else {}
        meta |= facts
        if self.selector:
            parts |= self.selector.archive.state()
            selected, facts = self.selector.state()
            parts, meta = {**parts, **selected}, {**meta, **facts}
        return parts, meta

    def load(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Take back a state. Called on an empty memory, or on a fresh fork of the same context."""
        saved = parts[STATES] if self.spec.recurrent else {}
        self.recurrent.now = {name: state.to(self.spec.device, copy=True) for name, state in saved.items()}
        self.store.load(parts, meta)
        hidden = parts.get("slots", {}).get("last_hidden")
        self.last_hidden = None if hidden is None else hidden.to(self.spec.device)
        self.evictor.load(parts.get(EVICTOR, {}), meta)
        if self.selector:
            self.selector.archive.load(parts)
            self.selector.load(parts, meta)
