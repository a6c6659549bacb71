"""Limits counted in Redis, for all processes together: one script, by Redis's own clock.

What waits on one event loop goes out together, in one round trip. The algorithm is that of `limits_memory`. While
Redis is away, each process counts for itself: a limit is no reason to refuse what can still be recorded.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from threading import Lock
from time import monotonic
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
import redis
import redis.asyncio
import redis.asyncio.retry
from redis.backoff import NoBackoff
from redis.retry import Retry

from tools_app.auth.allowance import Places, Rate
from tools_app.auth.limits_memory import GRAINS, MemoryStore

log = logging.getLogger(__name__)

# How long anybody waits for Redis, and how soon it is asked again after it did not answer.
PATIENCE_SECONDS: Final = 0.5
AWAY_SECONDS: Final = 1.0
LARGEST_BATCH: Final = 200
BOUNDS: Final[dict[str, Any]] = {
    "socket_timeout": PATIENCE_SECONDS,
    "socket_connect_timeout": PATIENCE_SECONDS,
}

AWAY = (redis.RedisError, OSError, TimeoutError)

SCRIPT: Final = f"""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local does = {{}}

local function window(key, ms)
  local packed = redis.call('GET', key)
  local living, total = {{}}, 0
  for _, grain in ipairs(packed and cmsgpack.unpack(packed) or {{}}) do
    -- One that is to come was counted before the clock was set back: nobody knows when it was.
    if grain[2] > now - ms and grain[2] <= now then
      living[#living + 1] = grain
      total = total + grain[3]
    end
  end
  return living, total
end

local function wait(grains, total, most, ms, count)
  if total + count <= most then return 0 end
  for _, grain in ipairs(grains) do
    total = total - grain[3]
    if total + count <= most then return math.min(ms, grain[2] + ms - now) end
  end
  return ms
end

local function add(grains, ms, count)
  local newest = grains[#grains]
  if newest and now - newest[1] < ms / {GRAINS} then
    newest[2] = now
    newest[3] = newest[3] + count
  else
    grains[#grains + 1] = {{now, now, count}}
  end
end

function does.take(count, rates)
  local windows = {{}}
  for turn, rate in ipairs(rates) do
    local grains, total = window(rate[1], rate[3])
    local ms = wait(grains, total, rate[2], rate[3], count)
    if ms > 0 then return {{turn, math.ceil(ms)}} end
    windows[turn] = grains
  end
  for turn, rate in ipairs(rates) do
    add(windows[turn], rate[3], count)
    redis.call('SET', rate[1], cmsgpack.pack(windows[turn]), 'PX', rate[3])
  end
  return {{}}
end

function does.hold(ms, id, places)
  for turn, place in ipairs(places) do
    redis.call('ZREMRANGEBYSCORE', place[1], '-inf', now)
    redis.call('ZREMRANGEBYSCORE', place[1], '(' .. now + ms, '+inf')
    if not redis.call('ZSCORE', place[1], id) and redis.call('ZCARD', place[1]) >= place[2] then
      return {{turn}}
    end
  end
  for _, place in ipairs(places) do
    redis.call('ZADD', place[1], now + ms, id)
    redis.call('PEXPIRE', place[1], ms)
  end
  return {{}}
end

function does.let_go(id, keys)
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
for turn, wish in ipairs(cmsgpack.unpack(ARGV[1])) do
  answers[turn] = does[wish[1]](unpack(wish, 2))
end
return answers
"""

Wish = tuple[Any, ...]
Answer = list[Any]


class Away(Exception):
    """Redis did not answer in time."""


class _Post:
    """The wishes of one event loop on their way: what comes while a round trip lasts is the next one."""

    def __init__(self, url: str) -> None:
        client = redis.asyncio.from_url(url, **BOUNDS, retry=redis.asyncio.retry.Retry(NoBackoff(), 1))
        self._script = client.register_script(SCRIPT)
        self.close = client.aclose
        self._waiting: list[tuple[Wish, asyncio.Future[Answer]]] = []
        self._sending: asyncio.Task[None] | None = None

    def send(self, wish: Wish) -> asyncio.Future[Answer]:
        """Send a wish with the next round trip. The future may raise Away."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((wish, answer))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all())
        return answer

    async def _send_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:LARGEST_BATCH], self._waiting[LARGEST_BATCH:]
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    answers = await self._script(args=[msgspec.msgpack.encode([wish for wish, _ in batch])])
            except AWAY as problem:
                # Those who came meanwhile have waited long enough, too.
                batch, self._waiting = batch + self._waiting, []
                _settle([(answer, Away(str(problem))) for _, answer in batch])
            else:
                _settle([(answer, said) for (_, answer), said in zip(batch, answers, strict=True)])


def _settle(answers: list[tuple[asyncio.Future[Answer], Answer | Away]]) -> None:
    for answer, said in answers:
        if answer.done():
            continue
        if isinstance(said, Away):
            answer.set_exception(said)
            # Nobody may wait for it: a place is given back without a look.
            answer.exception()
        else:
            answer.set_result(said)


class RedisStore:
    """Counts for all processes; by itself alone while Redis is away."""

    def __init__(self, url: str, prefix: str) -> None:
        self._url = url
        self._prefix = f"{prefix}:limits:"
        self._script = redis.from_url(url, **BOUNDS, retry=Retry(NoBackoff(), 1)).register_script(SCRIPT)
        self._posts: WeakKeyDictionary[asyncio.AbstractEventLoop, _Post] = WeakKeyDictionary()
        self._own = MemoryStore()
        self._lock = Lock()
        self._ask_at = 0.0
        self._is_away = False

    async def take(self, rates: Sequence[Rate], count: int) -> tuple[int, float] | None:
        """As MemoryStore does."""
        wish = ("take", count, [(self._named(rate.key), rate.most, rate.seconds * 1000) for rate in rates])
        answer = await self._ask(wish)
        if answer is None:
            return self._own.take_here(rates, count)
        return (answer[0] - 1, answer[1] / 1000) if answer else None

    async def hold(self, places: Sequence[Places], id: str, seconds: float) -> int | None:
        """As MemoryStore does."""
        wish = ("hold", int(seconds * 1000), id, [(self._named(place.key), place.most) for place in places])
        answer = await self._ask(wish)
        if answer is None:
            return self._own.hold_here(places, id, seconds)
        return answer[0] - 1 if answer else None

    def let_go_soon(self, keys: Sequence[str], id: str) -> None:
        """Give places back without waiting for it; from the loop on which they were taken."""
        self._own.let_go(keys, id)
        if self._may_ask():
            self._post().send(("let_go", id, [self._named(key) for key in keys]))

    def let_go(self, keys: Sequence[str], id: str) -> None:
        """The same from a thread that can wait."""
        self._own.let_go(keys, id)
        self._ask_here(("let_go", id, [self._named(key) for key in keys]))

    def hold_here(self, places: Sequence[Places], id: str, seconds: float) -> int | None:
        """`hold` from a thread that can wait."""
        wish = ("hold", int(seconds * 1000), id, [(self._named(place.key), place.most) for place in places])
        answer = self._ask_here(wish)
        if answer is None:
            return self._own.hold_here(places, id, seconds)
        return answer[0] - 1 if answer else None

    def renew(self, key: str, ids: Iterable[str], seconds: float, *, again: bool) -> None:
        """As MemoryStore does."""
        ids = list(ids)
        self._own.renew(key, ids, seconds, again=False)
        self._ask_here(("renew", int(seconds * 1000), self._named(key), ids, again))

    async def close(self) -> None:
        """Close the connections of the running loop."""
        post = self._posts.pop(asyncio.get_running_loop(), None)
        if post is not None:
            await post.close()

    def _named(self, key: str) -> str:
        return self._prefix + key

    def _post(self) -> _Post:
        loop = asyncio.get_running_loop()
        post = self._posts.get(loop)
        if post is None:
            post = self._posts[loop] = _Post(self._url)
        return post

    async def _ask(self, wish: Wish) -> Answer | None:
        """What Redis says; None while it is away."""
        if not self._may_ask():
            return None
        try:
            answer = await self._post().send(wish)
        except Away as problem:
            self._note_away(problem)
            return None
        self._note_back()
        return answer

    def _ask_here(self, wish: Wish) -> Answer | None:
        if not self._may_ask():
            return None
        try:
            answers: list[Answer] = self._script(args=[msgspec.msgpack.encode([wish])])
        except AWAY as problem:
            self._note_away(problem)
            return None
        self._note_back()
        return answers[0]

    def _may_ask(self) -> bool:
        """Whether Redis is there, or it is time for somebody to look whether it is back."""
        if not self._is_away:
            return True
        with self._lock:
            now = monotonic()
            if now < self._ask_at:
                return False
            self._ask_at = now + AWAY_SECONDS
            return True

    def _note_away(self, problem: Exception) -> None:
        with self._lock:
            if not self._is_away:
                log.warning("Redis is away, limits are counted by each process alone: %s", problem)
            self._is_away, self._ask_at = True, monotonic() + AWAY_SECONDS

    def _note_back(self) -> None:
        if self._is_away:
            log.warning("Redis is back, limits are counted for all processes together")
            self._is_away = False
