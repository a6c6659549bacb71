"""Streamable HTTP: one address for every revision (2025-03-26 to 2026-07-28, transports, §Streamable HTTP).

A Channels consumer that skips what Channels does per message: no dispatch, no channel, no thread.
"""

from collections.abc import Mapping
from typing import Any

from channels.generic.http import AsyncHttpConsumer

from tools_app.auth import sessions
from tools_app.auth.sessions import SessionFacts
from tools_app.execution import limiting
from tools_app.execution.invocation import Client
from tools_app.methods import heeding, lifecycle, resuming, subscriptions
from tools_app.methods.exchange import Exchange
from tools_app.models.config import config
from tools_app.protocol import inbound, jsonrpc
from tools_app.protocol.errors import INVALID_REQUEST, RpcError
from tools_app.protocol.inbound import SESSION_HEADER, Modern
from tools_app.protocol.jsonrpc import Malformed, Message, Notification, Request, Response
from tools_app.protocol.versions import BATCHING_VERSIONS, MODERN_VERSIONS, Era, has_polling
from tools_app.transport import state
from tools_app.transport.answering import answer, answer_batch, batchable
from tools_app.transport.delivery import Delivery, deliver_stream
from tools_app.transport.incoming import Incoming, Receive, Scope, Send
from tools_app.transport.responses import Reply, refusal
from tools_app.transport.streams import OpenStream
from tools_app.transport.turn import Turn

LAST_EVENT = "last-event-id"
ACCEPTED = Reply(None, 202)


class StreamableHttpConsumer(AsyncHttpConsumer):
    """Answers the MCP endpoint."""

    channel_layer_alias = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request from its first byte to its last."""
        await StreamableHttpTurn(Incoming(scope, receive), send, state.current()).run()


class StreamableHttpTurn(Turn):
    """One request to the endpoint."""

    verbs = ("POST", "GET", "DELETE")
    transport = "streamable_http"

    async def answer(self) -> None:
        """Answer by verb."""
        match self.incoming.http_method:
            case "POST":
                await self._post()
            case "GET":
                await self._get()
            case _:
                await self._delete()

    # --- POST: one message, or several where the revision has batches ---------------------------------------------

    async def _post(self) -> None:
        self.incoming.check_content_type()
        if not (self.incoming.accepts_json or self.incoming.accepts_stream):
            raise RpcError(INVALID_REQUEST, "Accept application/json and text/event-stream.", status=406)
        value = jsonrpc.decode(await self.incoming.body(), config.MCPHUB_MAX_JSON_DEPTH)
        if isinstance(value, list):
            await self._batch(value)
            return
        message = jsonrpc.message(value)
        self.modern = inbound.is_modern(self.incoming.headers, message)
        if isinstance(message, Malformed):
            await self.send_reply(refusal(message.error, message.id, modern=self.modern))
            return
        self.request = message if isinstance(message, Request) else None
        route = inbound.classify(self.incoming.headers, message)
        if isinstance(route, RpcError):
            raise route
        await (self._modern_message(route, message) if isinstance(route, Modern) else self._handshake_message(message))

    async def _modern_message(self, route: Modern, message: Message) -> None:
        if isinstance(message, Notification):
            await self.send_reply(ACCEPTED)
            return
        if not isinstance(message, Request):
            raise RpcError(INVALID_REQUEST, "Responses are not sent to the hub in this revision.")
        repeated = self.incoming.repeated_routing_header()
        if repeated is not None:
            raise inbound.mismatch(repeated, "repeated", "it once")
        client = self._client(str(route.client.get("name", "")), str(route.client.get("version", "")))
        delivery = self._delivery(cancel_when_gone=True)
        exchange = self._exchange(
            message, delivery, version=route.version, client=client, capabilities=route.capabilities, session=None
        )
        if message.method == subscriptions.LISTEN and self.principal.may_ask(message.method):
            await self._listen(exchange)
            return
        await delivery.deliver(answer(exchange))

    async def _handshake_message(self, message: Message) -> None:
        if isinstance(message, Request) and message.method == "initialize":
            await self._initialize(message)
            return
        session = await self._session()
        if isinstance(message, Request):
            delivery = self._delivery(cancel_when_gone=False, primed=has_polling(session.version))
            await delivery.deliver(answer(self._session_exchange(message, session, delivery)))
            return
        await self._heed(message, session)
        await self.send_reply(ACCEPTED)

    async def _initialize(self, request: Request) -> None:
        opening = lifecycle.opening(request.params)
        wire_id = await sessions.start(self.principal, opening.offer(self.principal), self.incoming.remote_address)
        session = (SESSION_HEADER.encode(), wire_id.encode())
        welcome = opening.welcome(self.principal)
        await self.send_reply(Reply(jsonrpc.result_message(request.id, welcome), headers=(session,)))

    async def _heed(self, message: Message, session: SessionFacts) -> None:
        """Do what a notification asks, or hand on a response to what a call asked; what fits nothing is ignored."""
        if isinstance(message, Notification):
            await heeding.heed(message, session)
        elif isinstance(message, Response):
            await heeding.hand_on(message, session)

    async def _batch(self, values: list[Any]) -> None:
        session = await self._session() if SESSION_HEADER in self.incoming.headers else None
        if session is None or session.version not in BATCHING_VERSIONS:
            raise RpcError(INVALID_REQUEST, "Invalid request: this revision has no batches.")
        if not 0 < len(values) <= config.MCPHUB_MAX_BATCH:
            raise RpcError(INVALID_REQUEST, f"Invalid request: a batch has 1 to {config.MCPHUB_MAX_BATCH} messages.")
        if self.principal.allowed.requests:
            # The first of them is counted by now.
            await limiting.take_requests(self.principal, len(values) - 1)
        messages = [batchable(jsonrpc.message(value)) for value in values]
        malformed = [jsonrpc.error_message(item.id, item.error) for item in messages if isinstance(item, Malformed)]
        requests = [item for item in messages if isinstance(item, Request)]
        for item in messages:
            await self._heed(item, session)
        if not requests and not malformed:
            await self.send_reply(ACCEPTED)
            return
        delivery = self._delivery(cancel_when_gone=False, many=True)
        exchanges = [self._session_exchange(request, session, delivery) for request in requests]
        await delivery.deliver(answer_batch(exchanges, malformed))

    # --- The other verbs ------------------------------------------------------------------------------------------

    async def _get(self) -> None:
        """Open the session's stream (2025-11-25, transports, §Listening for Messages from the Server)."""
        if self.incoming.headers.get(inbound.VERSION_HEADER) in MODERN_VERSIONS:
            raise RpcError(INVALID_REQUEST, "This revision has no GET: use subscriptions/listen.", status=405)
        if not self.incoming.accepts_stream:
            raise RpcError(INVALID_REQUEST, "Accept text/event-stream.", status=406)
        session = await self._session()
        messages = await resuming.stream_after(self.incoming.headers.get(LAST_EVENT), session, self.web.switchboard)
        if messages is None:
            messages = subscriptions.session_stream(self.principal, session, self.web.switchboard)
        async with limiting.stream_for(self.principal):
            await deliver_stream(
                self.incoming, self._send, self.web, self._open_stream(session), messages, headers=self.cors
            )

    async def _listen(self, exchange: Exchange) -> None:
        if not self.incoming.accepts_stream:
            raise RpcError(INVALID_REQUEST, "Accept text/event-stream.", status=406)
        async with limiting.stream_for(self.principal):
            await deliver_stream(
                self.incoming,
                self._send,
                self.web,
                self._open_stream(None),
                subscriptions.listen(exchange),
                headers=self.cors,
                farewell=subscriptions.farewell(exchange),
            )

    async def _delete(self) -> None:
        """End the session (2025-11-25, transports, §Session Management)."""
        session = await self._session()
        await sessions.end(session)
        await self.send_reply(Reply(None, 204))

    # --- What the verbs share -------------------------------------------------------------------------------------

    async def _session(self) -> SessionFacts:
        wire_id = self.incoming.headers.get(SESSION_HEADER)
        if wire_id is None:
            raise RpcError(INVALID_REQUEST, "Mcp-Session-Id is missing: call initialize first.", status=400)
        session = await sessions.find(self.principal, wire_id)
        if session is None:
            raise RpcError(INVALID_REQUEST, "Session not found.", status=404)
        return session

    def _open_stream(self, session: SessionFacts | None) -> OpenStream:
        wire_id = self.incoming.headers.get(SESSION_HEADER)

        async def still_allowed() -> bool:
            principal = await self.visitor.still()
            # What a stream tells is settled by the scopes of its beginning: with others, its client has to ask anew.
            if principal is None or not principal.has_scopes_of(self.principal):
                return False
            return session is None or wire_id is None or await sessions.find(principal, wire_id) is not None

        return OpenStream(self.visitor.credential, session, still_allowed)

    def _delivery(self, *, cancel_when_gone: bool, primed: bool = False, many: bool = False) -> Delivery:
        return Delivery(
            self.incoming,
            self._send,
            self.web,
            self.cors,
            cancel_when_gone=cancel_when_gone,
            primed=primed,
            many=many,
        )

    def _client(self, name: str, version: str) -> Client:
        return Client(self.principal.named(name), version, self.incoming.remote_address)

    def _session_exchange(self, request: Request, session: SessionFacts, delivery: Delivery) -> Exchange:
        client = self._client(session.client_name, session.client_version)
        return self._exchange(
            request,
            delivery,
            version=session.version,
            client=client,
            capabilities=session.capabilities,
            session=session,
        )

    def _exchange(
        self,
        request: Request,
        delivery: Delivery,
        *,
        version: str,
        client: Client,
        capabilities: Mapping[str, Any],
        session: SessionFacts | None,
    ) -> Exchange:
        return Exchange(
            request=request,
            principal=self.principal,
            era=Era.MODERN if session is None else Era.HANDSHAKE,
            version=version,
            client=client,
            capabilities=capabilities,
            session=session,
            switchboard=self.web.switchboard,
            sender=delivery.outbox,
            headers=self.incoming.headers if session is None else None,
            carrier=self.incoming.headers,
        )
