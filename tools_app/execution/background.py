"""Calls that run in a Celery worker, as the web process that answers them sees it.

The intent, with its sealed arguments, is durable before the call is queued. What the worker records is read from
the store whenever the doorbell rings, and at a slow poll in any case.
"""

import asyncio
import logging
from uuid import UUID

import orjson
from django.db import Error

from tools_app.audit import recorder
from tools_app.auth import vault
from tools_app.events import publish, store
from tools_app.events.switchboard import Switchboard, Watch
from tools_app.execution import queue
from tools_app.execution.catalog import CompiledTool
from tools_app.execution.inline import Say
from tools_app.execution.invocation import End, Invocation, Ledger, call_topic, encoded
from tools_app.execution.results import ToolResult, failed
from tools_app.execution.run import WAS_CANCELLED, WAS_INTERRUPTED, Ran, ran
from tools_app.execution.worker import arguments_purpose
from tools_app.models import CallStatus, Outcome, RunningCall
from tools_app.models.bridge import in_store
from tools_app.protocol.errors import INTERNAL_ERROR, RpcError

log = logging.getLogger(__name__)

UNANSWERED = {
    Outcome.LOST: "The worker that ran '{tool}' was lost. The call may have run in part.",
    Outcome.TIMEOUT: "The call of '{tool}' took too long and was given up.",
    Outcome.CANCELLED: WAS_CANCELLED,
    Outcome.INTERRUPTED: WAS_INTERRUPTED,
}


async def run_in_worker(
    invocation: Invocation, tool: CompiledTool, ledger: Ledger, say: Say, switchboard: Switchboard
) -> Ran:
    """Queue a call and follow it to its end. Raises RecorderGone or RpcError if it could not even be queued."""
    call_id = ledger.facts.id
    with switchboard.watching(call_topic(call_id)) as watch:
        await _queue(invocation, tool, ledger)
        try:
            return await _followed(call_id, tool.name, say, watch)
        except asyncio.CancelledError:
            await asyncio.shield(request_cancel([call_id]))
            raise


async def _queue(invocation: Invocation, tool: CompiledTool, ledger: Ledger) -> None:
    call_id = ledger.facts.id
    sealed = vault.seal(encoded(invocation.arguments), arguments_purpose(call_id))
    await recorder.current().recording(ledger.beginning(CallStatus.QUEUED, tool.timeout_seconds, sealed))
    try:
        await in_store(queue.enqueue, call_id)
    except Exception as problem:
        log.exception("Call %s could not be queued", call_id)
        refusal = RpcError(INTERNAL_ERROR, "The hub cannot queue calls right now. Nothing ran.", retry_after=1)
        end = End(Outcome.LOST, http_status=503, rpc_error=refusal.code, cause=f"not queued: {problem}")
        await recorder.current().recording(ledger.ending(end))
        raise refusal from problem


async def _followed(call_id: UUID, tool_name: str, say: Say, watch: Watch) -> Ran:
    after = 0
    while True:
        news = await _news(call_id, after)
        for event in news.events if news else ():
            say(event)
            after = event.sequence
        if news and news.outcome is not None:
            return _ran(Outcome(news.outcome), news.answer, tool_name)
        if news and not news.known:
            return _ran(Outcome.LOST, None, tool_name)
        if news is None or len(news.events) < store.MOST_EVENTS:
            await watch.wait()


async def _news(call_id: UUID, after: int) -> store.News | None:
    """What the store says; None while it is away: the call goes on without it, and so does whoever waits."""
    try:
        return await in_store(store.news, call_id, after)
    except Error as problem:
        log.warning("The store is away, call %s is followed later: %s", call_id, problem)
        return None


def _ran(outcome: Outcome, answer: bytes | None, tool_name: str) -> Ran:
    if answer is None:
        return ran(outcome, failed(UNANSWERED.get(outcome, UNANSWERED[Outcome.LOST]).format(tool=tool_name)))
    body = orjson.loads(answer)
    return Ran(outcome, ToolResult(body["content"], body.get("structuredContent"), body["isError"]), answer)


async def request_cancel(call_ids: list[UUID]) -> int:
    """Ask whoever runs these calls to stop; how many were still running. The sweeper ends what does not stop."""
    asked = await in_store(_request_cancel, call_ids)
    publish.ring(*(f"cancel:{call_id}" for call_id in call_ids))
    return asked


def _request_cancel(call_ids: list[UUID]) -> int:
    return RunningCall.objects.filter(pk__in=call_ids, cancel_requested=False).update(cancel_requested=True)


async def cancel_request(session_id: UUID, request_id: str) -> int:
    """Cancel what a session's request runs, in whichever process. Raises the database's error."""
    return await request_cancel(await in_store(_calls_of, session_id, request_id))


def _calls_of(session_id: UUID, request_id: str) -> list[UUID]:
    return list(
        RunningCall.objects.filter(session_id=session_id, request_id=request_id).values_list("pk", flat=True)[:100]
    )
