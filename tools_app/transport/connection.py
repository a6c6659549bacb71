"""A client at the other end of one channel that carries messages both ways: WebSocket, HTTP+SSE, standard streams.

There are no headers here: a request of the modern era says all in its `_meta`, and a handshake opens a session that
ends with the channel.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from typing import Any, NamedTuple
from uuid import UUID

from django.db import Error

from tools_app.auth import sessions
from tools_app.auth.principal import Credential, Principal
from tools_app.auth.sessions import SessionFacts
from tools_app.execution import limiting
from tools_app.execution.invocation import Client
from tools_app.methods import heeding, lifecycle, subscriptions
from tools_app.methods.exchange import Exchange
from tools_app.models.config import config
from tools_app.protocol import inbound, jsonrpc
from tools_app.protocol.errors import INVALID_REQUEST, NOT_PERMITTED, OVER_LIMIT, RpcError
from tools_app.protocol.inbound import Modern
from tools_app.protocol.jsonrpc import Malformed, Message, Notification, Request, Response
from tools_app.protocol.sse import Frame
from tools_app.protocol.versions import BATCHING_VERSIONS, Era
from tools_app.transport.answering import answer, answer_batch, as_rpc_error, batchable
from tools_app.transport.state import WebState
from tools_app.transport.streams import OpenStream

MOST_IN_FLIGHT = 100
FINISH_SECONDS = 2.0
RETRY_SECONDS = 1.0

Write = Callable[[bytes], Awaitable[None]]
Authenticate = Callable[[], Awaitable[Principal | None]]


class Channel:
    """What is on its way to the client: messages go out in their order."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[tuple[Voice | None, bytes]] = asyncio.Queue()

    def put(self, message: bytes, voice: "Voice | None" = None) -> None:
        """Add a message; with a `voice`, it goes out unless that has fallen silent by then."""
        self._messages.put_nowait((voice, message))

    async def write_to(self, write: Write) -> None:
        """Write messages as they come, until cancelled or `write` fails."""
        while True:
            voice, message = await self._messages.get()
            if voice is None or not voice.silent:
                await write(message)
            self._messages.task_done()

    async def flush(self) -> None:
        """Wait until everything is written."""
        await self._messages.join()


class Voice:
    """The sender of one request, to which nobody comes back. It can be silenced: what is not out yet stays unsaid."""

    takes_messages = True

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.silent = False

    def put(self, message: bytes, id: str = "") -> None:  # noqa: ARG002 - a channel is not taken up again
        """Send a message that belongs to the request."""
        self._channel.put(message, self)

    def pause(self) -> None:
        """Nothing: a channel that ends is gone."""

    def resumable(self, call_id: UUID) -> None:
        """Nothing, for the same reason."""

    def may_return(self) -> bool:
        """Nobody does."""
        return False


class Running(NamedTuple):
    """A request that is being answered."""

    task: "asyncio.Task[None]"
    voice: Voice
    modern: bool


class Connection:
    """One client, from its first message to its last. `credential` is what it came with, if anything.

    `counted`: its messages were counted as requests before they came here.
    """

    def __init__(
        self,
        authenticate: Authenticate,
        remote_address: str,
        web: WebState,
        write: Write,
        credential: Credential | None = None,
        *,
        counted: bool = False,
    ) -> None:
        self._authenticate = authenticate
        self._address = remote_address
        self._web = web
        self._write = write
        self._channel = Channel()
        self._counted = counted
        self._session: SessionFacts | None = None
        self._in_flight: dict[jsonrpc.RequestId, Running] = {}
        self._batches: set[asyncio.Task[None]] = set()
        self._listening: set[asyncio.Task[Any]] = set()
        self._changes: asyncio.Task[None] | None = None
        self._told: Principal | None = None
        self.stream = OpenStream(credential, None, self._still_allowed)

    async def serve(
        self, messages: AsyncIterator[bytes], session: SessionFacts | None = None, *, finish: bool = False
    ) -> None:
        """Answer `messages` until they end or the connection is ended from outside. `session`: one that waits for it.

        What still runs when the client is gone is cancelled, for nobody could hear of it. `finish`: the end of the
        messages is not the end of the client, so what was asked last may still be answered, if it is quick.
        """
        if session is not None:
            self._begin(session)
        self._web.streams.add(self.stream)
        writing = asyncio.create_task(self._channel.write_to(self._write))
        reading = asyncio.create_task(self._read(messages))
        ending = asyncio.create_task(self.stream.ended.wait())
        try:
            await asyncio.wait({writing, reading, ending}, return_when=asyncio.FIRST_COMPLETED)
            if (ending.done() or (finish and reading.done())) and not writing.done():
                await self._finish(reading)
        finally:
            await self._leave((writing, reading, ending))
            self._web.streams.remove(self.stream)

    async def _read(self, messages: AsyncIterator[bytes]) -> None:
        async for raw in messages:
            await self.receive(raw)

    async def receive(self, raw: bytes) -> None:
        """Take one message, or a batch of them. Nothing that a client says raises."""
        self._web.requests["channel"] += 1
        try:
            value = jsonrpc.decode(raw, config.MCPHUB_MAX_JSON_DEPTH)
            if not self._counted and not await self._count(value):
                return
            if isinstance(value, list):
                await self._batch(value)
                return
        except Exception as problem:  # noqa: BLE001 - nothing may leave a channel but JSON-RPC
            self._channel.put(jsonrpc.error_message(None, as_rpc_error(problem)))
            return
        await self._message(jsonrpc.message(value))

    async def _count(self, value: Any) -> bool:
        """Count a message, or each of a batch. What is too much is refused, or left alone if it wants no answer."""
        principal = await self._authenticate()
        if principal is None or not principal.allowed.requests:
            return True
        values = value if isinstance(value, list) else [value]
        refusal = await limiting.refusal_of(principal, self._address, max(1, len(values)))
        if refusal is None:
            return True
        asked = [message.id for message in map(jsonrpc.message, values) if isinstance(message, Request)]
        refused = [jsonrpc.error_message(id, refusal) for id in asked]
        if refused:
            self._channel.put(b"[%b]" % b",".join(refused) if isinstance(value, list) else refused[0])
        return False

    async def _message(self, message: Message) -> None:
        if isinstance(message, Malformed):
            self._channel.put(jsonrpc.error_message(message.id, message.error))
        elif isinstance(message, Request) and self._is_opening(message):
            # Awaited here: what the client says next may need the session already.
            await self._open(message)
        elif isinstance(message, Request):
            self._take(message)
        else:
            await self._heed(message)

    def _take(self, request: Request) -> None:
        """Begin to answer a request; its answer comes when it is there, others may come before it."""
        if request.id in self._in_flight or self._is_full():
            self._channel.put(jsonrpc.error_message(request.id, _too_many()))
            return
        voice = Voice(self._channel)
        task = asyncio.create_task(self._answer(request, voice))
        self._in_flight[request.id] = Running(task, voice, inbound.is_modern({}, request))
        task.add_done_callback(lambda _: self._in_flight.pop(request.id, None))

    def _is_full(self) -> bool:
        return len(self._in_flight) + len(self._batches) >= MOST_IN_FLIGHT

    async def _answer(self, request: Request, voice: Voice) -> None:
        try:
            exchange = await self._exchange(request, voice)
            if request.method == subscriptions.LISTEN and _may_listen(exchange):
                await self._listen(exchange)
                return
            reply = await self._web.turnstile.through(exchange.principal.tenant_id, answer, exchange)
        except Exception as problem:  # noqa: BLE001 - nothing may leave a channel but JSON-RPC
            voice.put(jsonrpc.error_message(request.id, as_rpc_error(problem)))
            return
        if reply.message is not None:
            voice.put(reply.message)

    # --- Requests -------------------------------------------------------------------------------------------------

    async def _exchange(self, request: Request, voice: Voice) -> Exchange:
        """The request under the rules of its era. Raises RpcError."""
        principal, route = await self._who(), inbound.classify_alone(request)
        if isinstance(route, RpcError):
            raise route
        if isinstance(route, Modern):
            name = principal.named(str(route.client.get("name", "")))
            client = Client(name, str(route.client.get("version", "")), self._address)
            return Exchange(
                request=request,
                principal=principal,
                era=Era.MODERN,
                version=route.version,
                client=client,
                capabilities=route.capabilities,
                session=None,
                switchboard=self._web.switchboard,
                sender=voice,
            )
        return self._session_exchange(request, voice, principal, await self._live_session(principal))

    def _session_exchange(
        self, request: Request, voice: Voice, principal: Principal, session: SessionFacts
    ) -> Exchange:
        return Exchange(
            request=request,
            principal=principal,
            era=Era.HANDSHAKE,
            version=session.version,
            client=Client(principal.named(session.client_name), session.client_version, self._address),
            capabilities=session.capabilities,
            session=session,
            switchboard=self._web.switchboard,
            sender=voice,
        )

    async def _listen(self, exchange: Exchange) -> None:
        """Tell of changes until the client cancels, or the connection ends, which it is told."""
        task = asyncio.current_task()
        assert task is not None
        self._told = self._told or exchange.principal
        self._listening.add(task)
        try:
            async with aclosing(subscriptions.listen(exchange)) as messages:  # type: ignore[type-var]
                async for frame in messages:
                    if frame.message:
                        exchange.sender.put(frame.message)
        except asyncio.CancelledError:
            if self._web.draining:
                for message in subscriptions.farewell(exchange):
                    exchange.sender.put(message)
            raise
        finally:
            self._listening.discard(task)

    async def _batch(self, values: list[Any]) -> None:
        """One array of responses to one array of messages (2025-03-26, base protocol, §Batching). Raises RpcError."""
        if self._session is None or self._session.version not in BATCHING_VERSIONS:
            raise RpcError(INVALID_REQUEST, "Invalid request: this revision has no batches.")
        if not 0 < len(values) <= config.MCPHUB_MAX_BATCH:
            raise RpcError(INVALID_REQUEST, f"Invalid request: a batch has 1 to {config.MCPHUB_MAX_BATCH} messages.")
        if self._is_full():
            raise _too_many()
        principal = await self._who()
        session = await self._live_session(principal)
        voice = Voice(self._channel)
        messages = [batchable(jsonrpc.message(value)) for value in values]
        malformed = [jsonrpc.error_message(item.id, item.error) for item in messages if isinstance(item, Malformed)]
        requests = [item for item in messages if isinstance(item, Request)]
        exchanges = [self._session_exchange(request, voice, principal, session) for request in requests]
        for item in messages:
            if isinstance(item, Notification | Response):
                await self._heed(item)
        if exchanges or malformed:
            task = asyncio.create_task(self._answer_batch(principal, exchanges, malformed))
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)

    async def _answer_batch(self, principal: Principal, exchanges: list[Exchange], malformed: list[bytes]) -> None:
        try:
            reply = await self._web.turnstile.through(principal.tenant_id, answer_batch, exchanges, malformed)
        except RpcError as refusal:
            self._channel.put(jsonrpc.error_message(None, refusal))
            return
        if reply.message is not None:
            self._channel.put(reply.message)

    # --- The session ----------------------------------------------------------------------------------------------

    @staticmethod
    def _is_opening(request: Request) -> bool:
        return request.method == "initialize" and not inbound.is_modern({}, request)

    async def _open(self, request: Request) -> None:
        """Agree on a revision and begin the session (2025-11-25, lifecycle, §Initialization)."""
        try:
            principal, opening = await self._who(), lifecycle.opening(request.params)
            if self._session is not None and self._session.version:
                raise RpcError(INVALID_REQUEST, "This connection has been initialized already.")
            session = await lifecycle.agreed(opening, principal, self._address, self._session)
        except Exception as problem:  # noqa: BLE001 - nothing may leave a channel but JSON-RPC
            self._channel.put(jsonrpc.error_message(request.id, as_rpc_error(problem)))
            return
        self._begin(session)
        changes = subscriptions.session_stream(principal, session, self._web.switchboard)
        # Before the client hears that there is a session: from here on, no change is missed.
        with suppress(Error):
            await anext(changes)
        self._channel.put(jsonrpc.result_message(request.id, opening.welcome(principal)))
        self._told = principal
        self._changes = asyncio.create_task(self._tell_changes(principal, session, changes))

    def _begin(self, session: SessionFacts) -> None:
        self._session = session
        self.stream.session_digest = session.digest

    async def _tell_changes(self, principal: Principal, session: SessionFacts, changes: AsyncIterator[Frame]) -> None:
        """Tell of changes, and again of later ones when the store was away."""
        while True:
            with suppress(Error):
                async with aclosing(changes):  # type: ignore[type-var]
                    async for frame in changes:
                        if frame.message:
                            self._channel.put(frame.message)
            await asyncio.sleep(RETRY_SECONDS)
            changes = subscriptions.session_stream(principal, session, self._web.switchboard)

    async def _live_session(self, principal: Principal) -> SessionFacts:
        """The session as it is now, for its log level may have changed. Raises RpcError if there is none yet."""
        if self._session is None or not self._session.version:
            raise RpcError(INVALID_REQUEST, "Call initialize first.")
        session = await sessions.alive(principal, self._session.digest)
        if session is None:
            raise RpcError(INVALID_REQUEST, "The session has ended.")
        return session

    async def _who(self) -> Principal:
        """The principal, whose key may have been revoked since. Raises RpcError."""
        principal = await self._authenticate()
        if principal is None:
            raise RpcError(NOT_PERMITTED, "A valid API key is needed.", status=401)
        return principal

    async def _still_allowed(self) -> bool:
        principal = await self._authenticate()
        if principal is None:
            return False
        # Whoever is told of changes is told by the scopes of the beginning: with others, the client has to come anew.
        if self._told is not None and not principal.has_scopes_of(self._told):
            return False
        return self._session is None or await sessions.alive(principal, self._session.digest) is not None

    # --- What wants no answer -------------------------------------------------------------------------------------

    async def _heed(self, message: Notification | Response) -> None:
        """Do what a message asks; what it gets wrong is ignored (cancellation, §Error Handling)."""
        try:
            if isinstance(message, Notification) and message.method == heeding.CANCELLED:
                await self._cancel(message)
            elif isinstance(message, Notification) and self._session is not None:
                await heeding.heed(message, self._session)
            elif isinstance(message, Response) and self._session is not None:
                await heeding.hand_on(message, self._session)
        except Exception as problem:  # noqa: BLE001 - there is nobody to tell
            as_rpc_error(problem)

    async def _cancel(self, notification: Notification) -> None:
        """Stop a request of this connection. One that has not begun to run yet has no record to be stopped by."""
        request_id = heeding.request_id_of(notification)
        running = self._in_flight.get(request_id) if request_id is not None else None
        if running is not None and running.modern:
            running.voice.silent = True
            running.task.cancel(heeding.reason_of(notification))
        elif self._session is not None and not await heeding.cancel(notification, self._session) and running:
            running.task.cancel(heeding.reason_of(notification))

    # --- The end --------------------------------------------------------------------------------------------------

    async def _finish(self, reading: "asyncio.Task[None]") -> None:
        """Take nothing more, let what runs finish, and say farewell to those who listen."""
        await ended([reading, *self._listening])
        calls: asyncio.Future[Any] = asyncio.gather(*self._answering(), return_exceptions=True)
        waits = [calls, asyncio.create_task(self._patience())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        await ended(waits)
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                await self._channel.flush()

    async def _patience(self) -> None:
        """How long what runs may still take: a hub that stops says itself when it is enough."""
        if self._web.draining:
            await self._web.given_up.wait()
        else:
            await asyncio.sleep(FINISH_SECONDS)

    def _answering(self) -> "list[asyncio.Task[None]]":
        return [*(running.task for running in self._in_flight.values()), *self._batches]

    async def _leave(self, tasks: "tuple[asyncio.Task[Any], ...]") -> None:
        running = [*tasks, *self._answering()]
        await ended([*running, self._changes] if self._changes else running)
        if self._session is not None:
            with suppress(Error):
                await sessions.end(self._session, "closed")


def _may_listen(exchange: Exchange) -> bool:
    return exchange.era is Era.MODERN and exchange.principal.may_ask(subscriptions.LISTEN)


def _too_many() -> RpcError:
    return RpcError(OVER_LIMIT, f"At most {MOST_IN_FLIGHT} requests at a time, each with an id of its own.")


async def ended(tasks: "Iterable[asyncio.Future[Any]]") -> None:
    """Cancel tasks and wait until they are gone."""
    gone = list(tasks)
    for task in gone:
        task.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
