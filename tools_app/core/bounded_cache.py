"""In-memory caches bounded in bytes and in entries, regardless of what clients and tenants send."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Generic, ParamSpec, TypeVar

K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")

MAX_NAME = 256


class BoundedCache(Generic[K, V]):
    """A cache of the entries that were put last. An entry larger than `max_bytes` is not stored.

    Not thread-safe: callers in several threads hold a lock.
    """

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._entries: dict[K, V] = {}
        self._sizes: dict[K, int] = {}
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self.size = 0
        # Returns the value of a key, or None. The dictionary's method, because requests call it several times.
        self.get: Callable[[K], V | None] = self._entries.get

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def put(self, key: K, value: V, size: int) -> None:
        """Store a value of `size` bytes and evict the oldest entries if needed."""
        self.pop(key)
        if size > self._max_bytes:
            return
        self._entries[key] = value
        self._sizes[key] = size
        self.size += size
        while self.size > self._max_bytes or len(self._entries) > self._max_entries:
            self.pop(next(iter(self._entries)))

    def pop(self, key: K) -> V | None:
        """Remove a key and return its value, or None."""
        self.size -= self._sizes.pop(key, 0)
        return self._entries.pop(key, None)

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self._sizes.clear()
        self.size = 0


def cached_for_short_names(maxsize: int) -> Callable[[Callable[P, V]], Callable[P, V]]:
    """Cache a function's results by name. Names longer than MAX_NAME are not cached."""

    def decorate(function: Callable[P, V]) -> Callable[P, V]:
        remembered = lru_cache(maxsize)(function)

        def cached(*args: P.args, **kwargs: P.kwargs) -> V:
            name = args[0]
            if isinstance(name, str) and len(name) > MAX_NAME:
                return function(*args, **kwargs)
            return remembered(*args, **kwargs)  # type: ignore[arg-type]

        cached.__doc__, cached.__name__ = function.__doc__, function.__name__
        return cached

    return decorate
