"""Limits counted in Redis, for all processes together: one script, by Redis's own clock.

Requests that wait on one event loop are sent together, in one round trip. The algorithm is that of `limits.memory`.
While Redis is unreachable, each process counts separately: a limit is no reason to refuse a call that can still be
recorded. Only the requests that detect the failure wait for it, at most PATIENCE_SECONDS; a separate thread checks
when Redis is back.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
import redis
import redis.asyncio
import redis.asyncio.retry
from redis.backoff import NoBackoff
from redis.retry import Retry

from tools_app.core.batches import AsyncBatches
from tools_app.core.circuit_breaker import CircuitBreaker
from tools_app.tenants.limits.memory import BUCKETS, MemoryStore
from tools_app.tenants.limits.quotas import ConcurrencyLimit, Rate

# The longest wait for Redis.
TIMEOUT_SECONDS: Final = 0.5
MAX_BATCH: Final = 200
BOUNDS: Final[dict[str, Any]] = {
    "socket_timeout": TIMEOUT_SECONDS,
    "socket_connect_timeout": TIMEOUT_SECONDS,
}

UNAVAILABLE = (redis.RedisError, OSError, TimeoutError)

SCRIPT: Final = f"""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local does = {{}}

local function window(key, ms)
  local packed = redis.call('GET', key)
  local living, total = {{}}, 0
  for _, bucket in ipairs(packed and cmsgpack.unpack(packed) or {{}}) do
    -- A time in the future was counted before the clock was set back, and is unknown.
    if bucket[2] > now - ms and bucket[2] <= now then
      living[#living + 1] = bucket
      total = total + bucket[3]
    end
  end
  return living, total
end

local function wait(buckets, total, most, ms, count)
  if total + count <= most then return 0 end
  for _, bucket in ipairs(buckets) do
    total = total - bucket[3]
    if total + count <= most then return math.min(ms, bucket[2] + ms - now) end
  end
  return ms
end

local function add(buckets, ms, count)
  local newest = buckets[#buckets]
  if newest and now - newest[1] < ms / {BUCKETS} then
    newest[2] = now
    newest[3] = newest[3] + count
  else
    buckets[#buckets + 1] = {{now, now, count}}
  end
end

function does.take(count, rates)
  local windows = {{}}
  for index, rate in ipairs(rates) do
    local buckets, total = window(rate[1], rate[3])
    local ms = wait(buckets, total, rate[2], rate[3], count)
    if ms > 0 then return {{index, math.ceil(ms)}} end
    windows[index] = buckets
  end
  for index, rate in ipairs(rates) do
    add(windows[index], rate[3], count)
    redis.call('SET', rate[1], cmsgpack.pack(windows[index]), 'PX', rate[3])
  end
  return {{}}
end

function does.hold(ms, id, places)
  for index, place in ipairs(places) do
    redis.call('ZREMRANGEBYSCORE', place[1], '-inf', now)
    redis.call('ZREMRANGEBYSCORE', place[1], '(' .. now + ms, '+inf')
    if not redis.call('ZSCORE', place[1], id) and redis.call('ZCARD', place[1]) >= place[2] then
      return {{index}}
    end
  end
  for _, place in ipairs(places) do
    redis.call('ZADD', place[1], now + ms, id)
    redis.call('PEXPIRE', place[1], ms)
  end
  return {{}}
end

function does.release(id, keys)
  for _, key in ipairs(keys) do redis.call('ZREM', key, id) end
  return {{}}
end

function does.renew(ms, key, ids, again)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  for _, id in ipairs(ids) do
    if again or redis.call('ZSCORE', key, id) then redis.call('ZADD', key, now + ms, id) end
  end
  redis.call('PEXPIRE', key, ms)
  return {{}}
end

local answers = {{}}
for index, request in ipairs(cmsgpack.unpack(ARGV[1])) do
  answers[index] = does[request[1]](unpack(request, 2))
end
return answers
"""

Request = tuple[Any, ...]
Answer = list[Any]


class RedisUnavailable(Exception):
    """Redis did not answer in time."""


class _LoopClient:
    """The requests of one event loop, and the connections that they use."""

    def __init__(self, url: str) -> None:
        client = redis.asyncio.from_url(url, **BOUNDS, retry=redis.asyncio.retry.Retry(NoBackoff(), 1))
        self._script = client.register_script(SCRIPT)
        self.close = client.aclose
        self._batches: AsyncBatches[Request, Answer] = AsyncBatches(self._send_all, MAX_BATCH)
        # A future may raise RedisUnavailable.
        self.send = self._batches.submit

    async def _send_all(self, requests: list[Request]) -> list[Answer]:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                answers: list[Answer] = await self._script(args=[msgspec.msgpack.encode(requests)])
        except UNAVAILABLE as error:
            # Requests that arrived meanwhile have waited long enough, too.
            self._batches.fail_waiting(RedisUnavailable(str(error)))
            raise RedisUnavailable(str(error)) from error
        return answers


class RedisStore:
    """A store of limits in Redis, with an in-memory store for when Redis is unreachable."""

    def __init__(self, url: str, prefix: str) -> None:
        self._url = url
        self._prefix = f"{prefix}:limits:"
        self._script = redis.from_url(url, **BOUNDS, retry=Retry(NoBackoff(), 1)).register_script(SCRIPT)
        self._posts: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopClient] = WeakKeyDictionary()
        self._local = MemoryStore()
        self.circuit = CircuitBreaker("Redis", self._probe, ", and limits are counted by each process alone")

    async def take(self, rates: Sequence[Rate], count: int) -> tuple[int, float] | None:
        """Like MemoryStore."""
        request = ("take", count, [(self._named(rate.key), rate.most, rate.seconds * 1000) for rate in rates])
        answer = await self._send(request)
        if answer is None:
            return self._local.take_blocking(rates, count)
        return (answer[0] - 1, answer[1] / 1000) if answer else None

    def take_blocking(self, rates: Sequence[Rate], count: int) -> tuple[int, float] | None:
        """Like `take`, from a thread that may block."""
        answer = self._ask_here(
            ("take", count, [(self._named(rate.key), rate.most, rate.seconds * 1000) for rate in rates])
        )
        if answer is None:
            return self._local.take_blocking(rates, count)
        return (answer[0] - 1, answer[1] / 1000) if answer else None

    async def acquire(self, concurrency_limits: Sequence[ConcurrencyLimit], id: str, seconds: float) -> int | None:
        """Like MemoryStore."""
        answer = await self._send(self._acquire_request(concurrency_limits, id, seconds))
        if answer is None:
            return self._local.acquire_blocking(concurrency_limits, id, seconds)
        return answer[0] - 1 if answer else None

    def release_soon(self, keys: Sequence[str], id: str) -> None:
        """Release slots without waiting, from the event loop on which they were acquired."""
        self._local.release(keys, id)
        if not self.circuit.is_open:
            self._post().send(("release", id, [self._named(key) for key in keys]))

    def release(self, keys: Sequence[str], id: str) -> None:
        """Release slots from a thread that may block."""
        self._local.release(keys, id)
        self._ask_here(("release", id, [self._named(key) for key in keys]))

    def acquire_blocking(self, concurrency_limits: Sequence[ConcurrencyLimit], id: str, seconds: float) -> int | None:
        """Like `acquire`, from a thread that may block."""
        answer = self._ask_here(self._acquire_request(concurrency_limits, id, seconds))
        if answer is None:
            return self._local.acquire_blocking(concurrency_limits, id, seconds)
        return answer[0] - 1 if answer else None

    def renew(self, key: str, ids: Iterable[str], seconds: float, *, again: bool) -> None:
        """Like MemoryStore."""
        ids = list(ids)
        self._local.renew(key, ids, seconds, again=False)
        self._ask_here(("renew", int(seconds * 1000), self._named(key), ids, again))

    async def close(self) -> None:
        """Close the connections of the running loop."""
        post = self._posts.pop(asyncio.get_running_loop(), None)
        if post is not None:
            await post.close()

    def _acquire_request(self, concurrency_limits: Sequence[ConcurrencyLimit], id: str, seconds: float) -> Request:
        return ("hold", int(seconds * 1000), id, [(self._named(limit.key), limit.most) for limit in concurrency_limits])

    def _named(self, key: str) -> str:
        return self._prefix + key

    def _post(self) -> _LoopClient:
        loop = asyncio.get_running_loop()
        post = self._posts.get(loop)
        if post is None:
            post = self._posts[loop] = _LoopClient(self._url)
        return post

    async def _send(self, request: Request) -> Answer | None:
        """Return Redis's answer; None while it is unreachable."""
        if self.circuit.is_open:
            return None
        try:
            answer = await self._post().send(request)
        except RedisUnavailable as error:
            self.circuit.trip(error)
            return None
        return answer

    def _ask_here(self, request: Request) -> Answer | None:
        if self.circuit.is_open:
            return None
        try:
            answers: list[Answer] = self._script(args=[msgspec.msgpack.encode([request])])
        except UNAVAILABLE as error:
            self.circuit.trip(error)
            return None
        return answers[0]

    def _probe(self) -> None:
        self._script(args=[msgspec.msgpack.encode([])])
