"""A request of a client: its caller, its revision, where its messages go, the call that it makes, and its result."""

from collections.abc import Mapping
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec

from tools_app.calls import conversation
from tools_app.calls.events import PAUSE, Event, LogRateLimiter, NotificationEncoder, SendEvent
from tools_app.calls.invocation import FIRST_ROUND, Client, Invocation
from tools_app.calls.outcomes import CallOutcome
from tools_app.calls.sessions import SessionFacts
from tools_app.catalog.tool_api.results import InputRequired, PromptResult, ResourceResult, ToolResult, text
from tools_app.core.notifications.listener import TopicListener
from tools_app.core.telemetry import tracing
from tools_app.identity.principal import Principal
from tools_app.protocol import exact_json
from tools_app.protocol.inbound import SERVER, SERVER_META, Modern, log_level, progress_token
from tools_app.protocol.jsonrpc import Request
from tools_app.protocol.versions import Era, has_audio, has_polling, has_structured_content


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

    def call_started(self, call_id: UUID, *, is_resumable: bool) -> None:
        """Note the call that the request starts, and whether its stream may be resumed under its id."""

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


# --- The call that a request makes ---


def invocation_of(context: RequestContext, name: str, arguments: dict[str, Any]) -> Invocation:
    """Return the invocation that a request asks for. Raises RpcError for an invalid round or log level."""
    params, carrier = context.params, context.carrier
    trace_id = ""
    if tracing.active is not None:
        trace_id = tracing.active.trace_id()
    elif "traceparent" in context.request.meta or "traceparent" in carrier:
        # The trace of the request is recorded even if the hub does no tracing.
        trace_id = tracing.trace_id(params, carrier)
    goes_on = context.era is Era.MODERN and (conversation.STATE in params or conversation.RESPONSES in params)
    invocation = Invocation(
        principal=context.principal,
        session=context.session,
        client=context.client,
        version=context.version,
        request_id=exact_json.dumps(context.request.id).decode(),
        method=context.request.method,
        name=name,
        arguments=arguments,
        # A client that accepts only one JSON body cannot receive questions, so it is sent none.
        capabilities=context.capabilities if context.session is None or context.sender.accepts_messages else {},
        progress_token=progress_token(context.request),
        round=conversation.round_of(context.principal, context.request.method, params) if goes_on else FIRST_ROUND,
        trace_id=trace_id,
    )
    context.sender.call_started(invocation.call_id, is_resumable=context.session is not None)
    return invocation


def event_sender(context: RequestContext, invocation: Invocation) -> SendEvent:
    """Return a function that sends an invocation's events to its client. Raises RpcError for a bad log level."""
    level = context.session.log_level if context.session else log_level(context.request)
    encoder = NotificationEncoder(invocation.call_id, context.version, level)
    sender = context.sender
    has_event_ids = context.session is not None
    log_limiter = LogRateLimiter()

    def send_event(event: Event) -> None:
        message = encoder.message_of(event)
        if message is not None:
            if not log_limiter.exceeded(event):
                sender.put(message, encoder.event_id(event.sequence) if has_event_ids else "")
        elif event.kind == PAUSE and has_polling(context.version):
            sender.pause()

    return send_event


# --- Serialization of results, with the fields that the modern era requires ---

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


# --- Results of calls ---


def result_of(outcome: CallOutcome, context: RequestContext) -> bytes:
    """Return the result of a call. Raises RpcError for a refusal, and Cancelled if the client cancelled the request."""
    if outcome.withdrawn:
        raise Cancelled
    if outcome.refusal is not None:
        raise outcome.refusal
    if isinstance(outcome.result, InputRequired):
        return conversation.input_required_result(
            outcome.result, context.principal, context.request.method, context.params
        )
    if isinstance(outcome.result, ResourceResult):
        return uncached_result(outcome.wire, context.era)
    wire = outcome.wire if context.era is Era.MODERN else downgrade_for_version(outcome, context.version)
    return complete_result(wire, context.era)


def downgrade_for_version(outcome: CallOutcome, version: str) -> bytes:
    """Remove what a handshake revision does not support. In all of them, structured content must be an object."""
    result = outcome.result
    if isinstance(result, PromptResult):
        return _downgraded_prompt(result, outcome.wire, version)
    if not isinstance(result, ToolResult):
        return outcome.wire
    if has_structured_content(version) and isinstance(result.structured, dict | None):
        return outcome.wire
    carried = has_structured_content(version) and isinstance(result.structured, dict)
    structured = result.structured if carried else None
    content = [_supported_block(block, version) for block in result.content]
    if structured is not result.structured and not any(block.get("type") == "text" for block in content):
        content.append(text(exact_json.dumps(result.structured).decode()))
    if structured is result.structured and content == result.content:
        return outcome.wire
    return exact_json.dumps(msgspec.structs.replace(result, structured=structured, content=content).as_json())


def _downgraded_prompt(result: PromptResult, wire: bytes, version: str) -> bytes:
    if has_structured_content(version):
        return wire
    messages = [{**message, "content": _supported_block(message["content"], version)} for message in result.messages]
    return exact_json.dumps(msgspec.structs.replace(result, messages=messages).as_json())


def _supported_block(block: dict[str, Any], version: str) -> dict[str, Any]:
    """Return a content block, or a text block in its place if the revision does not support its type."""
    if block.get("type") == "audio" and not has_audio(version):
        return text(f"(a sound of the type {block.get('mimeType')}, which this revision of the protocol cannot carry)")
    if block.get("type") == "resource_link" and not has_structured_content(version):
        return text(f"{block.get('name')}: {block.get('uri')}")
    return block
