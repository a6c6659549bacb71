"""Dispatch of requests to method handlers, in spans: the only boundary where exceptions become JSON-RPC errors."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import orjson
from django.db import Error

from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.calls.request import Cancelled, RequestContext
from tools_app.core import request_memory
from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.core.telemetry import tracing
from tools_app.core.telemetry.log_context import log_fields
from tools_app.core.telemetry.scrubbing import scrubbed
from tools_app.core.tracebacks import clear_traceback
from tools_app.methods import permissions
from tools_app.methods.areas import handlers
from tools_app.methods.registry import Handler
from tools_app.models import TOOLS_CALL
from tools_app.protocol.errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    OVER_LIMIT,
    RpcError,
    store_gone,
)
from tools_app.protocol.jsonrpc import Malformed, Message, Request, id_json, result_message
from tools_app.protocol.versions import Era
from tools_app.transport.request import BodyRefused
from tools_app.transport.responses import Reply, refusal

log = logging.getLogger(__name__)


async def answer(context: RequestContext) -> Reply:
    """Return the reply to a request. The reply to a cancelled request has no message."""
    request = context.request
    if request.method != TOOLS_CALL:
        _set_log_context(context)
    try:
        if context.principal.methods is not None or context.principal.grants is not None:
            await permissions.check(context)
        handler = handlers.get((request.method, context.era))
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: '{request.method}'", {"method": request.method})
        answering = handler(context) if tracing.active is None else answered_in_span(handler, context)
        result = await answering
        if len(result) > LARGE_BYTES:
            await request_memory.cover_result(len(result))
        return Reply(result_message(request.id, result))
    except Cancelled:
        return Reply(None)
    except BaseException as problem:
        # Functions of a tenant's app may raise CancelledError themselves.
        task = asyncio.current_task()
        is_cancelled = isinstance(problem, asyncio.CancelledError) and task is not None and task.cancelling() > 0
        if isinstance(problem, GeneratorExit) or is_cancelled:
            raise
        if not log_fields.get():
            _set_log_context(context)
        modern = context.era is Era.MODERN
        try:
            return refusal(as_rpc_error(problem), request.id, modern=modern)
        except Exception as unserializable:  # noqa: BLE001 - an error's data may be anything
            return refusal(as_rpc_error(unserializable), request.id, modern=modern)


def _set_log_context(context: RequestContext) -> None:
    """Set this task's log context to this request. A tool call sets its own, with more detail."""
    request, session = context.request, context.session
    log_fields.set((request.method, request.id, context.principal.tenant_slug, session.id if session else None))


async def answer_batch(exchanges: Sequence[RequestContext], malformed: Sequence[bytes]) -> Reply:
    """Return one array of responses, in the order of the requests (2025-03-26, base protocol, §Batching)."""

    async def answer_one(context: RequestContext) -> Reply:
        request_memory.begin_batch_answer()
        return await answer(context)

    replies = await asyncio.gather(*map(answer_one, exchanges))
    parts = [*malformed, *(reply.message for reply in replies if reply.message is not None)]
    return Reply(b"[%b]" % b",".join(parts) if parts else None)


def batchable(message: Message) -> Message:
    """Reject `initialize` in a batch (2025-03-26, lifecycle, §Initialization); return other messages unchanged."""
    if isinstance(message, Request) and message.method == "initialize":
        return Malformed(RpcError(INVALID_REQUEST, "Invalid request: initialize stands alone."), message.id)
    return message


def as_rpc_error(problem: BaseException) -> RpcError:
    """Convert a handled exception to the client's error, without its cause unless it is meant for the client."""
    if isinstance(problem, RpcError):
        error = problem
    elif isinstance(problem, BodyRefused):
        error = RpcError(INVALID_REQUEST, str(problem), status=problem.status)
    elif isinstance(problem, request_memory.TooMuchMemory):
        error = RpcError(OVER_LIMIT, str(problem), status=429, retry_after=1)
    elif isinstance(problem, RecorderUnavailable):
        # The recorder has logged it once: do not log it again for each rejected request.
        error = store_gone()
    elif isinstance(problem, Error):
        log.warning("The database is unavailable: %s", problem)
        error = store_gone()
    else:
        log.error("The hub failed", exc_info=problem)
        error = RpcError(INTERNAL_ERROR, "Internal error.", status=500)
    clear_traceback(problem)
    return error


# Methods whose parameter `name` becomes a span attribute, and that attribute.
NAMED = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
FAILED = b'"isError":true'


async def answered_in_span(handler: Handler, context: RequestContext) -> bytes:
    """Return the result of `handler`, run in a span that continues the client's trace if there is one."""
    assert tracing.active is not None
    carrier = tracing.carrier_of(context.params, context.carrier)
    method, name = context.request.method, context.params.get("name")
    # The method, with the tool or prompt name, which has low cardinality.
    span_name = f"{method} {name}" if method in NAMED and isinstance(name, str) else method
    with tracing.active.span("server", span_name, _attributes(context), carrier) as span:
        try:
            result = await handler(context)
        except RpcError as problem:
            span.note("rpc.response.status_code", str(problem.code))
            span.fail(str(problem.code))
            raise
        except Cancelled:
            span.fail("cancelled")
            raise
        if FAILED in result and orjson.loads(result).get("isError") is True:
            span.fail("tool_error")
        return result


def _attributes(context: RequestContext) -> dict[str, str | int | bool]:
    request, params = context.request, context.params
    attributes: dict[str, Any] = {
        "mcp.method.name": request.method,
        "mcp.protocol.version": context.version,
        "network.transport": "tcp" if context.client.remote_address else "pipe",
        "mcphub.tenant": context.principal.tenant_slug,
    }
    if request.id is not None:
        attributes["jsonrpc.request.id"] = id_json(request.id).decode()
    if context.session is not None:
        # The hub's internal id: the client's session id is a secret.
        attributes["mcp.session.id"] = str(context.session.id)
    if request.method in NAMED and isinstance(params.get("name"), str):
        attributes[NAMED[request.method]] = params["name"]
    if request.method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    if isinstance(params.get("uri"), str):
        attributes["mcp.resource.uri"] = scrubbed(params["uri"])
    return attributes
