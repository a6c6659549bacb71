"""Keep-alives: one timer for all streams."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tools_app.transport.streams import TICKS, KeepAliveTimer

SECONDS = 3.0


class Clock(asyncio.AbstractEventLoop):
    """A fake event loop with a clock and one timer."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Any, *_args: Any, **_more: Any) -> Any:
        self.timers.append((self.now + delay, callback))
        return self.timers[-1]

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.timers and min(self.timers)[0] <= end:
            self.timers.sort(key=lambda timer: timer[0])
            self.now, callback = self.timers.pop(0)
            callback()
        self.now = end


@pytest.fixture
def clock(settings: Any) -> Clock:
    settings.MCPHUB_KEEPALIVE_INTERVAL = SECONDS
    return Clock()


def test_a_silent_stream_is_called_again_and_again_and_never_late(clock: Clock) -> None:
    timer, calls = KeepAliveTimer(clock), [0.0]
    timer.note_activity(lambda: calls.append(clock.now))
    clock.advance(30.0)
    gaps = [later - earlier for earlier, later in pairwise(calls)]
    assert len(gaps) >= 9
    assert max(gaps) <= SECONDS + 1e-6
    assert min(gaps) >= SECONDS / 2


def test_a_stream_that_speaks_is_not_called(clock: Clock) -> None:
    timer, calls = KeepAliveTimer(clock), []

    def callback() -> None:
        calls.append(clock.now)

    for _ in range(20):
        timer.note_activity(callback)
        clock.advance(1.0)
    assert calls == []


def test_a_stream_that_is_over_is_not_called_and_leaves_no_timer_behind(clock: Clock) -> None:
    timer, calls = KeepAliveTimer(clock), []

    def callback() -> None:
        calls.append(clock.now)

    timer.note_activity(callback)
    timer.remove(callback)
    timer.remove(callback)
    clock.advance(30.0)
    assert calls == []
    assert clock.timers == []
    timer.note_activity(callback)
    clock.advance(SECONDS)
    assert len(calls) == 1


def test_many_streams_that_began_together_are_called_one_after_the_other(clock: Clock) -> None:
    timer, calls = KeepAliveTimer(clock), Counter[float]()
    last = dict.fromkeys(range(1000), 0.0)
    late = []

    def call_of(stream: int) -> Callable[[], None]:
        def callback() -> None:
            calls[clock.now] += 1
            if clock.now - last[stream] > SECONDS + 1e-6:
                late.append(stream)
            last[stream] = clock.now

        return callback

    for stream in last:
        timer.note_activity(call_of(stream))
    clock.advance(60.0)
    assert not late
    settled = [count for at, count in calls.items() if at > 30.0]
    assert max(settled) <= 3 * 1000 / TICKS
    assert len(clock.timers) == 1
