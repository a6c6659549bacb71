"""Limits counted in this process: those of an embedded hub, and of one whose Redis is away."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from time import monotonic
from typing import Final

from tools_app.auth.allowance import Places, Rate

# A window is kept as so many grains at most: hits that come closer together leave it together.
GRAINS: Final = 20
# Names that are remembered: a flood of addresses must not fill the memory.
MOST_NAMES: Final = 100_000
FEW_NAMES: Final = 1000


class _Window:
    """The hits of the last `seconds`, the oldest first, as grains of [first, last, how many].

    A grain leaves when its last hit is old enough, so that no span of that length ever sees more than was allowed.
    """

    __slots__ = ("grains", "seconds", "total")

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self.total = 0
        self.grains: deque[list[float]] = deque()

    def wait(self, most: int, count: int, now: float) -> float:
        """In how many seconds there is room for `count` hits; 0 if there is now."""
        while self.grains and self.grains[0][1] <= now - self.seconds:
            self.total -= int(self.grains.popleft()[2])
        if self.total + count <= most:
            return 0.0
        left = self.total
        for _, last, hits in self.grains:
            left -= int(hits)
            if left + count <= most:
                return min(self.seconds, last + self.seconds - now)
        return float(self.seconds)

    def add(self, count: int, now: float) -> None:
        """Count hits."""
        self.total += count
        if self.grains and now - self.grains[-1][0] < self.seconds / GRAINS:
            self.grains[-1][1] = now
            self.grains[-1][2] += count
        else:
            self.grains.append([now, now, count])

    def is_over(self, now: float) -> bool:
        """Whether nothing of it counts any more."""
        return not self.grains or self.grains[-1][1] <= now - self.seconds


class MemoryStore:
    """Safe to use from any thread. Nothing here waits."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._windows: dict[str, _Window] = {}
        self._held: dict[str, dict[str, float]] = {}
        self._tidy_at = self._tidy_held_at = FEW_NAMES

    async def take(self, rates: Sequence[Rate], count: int) -> tuple[int, float] | None:
        """As `take_here`."""
        return self.take_here(rates, count)

    async def hold(self, places: Sequence[Places], id: str, seconds: float) -> int | None:
        """As `hold_here`."""
        return self.hold_here(places, id, seconds)

    def take_here(self, rates: Sequence[Rate], count: int) -> tuple[int, float] | None:
        """Count `count` hits against every rate, or against none: then which has no room, and for how many seconds."""
        with self._lock:
            now = self._clock()
            windows = [self._window(rate, now) for rate in rates]
            for turn, (rate, window) in enumerate(zip(rates, windows, strict=True)):
                wait = window.wait(rate.most, count, now)
                if wait > 0:
                    return turn, wait
            for window in windows:
                window.add(count, now)
        return None

    def hold_here(self, places: Sequence[Places], id: str, seconds: float) -> int | None:
        """Take one of each of `places` for `seconds`, or none: then which of them is full. Holding twice is once."""
        with self._lock:
            now = self._clock()
            for turn, place in enumerate(places):
                held = self._living(place.key, now)
                if id not in held and len(held) >= place.most:
                    return turn
            if len(self._held) >= self._tidy_held_at:
                self._tidy_held(now)
            for place in places:
                self._held.setdefault(place.key, {})[id] = now + seconds
        return None

    def let_go(self, keys: Iterable[str], id: str) -> None:
        """Give places back; those that are not held are no matter."""
        with self._lock:
            for key in keys:
                held = self._held.get(key)
                if held is not None:
                    held.pop(id, None)
                    if not held:
                        del self._held[key]

    let_go_soon = let_go

    async def close(self) -> None:
        """Nothing: there are no connections."""

    def renew(self, key: str, ids: Iterable[str], seconds: float, *, again: bool) -> None:
        """Hold places for `seconds` from now on; those that were lost too, if `again`."""
        with self._lock:
            now = self._clock()
            held = self._living(key, now)
            held |= {id: now + seconds for id in ids if again or id in held}
            if held:
                self._held[key] = held

    def _living(self, key: str, now: float) -> dict[str, float]:
        held = self._held.get(key, {})
        for id in [id for id, until in held.items() if until <= now]:
            del held[id]
        return held

    def _window(self, rate: Rate, now: float) -> _Window:
        window = self._windows.get(rate.key)
        if window is None:
            if len(self._windows) >= self._tidy_at:
                self._tidy(now)
            window = self._windows[rate.key] = _Window(rate.seconds)
        return window

    def _tidy(self, now: float) -> None:
        """Forget what counts no more; it comes up each time that as much has been added as was left."""
        self._windows = {key: window for key, window in self._windows.items() if not window.is_over(now)}
        while len(self._windows) >= MOST_NAMES:
            del self._windows[next(iter(self._windows))]
        self._tidy_at = min(MOST_NAMES, max(FEW_NAMES, 2 * len(self._windows)))

    def _tidy_held(self, now: float) -> None:
        """The same for places; none is forgotten that is held."""
        self._held = {key: held for key in list(self._held) if (held := self._living(key, now))}
        self._tidy_held_at = max(FEW_NAMES, 2 * len(self._held))
