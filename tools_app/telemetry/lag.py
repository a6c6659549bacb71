"""How late an event loop is: what was due in a quarter of a second, and when it came."""

import asyncio
from collections.abc import Callable

from tools_app.telemetry.tallies import tallies

EVERY_SECONDS = 0.25


def watch(loop: asyncio.AbstractEventLoop, then: Callable[[], None]) -> None:
    """Measure `loop` for as long as it runs, and call `then` each time."""
    loop.call_later(EVERY_SECONDS, _look, loop, loop.time() + EVERY_SECONDS, then)


def _look(loop: asyncio.AbstractEventLoop, due: float, then: Callable[[], None]) -> None:
    tallies.observe("mcphub_event_loop_lag_seconds", [max(0.0, loop.time() - due)])
    then()
    watch(loop, then)
