"""An in-memory cache of rows that is never more than one second stale.

A request does not wait for a fresh entry. Entries in use are refreshed in the background before they expire, so that
requests never wait for a busy key; all keys that are due at the same time share one query.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

from tools_app.core.batches import AsyncBatches
from tools_app.core.bounded_cache import BoundedCache
from tools_app.core.database import run_in_db_thread
from tools_app.core.telemetry.registry import metrics_registry

K = TypeVar("K")
V = TypeVar("V")

RENEW_AFTER = 0.4
TOO_OLD_AFTER = 0.9
MAX_ENTRIES = 20_000
# The maximum size of a cache: its values, by `size_of`, and KEY_BYTES for each key.
MAX_BYTES = 64 * 1024 * 1024
KEY_BYTES = 256
# Keys without a row are cached separately: a flood of them must not evict keys with one.
MAX_ABSENT = 20_000
# The maximum number of rows in one query.
MAX_LOAD = 500
HANGS_AFTER = 1.0


class _Entry(NamedTuple, Generic[V]):
    value: V
    loaded_at: float


class RefreshAheadCache(Generic[K, V]):
    """Rows by key, loaded by `load`, which receives all keys that are due and returns those that exist.

    Belongs to one event loop. `size_of` returns the approximate bytes of a value. Keys without a row are cached too,
    so that repeated requests for one cause no queries. For floods of different keys there is `gather_seconds`: unknown
    keys that follow another one within that time wait as long and share a query.
    """

    def __init__(
        self,
        load: Callable[[Sequence[K]], Mapping[K, V]],
        size_of: Callable[[V], int] = lambda _: 0,
        gather_seconds: float = 0.0,
    ) -> None:
        self._load = load
        self._size_of = size_of
        self._gather_seconds = gather_seconds
        self._name = load.__module__.rpartition(".")[2]
        self._entries: BoundedCache[K, _Entry[V]] = BoundedCache(MAX_ENTRIES, MAX_BYTES)
        # When each key was found to have no row.
        self._absent: dict[K, float] = {}
        self._gathered: dict[K, asyncio.Future[V | None]] = {}
        self._gathering: asyncio.AbstractEventLoop | None = None
        self._due: dict[K, asyncio.Future[V | None]] = {}
        self._loading: set[K] = set()
        self._batches: AsyncBatches[K, V | None] = AsyncBatches(self._load_all, MAX_LOAD)

    async def get(self, key: K) -> V | None:
        """Return the row of `key`, or None if there is none. Raises the query's error if it is not cached."""
        entry = self._entries.get(key)
        if entry is None and self.is_absent(key):
            return None
        age = monotonic() - entry.loaded_at if entry is not None else TOO_OLD_AFTER
        if entry is None or age >= TOO_OLD_AFTER:
            metrics_registry.add("mcphub_cache_misses_total", 1, (self._name,))
            # Not from the entries: a notification may have dropped the entry by then.
            return await asyncio.shield(self._renewal(key))
        if age > RENEW_AFTER:
            self._renewal(key)
        return entry.value

    def has_row(self, key: K) -> bool:
        """Return whether `key` had a row at its last read, of any age."""
        return self._entries.get(key) is not None

    def last_row(self, key: K) -> V | None:
        """Return the row of `key` at its last read, of any age, without reading it."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def is_absent(self, key: K) -> bool:
        """Return whether `key` had no row less than a second ago."""
        seen_at = self._absent.get(key)
        return seen_at is not None and monotonic() - seen_at < TOO_OLD_AFTER

    async def renew(self, keys: Iterable[K]) -> None:
        """Refresh these entries in one query. Raises the query's error."""
        for renewal in [self._renewal(key) for key in keys]:
            await asyncio.shield(renewal)

    async def fresh(self, key: K) -> V | None:
        """Return the current row of `key`, read after this call. Raises the query's error."""
        return await asyncio.shield(self._renewal(key))

    def forget(self, key: K) -> None:
        """Drop one entry, even while it is being loaded: the next request loads it again."""
        self._entries.pop(key)
        self._absent.pop(key, None)
        self._loading.discard(key)

    def forget_all(self) -> None:
        """Drop every entry."""
        self._entries.clear()
        self._absent.clear()
        self._loading.clear()

    def _renewal(self, key: K) -> asyncio.Future[V | None]:
        renewal = self._due.get(key) or self._gathered.get(key)
        if renewal is None:
            loop = asyncio.get_running_loop()
            renewal = loop.create_future()
            if self.has_row(key) or self._is_quiet(loop):
                self._due[key] = self._batches.submit(key, renewal)
            else:
                self._gathered[key] = renewal
        return renewal

    def _is_quiet(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether no unknown key was requested recently. From now on, unknown keys are gathered."""
        if not self._gather_seconds:
            return True
        # Not by the clock: a timer may fire early, and keys gathered after it would wait forever.
        if loop is self._gathering:
            return False
        self._gather(loop)
        return True

    def _gather(self, loop: asyncio.AbstractEventLoop) -> None:
        self._gathering = loop
        loop.call_later(self._gather_seconds, self._load_what_is_gathered, loop)

    def _load_what_is_gathered(self, loop: asyncio.AbstractEventLoop) -> None:
        self._gathering = None
        if not self._gathered:
            return
        gathered, self._gathered = self._gathered, {}
        self._gather(loop)
        for key, renewal in gathered.items():
            self._due[key] = self._batches.submit(key, renewal)

    async def _load_all(self, keys: list[K]) -> list[V | None]:
        for key in keys:
            del self._due[key]
        self._loading = set(keys)
        started = monotonic()
        try:
            rows = await run_in_db_thread(self._load, keys)
        except Exception as problem:
            if monotonic() - started > HANGS_AFTER:
                # Keys requested meanwhile would wait as long again for a database that hangs.
                self._due.clear()
                self._batches.fail_waiting(problem)
            raise
        self._store(rows, [key for key in keys if key in self._loading], started)
        return [rows.get(key) for key in keys]

    def _store(self, rows: Mapping[K, V], keys: Sequence[K], started: float) -> None:
        for key in keys:
            self._absent.pop(key, None)
            if key in rows:
                self._entries.put(key, _Entry(rows[key], started), KEY_BYTES + self._size_of(rows[key]))
            else:
                self._entries.pop(key)
                self._absent[key] = started
        while len(self._absent) > MAX_ABSENT:
            del self._absent[next(iter(self._absent))]
