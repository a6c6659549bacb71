"""Rate and concurrency limits. Off until an admin sets them.

Counted in memory when the hub runs embedded, in Redis when several processes share the work. A slot is leased by the
process that holds it, which has to renew it: the lease expires with the process.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from django.conf import settings
from django.utils.module_loading import import_string

from tools_app.tenants.limits.memory import MemoryStore
from tools_app.tenants.limits.quotas import ConcurrencyLimit, Rate

if TYPE_CHECKING:
    from tools_app.tenants.limits.redis import RedisStore

# How long a slot outlives the process that held it.
LEASE_SECONDS: Final = 15.0


class OverLimit(NamedTuple):
    """A rate that is used up, and after how many seconds to try again."""

    rate: Rate
    retry_after: int


async def take(rates: Sequence[Rate], count: int = 1) -> OverLimit | None:
    """Count `count` hits against every rate. If one of them is used up, count none and return it."""
    refused = await _store().take(rates, count)
    if refused is None:
        return None
    return OverLimit(rates[refused[0]], max(1, math.ceil(refused[1])))


async def acquire(concurrency_limits: Sequence[ConcurrencyLimit], id: str) -> ConcurrencyLimit | None:
    """Acquire one slot of each limit, to be released by `id`. If one is full, acquire none and return it."""
    keys = [limit.key for limit in concurrency_limits]
    try:
        full = await _store().acquire(concurrency_limits, id, LEASE_SECONDS)
    except asyncio.CancelledError:
        # The slots may have been acquired already, and nothing else would release them.
        _store().release_soon(keys, id)
        raise
    if full is not None:
        return concurrency_limits[full]
    _held[id] = keys
    return None


def release(id: str) -> None:
    """Release the slots of `id`, on the event loop on which they were acquired. Does not block."""
    keys = _held.pop(id, None)
    if keys is not None:
        _store().release_soon(keys, id)


async def close() -> None:
    """Close the running loop's connections, before the loop ends."""
    await _store().close()


def transfer(id: str) -> None:
    """Leave the slots of `id` to another process to renew and release."""
    _held.pop(id, None)


def renew() -> None:
    """Renew this process's slots. Call it more often than every LEASE_SECONDS, from a thread that may block."""
    by_key: defaultdict[str, list[str]] = defaultdict(list)
    for id, keys in list(_held.items()):
        for key in keys:
            by_key[key].append(id)
    for key, ids in by_key.items():
        _store().renew(key, ids, LEASE_SECONDS, again=True)
    # A slot released meanwhile must not be acquired again.
    for key, ids in by_key.items():
        for id in ids:
            if id not in _held:
                _store().release([key], id)


# --- For threads that may block: slots of calls that other processes may release ---------------------------------


def take_blocking(rates: Sequence[Rate]) -> OverLimit | None:
    """Like `take`, for one hit."""
    refused = _store().take_blocking(rates, 1)
    return None if refused is None else OverLimit(rates[refused[0]], max(1, math.ceil(refused[1])))


def acquire_blocking(
    concurrency_limits: Sequence[ConcurrencyLimit], id: str, seconds: float
) -> ConcurrencyLimit | None:
    """Like `acquire`, for a fixed number of seconds: the slots need no renewal and no release."""
    full = _store().acquire_blocking(concurrency_limits, id, seconds)
    return None if full is None else concurrency_limits[full]


def release_of(keys: Sequence[str], id: str) -> None:
    """Release slots, whichever process acquired them."""
    _store().release(keys, id)


def renew_for(key: str, ids: Iterable[str]) -> None:
    """Renew slots that are still held."""
    _store().renew(key, ids, LEASE_SECONDS, again=False)


_held: dict[str, list[str]] = {}


@lru_cache(maxsize=1)
def _store() -> "MemoryStore | RedisStore":
    if not settings.REDIS_URL:
        return MemoryStore()
    # Without Redis, its client need not be installed.
    shared: type[RedisStore] = import_string("tools_app.tenants.limits.redis.RedisStore")
    return shared(settings.REDIS_URL, settings.MCPHUB_PREFIX)


def forget_all() -> None:
    """Reset all counters (tests)."""
    _held.clear()
    _store.cache_clear()
