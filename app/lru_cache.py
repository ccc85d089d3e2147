"""A small dictionary that forgets what has not been used for longest."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """At most `most` values, made on demand; safe to use from several threads."""

    def __init__(self, most: int) -> None:
        """most: how many values are kept, at least 1."""
        self._most = most
        self._held: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.RLock()  # also held while a value is made: it is made once

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of `key`, made if it is not held; room is made before that, so that two never overlap in vain."""
        with self._lock:
            if key not in self._held:
                while len(self._held) >= self._most:
                    self._held.popitem(last=False)
                self._held[key] = make()
            self._held.move_to_end(key)
            return self._held[key]

    def drop(self, key: Key) -> None:
        """Forget one value, if it is held."""
        with self._lock:
            self._held.pop(key, None)

    def ids(self) -> list[Key]:
        """The keys of what is held."""
        with self._lock:
            return list(self._held)

    def values(self) -> list[Value]:
        """All that is held, what has not been used for longest first."""
        with self._lock:
            return list(self._held.values())

    def drop_where(self, unwanted: Callable[[Value], bool]) -> None:
        """Forget the values that are unwanted."""
        with self._lock:
            for key in [key for key, value in self._held.items() if unwanted(value)]:
                del self._held[key]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._held.clear()
