"""From a request that runs something to its invocation, and from how that ended to the request's answer."""

from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from tools_app.events.store import Event
from tools_app.execution.inline import Say
from tools_app.execution.invocation import Invocation
from tools_app.execution.results import InputRequired, PromptResult, ResourceResult, ToolResult, text
from tools_app.execution.run import Ran
from tools_app.methods import rounds
from tools_app.methods.events import PAUSE, Flood, Hearing
from tools_app.methods.exchange import Cancelled, Exchange
from tools_app.methods.results import complete, once
from tools_app.models import Outcome
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.inbound import log_level, progress_token
from tools_app.protocol.jsonrpc import id_json
from tools_app.protocol.versions import has_audio, has_polling, has_structured_content
from tools_app.telemetry import trace_context, tracing


def invocation_of(exchange: Exchange, name: str, arguments: dict[str, Any]) -> Invocation:
    """What an exchange asks to run. Raises RpcError for rounds and log levels that are none."""
    invocation = Invocation(
        principal=exchange.principal,
        session=exchange.session,
        client=exchange.client,
        version=exchange.version,
        request_id=id_json(exchange.request.id).decode(),
        method=exchange.request.method,
        name=name,
        arguments=arguments,
        # A client that takes one JSON body hears no question, so it is asked none.
        capabilities=exchange.capabilities if exchange.session is None or exchange.sender.takes_messages else {},
        progress_token=progress_token(exchange.request),
        round=rounds.round_of(exchange),
        headers=exchange.headers,
        trace_id=_trace_id(exchange),
    )
    if exchange.session is not None and exchange.request.id is not None:
        exchange.sender.resumable(invocation.call_id)
    return invocation


def _trace_id(exchange: Exchange) -> str:
    """The trace that the request belongs to, also where the hub itself traces nothing."""
    if tracing.active is not None:
        return tracing.active.trace_id()
    return trace_context.trace_id(exchange.params, exchange.carrier)


def hearing_of(exchange: Exchange, invocation: Invocation) -> Hearing:
    """Who hears the events of an invocation. Raises RpcError for a log level that is none."""
    level = exchange.session.log_level if exchange.session else log_level(exchange.request)
    return Hearing(invocation.call_id, exchange.version, level)


def sayer(exchange: Exchange, hearing: Hearing) -> Say:
    """Sends each event to the client that is to hear it."""
    sender = exchange.sender
    named = exchange.session is not None
    flood = Flood()

    def say(event: Event) -> None:
        message = hearing.message_of(event)
        if message is not None:
            if not flood.swallows(event):
                sender.put(message, hearing.event_id(event.sequence) if named else "")
        elif event.kind == PAUSE and has_polling(exchange.version):
            sender.pause()

    return say


def answer_of(ran: Ran, exchange: Exchange) -> bytes:
    """The result to answer with. Raises RpcError for a refusal, and Cancelled when nobody waits for it."""
    if ran.outcome == Outcome.CANCELLED:
        raise Cancelled
    if ran.refusal is not None:
        raise ran.refusal
    if isinstance(ran.result, InputRequired):
        return rounds.rendered(ran.result, exchange)
    if isinstance(ran.result, ResourceResult):
        return once(ran.wire, exchange.era)
    return complete(fitting(ran, exchange.version), exchange.era)


def fitting(ran: Ran, version: str) -> bytes:
    """A result without what the revision does not know; up to 2025-11-25, structured content is an object."""
    result = ran.result
    if isinstance(result, PromptResult):
        return _fitting_prompt(result, ran.wire, version)
    if not isinstance(result, ToolResult) or version >= "2026-07-28":
        return ran.wire
    if has_structured_content(version) and isinstance(result.structured, dict | None):
        return ran.wire
    carried = has_structured_content(version) and isinstance(result.structured, dict)
    structured = result.structured if carried else None
    content = [_known(block, version) for block in result.content]
    if structured is result.structured and content == result.content:
        return ran.wire
    return orjson.dumps(msgspec.structs.replace(result, structured=structured, content=content).as_json())


def _fitting_prompt(result: PromptResult, wire: bytes, version: str) -> bytes:
    if has_structured_content(version):
        return wire
    messages = [{**message, "content": _known(message["content"], version)} for message in result.messages]
    return orjson.dumps(msgspec.structs.replace(result, messages=messages).as_json())


def texts(params: Mapping[str, Any], field: str) -> dict[str, str]:
    """An object of texts among the parameters; empty if it is not there. Raises RpcError -32602."""
    value = params.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(entry, str) for entry in value.values()):
        raise RpcError(INVALID_PARAMS, f"params.{field} must be an object of strings.", {"field": field})
    return value


def text_in(params: Mapping[str, Any], field: str) -> str:
    """A text among the parameters. Raises RpcError -32602."""
    value = params.get(field)
    if not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, f"params.{field} must be a string.", {"field": field})
    return value


def _known(block: dict[str, Any], version: str) -> dict[str, Any]:
    """A content block, or a text in its place where the revision has none of its kind."""
    if block.get("type") == "audio" and not has_audio(version):
        return text(f"(a sound of the type {block.get('mimeType')}, which this revision of the protocol cannot carry)")
    if block.get("type") == "resource_link" and not has_structured_content(version):
        return text(f"{block.get('name')}: {block.get('uri')}")
    return block
