"""A text that reaches one length after another: read, or filled in where to read it would take too long.

What is filled in goes the way of what is read, through the same loop and the same memory, which condenses, codes and
judges it by its own rules. Only the model's layers are left out: each of them is given noise for queries, keys and
values, the same for all layers of a pass, and spread as its own projections of normed noise would be.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.random_models import SPREAD
from engine import Method, Model
from engine.context import Context, new_memory
from engine.measure import said_if_out
from engine.memories.memory import NOT_IN_SOURCE, Memory, no_source
from engine.passes import condense, feed

LAST = 2  # passes before a length that are read in any case, the second of which says how fast reading is there


def noise(model: Model, tokens: int) -> Tensor:
    """A text; the same for whoever reads it."""
    return torch.randint(model.network.config.vocab_size, (tokens,), generator=torch.Generator().manual_seed(2))


def entries(model: Model, heads: int, tokens: int, size: int) -> Tensor:
    """What a projection makes of so many tokens [heads, tokens, size], if they are noise after its norm."""
    spread = SPREAD * model.network.config.hidden_size**0.5
    return torch.randn(heads, tokens, size, dtype=model.spec.dtype, device=model.device).mul_(spread)


class Filling(Model):
    """A model that leaves its layers out where tokens of a text pass; what is no text, such as a catalyst, is read."""

    def __init__(self, model: Model) -> None:
        """The same in all else."""
        vars(self).update(vars(model))

    def forward(self, ids: Tensor, memory: Memory, source: Tensor, repeated: bool = False) -> Tensor:
        """Noise [T, hidden]; see `Model.forward`."""
        if source[-1] == NOT_IN_SOURCE:
            return super().forward(ids, memory, source, repeated)
        with said_if_out(self.device, f"in a pass of {len(ids)} tokens"), torch.no_grad():
            memory.begin(source)
            guests = memory.guests()
            count = len(ids) + (0 if guests is None else guests.count)
            made: dict[tuple[int, int, int], tuple[Tensor, ...]] = {}
            for number, layer in enumerate(self.spec.layers):
                shape = layer.query_heads, layer.kv_heads, layer.head_size
                if shape not in made:
                    heads = layer.query_heads, layer.kv_heads, layer.kv_heads
                    made[shape] = tuple(entries(self, each, count, layer.head_size) for each in heads)
                memory.arrive(number, *made[shape])
            hidden = self.network.config.hidden_size
            return torch.randn(len(ids), hidden, dtype=self.spec.dtype, device=self.device)


class Growing:
    """A text in a method's memory. total: its tokens; done: of these, those in the memory; read: of these, those that
    were read. All with the model's own prefix.
    """

    def __init__(self, model: Model, method: Method) -> None:
        """Nothing yet."""
        self.model, self.method = model, method
        self.memory = new_memory(model, method)
        self.filling = Filling(model)
        self.done = self.read = 0

    def extend(self, tokens: int, chunk: int) -> None:
        """From now on it has so many tokens, which come in passes of `chunk` at most.

        Raises:
            OutOfMemory: the host's memory cannot hold what is still to come.
        """
        prefix, ids = torch.tensor(self.model.chat.prefix, dtype=torch.int64), noise(self.model, tokens)
        spans = self.method.spans(tokens, len(prefix))
        places = [torch.arange(begin, end, dtype=torch.int32) for begin, end in spans]
        self._ids = torch.cat([prefix, *(ids[begin:end] for begin, end in spans)])
        self._source = torch.cat([no_source(len(prefix)), *places])
        self._tokens, self._chunk, self.total = tokens, chunk, len(self._ids)
        self.memory.reserve(self.total)
        self.memory.require_rest()

    @property
    def behind(self) -> int:
        """Where its last passes begin."""
        return max(0, self.total - LAST * self._chunk)

    def reads(self, end: int) -> Iterator[None]:
        """Read on, pass by pass, up to a place."""
        for tokens in self._feeds(self.model, end):
            self.read += tokens
            yield

    def fills(self, end: int) -> Iterator[None]:
        """Fill in, pass by pass, up to a place."""
        for _ in self._feeds(self.filling, end):
            yield

    def _feeds(self, model: Model, end: int) -> Iterator[int]:
        rest = slice(self.done, end)
        for step in feed(model, self.method, self.memory, self._ids[rest], self._source[rest], self._chunk):
            self.done += step.tokens
            yield step.tokens

    def context(self) -> Context:
        """The text so far, as a reader leaves it at its end."""
        if self.memory.wants_room():
            condense(self.model, self.method, self.memory)
        return Context(self.model, self.method, self.memory, self._tokens)
