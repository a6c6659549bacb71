"""Start of calls that run from their rows and survive a disconnect: queued for a worker, or run in this process."""

import asyncio
import logging
from functools import partial
from uuid import UUID

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.calls import uncertain
from tools_app.calls.background import queue, worker
from tools_app.calls.background.broker import BrokerUnavailable
from tools_app.calls.background.payload import payload_of_invocation
from tools_app.calls.invocation import CallRecordBuilder, End, Invocation, set_log_context
from tools_app.calls.outcomes import UNRECORDED
from tools_app.catalog.compiled import CompiledTool
from tools_app.core import large_work
from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.core.telemetry.scrubbing import release_arguments
from tools_app.models import CallStatus, Outcome
from tools_app.protocol.errors import INTERNAL_ERROR, RpcError
from tools_app.tenants.limits import limits

log = logging.getLogger(__name__)

BROKER_AWAY = "The broker is unavailable, so background calls cannot be queued. Nothing ran. Try again in a moment."

_running: set[asyncio.Task[None]] = set()


async def start_background_call(invocation: Invocation, tool: CompiledTool, builder: CallRecordBuilder) -> None:
    """Record a call's intent, with its encrypted arguments, and start it. Raises RecorderUnavailable or RpcError."""
    call_id = builder.facts.id
    set_log_context(invocation)
    seal = partial(payload_of_invocation(invocation).sealed, call_id)
    sealed = await large_work.run(builder.arguments_size, seal)
    try:
        await recorder.current().recording(builder.started(CallStatus.QUEUED, tool.timeout_seconds, sealed))
    except RecorderUnavailable:
        uncertain.not_started.note(call_id)
        raise
    try:
        await enqueue_or_run(call_id, invocation.principal.tenant_id, background=tool.background)
    except Exception as problem:
        if not isinstance(problem, BrokerUnavailable):  # logged once, not for each call
            log.exception("Call %s could not be queued", call_id)
        refusal = RpcError(INTERNAL_ERROR, BROKER_AWAY, retry_after=1)
        cause = f"The broker is unavailable: {problem}"
        end = End(Outcome.NOT_STARTED, http_status=503, rpc_error=refusal.code, cause=cause)
        try:
            is_refused = await recorder.current().recording(builder.finished(end, only_queued=True))
        except RecorderUnavailable as unrecorded:
            uncertain.not_started.note(call_id)
            uncertain.may_have_run.note(call_id)
            raise RpcError(INTERNAL_ERROR, UNRECORDED, retry_after=1) from unrecorded
        if is_refused:
            raise refusal from problem
        # A broker that did not respond delivered the call to a worker nevertheless: it runs, and is followed.
    if builder.arguments_size >= LARGE_BYTES:
        release_arguments()
    # From now on the call's row holds its concurrency slots.
    limits.transfer(str(call_id))


async def enqueue_or_run(call_id: UUID, tenant_id: UUID, *, background: bool) -> None:
    """Start a tenant's queued call: in a worker if `background`, otherwise on this event loop."""
    if background:
        await queue.aenqueue(call_id, tenant_id)
        return
    running = asyncio.create_task(worker.run_in_process(call_id))
    _running.add(running)
    running.add_done_callback(_ended)


def running_count() -> int:
    """Return the number of calls that run on this event loop from their rows."""
    return len(_running)


def _ended(task: asyncio.Task[None]) -> None:
    _running.discard(task)
    if not task.cancelled() and (problem := task.exception()):
        log.error("A call could not be finished and is left to the sweeper", exc_info=problem)
