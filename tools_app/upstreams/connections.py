"""The connections of this process to upstreams, on an event loop of their own, which all calls share.

A connection belongs to one endpoint: an upstream with the credentials and permitted networks of its tenant. Upstreams
of the handshake era get a session for each set of capabilities that clients declare, so that they ask no client what it
cannot answer. A connection is opened on first use, closed when idle, and reopened after a failure with a growing delay:
until then calls are refused at once (a circuit breaker). The definitions that the upstream lists are compared with the
accepted ones before calls.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, TypeVar
from uuid import UUID

from tools_app.catalog.kinds.upstream import Endpoint, Pin, digest_of
from tools_app.core.runtime import Service
from tools_app.models import ItemKind
from tools_app.tool_api.results import ToolError
from tools_app.upstreams.client import Client, Message
from tools_app.upstreams.errors import ErrorResponse, Refused, TooLarge, UpstreamFailed
from tools_app.upstreams.http import UNAUTHORIZED
from tools_app.upstreams.observation import MAX_NAME_LENGTH, Definitions, observe, observe_circuit
from tools_app.upstreams.opening import open_client
from tools_app.upstreams.parking import Parking
from tools_app.upstreams.questions import EVERYTHING, Profile
from tools_app.upstreams.sessions import CLOSE_SECONDS, IDLE_SECONDS, Lease, Sessions, closed
from tools_app.upstreams.updates.connection_updates import ACKNOWLEDGED, UPDATED, ConnectionUpdates
from tools_app.upstreams.updates.watchers import Tell, Wanted, Watchers

log = logging.getLogger(__name__)
T = TypeVar("T")

# How long the definitions that an upstream listed are believed.
CHECK_SECONDS: Final = 60.0
LIST_SECONDS: Final = 30.0
# How long after an announced change the definitions are listed again.
CHANGE_SECONDS: Final = 1.0
SWEEP_SECONDS: Final = 5.0
# From this number of failures in a row on, calls are refused until a delay is over, which doubles each time.
FAILURES_TO_OPEN: Final = 3
FIRST_DELAY, MAX_DELAY = 1.0, 60.0
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

Observe = Callable[[UUID, str, Definitions], Awaitable[None]]
OpenClient = Callable[[Endpoint, Callable[[Message], None], Profile], Client]


@dataclass
class Breaker:
    """Refuses calls of an upstream that failed repeatedly, until a delay is over."""

    failures: int = 0
    open_until: float = 0.0
    problem: str = ""

    def check(self, name: str) -> None:
        """Raise UpstreamFailed while the circuit is open."""
        left = self.open_until - monotonic()
        if left > 0:
            message = f"The upstream '{name}' is not available. The next attempt is in {max(1, round(left))} s."
            raise UpstreamFailed(message, self.problem, sent=False)

    def failed(self, problem: Exception) -> float:
        """Note a failure. Returns for how many seconds calls are refused now."""
        self.failures += 1
        self.problem = str(problem)
        if self.failures < FAILURES_TO_OPEN:
            return 0.0
        delay: float = min(MAX_DELAY, FIRST_DELAY * 2 ** min(self.failures - FAILURES_TO_OPEN, 10))
        self.open_until = monotonic() + delay
        return delay

    @property
    def is_open(self) -> bool:
        """Whether the last calls failed, so that calls were refused for a while."""
        return self.failures >= FAILURES_TO_OPEN

    def succeeded(self) -> None:
        """Close the circuit."""
        self.failures, self.open_until, self.problem = 0, 0.0, ""


@dataclass
class Connection:
    """The connection to one endpoint, and what it listed last.

    Definitions are listed by a session that declares all capabilities: some servers offer tools to such clients only.
    """

    endpoint: Endpoint
    open_client: OpenClient
    observe: Observe
    tell_updated: Callable[[Endpoint, frozenset[str]], None]
    users: int = 0
    used_at: float = field(default_factory=monotonic)
    breaker: Breaker = field(default_factory=Breaker)
    _client: Client | None = None
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _listing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changed: set[str] = field(default_factory=set)
    _checking: asyncio.Task[None] | None = None
    _digests: dict[str, tuple[float, dict[str, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sessions = Sessions(self.endpoint.name, self._connected)
        self.updates = ConnectionUpdates(self.client, lambda uris: self.tell_updated(self.endpoint, uris))

    async def client(self) -> Client:
        """Return the connected client that lists. Raises UpstreamFailed and ErrorResponse."""
        async with self._connecting:
            if self._client is not None and not self._client.is_closed:
                return self._client
            await self._close_client()
            self._digests.clear()
            self._client = await self._connected(EVERYTHING)
            self.updates.connected(self._client)
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
        async with self._sessions.lend(profile, is_duplex=lister.is_duplex) as lease:
            yield lease

    async def close_idle_sessions(self) -> None:
        """Close sessions that were not used for a while."""
        await self._sessions.close_idle()

    async def _connected(self, profile: Profile) -> Client:
        client = self.open_client(self.endpoint, self._note_change, profile)
        try:
            await client.connect()
        except BaseException:
            await client.close()
            raise
        return client

    async def check(self, pin: Pin) -> None:
        """Raise ToolError unless the upstream lists the pinned definition."""
        digests = await self.digests(pin.kind)
        if (found := digests.get(pin.name)) == pin.digest:
            return
        if found is None:
            raise ToolError(f"'{pin.name}' is not called: the upstream '{self.endpoint.name}' no longer offers it.")
        raise ToolError(
            f"'{pin.name}' is not called: its definition at the upstream '{self.endpoint.name}' has changed."
            " An admin must review the change first."
        )

    async def digests(self, kind: str) -> dict[str, str]:
        """Return the digests of what the upstream lists, by name; at most CHECK_SECONDS old."""
        async with self._listing:
            at, known = self._digests.get(kind, (0.0, {}))
            if at and monotonic() - at < CHECK_SECONDS:
                return known
            found, _ = await self._list(kind)
            return found

    async def listed(self, kind: str) -> Definitions:
        """List the definitions of one kind, and report them. Raises UpstreamFailed and ErrorResponse."""
        _, found = await self._list(kind)
        if self.endpoint.owner:
            await self.observe(self.endpoint.id, kind, found)
        return found

    async def _list(self, kind: str) -> tuple[dict[str, str], Definitions]:
        """Return the digests and the definitions."""
        client = await self.client()
        began = monotonic()
        try:
            async with asyncio.timeout(LIST_SECONDS):
                found = await definitions(client, kind)
        except TimeoutError as problem:
            raise UpstreamFailed(f"The upstream did not list its {kind}s in {LIST_SECONDS:g} seconds.") from problem
        digests = {name: digest_of(definition) for name, definition in found.items()}
        self._digests[kind] = (began, digests)
        # What one key or person is shown does not say what the upstream offers to others.
        if not self.endpoint.owner:
            await self.observe(self.endpoint.id, kind, found)
        return digests, found

    async def close(self) -> None:
        """Close the connection."""
        if self._checking is not None:
            self._checking.cancel()
        await self.updates.close()
        async with self._connecting:
            await self._close_client()
        await self._sessions.close()

    async def _close_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await closed(client)

    def _note_change(self, message: Message) -> None:
        """Forget lists that the upstream says have changed, and list them again soon, so that admins see it."""
        if message.get("method") in {UPDATED, ACKNOWLEDGED}:
            self.updates.heard(message)
            return
        kinds = CHANGED.get(str(message.get("method")), ())
        for kind in kinds:
            self._digests.pop(kind, None)
        self._changed.update(kinds)
        if self._changed and (self._checking is None or self._checking.done()):
            self._checking = asyncio.get_running_loop().create_task(self._check_changed())

    async def _check_changed(self) -> None:
        """List what changed. An upstream that announces changes without an end is listed once in CHANGE_SECONDS."""
        while self._changed:
            await asyncio.sleep(CHANGE_SECONDS)
            kinds, self._changed = self._changed, set()
            for kind in kinds:
                try:
                    await self.digests(kind)
                except (UpstreamFailed, ErrorResponse) as problem:
                    log.info("The changed %ss of an upstream could not be listed: %s", kind, type(problem).__name__)


async def definitions(client: Client, kind: str) -> Definitions:
    """Return what an upstream lists of one kind, by name or URI; nothing if it does not declare the capability."""
    capability, method, key, named_by = LISTS[ItemKind(kind)]
    if not client.offers(capability):
        return {}
    try:
        found = await client.items(method, key)
    except ErrorResponse:
        if kind == ItemKind.TEMPLATE:
            return {}  # many servers declare resources and know no templates
        raise
    return {
        one[named_by]: one
        for one in found
        if isinstance(one.get(named_by), str) and len(one[named_by]) <= MAX_NAME_LENGTH
    }


class Connections:
    """All connections of this process, in a thread with an event loop."""

    def __init__(self, open_client: OpenClient = open_client, observe: Observe = observe) -> None:
        self._open_client = open_client
        self._observe = observe
        self._by_endpoint: dict[Endpoint, Connection] = {}
        self._watchers = Watchers()
        self.parking = Parking()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="upstreams", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine on the loop of the connections. Cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def use(self, endpoint: Endpoint, work: Callable[[Connection], Awaitable[T]], *, is_check: bool = False) -> T:
        """Return what `work` returns for the connection to `endpoint`. Runs on the loop of the connections.

        With `is_check`, it is tried even if calls are refused after failures.
        """
        connection = self._connection(endpoint)
        if not is_check:
            connection.breaker.check(endpoint.name)
        connection.users += 1
        try:
            result = await work(connection)
        except (ErrorResponse, TooLarge):
            await self._answered(connection)
            raise
        except UpstreamFailed as problem:
            if endpoint.sign_in is not None and isinstance(problem, Refused) and problem.status in UNAUTHORIZED:
                # The credential is at fault, and not the upstream.
                await self._answered(connection)
            elif seconds := connection.breaker.failed(problem):
                await observe_circuit(endpoint, seconds, problem.message)
            raise
        else:
            await self._answered(connection)
            return result
        finally:
            connection.users -= 1
            connection.used_at = monotonic()

    @staticmethod
    async def _answered(connection: Connection) -> None:
        was_open = connection.breaker.is_open
        connection.breaker.succeeded()
        if was_open:
            await observe_circuit(connection.endpoint, 0.0, "")

    async def watch(self, owner: Hashable, wanted: Wanted, tell: Tell) -> None:
        """Call `tell` with updated resources among those that `owner` wants from now on; nothing, to stop.

        Returns when the upstreams were asked for them, or cannot be. Runs on the loop of the connections.
        """
        waiting = []
        for endpoint in self._watchers.replace(owner, wanted, tell):
            uris = self._watchers.uris(endpoint)
            if not uris and endpoint not in self._by_endpoint:
                continue
            try:
                connection = self._connection(endpoint)
            except ToolError as problem:
                log.info("The resources of an upstream cannot be followed: %s", problem)
                continue
            connection.updates.want(uris)
            connection.used_at = monotonic()
            waiting.append(connection.updates.settle())
        await asyncio.gather(*waiting)

    def _connection(self, endpoint: Endpoint) -> Connection:
        """Return the connection to an endpoint. Raises ToolError if there is no room for another one."""
        connection = self._by_endpoint.get(endpoint)
        if connection is None:
            self._check_room(endpoint)
            connection = Connection(endpoint, self._open_client, self._observe, self._watchers.tell)
            self._by_endpoint[endpoint] = connection
        return connection

    def close(self) -> None:
        """Close all connections and end the thread; called from another one."""
        closing = self.submit(self._close_all())
        with suppress(Exception):
            closing.result(CLOSE_SECONDS + 1)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_SECONDS)

    def _check_room(self, endpoint: Endpoint) -> None:
        if sum(one.tenant_id == endpoint.tenant_id for one in self._by_endpoint) >= MAX_CONNECTIONS:
            raise ToolError("Too many credentials of this tenant's upstreams are in use. Try again later.")
        if endpoint.command:
            of_tenant = [one for one in self._by_endpoint if one.command and one.tenant_id == endpoint.tenant_id]
            if len(of_tenant) >= MAX_PROCESSES:
                raise ToolError(f"This tenant already runs {MAX_PROCESSES} upstreams as processes, which is the limit.")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        sweeping = self._loop.create_task(self._sweep())
        try:
            self._loop.run_forever()
        finally:
            sweeping.cancel()
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(sweeping)
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self._close_idle()

    async def _close_idle(self) -> None:
        # All are taken out before the first is closed: meanwhile, a call may begin to use another one.
        idle = [self._by_endpoint.pop(endpoint) for endpoint in self._idle()]
        await asyncio.gather(*(connection.close() for connection in idle), return_exceptions=True)
        for connection in list(self._by_endpoint.values()):
            await connection.close_idle_sessions()

    def _idle(self) -> list[Endpoint]:
        """Return the endpoints of connections that are not in use: for a while, or since a newer one replaced them."""
        newest = {(endpoint.id, endpoint.owner): endpoint for endpoint in self._by_endpoint}
        now = monotonic()
        return [
            endpoint
            for endpoint, connection in self._by_endpoint.items()
            if not connection.users
            and not connection.updates.is_wanted
            and (newest[endpoint.id, endpoint.owner] is not endpoint or now - connection.used_at > IDLE_SECONDS)
        ]

    async def _close_all(self) -> None:
        await self.parking.close()
        connections, self._by_endpoint = list(self._by_endpoint.values()), {}
        await asyncio.gather(*(connection.close() for connection in connections), return_exceptions=True)


# The connections of this process.
current = Service(Connections, Connections.close)
