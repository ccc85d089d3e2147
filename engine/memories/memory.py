"""What every method's memory offers the reader and the conversation.

One object for all layers. A forward pass goes `begin`, then `attend` once per layer, then `commit`: nothing is
remembered before `commit`, so a pass that fails or is thrown away leaves the memory as it was. Keys are kept before
RoPE; rotated keys are a cache of them. Sizes: L layers, H KV heads, HQ query heads, T tokens, D head size.
"""

from __future__ import annotations

import copy
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor

from engine.memories.static_pass import Recorded, StaticPass
from engine.models.attention_interface import ExtraTokens
from engine.models.spec import ModelSpec, Scoring
from engine.records import LoadedParts, Part, Parts, Usage

UNLIMITED = sys.maxsize
STATES = "states"  # the part of what is saved that holds those of recurrent layers
NOT_IN_SOURCE = -1  # the source position of the prefix, the questions and the answers


def no_source(tokens: int) -> Tensor:
    """The source positions of so many tokens of no text, int32 [T]."""
    return torch.full((tokens,), NOT_IN_SOURCE, dtype=torch.int32)


class AttentionMass:
    """Attention probability summed by the source position it fell on, over layers and heads, while watched."""

    def __init__(self, source_tokens: int, device: torch.device) -> None:
        """source_tokens: positions of the source, that is, the length of `total`."""
        self.sums = torch.zeros(source_tokens + 1, dtype=torch.float32, device=device)  # the last: of what is no source

    @property
    def total(self) -> Tensor:
        """float32 [source_tokens]."""
        return self.sums[:-1]

    def clear(self) -> None:
        """Begin anew, in the same place."""
        self.sums.zero_()

    def add(self, source: Tensor, probability: Tensor) -> None:
        """Count probabilities [...] that fell on the source positions, broadcastable to them.

        What heads or queries gave to positions that they share is summed up before: to add one by one at the same
        address is slow.
        """
        place = source.reshape(-1).to(self.sums.device, torch.int64)
        place = torch.where(place < 0, len(self.sums) - 1, place)
        self.sums.index_add_(0, place, probability.sum_to_size(source.shape).reshape(-1).to(self.sums))


class Memory(ABC):
    """The live KV state of one reader. Subclasses: one per way of keeping entries."""

    def __init__(self, spec: ModelSpec) -> None:
        """An empty memory for a model like `spec`."""
        self.spec = spec
        self.seen = 0  # tokens committed since the beginning, whether still remembered or not
        self.last_hidden: Tensor | None = None  # [hidden], what predicts the next token; kept for novelty
        self.predicted: Tensor | None = None  # its logits [vocabulary], where they have been worked out; never saved
        self.mass: AttentionMass | None = None  # set while the passes of an answer are watched
        self.recordings: dict[int, Recorded] = {}  # of passes of one token, by kind; replaced, never changed
        self.states: dict[str, Tensor] = {}  # of recurrent layers (`RecurrentState`); replaced, never changed
        self.base_states: dict[str, Tensor] = {}  # of what it is a fork of
        self._carried: dict[str, Tensor] = {}  # the states after the pass that has been, until `commit`
        self._incoming = torch.zeros(0, dtype=torch.int32)  # on the device; what is counted or kept on the host:
        self._incoming_here = self._incoming

    def begin(self, source: Tensor) -> None:
        """A pass of T tokens begins; source: int32 [T] on the host, the source position each stands for."""
        self._incoming_here = source
        self._incoming = source.to(self.spec.device, non_blocking=True)

    def extra_tokens(self) -> ExtraTokens | None:
        """Tokens of its own that the pass which has begun shall carry behind those that were given."""
        return None

    @abstractmethod
    def arrive(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Take in what a layer has of the pass, q [HQ, T, D] and k, v [H, T, D], all before RoPE; extra tokens last.

        `attend` begins with this. By itself, with any numbers, it fills a memory as reading does, but for attention.
        """

    @abstractmethod
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Attention output [HQ, T, D] for what arrives."""

    def carried(self, states: dict[str, Tensor]) -> None:
        """What recurrent layers know after the pass that has been: `commit` keeps it."""
        self._carried = states

    @abstractmethod
    def commit(self, novelty: Tensor | None = None) -> None:
        """The pass is over: remember its tokens. novelty: -log p of each [T], for methods that ask for it.

        Here: what recurrent layers know after it. Subclasses end with this, as nothing is remembered by halves.
        """
        if self._carried:
            self.states, self._carried = self._carried, {}

    def watched(self) -> Tensor | None:
        """A copy of what has been counted of attention, if anybody watches."""
        return None if self.mass is None else self.mass.sums.clone()

    def watch_from(self, watched: Tensor | None) -> None:
        """Take back what has been counted since, if anybody watched."""
        if self.mass is not None and watched is not None:
            self.mass.sums.copy_(watched)

    @abstractmethod
    def places(self, tokens: int) -> Tensor:
        """Where tokens of the next pass stand in what is remembered, int64 [T] on the host: before each there are as
        many entries as it may see, but for what is looked up. Of a memory without a budget, their numbers.
        """

    def room(self) -> int:
        """How many tokens the next pass may carry; 0 means that the memory must be condensed first."""
        return UNLIMITED

    def wants_room(self) -> bool:
        """Whether it is to be condensed once a text has been read, before anything is said."""
        return False

    def pass_limit(self) -> int:
        """How many tokens the next pass may carry at most, however much room there is; never 0."""
        return UNLIMITED

    @contextmanager
    def observing(self, tokens: int) -> Iterator[None]:
        """While a catalyst passes: the last so many tokens of a pass are its own. What they attend to is noted; they
        are not remembered. Only for methods that have a catalyst.
        """
        raise AssertionError(f"{type(self).__name__} has no catalyst")
        yield

    def observes_behind(self) -> bool:
        """Whether a catalyst may pass behind the tokens of the text that fill the memory, in the same pass."""
        return False

    def condense(self) -> None:
        """Make room by the method's own rule; only called when there is no `room()`, or, for methods that read passages
        again, when it is short.
        """
        raise AssertionError(f"{type(self).__name__} never runs out of room")

    def lets_go(self) -> bool:
        """Whether what leaves it is nowhere else."""
        return True

    def static_kind(self) -> int | None:
        """Of the pass of one token that has begun, its kind, if it can be a `StaticPass`; else None."""
        return None

    def static_addresses(self) -> tuple[int, ...]:
        """Of all that such a pass reads and writes; the same for all kinds."""
        return ()

    def static_widths(self) -> tuple[int, ...]:
        """What else such a pass depends on, and every answer settles anew."""
        return ()

    def static_pass(self, kind: int) -> StaticPass[Any]:
        """One of that kind, over what the memory holds now. Only where there is one."""
        raise AssertionError(f"{type(self).__name__} has no static pass")

    def look_at(self, named: Tensor) -> None:
        """Look only at these tokens of the text, int64 [N], and at what is no part of it, until `focus(None)`. Only for
        memories that let nothing go.
        """
        raise AssertionError(f"{type(self).__name__} does not look for what it shows")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While in it, what comes is read as a text is, also in a conversation."""
        yield

    def looks_again(self) -> bool:
        """Whether a question that comes now is to be asked once more after it, with `focus` between."""
        return False

    def focus(self, mass: Tensor | None) -> None:  # noqa: B027 - most memories keep what they look at and no more
        """Look only where a question gave its attention, float32 [source tokens], until told otherwise; None: it has
        been answered, and the next may look anywhere.

        See `focus.py`.
        """

    def reserve(self, tokens: int) -> None:  # noqa: B027 - most memories have nothing to reserve
        """So many tokens of text are to come in all: a memory that grows may allocate once, and one that treats the
        end of a text differently learns where it is. It may be said again of a text that goes on.
        """

    def require_rest(self) -> None:  # noqa: B027 - most memories have taken what they need
        """See that there is room for what was reserved and has not come yet.

        Raises:
            OutOfMemory: the host's memory cannot hold it.
        """

    @abstractmethod
    def fork(self) -> Self:
        """A conversation's own continuation. What is remembered so far is shared and never written again."""

    def snapshot(self) -> Self:
        """The memory as it is now, to go back to within one line of history; cheap, shares all tensors."""
        return copy.copy(self)

    def full_in_memory(self) -> int:
        """Bytes that `adopt` would free if the memory were saved now, where it has been asked to live on disk."""
        return 0

    def adopt(self, parts: LoadedParts) -> None:  # noqa: B027 - most memories keep nothing on disk
        """What has just been saved or restored, mapped from disk: what is final in it is from now on used there."""

    def state_bytes(self) -> int:
        """Of the states of recurrent layers; of a fork, those that it began with too."""
        held = {state.data_ptr(): state.nbytes for state in (*self.base_states.values(), *self.states.values())}
        return sum(held.values())

    @abstractmethod
    def usage(self) -> Usage:
        """Entries and bytes per tier, from the tensors themselves."""

    @abstractmethod
    def positions(self, layer: int) -> Tensor:
        """The source position of every entry, int32 [H, N]; -1 for what is not in the source."""

    def remembered(self, tokens: int) -> Tensor:
        """Of each of so many source tokens, the share of KV heads that hold an entry of it.

        Of the heads of all layers without a sliding window, if there are any: with one they would not see it.

        Returns:
            float32 [tokens] on the host, 0 to 1.
        """
        held = torch.zeros(tokens + 1, dtype=torch.int64)  # the last: of what is not in the source
        layers = list(enumerate(self.spec.layers))
        layers = [(number, layer) for number, layer in layers if layer.sliding_window is None] or layers
        for number, _ in layers:
            place = self.positions(number).flatten().long()
            held += torch.where(place < 0, tokens, place).bincount(minlength=tokens + 1).cpu()
        return held[:tokens] / sum(layer.kv_heads for _, layer in layers)

    @abstractmethod
    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Tensors and JSON-able facts from which `restore` rebuilds this memory; of a fork, only its own share.

        Here: the states of recurrent layers, if the model has any.
        """
        return {STATES: Part(self.states)} if self.states else {}, {}

    @abstractmethod
    def restore(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Become what `state` described. Called on an empty memory, or on a fresh fork of the same context.

        Here: the states of recurrent layers.
        """
        saved = parts[STATES] if self.spec.recurrent else {}
        self.states = {name: state.to(self.spec.device, copy=True) for name, state in saved.items()}
