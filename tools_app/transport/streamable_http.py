"""Streamable HTTP: one endpoint for every revision (2025-03-26 to 2026-07-28, transports, §Streamable HTTP).

A Channels consumer that skips Channels' work per message: no dispatch, no channel, no thread.
"""

from typing import Any

from channels.generic.http import AsyncHttpConsumer

from tools_app.calls import limits, sessions
from tools_app.calls.request import RequestContext, modern_context, session_context
from tools_app.calls.sessions import SessionFacts
from tools_app.core import fair_scheduler, request_memory
from tools_app.core.config import config
from tools_app.identity.oauth.scopes import CALL
from tools_app.identity.principal import Principal
from tools_app.methods import lifecycle, notifications, resume, subscriptions
from tools_app.protocol import inbound, jsonrpc
from tools_app.protocol.errors import INVALID_REQUEST, RpcError
from tools_app.protocol.inbound import SESSION_HEADER, Modern
from tools_app.protocol.jsonrpc import Malformed, Message, Notification, Request, Response
from tools_app.protocol.versions import BATCHING_VERSIONS, MODERN_VERSIONS, has_polling
from tools_app.transport import state
from tools_app.transport.change_delivery import ChangeDelivery
from tools_app.transport.delivery import Delivery, deliver_stream
from tools_app.transport.dispatch import answer, answer_batch, batchable
from tools_app.transport.handler import RequestHandler
from tools_app.transport.incoming import decode_large
from tools_app.transport.request import AsgiRequest, Receive, Scope, Send, not_json
from tools_app.transport.responses import Reply, refusal
from tools_app.transport.streams import OpenStream

LAST_EVENT = "last-event-id"
ACCEPTED = Reply(None, 202)


class StreamableHttpConsumer(AsyncHttpConsumer):
    """Serves the MCP endpoint."""

    channel_layer_alias = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await StreamableHttpHandler(AsgiRequest(scope, receive), send, state.current()).run()


class StreamableHttpHandler(RequestHandler):
    """One request to the endpoint."""

    verbs = ("POST", "GET", "DELETE")
    transport = "streamable_http"
    _changes: ChangeDelivery | None = None

    async def answer(self) -> None:
        """Answer by verb."""
        match self.http_request.http_method:
            case "POST":
                await self._post()
            case "GET":
                await self._get()
            case _:
                await self._delete()
        # It refers to this handler: both would be left to the garbage collector.
        changes, self._changes = self._changes, None
        if changes is not None:
            # Here, where nothing else of the request is held: the stream may be open for days.
            request_memory.give_back()
            async with limits.stream_slot(self.principal):
                await changes.deliver(self.http_request, self.cors)

    # --- POST: one message, or a batch where the revision has batches ---------------------------------------------

    async def _post(self) -> None:  # noqa: C901 - the way of a message, with all that may refuse it
        if not self.http_request.head.is_json:
            raise not_json()
        accepted = self.http_request.accepted
        if not (accepted.json or accepted.stream):
            raise RpcError(INVALID_REQUEST, "Accept application/json and text/event-stream.", status=406)
        body = await self.http_request.read(config.MCPHUB_MAX_BODY_BYTES)
        value = jsonrpc.decode(body) if len(body) < fair_scheduler.LARGE_BYTES else await decode_large(body)
        if isinstance(value, list):
            await self._batch(value)
            return
        message = jsonrpc.message(value)
        if isinstance(message, Malformed):
            self.modern = inbound.is_modern(self.http_request.headers, message)
            await self.send_reply(refusal(message.error, message.id, modern=self.modern))
            return
        self.request = message if isinstance(message, Request) else None
        route = inbound.classify(self.http_request.headers, message)
        if isinstance(route, RpcError):
            self.modern = inbound.is_modern(self.http_request.headers, message)
            raise route
        self.modern = isinstance(route, Modern)
        if self.principal.scopes is not None and CALL not in self.principal.scopes:
            await self.check_scope(message)
        if not isinstance(route, Modern):
            await self._handshake_message(message)
            return
        if isinstance(message, Notification):
            await self.send_reply(ACCEPTED)
            return
        if not isinstance(message, Request):
            raise RpcError(INVALID_REQUEST, "Responses are not sent to the hub in this revision.")
        if (repeated := self.http_request.head.repeated_header) is not None:
            raise inbound.mismatch(repeated, "repeated", "it once")
        delivery = Delivery(self.http_request, self._send, self.web, self.cors, cancel_when_gone=True)
        context = modern_context(
            message,
            route,
            self.principal,
            address=self.http_request.remote_address,
            listener=self.web.listener,
            sender=delivery.buffer,
            headers=self.http_request.headers,
        )
        if message.method == subscriptions.LISTEN and self.principal.permits_method(message.method):
            self._listen(context)
            return
        await delivery.deliver(answer(context))

    async def _handshake_message(self, message: Message) -> None:
        if isinstance(message, Request) and message.method == "initialize":
            await self._initialize(message)
            return
        session = await self._session()
        if isinstance(message, Request):
            delivery = Delivery(
                self.http_request,
                self._send,
                self.web,
                self.cors,
                cancel_when_gone=False,
                primed=has_polling(session.version),
            )
            await delivery.deliver(answer(self._session_context(message, session, delivery)))
            return
        await self._handle_notification(message, session)
        await self.send_reply(ACCEPTED)

    async def _initialize(self, request: Request) -> None:
        initialization = lifecycle.parse_initialize(request.params)
        wire_id = await sessions.start(
            self.principal, initialization.negotiation(self.principal), self.http_request.remote_address
        )
        session = (SESSION_HEADER.encode(), wire_id.encode())
        result = initialization.result_for(self.principal)
        await self.send_reply(Reply(jsonrpc.result_message(request.id, result), headers=(session,)))

    async def _handle_notification(self, message: Message, session: SessionFacts) -> None:
        """Handle a notification, or deliver a response to a call's request; ignore what matches neither."""
        if isinstance(message, Notification):
            await notifications.handle(message, session)
        elif isinstance(message, Response):
            await notifications.deliver_response(message, session)

    async def _batch(self, values: list[Any]) -> None:
        session = await self._session() if SESSION_HEADER in self.http_request.headers else None
        if session is None or session.version not in BATCHING_VERSIONS:
            raise RpcError(INVALID_REQUEST, "Invalid request: this revision has no batches.")
        if not 0 < len(values) <= jsonrpc.MAX_BATCH:
            raise RpcError(INVALID_REQUEST, f"Invalid request: a batch has 1 to {jsonrpc.MAX_BATCH} messages.")
        if self.principal.allowed.requests:
            # The first message is already counted.
            await limits.take_requests(self.principal, len(values) - 1)
        messages = [batchable(jsonrpc.message(value)) for value in values]
        malformed = [jsonrpc.error_message(item.id, item.error) for item in messages if isinstance(item, Malformed)]
        requests = [item for item in messages if isinstance(item, Request)]
        for item in messages:
            await self._handle_notification(item, session)
        if not requests and not malformed:
            await self.send_reply(ACCEPTED)
            return
        delivery = Delivery(self.http_request, self._send, self.web, self.cors, cancel_when_gone=False, is_batch=True)
        exchanges = [self._session_context(request, session, delivery) for request in requests]
        await delivery.deliver(answer_batch(exchanges, malformed))

    # --- The other verbs ------------------------------------------------------------------------------------------

    async def _get(self) -> None:
        """Open the session's stream (2025-11-25, transports, §Listening for Messages from the Server)."""
        if self.http_request.headers.get(inbound.VERSION_HEADER) in MODERN_VERSIONS:
            raise RpcError(INVALID_REQUEST, "This revision has no GET: use subscriptions/listen.", status=405)
        if not self.http_request.accepted.only_stream:
            raise RpcError(INVALID_REQUEST, "Accept text/event-stream.", status=406)
        session = await self._session()
        open_stream = self._open_stream(session)
        messages = await resume.stream_after(self.http_request.headers.get(LAST_EVENT), session, self.web.listener)
        if messages is None:
            changes = subscriptions.SessionStream(self.principal, session, self.web.listener)
            self._changes = ChangeDelivery(self.web, self._send, open_stream, changes)
            return
        async with limits.stream_slot(self.principal):
            await deliver_stream(self.http_request, self._send, self.web, open_stream, messages, headers=self.cors)

    def _listen(self, context: RequestContext) -> None:
        if not self.http_request.accepted.only_stream:
            raise RpcError(INVALID_REQUEST, "Accept text/event-stream.", status=406)
        changes = subscriptions.ListenStream(context)
        self._changes = ChangeDelivery(
            self.web,
            self._send,
            self._open_stream(None),
            changes,
            lambda: subscriptions.stream_end_messages(context.request.id, stopping=self.web.draining),
        )

    async def _delete(self) -> None:
        """End the session (2025-11-25, transports, §Session Management)."""
        session = await self._session()
        await sessions.end(session)
        await self.send_reply(Reply(None, 204))

    # --- What the verbs share -------------------------------------------------------------------------------------

    async def _session(self) -> SessionFacts:
        wire_id = self.http_request.headers.get(SESSION_HEADER)
        if wire_id is None:
            raise RpcError(INVALID_REQUEST, "Mcp-Session-Id is missing: call initialize first.", status=400)
        session = await sessions.find(self.principal, wire_id)
        if session is None:
            raise RpcError(INVALID_REQUEST, "Session not found.", status=404)
        return session

    def _open_stream(self, session: SessionFacts | None) -> OpenStream:
        authenticator = self.authenticator
        return OpenStream(
            authenticator.credential, session, authenticator.resolve, self._permits_stream, authenticator.identity
        )

    def _permits_stream(self, principal: Principal) -> bool:
        """Whether a stream may continue for a caller whose key changed.

        Its content depends on the scopes at its start: if they change, the client has to reopen it.
        """
        return principal.permits_address(self.http_request.remote_address) and principal.has_same_access_as(
            self.principal
        )

    def _session_context(self, request: Request, session: SessionFacts, delivery: Delivery) -> RequestContext:
        return session_context(
            request,
            session,
            self.principal,
            address=self.http_request.remote_address,
            listener=self.web.listener,
            sender=delivery.buffer,
            carrier=self.http_request.headers,
        )
