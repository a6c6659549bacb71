"""What one connection hears without a request: updates of subscribed resources, and announced changes of lists.

Upstreams of the handshake era get `resources/subscribe` in the session that lists, and speak on its stream. Modern ones
get one `subscriptions/listen` with all URIs and lists, which replaces the former one when the URIs change. Both are
renewed after the connection broke; what may have been missed meanwhile counts as updated.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from tools_app.catalog.kinds.upstream.runner import Endpoint
from tools_app.catalog.tool_api.results import ToolError
from tools_app.core.http.errors import RequestFailed
from tools_app.upstreams.client import Client, Message
from tools_app.upstreams.errors import ErrorResponse, UpstreamFailed

log = logging.getLogger(__name__)

# URIs of one connection. Further ones are not subscribed to.
MAX_URIS: Final = 1000
# How often the stream of a session is looked at, and how long an upstream may take to confirm.
CHECK_SECONDS: Final = 2.0
CONFIRM_SECONDS: Final = 5.0
# Between two requests for other URIs, and between two sets of updates.
PAUSE_SECONDS: Final = 0.25
FIRST_DELAY, MAX_DELAY = 0.5, 60.0
# A subscription that lasted this long did not fail at once.
STEADY_SECONDS: Final = 10.0
LISTEN: Final = "subscriptions/listen"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
UPDATED: Final = "notifications/resources/updated"
FAILURES: Final = (RequestFailed, ErrorResponse, ToolError, TimeoutError)
LISTS: Final = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}

UrisByEndpoint = Mapping[Endpoint, frozenset[str]]
UpdateListener = Callable[[frozenset[str]], None]


class Watchers:
    """Who wants to hear of which resources of upstreams, in this process."""

    def __init__(self) -> None:
        self._by_owner: dict[Hashable, tuple[UrisByEndpoint, UpdateListener]] = {}

    def replace(self, owner: Hashable, uris_by_endpoint: UrisByEndpoint, notify: UpdateListener) -> Iterable[Endpoint]:
        """Set what `owner` wants, and how it is told; returns the endpoints whose URIs may have changed."""
        previous_uris, _ = self._by_owner.pop(owner, ({}, notify))
        if uris_by_endpoint:
            self._by_owner[owner] = (uris_by_endpoint, notify)
        endpoints = {*previous_uris, *uris_by_endpoint}
        return [one for one in endpoints if previous_uris.get(one) != uris_by_endpoint.get(one)]

    def uris(self, endpoint: Endpoint) -> frozenset[str]:
        """Return the URIs that anybody wants of an endpoint."""
        return frozenset().union(*(uris.get(endpoint, frozenset()) for uris, _ in self._by_owner.values()))

    def notify(self, endpoint: Endpoint, uris: frozenset[str]) -> None:
        """Tell each watcher of the updated resources that it wants."""
        for watched, listener in list(self._by_owner.values()):
            if updated := uris & watched.get(endpoint, frozenset()):
                listener(updated)


class ConnectionUpdates:
    """The subscriptions of one connection. `connect` returns its client that lists; `on_updated` gets updated URIs.

    Runs on the loop of the connections.
    """

    def __init__(self, connect: Callable[[], Awaitable[Client]], on_updated: UpdateListener) -> None:
        self._connect = connect
        self._on_updated = on_updated
        self._uris: frozenset[str] = frozenset()
        self._client: Client | None = None
        self._changed = asyncio.Event()
        self._requested = asyncio.Event()
        self._acknowledged = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._may_have_missed = False
        self._updated: set[str] = set()
        self._flushing: asyncio.TimerHandle | None = None

    @property
    def has_subscriptions(self) -> bool:
        """Whether anybody wants to hear of a resource."""
        return bool(self._uris)

    def set_uris(self, uris: Iterable[str]) -> None:
        """Hear of these resources from now on, and of no others."""
        sorted_uris = sorted(uris)
        if len(sorted_uris) > MAX_URIS:
            log.warning("Only %d of %d resources of an upstream are subscribed to", MAX_URIS, len(sorted_uris))
        self._uris = frozenset(sorted_uris[:MAX_URIS])
        self._requested.clear()
        self._wake()

    def set_client(self, client: Client) -> None:
        """Note the client that was connected: a modern one announces changes of its lists on request only."""
        self._client = client
        if client.is_modern or self._uris:
            self._wake()

    async def wait_requested(self) -> None:
        """Wait until the upstream was asked for what is wanted, or could not be."""
        await self._requested.wait()

    def handle_notification(self, message: Message) -> None:
        """Take a notification: an updated resource, or that the upstream listens."""
        if message.get("method") == ACKNOWLEDGED:
            self._acknowledged.set()
            return
        params = message.get("params")
        uri = params.get("uri") if isinstance(params, dict) else None
        if isinstance(uri, str) and uri in self._uris:
            self._add_updates([uri])

    async def close(self) -> None:
        """Stop."""
        if self._flushing is not None:
            self._flushing.cancel()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _add_updates(self, uris: Iterable[str]) -> None:
        """Tell of updates: of the first at once, and of those that follow shortly together, each once."""
        self._updated.update(uris)
        if self._flushing is None:
            self._flush()

    def _flush(self) -> None:
        updated, self._updated = frozenset(self._updated), set()
        self._flushing = asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._flush) if updated else None
        if updated:
            self._on_updated(updated)

    def _wake(self) -> None:
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def _mark_requested(self, uris: frozenset[str], *, is_stream_open: bool) -> None:
        if uris == self._uris:
            self._requested.set()
        if self._may_have_missed and is_stream_open:
            self._may_have_missed = False
            self._add_updates(uris)

    # --- Subscriptions, as long as they are wanted ---

    async def _run(self) -> None:
        delay = FIRST_DELAY
        try:
            while client := await self._available_client():
                started_at = monotonic()
                try:
                    await (self._listen(client) if client.is_modern else self._subscribe(client))
                    if not self._uris and not client.is_closed:
                        return
                except FAILURES as error:
                    log.info("The subscription to an upstream has ended: %s", type(error).__name__)
                self._may_have_missed = True
                self._requested.set()
                delay = FIRST_DELAY if monotonic() - started_at > STEADY_SECONDS else min(MAX_DELAY, delay * 2)
                await asyncio.sleep(delay)
        finally:
            self._requested.set()

    async def _available_client(self) -> Client | None:
        """Return a connected client: for resources, it is opened; for lists only, a connection that is open is used."""
        delay = FIRST_DELAY
        while self._uris:
            try:
                return await self._connect()
            except FAILURES as error:
                log.info("An upstream with subscriptions is not available: %s", type(error).__name__)
            self._requested.set()
            await asyncio.sleep(delay)
            delay = min(MAX_DELAY, delay * 2)
        client = self._client
        return client if client is not None and client.is_modern and not client.is_closed else None

    async def _subscribe(self, client: Client) -> None:
        """Keep the subscriptions of a session (2025-11-25, resources, §Subscriptions) until none is wanted."""
        subscribed: set[str] = set()
        session, openings = client.session_number, client.transport.openings
        while not client.is_closed:
            self._changed.clear()
            if client.session_number != session:
                session, self._may_have_missed = client.session_number, True
                subscribed.clear()
            if client.transport.openings != openings or not client.transport.is_followed:
                openings, self._may_have_missed = client.transport.openings, True
            uris = self._uris
            if client.declares("resources", "subscribe"):
                await _update_subscriptions(client, subscribed, uris)
            if client.session_number == session:
                self._mark_requested(uris, is_stream_open=client.transport.is_followed)
            if not self._uris:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._changed.wait()
            if not client.transport.is_followed:
                async with asyncio.timeout(CONFIRM_SECONDS):
                    await client.reopen_stream()
                self._may_have_missed = True
                subscribed.clear()

    async def _listen(self, client: Client) -> None:
        """Keep a stream of what is wanted (2026-07-28, subscriptions), until nothing is."""
        current: asyncio.Task[Any] | None = None
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            while not client.is_closed:
                self._changed.clear()
                uris = self._uris
                # Lists that the upstream says may change, and resources.
                notifications: dict[str, Any] = {
                    name: True for area, name in LISTS.items() if client.declares(area, "listChanged")
                }
                if uris and client.declares("resources", "subscribe"):
                    notifications["resourceSubscriptions"] = sorted(uris)
                if not notifications:
                    # Others may be wanted when it has ended.
                    await _cancel_stream(current)
                    current = None
                    self._mark_requested(uris, is_stream_open=False)
                    if not self._uris:
                        return
                    await self._changed.wait()
                    continue
                current = await self._replace_stream(client, notifications, current)
                self._mark_requested(uris, is_stream_open=self._acknowledged.is_set())
                if changed.done():
                    changed = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait([changed, current], return_when=asyncio.FIRST_COMPLETED)
                if current.done():
                    current.result()
                    return
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            changed.cancel()
            await _cancel_stream(current)

    async def _replace_stream(
        self, client: Client, notifications: dict[str, Any], previous: "asyncio.Task[Any] | None"
    ) -> "asyncio.Task[Any]":
        """Open a stream, and close the former one when the upstream has confirmed the new one."""
        self._acknowledged.clear()
        loop = asyncio.get_running_loop()
        stream = loop.create_task(client.request(LISTEN, {"notifications": notifications}, self.handle_notification))
        confirmed = loop.create_task(self._acknowledged.wait())
        try:
            await asyncio.wait([stream, confirmed], timeout=CONFIRM_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await _cancel_stream(stream)
            raise
        finally:
            confirmed.cancel()
            await _cancel_stream(previous)
        return stream


async def _update_subscriptions(client: Client, subscribed: set[str], wanted_uris: frozenset[str]) -> None:
    """Subscribe to what is wanted, and to no more. A URI that the upstream refuses is not asked for again."""
    for method, uris in (
        ("resources/unsubscribe", sorted(subscribed - wanted_uris)),
        ("resources/subscribe", sorted(wanted_uris - subscribed)),
    ):
        for uri in uris:
            try:
                async with asyncio.timeout(CONFIRM_SECONDS):
                    await client.request(method, {"uri": uri})
            except ErrorResponse as error:
                log.info("An upstream refused %s with error %d", method, error.code)
            except TimeoutError as error:
                raise UpstreamFailed(f"The upstream did not answer {method}.") from error
    subscribed.clear()
    subscribed.update(wanted_uris)


async def _cancel_stream(stream: "asyncio.Task[Any] | None") -> None:
    """Cancel a stream, whose upstream is told so."""
    if stream is not None:
        stream.cancel()
        await asyncio.wait([stream])
        if not stream.cancelled():
            stream.exception()  # retrieved, so that asyncio does not log it
