"""Shared state of a web process's event loop: listener, open streams, scheduler, its lag, and whether it stops."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from uuid import UUID

from tools_app.calls import run, sessions
from tools_app.catalog import compiled
from tools_app.core.fair_scheduler import FairScheduler
from tools_app.core.notifications.listener import TopicListener
from tools_app.core.telemetry.registry import metrics_registry
from tools_app.identity import principal
from tools_app.identity.issuers import direct
from tools_app.identity.oauth import scopes
from tools_app.runtime import process
from tools_app.tenants import impersonation
from tools_app.transport.streams import KeepAliveTimer, OpenStreams
from tools_app.upstreams.exchanges import direct as direct_upstreams

# Concurrent requests: of a tenant that is alone, and of several together. More of them make batches of records larger;
# fewer shorten the wait for another tenant's requests.
ALONE, TOGETHER = 64, 8
# When a slot is reclaimed from a request that waits without releasing it, such as for a slow body.
PATIENCE_SECONDS = 1.0
MAX_WAITING = 1000


class WebState:
    """The state of one event loop, created with its first request."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.listener = TopicListener()
        self.streams = OpenStreams()
        self.draining = False
        self.given_up = asyncio.Event()
        self.busy = 0
        self.keep_alive = KeepAliveTimer(loop)
        self.scheduler = FairScheduler(
            alone=ALONE, together=TOGETHER, reclaim_after=PATIENCE_SECONDS, max_waiting=MAX_WAITING
        )
        self.requests: defaultdict[str, int] = defaultdict(int)
        self.listener.handle("catalog", lambda tenant_id: compiled.cache.forget(UUID(tenant_id)))
        self.listener.handle("cancel", _stop)
        self.listener.start()
        direct_upstreams.open_here()
        process.start("web")
        self._measure()

    def _measure(self) -> None:
        metrics_registry.gauge("mcphub_open_streams", lambda: sum(len(web.streams) for web in list(_states.values())))
        metrics_registry.gauge("mcphub_requests_in_progress", lambda: sum(web.busy for web in list(_states.values())))
        watch_loop_lag(asyncio.get_running_loop(), self._count_requests)

    def _count_requests(self) -> None:
        requests, self.requests = self.requests, defaultdict(int)
        for transport, count in requests.items():
            metrics_registry.add("mcphub_requests_total", count, (transport,))


def _stop(call_id: str) -> None:
    run.stop_call(UUID(call_id))


_states: dict[asyncio.AbstractEventLoop, WebState] = {}


def current() -> WebState:
    """Return the state of the running loop, creating it if needed."""
    loop = asyncio.get_running_loop()
    state = _states.get(loop)
    if state is None:
        state = _states[loop] = WebState(loop)
    return state


def known() -> WebState | None:
    """Return the state of the running loop, or None if it has served nothing."""
    return _states.get(asyncio.get_running_loop())


def discard() -> None:
    """Remove the running loop's state, because the loop ends."""
    _states.pop(asyncio.get_running_loop(), None)


def forget_everything() -> None:
    """Clear this process's caches of the database (for tests, which empty it while the hub runs)."""
    principal.cache.forget_all()
    principal.public_cache.forget_all()
    impersonation.forget_all()
    sessions.cache.forget_all()
    scopes.forget_all()
    direct.forget_all()
    compiled.forget_all()


EVERY_SECONDS = 0.25


def watch_loop_lag(loop: asyncio.AbstractEventLoop, then: Callable[[], None]) -> None:
    """Measure `loop` as long as it runs, and call `then` after each measurement."""
    loop.call_later(EVERY_SECONDS, _measure, loop, loop.time() + EVERY_SECONDS, then)


def _measure(loop: asyncio.AbstractEventLoop, due: float, then: Callable[[], None]) -> None:
    metrics_registry.observe("mcphub_event_loop_lag_seconds", [max(0.0, loop.time() - due)])
    then()
    watch_loop_lag(loop, then)
