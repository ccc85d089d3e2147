"""A text that grows to one length after another: read, or filled in where reading would take too long.

Filled-in tokens go through the same loop and memory, which condenses, quantises and scores them as usual. Only the
model's layers are skipped: queries, keys and values are noise, the same for all layers of a pass, with the spread that
projections of normalised noise would have. Once an archive has a full slab, further slabs share its tensors
(`aliases.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.gpu_check.aliases import alias, aliases
from benchmarks.random_models import SPREAD
from engine import Method, Model
from engine.loops.context import Context, new_memory
from engine.loops.passes import condense, feed
from engine.memory import Memory
from engine.memory_usage import oom_as_engine_error
from engine.parts.archive import tier_plan
from engine.parts.mass import NOT_IN_SOURCE, no_source

LAST = 3  # passes before a length that are always read; their median gives the reading speed there


def noise(model: Model, tokens: int) -> Tensor:
    """Return the ids of a random text from a fixed seed."""
    return torch.randint(model.network.config.vocab_size, (tokens,), generator=torch.Generator().manual_seed(2))


def entries(model: Model, heads: int, tokens: int, size: int) -> Tensor:
    """Return noise [heads, tokens, size] with the spread of a projection of normalised noise."""
    spread = SPREAD * model.network.config.hidden_size**0.5
    return torch.randn(heads, tokens, size, dtype=model.spec.dtype, device=model.device).mul_(spread)


class Filling(Model):
    """A model that skips its layers for tokens of a text; other tokens, such as a catalyst, are read."""

    def __init__(self, model: Model) -> None:
        """Copy everything else from a model."""
        vars(self).update(vars(model))

    def forward(self, ids: Tensor, memory: Memory, source: Tensor, repeated: bool = False) -> Tensor:
        """Return noise [T, hidden] for tokens of a text; see `Model.forward`."""
        if source[-1] == NOT_IN_SOURCE:
            return super().forward(ids, memory, source, repeated)
        with oom_as_engine_error(self.device, f"in a pass of {len(ids)} tokens"), torch.no_grad():
            memory.begin_pass(source)
            extra_tokens = memory.evictor.extra_tokens()
            count = len(ids) + (0 if extra_tokens is None else extra_tokens.count)
            made: dict[tuple[int, int, int], tuple[Tensor, ...]] = {}
            for number, layer in enumerate(self.spec.layers):
                shape = layer.query_heads, layer.kv_heads, layer.head_size
                if shape not in made:
                    heads = layer.query_heads, layer.kv_heads, layer.kv_heads
                    made[shape] = tuple(entries(self, each, count, layer.head_size) for each in heads)
                memory.append(number, *made[shape])
            hidden = self.network.config.hidden_size
            return torch.randn(len(ids), hidden, dtype=self.spec.dtype, device=self.device)


class Growing:
    """A text in a method's memory. All counts include the model's prefix.

    Attributes:
        total: its tokens.
        done: tokens in the memory.
        read: tokens in the memory that were read.
        aliased: tokens in the memory whose entries share the tensors of others.
    """

    def __init__(self, model: Model, method: Method) -> None:
        """Start with an empty memory."""
        self.model, self.method = model, method
        self.memory = new_memory(model, method)
        self.filling = Filling(model)
        self.done = self.read = self.aliased = 0

    def extend(self, tokens: int, chunk: int) -> None:
        """Extend the text to `tokens` tokens, in passes of at most `chunk`.

        Raises:
            OutOfMemory: the host's memory cannot hold the rest.
        """
        prefix, ids = torch.tensor(self.model.chat.prefix, dtype=torch.int64), noise(self.model, tokens)
        spans = self.method.spans(tokens, len(prefix))
        places = [torch.arange(begin, end, dtype=torch.int32) for begin, end in spans]
        self._ids = torch.cat([prefix, *(ids[begin:end] for begin, end in spans)])
        self._source = torch.cat([no_source(len(prefix)), *places])
        self._tokens, self._chunk, self.total = tokens, chunk, len(self._ids)
        self.memory.reserve(self.total)
        if self.memory.archive:
            self.memory.archive.check_room()

    @property
    def behind(self) -> int:
        """Start of the last passes."""
        return max(0, self.total - LAST * self._chunk)

    def reads(self, end: int) -> Iterator[int]:
        """Read up to `end`, yielding the tokens of each pass."""
        for tokens in self._feeds(self.model, end):
            self.read += tokens
            yield tokens

    def to_fill(self, end: int) -> int:
        """Return how many entries of their own it takes to fill in up to `end`; the rest are aliases."""
        missing = max(0, end - self.done)
        return min(missing, 2 * tier_plan.SLAB) if self.memory.archive else missing

    def fills(self, end: int) -> Iterator[int]:
        """Fill in up to `end`, yielding the tokens of each pass that makes entries of its own."""
        while self.done < end:
            added = alias(self.memory, end - self.done)
            self.done, self.aliased = self.done + added, self.aliased + added
            for tokens in self._feeds(self.filling, end):
                yield tokens
                if aliases(self.memory, end - self.done):
                    break

    def _feeds(self, model: Model, end: int) -> Iterator[int]:
        rest = slice(self.done, end)
        for step in feed(model, self.method, self.memory, self._ids[rest], self._source[rest], self._chunk):
            self.done += step.tokens
            yield step.tokens

    def context(self) -> Context:
        """Return the context of the text so far, as a reader does at its end."""
        if self.memory.evictor.needs_final_eviction():
            condense(self.model, self.method, self.memory)
        return Context(self.model, self.method, self.memory, self._tokens)
