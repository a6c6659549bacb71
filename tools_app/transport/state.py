"""What one event loop of a web process shares: its switchboard, its open streams, and whether it is stopping."""

import asyncio
import gc
from collections import defaultdict
from uuid import UUID

from tools_app.auth import passes, principal, sessions
from tools_app.events.switchboard import Switchboard
from tools_app.execution import catalog, local, process
from tools_app.execution.turnstile import Turnstile
from tools_app.telemetry import lag
from tools_app.telemetry.tallies import tallies
from tools_app.transport.outbox import Moments
from tools_app.transport.streams import OpenStreams

# Most calls end within this: they are spared the task that watches for their client to leave.
QUICK_SECONDS = 0.05
YOUNG_OBJECTS = 20_000
# Requests that are worked on at a time: of a tenant that is alone, and of several together. With more of them each
# batch of records is larger; with fewer, nobody waits long for a neighbour's.
ALONE, TOGETHER = 64, 8
# For what waits without saying so, such as a body that comes slowly.
PATIENCE_SECONDS = 1.0
MOST_WAITING = 1000


class WebState:
    """Made with the first request that `loop` serves."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.switchboard = Switchboard()
        self.streams = OpenStreams()
        self.draining = False
        self.given_up = asyncio.Event()
        self.busy = 0
        self.moments = Moments(loop, QUICK_SECONDS)
        self.turnstile = Turnstile(alone=ALONE, together=TOGETHER, patience=PATIENCE_SECONDS, most_waiting=MOST_WAITING)
        self.requests: defaultdict[str, int] = defaultdict(int)
        self.switchboard.handle("catalog", lambda tenant_id: catalog.ring.forget(UUID(tenant_id)))
        self.switchboard.handle("cancel", _stop)
        self.switchboard.start()
        process.start("web")
        self._measure()
        _spare_the_collector()

    def _measure(self) -> None:
        tallies.gauge("mcphub_open_streams", lambda: sum(len(web.streams) for web in list(_states.values())))
        tallies.gauge("mcphub_requests_in_progress", lambda: sum(web.busy for web in list(_states.values())))
        lag.watch(asyncio.get_running_loop(), self._count_requests)

    def _count_requests(self) -> None:
        requests, self.requests = self.requests, defaultdict(int)
        for transport, count in requests.items():
            tallies.add("mcphub_requests_total", count, (transport,))


def _spare_the_collector() -> None:
    """Let the garbage collector pass over what was loaded at start-up, and look less often for what is not there.

    Each full pass over what was loaded stops all calls: measured with 32 clients, 80 ms every second. And a call
    leaves no reference cycles behind, so that looking for them every 700 objects only costs.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


def _stop(call_id: str) -> None:
    local.stop(UUID(call_id))


_states: dict[asyncio.AbstractEventLoop, WebState] = {}


def current() -> WebState:
    """The state of the running loop."""
    loop = asyncio.get_running_loop()
    state = _states.get(loop)
    if state is None:
        state = _states[loop] = WebState(loop)
    return state


def known() -> WebState | None:
    """The state of the running loop, if it served anything yet."""
    return _states.get(asyncio.get_running_loop())


def discard() -> None:
    """Forget the running loop's state: the loop ends."""
    _states.pop(asyncio.get_running_loop(), None)


def forget_everything() -> None:
    """Drop what this process remembers of the database (tests, where it is emptied under the hub)."""
    principal.ring.forget_all()
    principal.public_ring.forget_all()
    passes.forget_all()
    sessions.ring.forget_all()
    catalog.forget_all()
