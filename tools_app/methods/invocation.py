"""Conversion of requests into invocations, and of call outcomes into responses.

Reads of resources and prompts are run and recorded like calls.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from tools_app.calls.dispatch import read, refuse
from tools_app.calls.events import Event, SendEvent
from tools_app.calls.invocation import FIRST_ROUND, Invocation
from tools_app.calls.run import CallOutcome
from tools_app.catalog.kinds.base import Runner
from tools_app.catalog.tool_api.results import InputRequired, PromptResult, ResourceResult, ToolResult, text
from tools_app.core import large_work
from tools_app.core.telemetry import tracing
from tools_app.methods import multi_round
from tools_app.methods.context import Cancelled, RequestContext, complete_result, uncached_result
from tools_app.methods.events import PAUSE, LogRateLimiter, NotificationEncoder
from tools_app.protocol import exact_json
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.inbound import log_level, progress_token
from tools_app.protocol.jsonrpc import error_message, result_message
from tools_app.protocol.schema import CompiledSchema
from tools_app.protocol.versions import Era, has_audio, has_polling, has_structured_content


def invocation_of(context: RequestContext, name: str, arguments: dict[str, Any]) -> Invocation:
    """Return the invocation that a request asks for. Raises RpcError for an invalid round or log level."""
    params, carrier = context.params, context.carrier
    trace_id = ""
    if tracing.active is not None:
        trace_id = tracing.active.trace_id()
    elif "traceparent" in context.request.meta or "traceparent" in carrier:
        # The trace of the request is recorded even if the hub does no tracing.
        trace_id = tracing.trace_id(params, carrier)
    goes_on = context.era is Era.MODERN and (multi_round.STATE in params or multi_round.RESPONSES in params)
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
        round=multi_round.round_of(context) if goes_on else FIRST_ROUND,
        headers=context.headers,
        trace_id=trace_id,
    )
    context.sender.call_started(invocation.call_id)
    if context.session is not None and context.request.id is not None:
        context.sender.set_resumable(invocation.call_id)
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


def result_of(outcome: CallOutcome, context: RequestContext) -> bytes:
    """Return the result of a call. Raises RpcError for a refusal, and Cancelled if the client cancelled the request."""
    if outcome.withdrawn:
        raise Cancelled
    if outcome.refusal is not None:
        raise outcome.refusal
    if isinstance(outcome.result, InputRequired):
        return multi_round.input_required_result(outcome.result, context)
    if isinstance(outcome.result, ResourceResult):
        return uncached_result(outcome.wire, context.era)
    wire = outcome.wire if context.era is Era.MODERN else downgrade_for_version(outcome, context.version)
    return complete_result(wire, context.era)


async def respond_early(context: RequestContext, outcome: CallOutcome) -> None:
    """Respond to a request whose call is settled although its function still runs."""
    id = context.request.id
    try:
        result = await large_work.run(len(outcome.wire), partial(result_of, outcome, context))
        context.sender.respond_early(result_message(id, result))
    except Cancelled:
        context.sender.respond_early(None)
    except RpcError as refusal:
        context.sender.respond_early(error_message(id, refusal))


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


def texts(params: Mapping[str, Any], field: str) -> dict[str, str]:
    """Return an object of strings from the parameters; empty if it is absent. Raises RpcError -32602."""
    value = params.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(entry, str) for entry in value.values()):
        raise RpcError(INVALID_PARAMS, f"params.{field} must be an object of strings.", {"field": field})
    return value


def text_in(params: Mapping[str, Any], field: str) -> str:
    """Return a string from the parameters. Raises RpcError -32602."""
    value = params.get(field)
    if not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, f"params.{field} must be a string.", {"field": field})
    return value


def _supported_block(block: dict[str, Any], version: str) -> dict[str, Any]:
    """Return a content block, or a text block in its place if the revision does not support its type."""
    if block.get("type") == "audio" and not has_audio(version):
        return text(f"(a sound of the type {block.get('mimeType')}, which this revision of the protocol cannot carry)")
    if block.get("type") == "resource_link" and not has_structured_content(version):
        return text(f"{block.get('name')}: {block.get('uri')}")
    return block


@dataclass(frozen=True, slots=True)
class Reading:
    """The runner of one read request. A read changes nothing, so it may start before its intent is durable."""

    method: str
    name: str
    run: Runner
    timeout_seconds: float
    output: CompiledSchema | None = None
    read_only: bool = True
    shaping: None = None


async def run_reading(context: RequestContext, reading: Reading, arguments: dict[str, str]) -> bytes:
    """Run a read and return its result. Raises RpcError, and Cancelled if the client cancelled it."""
    invocation = invocation_of(context, reading.name, dict(arguments))
    send_event = event_sender(context, invocation)
    outcome = await read(invocation, reading, send_event, context.sender.can_resume, partial(respond_early, context))
    return await large_work.run(len(outcome.wire), partial(result_of, outcome, context))


async def record_refused_reading(
    context: RequestContext, name: str, arguments: dict[str, str], refusal: RpcError
) -> RpcError:
    """Record a read that was refused before it ran, and return the refusal."""
    return await refuse(invocation_of(context, name, dict(arguments)), context.era, refusal)
