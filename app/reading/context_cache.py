"""Contexts and conversations that are open in memory.

All sessions over a context share one copy of it. Open contexts stay within one limit, on the GPU and in host memory
each. The context that was not used for longest moves from the GPU to host memory, and from there it is dropped; it is
on disk anyway. The context in use stays, however large.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from app.lru_cache import LruCache
from app.reading.token_stream import Stream
from sessions import ContextRow

if TYPE_CHECKING:
    import engine


@dataclass(frozen=True)
class OpenContext:
    """A context that can be asked.

    stamps: sizes and times of its files, from before they were checked.
    share: share of the text that was read, 0 to 1; None for a finished reading.
    """

    row: ContextRow
    model: "engine.Model"
    context: "engine.Context"
    stream: Stream
    stamps: dict[str, tuple[int, int, int]]
    share: float | None = None

    @cached_property
    def parameters(self) -> int:
        """Number of the model's weights."""
        import engine

        spec = self.model.spec
        return engine.model_sizes(self.model.network.config, spec.dtype, spec.device).parameters

    @property
    def known(self) -> int:
        """Number of the text's tokens that were read."""
        tokens, prefix = len(self.stream.ids), len(self.model.chat.prefix)
        return tokens if self.share is None else min(tokens, max(0, self.context.memory.seen - prefix))

    @cached_property
    def finder(self) -> "engine.Finder":
        """Finds passages of the text; made at the first question, in about four seconds for a million tokens."""
        import engine

        return engine.Finder(self.stream.ids, self.model.decode)

    @cached_property
    def _cut(self) -> "LruCache[int, OpenContext]":
        return LruCache(1)

    def until(self, end: int) -> "OpenContext":
        """Return the context with the first `end` tokens of its text: nothing of the rest is searched or cited."""
        if end == len(self.stream.ids):
            return self
        return self._cut.get(end, lambda: replace(self, stream=self.stream.until(end)))


@dataclass
class OpenConversation:
    """A session's conversation over its context. stamps: sizes and times of its saved files."""

    opened: OpenContext
    conversation: "engine.Conversation"
    stamps: dict[str, tuple[int, int, int]]


@dataclass(frozen=True)
class OffloadedContext:
    """A context in host memory: it needs nothing on the device, and nothing from disk to go on.

    opened: the context with an empty memory.
    parts, meta: its saved state.
    bytes: size of its tensors, without those mapped from disk.
    """

    opened: OpenContext
    parts: "engine.LoadedParts"
    meta: dict[str, Any]
    bytes: int

    @classmethod
    def offload(cls, opened: OpenContext) -> "OffloadedContext":
        """Copy a context's tensors to host memory."""
        context = opened.context
        parts, meta = context.state()
        on_host = {name: {key: t.cpu() for key, t in part.tensors.items()} for name, part in parts.items()}
        mapped = context.memory.usage().bytes.get("disk", 0)
        size = sum(tensor.nbytes for part in on_host.values() for tensor in part.values()) - mapped
        empty = context.method.new_memory(context.model.spec, context.model.turn_length)
        return cls(replace(opened, context=replace(context, memory=empty)), on_host, meta, size)

    def reload(self) -> OpenContext:
        """Return the context on its device again."""
        context = self.opened.context
        loaded = type(context).load(context.model, context.method, self.parts, self.meta)
        if loaded.memory.archive:
            loaded.memory.archive.use_mapped_files(self.parts)
        return replace(self.opened, context=loaded)


class ContextCache:
    """The open contexts, least recently used first. Safe to use from several threads."""

    def __init__(self, limit: int, conversations: "LruCache[str, OpenConversation]") -> None:
        """Start with no context open.

        Args:
            limit: bytes for all contexts, on the device and in host memory each.
            conversations: the open conversations, which count too.
        """
        self.limit = limit
        self._conversations = conversations
        self._open: OrderedDict[str, OpenContext] = OrderedDict()
        self._offloaded: OrderedDict[str, OffloadedContext] = OrderedDict()
        self._lock = threading.RLock()  # also held while a context is loaded, so that it is loaded once

    def get(self, key: str, expected: int, load: Callable[[], OpenContext]) -> OpenContext:
        """Return an open context; reload it from host memory or load it first, with room made for `expected` bytes."""
        with self._lock:
            if key not in self._open:
                offloaded = self._offloaded.pop(key, None)
                self._make_room(expected, key)
                self._open[key] = self._load(offloaded.reload if offloaded else load)
            self._open.move_to_end(key)
            self._make_room(0, key)
            return self._open[key]

    def _load(self, load: Callable[[], OpenContext]) -> OpenContext:
        """Call `load`; if memory runs out, offload all open contexts and call it again."""
        import engine

        try:
            return load()
        except engine.OutOfMemory:
            if not self._open:
                raise
        for key in list(self._open):
            self._offload(key)
        return load()

    def _make_room(self, coming: int, keep: str) -> None:
        """Offload or drop the least recently used contexts, except `keep`, until `coming` more bytes are allowed."""
        while True:
            over = {tier for tier, held in self.bytes().items() if held + coming > self.limit}
            if self._offloaded and "host" in over:
                self._offloaded.popitem(last=False)
            elif over and len(self._open) > (keep in self._open):
                self._offload(next(key for key in self._open if key != keep))
            else:
                return

    def _offload(self, key: str) -> None:
        """Move a context from the GPU to host memory; without a GPU, drop it."""
        opened = self._open[key]
        self.drop(key)
        if opened.model.device.type != "cpu":
            self._offloaded[key] = OffloadedContext.offload(opened)

    def bytes(self) -> dict[str, int]:
        """Return the bytes in use by tier, "device" and "host", with conversations. Without a GPU all is on the
        host.
        """
        total = {"device": 0, "host": sum(each.bytes for each in list(self._offloaded.values()))}
        conversations = self._conversations.values()
        for opened in list(self._open.values()):
            base = opened.context.usage().bytes
            tails = [each.conversation.usage().bytes for each in conversations if each.opened is opened]
            for tier in ("device", "host"):
                held = base.get(tier, 0) + sum(max(0, tail.get(tier, 0) - base.get(tier, 0)) for tail in tails)
                total[tier if opened.model.device.type != "cpu" else "host"] += held
        return total

    def __contains__(self, key: str) -> bool:
        """Return whether the context is ready to be asked."""
        return key in self._open

    def ids(self) -> list[str]:
        """Return the ids of all contexts held, open or offloaded."""
        return [*self._open, *self._offloaded]

    def drop(self, key: str) -> None:
        """Drop a context and the conversations over it, which were saved after their last turns."""
        with self._lock:
            opened = self._open.pop(key, None)
            self._offloaded.pop(key, None)
            self._conversations.drop_where(lambda each: each.opened is opened)

    def clear(self) -> None:
        """Drop every context held."""
        with self._lock:
            self._open.clear()
            self._offloaded.clear()
