"""How the transports end: calls finish or are recorded as interrupted, and streams close properly."""

import asyncio
from time import monotonic

from tools_app.auth import limits
from tools_app.execution import detached, local, process
from tools_app.models import Outcome
from tools_app.transport import state

TICK_SECONDS = 0.02
LAST_WORDS_SECONDS = 2.0


async def drain(seconds: float) -> None:
    """Take no more calls and wait at most `seconds` for those that run; then interrupt them.

    Streams that only wait for changes end at once. When this returns, every interrupted call is recorded or on its
    way to the recorder, and housekeeping and doorbells are stopped.
    """
    web = state.known()
    if web is not None:
        web.draining = True
        web.streams.end_all()
        await _quiet(web, seconds)
    for call in local.running():
        call.stop(Outcome.INTERRUPTED)
    if web is not None:
        await _quiet(web, LAST_WORDS_SECONDS)
        web.given_up.set()
        await _quiet(web, LAST_WORDS_SECONDS)
        await web.switchboard.stop()
        await limits.close()
        state.discard()
    await asyncio.to_thread(process.stop)


async def _quiet(web: state.WebState, seconds: float) -> None:
    """Wait until no request is being answered and no call runs here."""
    end = monotonic() + seconds
    # Unrelated facts, looked at once in a lifetime: not worth an event.
    while (web.busy or len(web.streams) or local.running() or detached.count()) and monotonic() < end:  # noqa: ASYNC110
        await asyncio.sleep(TICK_SECONDS)
