"""Streamable HTTP: one address for every revision (2025-03-26 to 2026-07-28, transports, §Streamable HTTP).

A Channels consumer that skips what Channels does per message: no dispatch, no channel, no thread. Its `__call__` is
the pipeline of a request; each step may refuse by raising RpcError, and `_refuse` turns that into the answer.
"""

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from channels.generic.http import AsyncHttpConsumer

from tools_app.audit import denials
from tools_app.audit.denials import Denial
from tools_app.audit.recorder import RecorderGone
from tools_app.auth import sessions
from tools_app.auth.principal import Credential, Principal, anybody, authenticate
from tools_app.auth.sessions import SessionFacts
from tools_app.execution.invocation import Client
from tools_app.methods import heeding, lifecycle, resuming, subscriptions
from tools_app.methods.exchange import Exchange
from tools_app.models.config import config
from tools_app.protocol import inbound, jsonrpc
from tools_app.protocol.errors import INVALID_REQUEST, NOT_PERMITTED, RpcError
from tools_app.protocol.inbound import SESSION_HEADER, Modern
from tools_app.protocol.jsonrpc import Malformed, Message, Notification, Request, Response
from tools_app.protocol.versions import BATCHING_VERSIONS, MODERN_VERSIONS, Era, has_polling
from tools_app.transport import guards, state
from tools_app.transport.answering import answer, answer_batch, as_rpc_error
from tools_app.transport.delivery import Delivery, deliver_stream
from tools_app.transport.incoming import Disconnected, Incoming, Receive, Scope, Send, TooLarge
from tools_app.transport.responses import Header, Reply, refusal, send_reply
from tools_app.transport.state import WebState
from tools_app.transport.streams import OpenStream

log = logging.getLogger(__name__)

LAST_EVENT = "last-event-id"
ACCEPTED = Reply(None, 202)
ALLOW: Header = (b"allow", b"POST, GET, DELETE, OPTIONS")
VERBS = {"POST": "_post", "GET": "_get", "DELETE": "_delete", "OPTIONS": "_options"}
RECORDED_DENIALS = frozenset({401, 403, 404, 421, 429})


class StreamableHttpConsumer(AsyncHttpConsumer):
    """Answers the MCP endpoint."""

    channel_layer_alias = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request from its first byte to its last."""
        turn = Turn(Incoming(scope, receive), send, state.current())
        turn.web.busy += 1
        try:
            await turn.serve()
        except Disconnected:
            pass
        finally:
            turn.web.busy -= 1


class Turn:
    """One HTTP request and what has been learnt of it so far."""

    def __init__(self, incoming: Incoming, send: Send, web: WebState) -> None:
        self.incoming = incoming
        self.web = web
        self._send = send
        self._principal: Principal | None = None
        self._credential: Credential | None = None
        self._modern = False
        self._request: Request | None = None
        self._cors: tuple[Header, ...] = ()

    async def serve(self) -> None:
        """The pipeline: guards, key, verb."""
        try:
            guards.check(self.incoming)
            self._cors = _cors_headers(self.incoming)
            verb = self._verb()
            if self.incoming.http_method != "OPTIONS":
                self._refuse_when_stopping()
                await self._authenticate()
            await verb()
        except TooLarge:
            await self._refuse(RpcError(INVALID_REQUEST, _too_large(), status=413))
        except Disconnected:
            raise
        except Exception as problem:  # noqa: BLE001 - nothing may leave the endpoint but JSON-RPC
            await self._refuse(as_rpc_error(problem))

    def _verb(self) -> Callable[[], Any]:
        name = VERBS.get(self.incoming.http_method)
        if name is None:
            raise RpcError(INVALID_REQUEST, "Use POST, GET or DELETE.", status=405)
        verb: Callable[[], Any] = getattr(self, name)
        return verb

    def _refuse_when_stopping(self) -> None:
        if self.web.draining:
            raise RpcError(INVALID_REQUEST, "The hub is stopping.", status=503, retry_after=1)

    async def _authenticate(self) -> None:
        self._credential = self.incoming.credential
        principal = await self._who()
        if principal is None:
            raise RpcError(NOT_PERMITTED, "A valid API key is needed.", status=401)
        self._principal = principal
        if self.incoming.tenant_slug not in (None, principal.tenant_slug):
            raise RpcError(INVALID_REQUEST, "Not found.", status=404)

    async def _who(self) -> Principal | None:
        """The principal of the request's key; anybody, where a public tenant's own address is called without one."""
        if self._credential is not None:
            return await authenticate(self._credential)
        slug = self.incoming.tenant_slug
        return await anybody(slug, self.incoming.remote_address) if slug else None

    @property
    def principal(self) -> Principal:
        """Who is asking; known once `_authenticate` has passed."""
        assert self._principal is not None
        return self._principal

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
        self._modern = inbound.is_modern(self.incoming.headers, message)
        if isinstance(message, Malformed):
            await self._send_reply(refusal(message.error, message.id, modern=self._modern))
            return
        self._request = message if isinstance(message, Request) else None
        route = inbound.classify(self.incoming.headers, message)
        if isinstance(route, RpcError):
            raise route
        await (self._modern_message(route, message) if isinstance(route, Modern) else self._handshake_message(message))

    async def _modern_message(self, route: Modern, message: Message) -> None:
        if isinstance(message, Notification):
            await self._send_reply(ACCEPTED)
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
        if message.method == subscriptions.LISTEN:
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
        await self._send_reply(ACCEPTED)

    async def _initialize(self, request: Request) -> None:
        opened = await lifecycle.initialize(self.principal, request.params, self.incoming.remote_address)
        session = (SESSION_HEADER.encode(), opened.wire_id.encode())
        await self._send_reply(Reply(jsonrpc.result_message(request.id, opened.result), headers=(session,)))

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
        messages = [_batchable(jsonrpc.message(value)) for value in values]
        malformed = [jsonrpc.error_message(item.id, item.error) for item in messages if isinstance(item, Malformed)]
        requests = [item for item in messages if isinstance(item, Request)]
        for item in messages:
            await self._heed(item, session)
        if not requests and not malformed:
            await self._send_reply(ACCEPTED)
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
        await deliver_stream(
            self.incoming, self._send, self.web, self._open_stream(session), messages, headers=self._cors
        )

    async def _listen(self, exchange: Exchange) -> None:
        if not self.incoming.accepts_stream:
            raise RpcError(INVALID_REQUEST, "Accept text/event-stream.", status=406)
        await deliver_stream(
            self.incoming,
            self._send,
            self.web,
            self._open_stream(None),
            subscriptions.listen(exchange),
            headers=self._cors,
            farewell=subscriptions.farewell(exchange),
        )

    async def _delete(self) -> None:
        """End the session (2025-11-25, transports, §Session Management)."""
        session = await self._session()
        await sessions.end(session)
        await self._send_reply(Reply(None, 204))

    async def _options(self) -> None:
        await self._send_reply(Reply(None, 204, (ALLOW,)))

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
            principal = await self._who()
            if principal is None or session is None or wire_id is None:
                return principal is not None
            return await sessions.find(principal, wire_id) is not None

        return OpenStream(self._credential, session, still_allowed)

    def _delivery(self, *, cancel_when_gone: bool, primed: bool = False, many: bool = False) -> Delivery:
        return Delivery(
            self.incoming,
            self._send,
            self.web,
            self._cors,
            cancel_when_gone=cancel_when_gone,
            primed=primed,
            many=many,
        )

    def _client(self, name: str, version: str) -> Client:
        return Client(name, version, self.incoming.remote_address)

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
        )

    async def _send_reply(self, reply: Reply) -> None:
        await send_reply(self._send, reply, self._cors)

    async def _refuse(self, error: RpcError) -> None:
        """Record a denial and answer it."""
        reply = refusal(error, self._request.id if self._request else None, modern=self._modern)
        if reply.status in RECORDED_DENIALS:
            self._note(reply.status, error)
        headers = (*reply.headers, *self._explaining(reply.status))
        await self._send_reply(Reply(reply.message, reply.status, headers))

    def _explaining(self, status: int) -> tuple[Header, ...]:
        """The headers that HTTP wants beside a status."""
        if status == HTTPStatus.UNAUTHORIZED:
            return _challenge(self._credential)
        return (ALLOW,) if status == HTTPStatus.METHOD_NOT_ALLOWED else ()

    def _note(self, status: int, error: RpcError) -> None:
        principal = self._principal
        denial = Denial(
            http_status=status,
            cause=error.message,
            remote_address=self.incoming.remote_address,
            tenant_id=principal.tenant_id if principal else None,
            key_id=principal.key_id if principal else None,
            method=self._request.method if self._request else self.incoming.http_method,
        )
        try:
            denials.note(denial)
        except RecorderGone:
            log.warning("A denial (%d) could not be recorded", status)


def _batchable(message: Message) -> Message:
    if isinstance(message, Request) and message.method == "initialize":
        return Malformed(RpcError(INVALID_REQUEST, "Invalid request: initialize stands alone."), message.id)
    return message


def _too_large() -> str:
    return f"The body is larger than {config.MCPHUB_MAX_BODY_BYTES} bytes."


def _challenge(credential: Credential | None) -> tuple[Header, ...]:
    """What a client without a good key is told (RFC 6750, §3)."""
    value = 'Bearer realm="mcphub"' + (', error="invalid_token"' if credential else "")
    return ((b"www-authenticate", value.encode()),)


def _cors_headers(incoming: Incoming) -> tuple[Header, ...]:
    """What a browser needs to see before it lets a page of an allowed origin read the answer."""
    origin = incoming.headers.get("origin")
    if origin is None:
        return ()
    headers = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"Mcp-Session-Id, WWW-Authenticate, Retry-After"),
        (b"vary", b"Origin"),
    ]
    if incoming.http_method == "OPTIONS":
        wanted = incoming.headers.get("access-control-request-headers", "")
        headers += [
            (b"access-control-allow-methods", b"POST, GET, DELETE, OPTIONS"),
            (b"access-control-allow-headers", wanted.encode("latin-1")),
            (b"access-control-max-age", b"600"),
        ]
    return tuple(headers)
