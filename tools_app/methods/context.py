"""The request context, the registry of method handlers, and the serialization of results."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

import msgspec

from tools_app.calls.invocation import Client
from tools_app.calls.sessions import SessionFacts
from tools_app.core.notifications.listener import TopicListener
from tools_app.identity.principal import Principal
from tools_app.protocol import exact_json
from tools_app.protocol.errors import METHOD_NOT_FOUND, RpcError
from tools_app.protocol.inbound import SERVER_META, Modern
from tools_app.protocol.jsonrpc import Request
from tools_app.protocol.versions import Era


class Cancelled(Exception):
    """The client cancelled the request, so no response is sent (cancellation, §Behavior Requirements)."""


class Sender(Protocol):
    """The destination of the messages that belong to one request."""

    @property
    def accepts_messages(self) -> bool:
        """Whether the client accepts messages before the response."""

    def put(self, message: bytes, id: str = "") -> None:
        """Send a message; `id` is the event id from which a broken stream resumes."""

    def pause(self) -> None:
        """End the stream for now, if the client can reconnect to it."""

    def call_started(self, call_id: UUID) -> None:
        """Note a call that the request starts."""

    def set_resumable(self, call_id: UUID) -> None:
        """Make the stream of this call resumable."""

    def respond_early(self, message: bytes | None) -> None:
        """Respond before the handler returns, which it may never do; None for no response."""

    def can_resume(self) -> bool:
        """Whether the client has received an event id from which to resume."""


class RequestContext(msgspec.Struct, frozen=True):
    """One request with its caller and protocol revision. `capabilities` are those that the client declares.

    `headers` are those that may mirror parameters of the body; None where the transport or the revision has none.
    `carrier` holds the headers that may carry the request's trace context.
    """

    request: Request
    params: Mapping[str, Any]
    principal: Principal
    era: Era
    version: str
    client: Client
    capabilities: Mapping[str, Any]
    session: SessionFacts | None
    listener: TopicListener
    sender: Sender
    headers: Mapping[str, str] | None = None
    carrier: Mapping[str, str] = {}


def modern_context(
    request: Request,
    route: Modern,
    principal: Principal,
    *,
    address: str,
    listener: TopicListener,
    sender: Sender,
    headers: Mapping[str, str] | None = None,
) -> RequestContext:
    """Return the context of a modern-era request, which carries its own metadata; `headers` if it came over HTTP."""
    client = Client(principal.recorded_name(route.client.get("name", "")), route.client.get("version", ""), address)
    return RequestContext(
        request=request,
        params=request.params,
        principal=principal,
        era=Era.MODERN,
        version=route.version,
        client=client,
        capabilities=route.capabilities,
        session=None,
        listener=listener,
        sender=sender,
        headers=headers,
        carrier=headers or {},
    )


def session_context(
    request: Request,
    session: SessionFacts,
    principal: Principal,
    *,
    address: str,
    listener: TopicListener,
    sender: Sender,
    carrier: Mapping[str, str] = {},
) -> RequestContext:
    """Return the context of a handshake-era request, whose session identifies the client."""
    return RequestContext(
        request=request,
        params=request.params,
        principal=principal,
        era=Era.HANDSHAKE,
        version=session.version,
        client=Client(principal.recorded_name(session.client_name), session.client_version, address),
        capabilities=session.capabilities,
        session=session,
        listener=listener,
        sender=sender,
        carrier=carrier,
    )


# --- Registry of handlers ---

Handler = Callable[[RequestContext], Awaitable[bytes]]
H = TypeVar("H", bound=Handler)

BOTH_ERAS = (Era.HANDSHAKE, Era.MODERN)

_handlers: dict[tuple[str, Era], Handler] = {}


def method(name: str, *eras: Era) -> Callable[[H], H]:
    """Register the decorated handler for `name` in `eras`. It returns its result as JSON, or raises RpcError."""

    def register(handler: H) -> H:
        for era in eras:
            _handlers[name, era] = handler
        return handler

    return register


def handler_of(name: str, era: Era) -> Handler:
    """Return the handler of a method. Raises RpcError -32601 if the era has no such method."""
    handler = _handlers.get((name, era))
    if handler is None:
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: '{name}'", {"method": name})
    return handler


# --- Serialization of results, with the fields that the modern era requires ---

SERVER: Final = {"name": "mcphub", "title": "mcphub", "version": "0.1.0"}
LIST_TTL_MS: Final = 60_000

# The empty result of the handshake era.
EMPTY: Final = b"{}"

_STALE: Final = b',"ttlMs":0,"cacheScope":"private"}'
_META: Final = exact_json.dumps({SERVER_META: SERVER})


def encoded_result(result: Mapping[str, Any], era: Era) -> bytes:
    """Return a complete result (2026-07-28, base protocol, §ResultType and §Per-response protocol fields)."""
    if era is Era.HANDSHAKE:
        return exact_json.dumps(result)
    return exact_json.dumps({"resultType": "complete", **result, "_meta": {SERVER_META: SERVER}})


def complete_result(result: bytes, era: Era) -> bytes:
    """Return a complete result for a JSON object that is already serialized and is not empty."""
    return result if era is Era.HANDSHAKE else b'{"resultType":"complete",%b,"_meta":%b}' % (result[1:-1], _META)


def uncached_result(result: bytes, era: Era) -> bytes:
    """Return a complete result that must not be reused: its time to live is zero (caching)."""
    return complete_result(result, era) if era is Era.HANDSHAKE else complete_result(result[:-1] + _STALE, era)


def cacheable_result(result: Mapping[str, Any], era: Era) -> bytes:
    """Return a complete result with caching hints (caching, §Cacheable Results); private, as lists vary by key."""
    if era is Era.HANDSHAKE:
        return encoded_result(result, era)
    return encoded_result({**result, "ttlMs": LIST_TTL_MS, "cacheScope": "private"}, era)
