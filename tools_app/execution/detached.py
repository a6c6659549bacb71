"""Calls that run from their rows, whoever asked for them may leave: queued for a worker, or run in this process."""

import asyncio
import logging
from uuid import UUID

from tools_app.audit import recorder
from tools_app.audit.recorder import RecorderGone
from tools_app.auth import limits
from tools_app.execution import doubts, logged, queue, worker
from tools_app.execution.catalog import CompiledTool
from tools_app.execution.invocation import End, Invocation, Ledger
from tools_app.models import CallStatus, Outcome
from tools_app.models.bridge import in_store
from tools_app.protocol.errors import INTERNAL_ERROR, RpcError

log = logging.getLogger(__name__)

_running: set[asyncio.Task[None]] = set()


async def begin(invocation: Invocation, tool: CompiledTool, ledger: Ledger) -> None:
    """Record a call's intent, with its sealed arguments, and let it run. Raises RecorderGone or RpcError."""
    call_id = ledger.facts.id
    logged.speak_of(invocation)
    sealed = worker.brought_by(invocation).sealed(call_id)
    try:
        await recorder.current().recording(ledger.beginning(CallStatus.QUEUED, tool.timeout_seconds, sealed))
        await _hand_over(invocation, tool, ledger)
    except RecorderGone:
        doubts.note(call_id)
        raise
    # From here on, the call's own row keeps its places.
    limits.hand_on(str(call_id))


async def _hand_over(invocation: Invocation, tool: CompiledTool, ledger: Ledger) -> None:
    """Let a recorded call go on, or record that it cannot. Raises RecorderGone or RpcError."""
    call_id = ledger.facts.id
    try:
        await go_on(call_id, invocation.principal.tenant_id, background=tool.background)
    except Exception as problem:
        log.error("Call %s could not be queued: %s", call_id, problem)
        refusal = RpcError(INTERNAL_ERROR, "The hub cannot queue calls right now. Nothing ran.", retry_after=1)
        end = End(Outcome.LOST, http_status=503, rpc_error=refusal.code, cause=f"not queued: {problem}")
        await recorder.current().recording(ledger.ending(end))
        raise refusal from problem


async def go_on(call_id: UUID, tenant_id: UUID, *, background: bool) -> None:
    """Let a tenant's queued call run: in a worker if it is a `background` one, else on this loop."""
    if background:
        await in_store(queue.enqueue, call_id, tenant_id)
        return
    running = asyncio.create_task(worker.run_here(call_id))
    _running.add(running)
    running.add_done_callback(_ended)


def count() -> int:
    """How many calls run on this loop from their rows."""
    return len(_running)


def _ended(task: asyncio.Task[None]) -> None:
    _running.discard(task)
    if not task.cancelled() and (problem := task.exception()):
        log.error("A call was left to the sweeper", exc_info=problem)
