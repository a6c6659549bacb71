"""Taking from limits: rates, and places that are held for a while. Off until an admin sets them.

Counted in memory when the hub runs embedded, in Redis when several processes share the work. A place belongs to the
process that holds it, and is lost with it: it has to be renewed.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from django.conf import settings
from django.utils.module_loading import import_string

from tools_app.auth.allowance import Places, Rate
from tools_app.auth.limits_memory import MemoryStore

if TYPE_CHECKING:
    from tools_app.auth.limits_redis import RedisStore

# How long a place outlives the process that held it.
LEASE_SECONDS: Final = 15.0


class OverLimit(NamedTuple):
    """A rate that is used up, and after how many seconds to try again."""

    rate: Rate
    retry_after: int


async def take(rates: Sequence[Rate], count: int = 1) -> OverLimit | None:
    """Count `count` hits against every rate; against none if one of them has no room, which is the answer."""
    refused = await _store().take(rates, count)
    if refused is None:
        return None
    return OverLimit(rates[refused[0]], max(1, math.ceil(refused[1])))


async def hold(places: Sequence[Places], id: str) -> Places | None:
    """Take one of each of `places`, to be let go by the same `id`; or none: then the one that is full."""
    keys = [place.key for place in places]
    try:
        full = await _store().hold(places, id, LEASE_SECONDS)
    except asyncio.CancelledError:
        # They may be held by now, and nobody would know.
        _store().let_go_soon(keys, id)
        raise
    if full is not None:
        return places[full]
    _held[id] = keys
    return None


def let_go(id: str) -> None:
    """Give back what `id` holds, on the loop on which it was taken. Nothing waits."""
    keys = _held.pop(id, None)
    if keys is not None:
        _store().let_go_soon(keys, id)


async def close() -> None:
    """Close what the running loop has open to count with: the loop ends."""
    await _store().close()


def hand_on(id: str) -> None:
    """Leave what `id` holds to somebody else to renew and to let go."""
    _held.pop(id, None)


def renew() -> None:
    """Hold on to what this process holds. To be done more often than every LEASE_SECONDS, by a thread that can wait."""
    by_key: defaultdict[str, list[str]] = defaultdict(list)
    for id, keys in list(_held.items()):
        for key in keys:
            by_key[key].append(id)
    for key, ids in by_key.items():
        _store().renew(key, ids, LEASE_SECONDS, again=True)
    # What was let go meanwhile must not be held anew.
    for key, ids in by_key.items():
        for id in ids:
            if id not in _held:
                _store().let_go([key], id)


# --- For threads that can wait: places of calls that other processes may let go -----------------------------------


def hold_here(places: Sequence[Places], id: str, seconds: float) -> Places | None:
    """`hold` for so many seconds: nobody renews these, and nobody has to let them go."""
    full = _store().hold_here(places, id, seconds)
    return None if full is None else places[full]


def let_go_of(keys: Sequence[str], id: str) -> None:
    """Give places back, whoever took them."""
    _store().let_go(keys, id)


def renew_for(key: str, ids: Iterable[str]) -> None:
    """Keep places from being lost that are held by now."""
    _store().renew(key, ids, LEASE_SECONDS, again=False)


_held: dict[str, list[str]] = {}


@lru_cache(maxsize=1)
def _store() -> "MemoryStore | RedisStore":
    if not settings.REDIS_URL:
        return MemoryStore()
    # Where there is no Redis, there need not be its client either.
    shared: type[RedisStore] = import_string("tools_app.auth.limits_redis.RedisStore")
    return shared(settings.REDIS_URL, settings.MCPHUB_REDIS_PREFIX)


def forget_all() -> None:
    """Start counting anew (tests)."""
    _held.clear()
    _store.cache_clear()
