"""The connections of this process to upstreams, on an event loop of their own, which all calls share.

A connection belongs to one endpoint: an upstream with the credentials and permitted networks of its tenant. Upstreams
of the handshake era get a session for each set of capabilities that clients declare, so that they ask no client what it
cannot answer. A connection is opened on first use, closed when idle, and reopened after a failure with a growing delay:
until then calls are refused at once (a circuit breaker). The definitions that the upstream lists are compared with the
accepted ones before calls.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Hashable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar
from uuid import UUID

from tools_app.catalog.kinds.upstream.runner import Endpoint, Pin, digest_of
from tools_app.catalog.tool_api.results import ToolError
from tools_app.core.circuit_breaker import CircuitBreaker
from tools_app.core.config import config
from tools_app.core.http.addresses import parse_networks
from tools_app.core.http.urls import InvalidUrl, parse_url
from tools_app.core.process.runtime import Service
from tools_app.core.process.thread_loops import LoopThread
from tools_app.core.tracebacks import clear_traceback
from tools_app.models import ItemKind, UpstreamEra, UpstreamTransport
from tools_app.upstreams.client import Client, Listen, Message, ServerInfo
from tools_app.upstreams.duplex import LegacySseTransport
from tools_app.upstreams.errors import ErrorResponse, Refused, TooLarge, UpstreamFailed
from tools_app.upstreams.exchanges.pages import COMPLETED, OpenPages
from tools_app.upstreams.http import UNAUTHORIZED, Bounds, HttpTransport
from tools_app.upstreams.observation import Definitions, observe, observe_circuit
from tools_app.upstreams.parking import ParkedCalls
from tools_app.upstreams.sessions import (
    ALL_CAPABILITIES,
    CLOSE_SECONDS,
    IDLE_SECONDS,
    Lease,
    Profile,
    SessionPool,
    capabilities_of,
    close_client,
)
from tools_app.upstreams.stdio import StdioTransport
from tools_app.upstreams.updates import (
    ACKNOWLEDGED,
    UPDATED,
    ConnectionUpdates,
    UpdateListener,
    UrisByEndpoint,
    Watchers,
)

log = logging.getLogger(__name__)
T = TypeVar("T")

# How long the definitions that an upstream listed are believed.
CHECK_SECONDS: Final = 60.0
LIST_SECONDS: Final = 30.0
# How often definitions are listed in succession, if the upstream announces each time that they change meanwhile.
MAX_LISTINGS: Final = 2
# How long after an announced change the definitions are listed again.
CHANGE_SECONDS: Final = 1.0
SWEEP_SECONDS: Final = 5.0
# After so many failures in a row, calls are refused for a while.
FAILURES_TO_OPEN: Final = 3
# Upstreams of one tenant that run as processes, in one process of the hub.
MAX_PROCESSES: Final = 16
# Upstreams of one tenant with the credentials that are in use, in one process of the hub.
MAX_CONNECTIONS: Final = 1000

LISTS: Final = {
    ItemKind.TOOL: ("tools", "tools/list", "tools", "name"),
    ItemKind.PROMPT: ("prompts", "prompts/list", "prompts", "name"),
    ItemKind.RESOURCE: ("resources", "resources/list", "resources", "uri"),
    ItemKind.TEMPLATE: ("resources", "resources/templates/list", "resourceTemplates", "uriTemplate"),
}
CHANGED: Final = {
    "notifications/tools/list_changed": (ItemKind.TOOL,),
    "notifications/prompts/list_changed": (ItemKind.PROMPT,),
    "notifications/resources/list_changed": (ItemKind.RESOURCE, ItemKind.TEMPLATE),
}

# Silence on a connection. Calls and lists have shorter timeouts of their own.
SILENCE_SECONDS: Final = 3600.0
# What a message is larger than the result in it.
MAX_ENVELOPE_BYTES: Final = 64 * 1024
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

Observe = Callable[[UUID, str, Definitions], Awaitable[None]]
OpenClient = Callable[[Endpoint, Listen, Profile], Client]


def open_client(endpoint: Endpoint, on_change: Listen, profile: Profile) -> Client:
    """Return an unconnected client that declares the capabilities of `profile`.

    Raises UpstreamFailed for an endpoint that cannot be used.
    """
    capabilities = capabilities_of(profile)
    bounds = Bounds(SILENCE_SECONDS, config.MCPHUB_MAX_RESULT_BYTES + MAX_ENVELOPE_BYTES)
    if endpoint.transport == UpstreamTransport.STDIO:
        return Client(StdioTransport(endpoint, bounds.max_bytes), endpoint.era, on_change, capabilities)
    try:
        url = parse_url(endpoint.url)
    except InvalidUrl as error:
        raise UpstreamFailed(f"The upstream's URL is invalid: {error}.", sent=False) from error
    headers = {name: value.strip() for name, value in endpoint.headers}
    for name, value in headers.items():
        # A secret may have what no header can have.
        if not _HEADER_VALUE.fullmatch(value):
            raise UpstreamFailed(f"The value of the header {name} cannot be sent.", sent=False)
    allowed = parse_networks(endpoint.allowed_networks)
    transport = HttpTransport(url, headers, allowed, bounds, endpoint.tenant_id)
    if endpoint.transport == UpstreamTransport.SSE:
        # Its only revision has the handshake.
        return Client(LegacySseTransport(url, transport), UpstreamEra.HANDSHAKE, on_change, capabilities)
    return Client(transport, endpoint.era, on_change, capabilities)


@dataclass
class Connection:
    """The connection to one endpoint, and what it listed last.

    Definitions are listed by a session that declares all capabilities: some servers offer tools to such clients only.
    """

    endpoint: Endpoint
    open_client: OpenClient
    observe: Observe
    notify_updated: Callable[[Endpoint, frozenset[str]], None]
    active_calls: int = 0
    is_closed: bool = False
    used_at: float = field(default_factory=monotonic)
    breaker: CircuitBreaker = field(
        default_factory=partial(CircuitBreaker, "The upstream", failures_to_open=FAILURES_TO_OPEN)
    )
    _client: Client | None = None
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _listing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changed: set[str] = field(default_factory=set)
    # How often the upstream announced a change, by kind.
    _announced: Counter[str] = field(default_factory=Counter)
    _relisting: asyncio.Task[None] | None = None
    _digests: dict[str, tuple[float, dict[str, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sessions = SessionPool(self.endpoint.name, self._connect)
        self.pages = OpenPages()
        self.updates = ConnectionUpdates(self.client, lambda uris: self.notify_updated(self.endpoint, uris))

    async def client(self) -> Client:
        """Return the connected client that lists. Raises UpstreamFailed and ErrorResponse."""
        if self._client is not None and not self._client.is_closed:
            return self._client
        async with self._connecting:
            if self._client is not None and not self._client.is_closed:
                return self._client
            await self._close_client()
            self._digests.clear()
            self._client = await self._connect(ALL_CAPABILITIES)
            self.updates.set_client(self._client)
            return self._client

    @asynccontextmanager
    async def session(self, profile: Profile) -> AsyncIterator[Lease]:
        """Lend the client for a call of a client with these capabilities.

        Raises ToolError if all sessions are in use, UpstreamFailed and ErrorResponse.
        """
        lister = await self.client()
        if lister.is_modern:
            yield Lease(lister)
            return
        async with self.sessions.lease(profile, is_duplex=lister.is_duplex) as lease:
            yield lease

    async def _connect(self, profile: Profile) -> Client:
        self._check_open()
        client = self.open_client(self.endpoint, self.handle_notification, profile)
        try:
            await client.connect()
            self._check_open()
        except BaseException:
            await client.close()
            raise
        return client

    def _check_open(self) -> None:
        """Raise UpstreamFailed if the connection was closed: nobody would close a client that it opens."""
        if self.is_closed:
            raise UpstreamFailed("The connection to the upstream was closed. Try again.", sent=False)

    async def check(self, pin: Pin) -> None:
        """Raise ToolError unless the upstream lists the pinned definition."""
        digests = await self.digests(pin.kind)
        if (digest := digests.get(pin.name)) == pin.digest:
            return
        if digest is None:
            raise ToolError(f"'{pin.name}' is not called: the upstream '{self.endpoint.name}' no longer offers it.")
        raise ToolError(
            f"'{pin.name}' is not called: its definition at the upstream '{self.endpoint.name}' has changed."
            " An admin must review the change first."
        )

    def server_for(self, pin: Pin) -> ServerInfo | None:
        """Return what a modern upstream over HTTP says about itself, if it can be called without this connection.

        It lists the pinned definition, and the last call did not fail. Safe to use from any thread.
        """
        client, digests = self._client, self._cached_digests(pin.kind)
        if client is None or digests is None or not client.is_modern or client.is_duplex:
            return None
        return client.server if digests.get(pin.name) == pin.digest and not self.breaker.failures else None

    @property
    def keeps_connections(self) -> bool:
        """Whether its client keeps connections for further requests."""
        return self._client is None or self._client.transport.keeps_connections

    async def digests(self, kind: str) -> dict[str, str]:
        """Return the digests of what the upstream lists, by name; at most CHECK_SECONDS old."""
        if (cached := self._cached_digests(kind)) is not None:
            return cached
        async with self._listing:
            cached = self._cached_digests(kind)
            return cached if cached is not None else (await self._list(kind))[0]

    def _cached_digests(self, kind: str) -> dict[str, str] | None:
        listed_at, cached = self._digests.get(kind, (0.0, {}))
        return cached if listed_at and monotonic() - listed_at < CHECK_SECONDS else None

    async def list_definitions(self, kind: str) -> Definitions:
        """List the definitions of one kind, and report them. Raises UpstreamFailed and ErrorResponse."""
        async with self._listing:
            _, listed_definitions = await self._list(kind)
            if self.endpoint.owner:
                await self.observe(self.endpoint.id, kind, listed_definitions)
            return listed_definitions

    async def _list(self, kind: str) -> tuple[dict[str, str], Definitions]:
        """Return the digests and the definitions. The caller holds the lock: an older listing never replaces a newer.

        A listing during which a change was announced may be older than the change: it is made again, and the last one
        that is made is not kept for further calls.
        """
        client = await self.client()
        listings = 0
        try:
            async with asyncio.timeout(LIST_SECONDS):
                while True:
                    started_at, announced = monotonic(), self._announced[kind]
                    listed_definitions = await definitions(client, kind)
                    listings += 1
                    is_current = self._announced[kind] == announced
                    if is_current or listings == MAX_LISTINGS:
                        break
        except TimeoutError as error:
            raise UpstreamFailed(f"The upstream did not list its {kind}s in {LIST_SECONDS:g} seconds.") from error
        digests = {name: digest_of(definition) for name, definition in listed_definitions.items()}
        if is_current:
            self._digests[kind] = (started_at, digests)
        # What one key or person is shown does not say what the upstream offers to others.
        if not self.endpoint.owner:
            await self.observe(self.endpoint.id, kind, listed_definitions)
        return digests, listed_definitions

    async def close(self) -> None:
        """Close the connection for good. What upstreams still say as they end is ignored."""
        self.is_closed = True
        if self._relisting is not None:
            self._relisting.cancel()
        await self.updates.close()
        async with self._connecting:
            await self._close_client()
        await self.sessions.close()

    async def _close_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await close_client(client)

    def handle_notification(self, message: Message) -> None:
        """Take a notification that belongs to no request. Changed lists are forgotten, and soon listed again."""
        method = message.get("method")
        if self.is_closed:
            return
        if method == COMPLETED:
            self.pages.handle_completion(message)
        elif method in {UPDATED, ACKNOWLEDGED}:
            self.updates.handle_notification(message)
        kinds = CHANGED.get(str(method), ())
        for kind in kinds:
            self._digests.pop(kind, None)
        self._announced.update(kinds)
        self._changed.update(kinds)
        if self._changed and (self._relisting is None or self._relisting.done()):
            self._relisting = asyncio.get_running_loop().create_task(self._relist_changed())

    async def _relist_changed(self) -> None:
        """List what changed. An upstream that announces changes without an end is listed once in CHANGE_SECONDS."""
        while self._changed:
            await asyncio.sleep(CHANGE_SECONDS)
            kinds, self._changed = self._changed, set()
            for kind in kinds:
                try:
                    await self.digests(kind)
                except (UpstreamFailed, ErrorResponse) as error:
                    log.info("The changed %ss of an upstream could not be listed: %s", kind, type(error).__name__)


async def definitions(client: Client, kind: str) -> Definitions:
    """Return what an upstream lists of one kind, by name or URI; nothing if it does not declare the capability."""
    capability, method, key, name_key = LISTS[ItemKind(kind)]
    if not client.offers(capability):
        return {}
    try:
        entries = await client.items(method, key)
    except ErrorResponse:
        if kind == ItemKind.TEMPLATE:
            return {}  # many servers declare resources and know no templates
        raise
    # One without a name is offered under none.
    return {entry[name_key] if isinstance(entry.get(name_key), str) else "": entry for entry in entries}


class Connections:
    """All connections of this process, in a thread with an event loop."""

    def __init__(self, open_client: OpenClient = open_client, observe: Observe = observe) -> None:
        self._open_client = open_client
        self._observe = observe
        self._by_endpoint: dict[Endpoint, Connection] = {}
        self._watchers = Watchers()
        self.parking = ParkedCalls(self.is_left)
        # The calls whose tasks other processes go on with, once this one stops.
        self._left_calls: Collection[UUID] | None = None
        self._loop = LoopThread("upstreams", self._end)
        self._sweeping = self.submit(self._sweep())

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine on the loop of the connections. Cancelling the future cancels it."""
        return self._loop.submit(work)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function on the loop of the connections, in the context of the caller."""
        self._loop.call_soon(function)

    @property
    def is_leaving(self) -> bool:
        """Whether this process stops, and takes up no tasks of upstreams any more."""
        return self._left_calls is not None

    def leave(self, call_ids: Collection[UUID]) -> None:
        """Leave the tasks of these calls to other processes: their upstreams are not told to cancel them."""
        self._left_calls = {*(self._left_calls or ()), *call_ids}

    def is_left(self, call_id: UUID) -> bool:
        """Whether another process goes on with the task of a call."""
        return self._left_calls is not None and call_id in self._left_calls

    async def use(self, endpoint: Endpoint, work: Callable[[Connection], Awaitable[T]], *, is_check: bool = False) -> T:
        """Return what `work` returns for the connection to `endpoint`. Runs on the loop of the connections.

        With `is_check`, it is tried even if calls are refused after failures.
        """
        connection = self._connection(endpoint)
        if not is_check and (seconds_left := connection.breaker.seconds_refused):
            raise UpstreamFailed(
                f"The upstream '{endpoint.name}' is not available. The next attempt is in"
                f" {max(1, round(seconds_left))} s.",
                connection.breaker.problem,
                sent=False,
            )
        connection.active_calls += 1
        try:
            result = await work(connection)
        except (ErrorResponse, TooLarge) as error:
            clear_traceback(error)
            await self._record_success(connection)
            raise
        except UpstreamFailed as error:
            clear_traceback(error)
            if endpoint.sign_in is not None and isinstance(error, Refused) and error.status in UNAUTHORIZED:
                # The credential is at fault, and not the upstream.
                await self._record_success(connection)
            elif seconds := connection.breaker.trip(error):
                await observe_circuit(endpoint, seconds, error.message)
            raise
        else:
            await self._record_success(connection)
            return result
        finally:
            connection.active_calls -= 1
            connection.used_at = monotonic()

    @staticmethod
    async def _record_success(connection: Connection) -> None:
        was_open = connection.breaker.is_open
        connection.breaker.reset()
        if was_open:
            await observe_circuit(connection.endpoint, 0.0, "")

    def known(self, endpoint: Endpoint) -> Connection | None:
        """Return the connection to an endpoint, if there is one. Safe to use from any thread."""
        return self._by_endpoint.get(endpoint)

    async def watch(self, owner: Hashable, uris_by_endpoint: UrisByEndpoint, listener: UpdateListener) -> None:
        """Call `listener` with updated resources among those that `owner` wants from now on; none, to stop.

        Returns when the upstreams were asked for them, or cannot be. Runs on the loop of the connections.
        """
        pending = []
        for endpoint in self._watchers.replace(owner, uris_by_endpoint, listener):
            uris = self._watchers.uris(endpoint)
            if not uris and endpoint not in self._by_endpoint:
                continue
            try:
                connection = self._connection(endpoint)
            except ToolError as error:
                log.info("The resources of an upstream cannot be followed: %s", error)
                continue
            connection.updates.set_uris(uris)
            connection.used_at = monotonic()
            pending.append(connection.updates.wait_requested())
        await asyncio.gather(*pending)

    def _connection(self, endpoint: Endpoint) -> Connection:
        """Return the connection to an endpoint. Raises ToolError if there is no room for another one."""
        connection = self._by_endpoint.get(endpoint)
        if connection is None:
            others = [other for other in self._by_endpoint if other.tenant_id == endpoint.tenant_id]
            if len(others) >= MAX_CONNECTIONS:
                raise ToolError("Too many credentials of this tenant's upstreams are in use. Try again later.")
            if endpoint.command and sum(bool(other.command) for other in others) >= MAX_PROCESSES:
                raise ToolError(f"This tenant already runs {MAX_PROCESSES} upstreams as processes, which is the limit.")
            connection = Connection(endpoint, self._open_client, self._observe, self._watchers.notify)
            self._by_endpoint[endpoint] = connection
        return connection

    def close(self) -> None:
        """Close all connections and end the thread; called from another one."""
        closing = self.submit(self._close_all())
        with suppress(Exception):
            closing.result(CLOSE_SECONDS + 1)
        self._sweeping.cancel()
        self._loop.stop(CLOSE_SECONDS)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self._close_idle()

    async def _close_idle(self) -> None:
        """Close the connections that are not in use: for a while, or since a newer one replaced them."""
        newest = {(endpoint.id, endpoint.owner): endpoint for endpoint in self._by_endpoint}
        now = monotonic()
        # All are taken out before the first is closed: meanwhile, a call may begin to use another one.
        idle = []
        for endpoint, connection in list(self._by_endpoint.items()):
            is_old = newest[endpoint.id, endpoint.owner] is not endpoint or now - connection.used_at > IDLE_SECONDS
            if is_old and not connection.active_calls and not connection.updates.has_subscriptions:
                idle.append(self._by_endpoint.pop(endpoint))
        await asyncio.gather(*(connection.close() for connection in idle), return_exceptions=True)
        for connection in list(self._by_endpoint.values()):
            await connection.sessions.close_idle()

    async def _close_all(self) -> None:
        await self.parking.close()
        connections, self._by_endpoint = list(self._by_endpoint.values()), {}
        await asyncio.gather(*(connection.close() for connection in connections), return_exceptions=True)

    async def _end(self) -> None:
        await asyncio.sleep(0)  # what was cancelled ends
        await asyncio.get_running_loop().shutdown_asyncgens()


# The connections of this process.
current = Service(Connections, Connections.close)
