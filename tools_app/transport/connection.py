"""A client on a bidirectional connection: WebSocket, HTTP+SSE or stdio.

Messages have no headers: a request of the modern era has everything in its `_meta`, and a handshake opens a session
that ends with the connection.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Iterable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, NamedTuple

from django.db import Error

from tools_app.calls import limits, run, sessions, stop_reasons
from tools_app.calls.background import delivery
from tools_app.calls.request import RequestContext, modern_context, session_context
from tools_app.calls.sessions import SessionFacts
from tools_app.calls.stop_reasons import StopReason
from tools_app.core import request_memory
from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.identity.principal import Credential, Principal
from tools_app.methods import lifecycle, notifications, subscriptions
from tools_app.protocol import inbound, jsonrpc
from tools_app.protocol.errors import INTERNAL_ERROR, INVALID_REQUEST, NOT_PERMITTED, OVER_LIMIT, RpcError
from tools_app.protocol.inbound import Modern
from tools_app.protocol.jsonrpc import Malformed, Message, Notification, Request, Response
from tools_app.protocol.sse import Frame
from tools_app.protocol.versions import BATCHING_VERSIONS, Era
from tools_app.transport.dispatch import answer, answer_batch, as_rpc_error, batchable
from tools_app.transport.incoming import Authenticate, Incoming, decode_large
from tools_app.transport.send_queue import ResponseSender, SendQueue, Write, send_answer
from tools_app.transport.state import WebState
from tools_app.transport.streams import OpenStream

MAX_IN_FLIGHT = 100
FINISH_SECONDS = 2.0
RETRY_SECONDS = 1.0
# How long to wait for the record of a call that was stopped by its id, before its client is answered without it.
STOP_SECONDS = 1.0
CLOSING = RpcError(INTERNAL_ERROR, "The connection is closing. Nothing ran.", retry_after=1)


class RunningRequest(NamedTuple):
    """A request or batch in progress, with its request ids."""

    task: "asyncio.Task[None]"
    response_sender: ResponseSender
    modern: bool
    ids: tuple[jsonrpc.RequestId, ...]


class Connection:
    """The connection of one client. `credential` is what it authenticated with, if anything.

    `identity`: connections with the same one are authenticated alike. `counted`: its messages have already been counted
    against the request limit.
    """

    def __init__(
        self,
        authenticate: Authenticate,
        remote_address: str,
        web: WebState,
        write: Write,
        credential: Credential | None = None,
        *,
        identity: Hashable = None,
        counted: bool = False,
    ) -> None:
        self._authenticate = authenticate
        self._address = remote_address
        self._web = web
        self._write = write
        self._send_queue = SendQueue()
        self._is_counted = counted
        self._session: SessionFacts | None = None
        self._in_flight: dict[jsonrpc.RequestId, RunningRequest] = {}
        self._batches: set[RunningRequest] = set()
        self._is_closing = False
        self._listening: set[asyncio.Task[Any]] = set()
        self._changes: asyncio.Task[None] | None = None
        self._notified_principal: Principal | None = None
        self.stream = OpenStream(credential, None, authenticate, self._permits_stream, identity)
        self._is_ended = asyncio.Event()
        self.stream.on_end(self._is_ended.set)

    async def serve(
        self, messages: AsyncIterator[Incoming], session: SessionFacts | None = None, *, finish: bool = False
    ) -> None:
        """Answer `messages` until they end or the connection is ended externally. `session` is an existing session.

        Requests that still run when the client disconnects are cancelled. `finish`: the client outlives the end of
        the messages, so the last requests may still be answered if they are quick.
        """
        if session is not None:
            self._use_session(session)
        self._web.streams.add(self.stream)
        writing = asyncio.create_task(self._send_queue.write_to(self._write))
        reading = asyncio.create_task(self._read(messages))
        ending = asyncio.create_task(self._is_ended.wait())
        try:
            await asyncio.wait({writing, reading, ending}, return_when=asyncio.FIRST_COMPLETED)
            if (ending.done() or (finish and reading.done())) and not writing.done():
                await self._finish()
        finally:
            await self._close((writing, reading, ending))
            self._web.streams.remove(self.stream)

    async def _read(self, messages: AsyncIterator[Incoming]) -> None:
        async for message in messages:
            await self._read_one(message)
            del message  # Otherwise it would be kept until the next one arrives.

    async def _read_one(self, message: Incoming) -> None:
        answering = None
        try:
            await self._send_queue.room()
            message = await message.with_memory(self._authenticate)
            answering = await self.receive(message.raw)
        except Exception as problem:  # noqa: BLE001 - one message must not end the connection
            self._send_queue.put(jsonrpc.error_message(None, as_rpc_error(problem)))
        finally:
            message.free_after(answering)

    async def receive(self, raw: bytes) -> "asyncio.Task[None] | None":
        """Process one message or batch, and return the task that answers it. Client input never raises."""
        self._web.requests["channel"] += 1
        try:
            value = jsonrpc.decode(raw) if len(raw) <= LARGE_BYTES else await self._decode_large(raw)
            if not self._is_counted and not await self._count(value):
                return None
            if isinstance(value, list):
                return await self._handle_batch(value)
        except Exception as problem:  # noqa: BLE001 - nothing may leave a channel but JSON-RPC
            self._send_queue.put(jsonrpc.error_message(None, as_rpc_error(problem)))
            return None
        return await self._handle_message(jsonrpc.message(value))

    async def _decode_large(self, raw: bytes) -> Any:
        """Decode a large message when its tenant's turn comes. Raises RpcError."""
        principal = await self._current_principal()
        # A task of its own: a slot belongs to the task that runs in it.
        return await asyncio.create_task(
            request_memory.run_in_turn(self._web.scheduler, principal.tenant_id, partial(decode_large, raw))
        )

    async def _count(self, value: Any) -> bool:
        """Count a message, or each of a batch. Above the limit, requests are rejected and other messages ignored."""
        principal = await self._authenticate()
        if principal is None or not principal.allowed.requests:
            return True
        values = value if isinstance(value, list) else [value]
        refusal = await limits.request_limit_error(principal, self._address, max(1, len(values)))
        if refusal is None:
            return True
        ids = [message.id for message in map(jsonrpc.message, values) if isinstance(message, Request)]
        refused = [jsonrpc.error_message(id, refusal) for id in ids]
        if refused:
            self._send_queue.put(b"[%b]" % b",".join(refused) if isinstance(value, list) else refused[0])
        return False

    async def _handle_message(self, message: Message) -> "asyncio.Task[None] | None":
        if isinstance(message, Malformed):
            self._send_queue.put(jsonrpc.error_message(message.id, message.error))
        elif isinstance(message, Request) and self._is_closing:
            self._send_queue.put(jsonrpc.error_message(message.id, CLOSING))
        elif isinstance(message, Request) and self._is_initialize(message):
            # Awaited here: the client's next message may need the session.
            await self._initialize(message)
        elif isinstance(message, Request):
            return self._start_request(message)
        else:
            await self._handle_notification(message)
        return None

    def _start_request(self, request: Request) -> "asyncio.Task[None] | None":
        """Start answering a request. Responses may be sent out of order."""
        if request.id in self._in_flight or self._is_full():
            self._send_queue.put(jsonrpc.error_message(request.id, _too_many()))
            return None
        response_sender = ResponseSender(self._send_queue)
        task = asyncio.create_task(self._answer(request, response_sender))
        self._in_flight[request.id] = RunningRequest(
            task, response_sender, inbound.is_modern({}, request), (request.id,)
        )
        task.add_done_callback(lambda _: self._in_flight.pop(request.id, None))
        return task

    def _is_full(self) -> bool:
        return len(self._in_flight) + len(self._batches) >= MAX_IN_FLIGHT

    async def _answer(self, request: Request, response_sender: ResponseSender) -> None:
        try:
            context = await self._request_context(request, response_sender)
            is_listen = request.method == subscriptions.LISTEN and context.era is Era.MODERN
            if is_listen and context.principal.permits_method(subscriptions.LISTEN):
                await self._listen(context)
                return
            work = partial(send_answer, partial(answer, context), response_sender.send)
            await request_memory.run_in_turn(self._web.scheduler, context.principal.tenant_id, work)
        except Exception as problem:  # noqa: BLE001 - nothing may leave a channel but JSON-RPC
            response_sender.put(jsonrpc.error_message(request.id, as_rpc_error(problem)))

    async def _request_context(self, request: Request, response_sender: ResponseSender) -> RequestContext:
        """Return the request's context by the rules of its era. Raises RpcError."""
        principal, route = await self._current_principal(), inbound.classify(None, request)
        if isinstance(route, RpcError):
            raise route
        if isinstance(route, Modern):
            return modern_context(
                request, route, principal, address=self._address, listener=self._web.listener, sender=response_sender
            )
        return self._session_context(request, response_sender, principal, await self._live_session(principal))

    def _session_context(
        self, request: Request, response_sender: ResponseSender, principal: Principal, session: SessionFacts
    ) -> RequestContext:
        return session_context(
            request, session, principal, address=self._address, listener=self._web.listener, sender=response_sender
        )

    async def _listen(self, context: RequestContext) -> None:
        """Send change notifications until the client cancels or the connection ends, of which it is notified."""
        task = asyncio.current_task()
        assert task is not None
        self._notify_for(self._notified_principal or context.principal)
        self._listening.add(task)
        try:
            async with aclosing(subscriptions.messages(subscriptions.ListenStream(context))) as messages:
                async for frame in messages:
                    if frame.message:
                        context.sender.put(frame.message)
        except asyncio.CancelledError:
            if self._is_closing:
                for message in subscriptions.stream_end_messages(context.request.id, stopping=self._web.draining):
                    context.sender.put(message)
            raise
        finally:
            self._listening.discard(task)

    async def _handle_batch(self, values: list[Any]) -> "asyncio.Task[None] | None":
        """Answer a batch with one array of responses (2025-03-26, base protocol, §Batching). Raises RpcError."""
        if self._session is None or self._session.version not in BATCHING_VERSIONS:
            raise RpcError(INVALID_REQUEST, "Invalid request: this revision has no batches.")
        if not 0 < len(values) <= jsonrpc.MAX_BATCH:
            raise RpcError(INVALID_REQUEST, f"Invalid request: a batch has 1 to {jsonrpc.MAX_BATCH} messages.")
        if self._is_closing:
            raise CLOSING
        if self._is_full():
            raise _too_many()
        principal = await self._current_principal()
        session = await self._live_session(principal)
        response_sender = ResponseSender(self._send_queue, is_batch=True)
        messages = [batchable(jsonrpc.message(value)) for value in values]
        malformed = [jsonrpc.error_message(item.id, item.error) for item in messages if isinstance(item, Malformed)]
        requests = [item for item in messages if isinstance(item, Request)]
        contexts = [self._session_context(request, response_sender, principal, session) for request in requests]
        for item in messages:
            if isinstance(item, Notification | Response):
                await self._handle_notification(item)
        if not (contexts or malformed):
            return None
        task = asyncio.create_task(self._answer_batch(principal, contexts, malformed))
        running = RunningRequest(task, response_sender, modern=False, ids=tuple(request.id for request in requests))
        self._batches.add(running)
        task.add_done_callback(lambda _: self._batches.discard(running))
        return task

    async def _answer_batch(self, principal: Principal, contexts: list[RequestContext], malformed: list[bytes]) -> None:
        try:
            work = partial(send_answer, partial(answer_batch, contexts, malformed), self._send_queue.send)
            await request_memory.run_in_turn(self._web.scheduler, principal.tenant_id, work)
        except RpcError as refusal:
            self._send_queue.put(jsonrpc.error_message(None, refusal))

    # --- The session ----------------------------------------------------------------------------------------------

    @staticmethod
    def _is_initialize(request: Request) -> bool:
        return request.method == "initialize" and not inbound.is_modern({}, request)

    async def _initialize(self, request: Request) -> None:
        """Negotiate a revision and start the session (2025-11-25, lifecycle, §Initialization)."""
        try:
            principal, initialization = await self._current_principal(), lifecycle.parse_initialize(request.params)
            if self._session is not None and self._session.version:
                raise RpcError(INVALID_REQUEST, "This connection has been initialized already.")
            session = await lifecycle.open_session(initialization, principal, self._address, self._session)
        except Exception as problem:  # noqa: BLE001 - nothing may leave a channel but JSON-RPC
            self._send_queue.put(jsonrpc.error_message(request.id, as_rpc_error(problem)))
            return
        self._use_session(session)
        changes = self._change_messages(principal, session)
        # Subscribed before the client learns of the session, so that it misses no change.
        with suppress(Error):
            await anext(changes)
        self._send_queue.put(jsonrpc.result_message(request.id, initialization.result_for(principal)))
        self._notify_for(principal)
        self._changes = asyncio.create_task(self._send_changes(principal, session, changes))

    def _use_session(self, session: SessionFacts) -> None:
        self._session = session
        self.stream.session = session

    async def _send_changes(
        self, principal: Principal, session: SessionFacts, changes: AsyncGenerator[Frame, None]
    ) -> None:
        """Send change notifications; resubscribe after the database was unavailable."""
        while True:
            with suppress(Error):
                async with aclosing(changes):
                    async for frame in changes:
                        if frame.message:
                            self._send_queue.put(frame.message)
            await asyncio.sleep(RETRY_SECONDS)
            changes = self._change_messages(principal, session)

    def _change_messages(self, principal: Principal, session: SessionFacts) -> AsyncGenerator[Frame, None]:
        return subscriptions.messages(subscriptions.SessionStream(principal, session, self._web.listener))

    async def _live_session(self, principal: Principal) -> SessionFacts:
        """Return the current session, whose log level may have changed. Raises RpcError if there is none."""
        if self._session is None or not self._session.version:
            raise RpcError(INVALID_REQUEST, "Call initialize first.")
        session = await sessions.find_by_digest(principal, self._session.digest)
        if session is None:
            raise RpcError(INVALID_REQUEST, "The session has ended.")
        return session

    async def _current_principal(self) -> Principal:
        """Return the principal. Raises RpcError if its key is no longer valid."""
        principal = await self._authenticate()
        if principal is None:
            raise RpcError(NOT_PERMITTED, "A valid API key is needed.", status=401)
        return principal

    def _notify_for(self, principal: Principal) -> None:
        """Send change notifications for the scopes of `principal` from now on."""
        self._notified_principal = principal
        self.stream.check_again()

    def _permits_stream(self, principal: Principal) -> bool:
        # Change notifications depend on the scopes at the start: if they change, the client has to reconnect.
        return self._notified_principal is None or principal.has_same_access_as(self._notified_principal)

    # --- Notifications and responses ------------------------------------------------------------------------------

    async def _handle_notification(self, message: Notification | Response) -> None:
        """Handle a message that has no response; errors are ignored (cancellation, §Error Handling)."""
        try:
            if isinstance(message, Notification) and message.method == notifications.CANCELLED:
                await self._cancel(message)
            elif isinstance(message, Notification) and self._session is not None:
                await notifications.handle(message, self._session)
            elif isinstance(message, Response) and self._session is not None:
                await notifications.deliver_response(message, self._session)
        except Exception as problem:  # noqa: BLE001 - no client waits for this
            as_rpc_error(problem)

    async def _cancel(self, notification: Notification) -> None:
        """Cancel a request of this connection. One that has not started has no record, so its task is cancelled."""
        request_id = notifications.request_id_of(notification)
        running = self._in_flight.get(request_id) if request_id is not None else None
        if running is not None and running.modern:
            running.response_sender.silent = True
            running.task.cancel(notifications.reason_of(notification))
        elif self._session is not None and not await notifications.cancel(notification, self._session) and running:
            running.task.cancel(notifications.reason_of(notification))

    # --- Closing --------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Accept no more requests, finish or stop those in progress, and end the subscriptions."""
        self._is_closing = True
        await cancel_and_wait(self._listening)
        grace_period = asyncio.create_task(self._wait_for_grace_period())
        while self._running_requests() and not grace_period.done():
            waits = {grace_period, *(running.task for running in self._running_requests())}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        await cancel_and_wait([grace_period])
        if self._running_requests():
            await self._stop(await self._close_reason())
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                await self._send_queue.flush()

    async def _stop(self, reason: StopReason) -> None:
        """Stop the calls in progress in any process, and answer those that do not stop in time."""
        calls = {call_id for running in self._running_requests() for call_id in running.response_sender.calls}
        elsewhere = [call_id for call_id in calls if not run.stop_call(call_id, reason)]
        if elsewhere:
            with suppress(Error):
                await delivery.request_cancel(elsewhere, reason)
        if answering := [running.task for running in self._running_requests()]:
            await asyncio.wait(answering, timeout=STOP_SECONDS)
        for running in self._running_requests():
            if running.response_sender.silent:
                continue
            running.response_sender.silent = True
            refused = [jsonrpc.error_message(id, RpcError(INTERNAL_ERROR, reason.message)) for id in running.ids]
            self._send_queue.put(b"[%b]" % b",".join(refused) if running in self._batches else refused[0])

    async def _close_reason(self) -> StopReason:
        """Return why the hub ends a connection with requests in progress."""
        if self._web.draining:
            return stop_reasons.SHUTDOWN
        if not self.stream.is_ended:
            return stop_reasons.INPUT_CLOSED
        with suppress(Error):
            principal = await self._authenticate()
            if principal is None:
                return stop_reasons.KEY_INVALID
            if self._notified_principal is not None and not principal.has_same_access_as(self._notified_principal):
                return stop_reasons.SCOPES_CHANGED
        return stop_reasons.SESSION_ENDED

    async def _wait_for_grace_period(self) -> None:
        """Wait as long as requests may still run: FINISH_SECONDS, or until a stopping hub gives up."""
        if self._web.draining:
            await self._web.given_up.wait()
        else:
            await asyncio.sleep(FINISH_SECONDS)

    def _running_requests(self) -> list[RunningRequest]:
        return [*self._in_flight.values(), *self._batches]

    async def _close(self, tasks: "tuple[asyncio.Task[Any], ...]") -> None:
        running = [*tasks, *(running.task for running in self._running_requests())]
        reason = stop_reasons.CONNECTION_CLOSED
        await cancel_and_wait([*running, self._changes] if self._changes else running, reason)
        if self._session is not None:
            with suppress(Error):
                await sessions.end(self._session, "closed")


def _too_many() -> RpcError:
    return RpcError(OVER_LIMIT, f"At most {MAX_IN_FLIGHT} requests at a time, each with an id of its own.")


async def cancel_and_wait(tasks: "Iterable[asyncio.Task[Any]]", reason: StopReason | None = None) -> None:
    """Cancel tasks and wait for them at most FINISH_SECONDS: a tool may ignore its cancellation."""
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel(reason)
    if cancelled:
        await asyncio.wait(cancelled, timeout=FINISH_SECONDS)
