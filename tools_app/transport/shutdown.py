"""Graceful shutdown of the transports: calls finish or are recorded as interrupted, and streams are closed."""

import asyncio
from time import monotonic

from tools_app.calls import run, upstream_tasks
from tools_app.calls.background import enqueue
from tools_app.calls.stop_reasons import SHUTDOWN
from tools_app.models import Outcome
from tools_app.runtime import process
from tools_app.tenants.limits import limits
from tools_app.transport import state
from tools_app.upstreams.exchanges import direct

TICK_SECONDS = 0.02
LAST_WORDS_SECONDS = 2.0


async def drain(seconds: float) -> None:
    """Accept no more calls, wait at most `seconds` for those in progress, then interrupt them.

    Streams that only wait for changes end at once, and tasks that upstreams run are left to other processes. When this
    returns, every interrupted call is recorded or queued for the recorder, and housekeeping and notifications are
    stopped.
    """
    web = state.known()
    if web is not None:
        web.draining = True
        web.streams.end_all()
        await upstream_tasks.leave()
        await _quiet(web, seconds)
    # Those that began meanwhile.
    await upstream_tasks.leave()
    for call in run.running_here():
        call.stop(Outcome.INTERRUPTED, SHUTDOWN)
    if web is not None:
        await _quiet(web, LAST_WORDS_SECONDS)
        web.given_up.set()
        await _quiet(web, LAST_WORDS_SECONDS)
        await web.listener.stop()
        await direct.close_here()
        await limits.close()
        state.discard()
    await asyncio.to_thread(process.stop)


async def _quiet(web: state.WebState, seconds: float) -> None:
    """Wait at most `seconds` until no request, stream or call is in progress in this process."""
    end = monotonic() + seconds
    # Unrelated conditions, polled once per process lifetime: not worth an event.
    while (web.busy or len(web.streams) or run.running_here() or enqueue.running_count()) and monotonic() < end:  # noqa: ASYNC110
        await asyncio.sleep(TICK_SECONDS)
