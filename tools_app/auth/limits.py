"""Calls per minute, by tool, key and tenant: off until an admin sets them.

Counted in memory when the hub runs embedded, in Redis when several processes share the work, by a sliding window.
"""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from django.conf import settings
from limits import RateLimitItemPerMinute
from limits.aio.storage import Storage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.storage import storage_from_string

WINDOW_SECONDS = 60


class Bucket(NamedTuple):
    """What is limited: `scope` is "tool", "key" or "tenant"."""

    scope: str
    id: str
    calls_per_minute: int


@dataclass(frozen=True, slots=True)
class OverLimit:
    """The first limit that is used up, and after how many seconds to try again."""

    scope: str
    calls_per_minute: int
    retry_after: int


async def take(buckets: Iterable[Bucket]) -> OverLimit | None:
    """Count one call against every bucket. The first that is used up is the answer."""
    for bucket in buckets:
        limit = RateLimitItemPerMinute(bucket.calls_per_minute)
        if not await _limiter().hit(limit, bucket.scope, bucket.id):
            return OverLimit(bucket.scope, bucket.calls_per_minute, await _wait(limit, bucket))
    return None


async def _wait(limit: RateLimitItemPerMinute, bucket: Bucket) -> int:
    if bucket.calls_per_minute == 0:
        return WINDOW_SECONDS
    window = await _limiter().get_window_stats(limit, bucket.scope, bucket.id)
    return max(1, math.ceil(window.reset_time - time.time()))


@lru_cache(maxsize=1)
def _limiter() -> SlidingWindowCounterRateLimiter:
    return SlidingWindowCounterRateLimiter(_storage())


def _storage() -> Storage:
    if settings.REDIS_URL:
        storage = storage_from_string(f"async+{settings.REDIS_URL}", implementation="redispy")
    else:
        storage = storage_from_string("async+memory://")
    assert isinstance(storage, Storage)
    return storage


def forget_all() -> None:
    """Start counting anew (tests)."""
    _limiter.cache_clear()
