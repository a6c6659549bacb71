"""Limits counted in this process: for an embedded hub, and while Redis is unreachable."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from threading import Lock
from time import monotonic
from typing import Final

from tools_app.tenants.limits.quotas import ConcurrencyLimit, Rate

# The maximum number of buckets in a window: hits that are close together expire together.
BUCKETS: Final = 20
# The maximum number of names: a flood of addresses must not fill the memory.
MAX_NAMES: Final = 100_000
FEW_NAMES: Final = 1000


class _Window:
    """The hits of the last `seconds`, oldest first, as buckets of [first, last, count].

    A bucket expires when its last hit is old enough, so that no span of that length ever exceeds the limit.
    """

    __slots__ = ("buckets", "seconds", "total")

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self.total = 0
        self.buckets: deque[list[float]] = deque()

    def wait(self, most: int, count: int, now: float) -> float:
        """Return the seconds until there is room for `count` hits; 0 if there is room now."""
        while self.buckets and self.buckets[0][1] <= now - self.seconds:
            self.total -= int(self.buckets.popleft()[2])
        if self.total + count <= most:
            return 0.0
        left = self.total
        for _, last, hits in self.buckets:
            left -= int(hits)
            if left + count <= most:
                return min(self.seconds, last + self.seconds - now)
        return float(self.seconds)

    def add(self, count: int, now: float) -> None:
        """Count hits."""
        self.total += count
        if self.buckets and now - self.buckets[-1][0] < self.seconds / BUCKETS:
            self.buckets[-1][1] = now
            self.buckets[-1][2] += count
        else:
            self.buckets.append([now, now, count])

    def is_over(self, now: float) -> bool:
        """Whether all hits have expired."""
        return not self.buckets or self.buckets[-1][1] <= now - self.seconds


class MemoryStore:
    """An in-memory store of limits. Thread-safe; no method blocks."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._windows: dict[str, _Window] = {}
        self._held: dict[str, dict[str, float]] = {}
        self._prune_at = self._prune_held_at = FEW_NAMES

    async def take(self, rates: Sequence[Rate], count: int) -> tuple[int, float] | None:
        """Like `take_blocking`."""
        return self.take_blocking(rates, count)

    async def acquire(self, concurrency_limits: Sequence[ConcurrencyLimit], id: str, seconds: float) -> int | None:
        """Like `acquire_blocking`."""
        return self.acquire_blocking(concurrency_limits, id, seconds)

    def take_blocking(self, rates: Sequence[Rate], count: int) -> tuple[int, float] | None:
        """Count `count` hits against every rate. If one is used up, count none; return its index and the wait."""
        with self._lock:
            now = self._clock()
            windows = [self._window(rate, now) for rate in rates]
            for index, (rate, window) in enumerate(zip(rates, windows, strict=True)):
                wait = window.wait(rate.most, count, now)
                if wait > 0:
                    return index, wait
            for window in windows:
                window.add(count, now)
        return None

    def acquire_blocking(self, concurrency_limits: Sequence[ConcurrencyLimit], id: str, seconds: float) -> int | None:
        """Acquire one slot of each limit for `seconds`, or none: then return the full one's index. Idempotent."""
        with self._lock:
            now = self._clock()
            for index, limit in enumerate(concurrency_limits):
                held = self._unexpired(limit.key, now)
                if id not in held and len(held) >= limit.most:
                    return index
            if len(self._held) >= self._prune_held_at:
                self._prune_held(now)
            for limit in concurrency_limits:
                self._held.setdefault(limit.key, {})[id] = now + seconds
        return None

    def release(self, keys: Iterable[str], id: str) -> None:
        """Release slots; slots that are not held are ignored."""
        with self._lock:
            for key in keys:
                held = self._held.get(key)
                if held is not None:
                    held.pop(id, None)
                    if not held:
                        del self._held[key]

    release_soon = release

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def renew(self, key: str, ids: Iterable[str], seconds: float, *, again: bool) -> None:
        """Hold slots for `seconds` from now on; with `again`, also those that have expired."""
        with self._lock:
            now = self._clock()
            held = self._unexpired(key, now)
            held |= {id: now + seconds for id in ids if again or id in held}
            if held:
                self._held[key] = held

    def _unexpired(self, key: str, now: float) -> dict[str, float]:
        held = self._held.get(key, {})
        for id in [id for id, until in held.items() if until <= now]:
            del held[id]
        return held

    def _window(self, rate: Rate, now: float) -> _Window:
        window = self._windows.get(rate.key)
        if window is None:
            if len(self._windows) >= self._prune_at:
                self._prune(now)
            window = self._windows[rate.key] = _Window(rate.seconds)
        return window

    def _prune(self, now: float) -> None:
        """Remove expired windows, and the oldest tenth if there are too many. Runs when their number has doubled.

        A tenth, because removing one at a time would look through all windows for each new name of a flood.
        """
        self._windows = {key: window for key, window in self._windows.items() if not window.is_over(now)}
        if len(self._windows) >= MAX_NAMES:
            for key in list(islice(self._windows, MAX_NAMES // 10)):
                del self._windows[key]
        self._prune_at = min(MAX_NAMES, max(FEW_NAMES, 2 * len(self._windows)))

    def _prune_held(self, now: float) -> None:
        """Remove expired slots; none that is held is removed."""
        self._held = {key: held for key in list(self._held) if (held := self._unexpired(key, now))}
        self._prune_held_at = max(FEW_NAMES, 2 * len(self._held))
