"""A small cache that drops the least recently used values."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """At most `most` values, made on demand. Safe to use from several threads."""

    def __init__(self, most: int) -> None:
        """Start empty. most: number of values to keep, at least 1."""
        self._most = most
        self._held: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.RLock()  # also held while a value is made, so that it is made once

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the value of `key`; make it if it is missing, after room for it is made."""
        with self._lock:
            if key not in self._held:
                while len(self._held) >= self._most:
                    self._held.popitem(last=False)
                self._held[key] = make()
            self._held.move_to_end(key)
            return self._held[key]

    def drop(self, key: Key) -> None:
        """Drop one value, if it is held."""
        with self._lock:
            self._held.pop(key, None)

    def ids(self) -> list[Key]:
        """Return the keys of all values held."""
        with self._lock:
            return list(self._held)

    def values(self) -> list[Value]:
        """Return all values held, least recently used first."""
        with self._lock:
            return list(self._held.values())

    def drop_where(self, unwanted: Callable[[Value], bool]) -> None:
        """Drop the values that are unwanted."""
        with self._lock:
            for key in [key for key, value in self._held.items() if unwanted(value)]:
                del self._held[key]

    def clear(self) -> None:
        """Drop every value held."""
        with self._lock:
            self._held.clear()
