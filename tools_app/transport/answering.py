"""From a request to its reply: the one boundary where errors become JSON-RPC errors."""

import asyncio
import logging
from collections.abc import Sequence

from django.db import Error

from tools_app.audit.recorder import RecorderGone
from tools_app.execution.run import TOOLS_CALL
from tools_app.methods import (
    completion,
    lifecycle,
    permitting,
    prompts,
    resources,
    skills,
    subscriptions,
    tasks,
    tools,
)
from tools_app.methods import logging as client_logging
from tools_app.methods.exchange import Cancelled, Exchange
from tools_app.methods.registry import handler_of
from tools_app.protocol.errors import INTERNAL_ERROR, INVALID_REQUEST, RpcError, store_gone
from tools_app.protocol.jsonrpc import Malformed, Message, Request, result_message
from tools_app.protocol.versions import Era
from tools_app.telemetry import tracing
from tools_app.telemetry.about import about
from tools_app.transport import traced
from tools_app.transport.responses import Reply, refusal

log = logging.getLogger(__name__)

# Importing these modules is what registers their handlers.
NAMESPACES = (client_logging, completion, lifecycle, prompts, resources, skills, subscriptions, tasks, tools)


async def answer(exchange: Exchange) -> Reply:
    """The reply to a request. A cancelled one has a reply without a message."""
    request = exchange.request
    if request.method != TOOLS_CALL:
        _speak_of(exchange)
    try:
        if exchange.principal.methods is not None:
            permitting.check(exchange)
        handler = handler_of(request.method, exchange.era)
        answering = handler(exchange) if tracing.active is None else traced.answered(handler, exchange)
        return Reply(result_message(request.id, await answering))
    except Cancelled:
        return Reply(None)
    except Exception as problem:  # noqa: BLE001 - nothing may leave the endpoint but JSON-RPC
        if not about.get():
            _speak_of(exchange)
        return refusal(as_rpc_error(problem), request.id, modern=exchange.era is Era.MODERN)


def _speak_of(exchange: Exchange) -> None:
    """From here on, what this task logs is about this request. A call says so itself, when it knows more."""
    request, session = exchange.request, exchange.session
    about.set((request.method, request.id, exchange.principal.tenant_slug, session.id if session else None))


async def answer_batch(exchanges: Sequence[Exchange], malformed: Sequence[bytes]) -> Reply:
    """One array of responses, in the order of the requests (2025-03-26, base protocol, §Batching)."""
    replies = await asyncio.gather(*(answer(exchange) for exchange in exchanges))
    parts = [*malformed, *(reply.message for reply in replies if reply.message is not None)]
    return Reply(b"[%b]" % b",".join(parts) if parts else None)


def batchable(message: Message) -> Message:
    """A message of a batch: an `initialize` is none (2025-03-26, lifecycle, §Initialization)."""
    if isinstance(message, Request) and message.method == "initialize":
        return Malformed(RpcError(INVALID_REQUEST, "Invalid request: initialize stands alone."), message.id)
    return message


def as_rpc_error(problem: Exception) -> RpcError:
    """What the client hears of a problem: nothing of its cause, unless it was meant for it."""
    if isinstance(problem, RpcError):
        return problem
    if isinstance(problem, RecorderGone):
        # The recorder has said so once: not each of those who are refused says it again.
        return store_gone()
    if isinstance(problem, Error):
        log.warning("The store is away: %s", problem)
        return store_gone()
    log.error("The hub failed", exc_info=problem)
    return RpcError(INTERNAL_ERROR, "Internal error.", status=500)
