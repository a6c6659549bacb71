"""A memory of rows that requests need, never older than one second.

A request that finds its entry young enough waits for nothing. Entries in use are renewed in the background before
they are too old, so that a busy key is never waited for; all that are due at one time share one query.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

from tools_app.models.bridge import in_store
from tools_app.telemetry.tallies import tallies

K = TypeVar("K")
V = TypeVar("V")

RENEW_AFTER = 0.4
TOO_OLD_AFTER = 0.9
MOST_ENTRIES = 20_000
HANGS_AFTER = 1.0


class _Entry(NamedTuple, Generic[V]):
    value: V | None
    loaded_at: float


class Ring(Generic[K, V]):
    """Rows by key, loaded by `load`, which gets all keys that are due and returns those that exist.

    Belongs to one event loop. Unknown keys are remembered too, so that a flood of them is not a flood of queries.
    """

    def __init__(self, load: Callable[[Sequence[K]], Mapping[K, V]]) -> None:
        self._load = load
        self._name = load.__module__.rpartition(".")[2]
        self._entries: dict[K, _Entry[V]] = {}
        self._due: dict[K, asyncio.Future[V | None]] = {}
        self._loading: set[K] = set()
        self._loader: asyncio.Task[None] | None = None

    async def get(self, key: K) -> V | None:
        """The row of `key`, or None if there is none. Raises what the query raises when it is not in memory."""
        entry = self._entries.get(key)
        age = monotonic() - entry.loaded_at if entry is not None else TOO_OLD_AFTER
        if entry is None or age >= TOO_OLD_AFTER:
            tallies.add("mcphub_ring_misses_total", 1, (self._name,))
            # Not from the entries: a doorbell may have dropped the entry again by now.
            return await asyncio.shield(self._renewal(key))
        if age > RENEW_AFTER:
            self._renewal(key)
        return entry.value

    async def renew(self, keys: Iterable[K]) -> None:
        """Read these entries anew, in one query. Raises what the query raises."""
        for renewal in [self._renewal(key) for key in keys]:
            await asyncio.shield(renewal)

    async def fresh(self, key: K) -> V | None:
        """The row of `key` as it is now: read after this was asked. Raises what the query raises."""
        return await asyncio.shield(self._renewal(key))

    def forget(self, key: K) -> None:
        """Drop one entry, also one that is being read: the next request reads it anew."""
        self._entries.pop(key, None)
        self._loading.discard(key)

    def forget_all(self) -> None:
        """Drop every entry."""
        self._entries.clear()
        self._loading.clear()

    def _renewal(self, key: K) -> asyncio.Future[V | None]:
        renewal = self._due.get(key)
        if renewal is None:
            renewal = self._due[key] = asyncio.get_running_loop().create_future()
            renewal.add_done_callback(_look_at)
            if self._loader is None or self._loader.done():
                self._loader = asyncio.create_task(self._load_what_is_due())
        return renewal

    async def _load_what_is_due(self) -> None:
        while self._due:
            due, self._due = self._due, {}
            self._loading = set(due)
            started = monotonic()
            try:
                rows = await in_store(self._load, list(due))
            except Exception as problem:  # noqa: BLE001 - handed to whoever waits for these keys
                _fail(due.values(), problem)
                if monotonic() - started > HANGS_AFTER:
                    # Whoever came meanwhile would wait as long again for a store that hangs.
                    late, self._due = self._due, {}
                    _fail(late.values(), problem)
                continue
            self._keep({key: _Entry(rows.get(key), started) for key in due if key in self._loading})
            for key, renewal in due.items():
                if not renewal.done():
                    renewal.set_result(rows.get(key))

    def _keep(self, fresh: Mapping[K, _Entry[V]]) -> None:
        for key in fresh:
            self._entries.pop(key, None)
        self._entries.update(fresh)
        while len(self._entries) > MOST_ENTRIES:
            self._entries.pop(next(iter(self._entries)))


def _fail(renewals: Iterable[asyncio.Future[V | None]], problem: Exception) -> None:
    for renewal in renewals:
        if not renewal.done():
            renewal.set_exception(problem)


def _look_at(renewal: asyncio.Future[V | None]) -> None:
    """A background renewal that failed is tried again by the next request; its error is not reported twice."""
    if not renewal.cancelled():
        renewal.exception()
