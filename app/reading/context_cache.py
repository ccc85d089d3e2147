"""Contexts and conversations that are open in memory.

All sessions over a context share one copy of it. What is open stays within one limit, which holds for a GPU's memory
and for the machine's alike: the context that has not been used for longest goes from the GPU to host memory, and from
there it is forgotten, for it is on disk anyway. The context in use stays, however large.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from app.lru_cache import LruCache
from app.reading.token_stream import Stream
from sessions import ContextRow

if TYPE_CHECKING:
    import engine


@dataclass(frozen=True)
class OpenContext:
    """A reading that can be talked with.

    share: of the text, what had been read where it was not finished, 0 to 1; None if it is.
    """

    row: ContextRow
    model: "engine.Model"
    context: "engine.Context"
    stream: Stream
    stamps: dict[str, tuple[int, int, int]]  # of its files, as they were before they were checked
    share: float | None = None


@dataclass
class OpenConversation:
    """A session's continuation of its context."""

    opened: OpenContext
    conversation: "engine.Conversation"
    stamps: dict[str, tuple[int, int, int]]  # of the files of its tail


@dataclass(frozen=True)
class OffloadedContext:
    """A context in host memory: nothing of it is on the device, and nothing need be read from disk to go on."""

    opened: OpenContext  # with an empty memory
    parts: "engine.LoadedParts"
    meta: dict[str, Any]
    bytes: int  # of its tensors, those left out that are mapped from disk

    @classmethod
    def offload(cls, opened: OpenContext) -> "OffloadedContext":
        """Bring a context's tensors to host memory."""
        context = opened.context
        parts, meta = context.state()
        on_host = {name: {key: t.cpu() for key, t in part.tensors.items()} for name, part in parts.items()}
        mapped = context.memory.usage().bytes.get("disk", 0)
        size = sum(tensor.nbytes for part in on_host.values() for tensor in part.values()) - mapped
        empty = context.method.new_memory(context.model.spec, context.model.turn_length)
        return cls(replace(opened, context=replace(context, memory=empty)), on_host, meta, size)

    def reload(self) -> OpenContext:
        """Bring it back to the device."""
        context = self.opened.context
        loaded = type(context).load(context.model, context.method, self.parts, self.meta)
        loaded.memory.adopt(self.parts)
        return replace(self.opened, context=loaded)


class ContextCache:
    """The contexts in memory, least recently used first. Safe to use from several threads."""

    def __init__(self, limit: int, conversations: "LruCache[str, OpenConversation]") -> None:
        """limit: bytes of all of them, on the device and in host memory each; conversations: those that are open."""
        self.limit = limit
        self._conversations = conversations
        self._open: OrderedDict[str, OpenContext] = OrderedDict()
        self._offloaded: OrderedDict[str, OffloadedContext] = OrderedDict()
        self._lock = threading.RLock()  # also held while a context is loaded: it is loaded once

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
        """What `load` gives; where memory runs out, whatever the limit, all others make room first."""
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
        """Put away what has not been used for longest, but for one context, until so many bytes more are allowed."""
        while True:
            over = {tier for tier, held in self.bytes().items() if held + coming > self.limit}
            if self._offloaded and "host" in over:
                self._offloaded.popitem(last=False)
            elif over and len(self._open) > (keep in self._open):
                self._offload(next(key for key in self._open if key != keep))
            else:
                return

    def _offload(self, key: str) -> None:
        """From a GPU to host memory; else it is on disk anyway."""
        opened = self._open[key]
        self.drop(key)
        if opened.model.device.type != "cpu":
            self._offloaded[key] = OffloadedContext.offload(opened)

    def bytes(self) -> dict[str, int]:
        """Bytes in use, "device" and "host"; without a GPU all is on the host. Tails of conversations included."""
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
        """Whether the context is ready to be asked."""
        return key in self._open

    def ids(self) -> list[str]:
        """The ids of the contexts that are held."""
        return [*self._open, *self._offloaded]

    def drop(self, key: str) -> None:
        """Forget a context and the conversations over it; their tails were saved at the end of their last turns."""
        with self._lock:
            opened = self._open.pop(key, None)
            self._offloaded.pop(key, None)
            self._conversations.drop_where(lambda each: each.opened is opened)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._open.clear()
            self._offloaded.clear()
