"""A background call as its worker runs it: claimed once, recorded event by event, settled once."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

import orjson
from django.db import connection
from django.utils import timezone

from tools_app.audit import recorder
from tools_app.audit.identity import process_id
from tools_app.auth import vault
from tools_app.events.store import answer_purpose
from tools_app.execution import catalog, local
from tools_app.execution.catalog import CompiledTool
from tools_app.execution.context import Caller, ToolContext
from tools_app.execution.invocation import Ledger, call_topic, ledger_of_row
from tools_app.execution.local import LocalCall
from tools_app.execution.results import failed
from tools_app.execution.run import Ran, ran, run_tool
from tools_app.models import CallStatus, Outcome, RunningCall, Tenant

log = logging.getLogger(__name__)


def arguments_purpose(call_id: UUID) -> str:
    """What a call's arguments are sealed for on their way to the worker."""
    return f"arguments:{call_id}"


def run_claimed(call_id: UUID) -> None:
    """Run a queued call. One that another worker took, or that was settled meanwhile, is left alone."""
    row = _claim(call_id)
    if row is None:
        return
    assert row.tenant_id is not None
    tenant = Tenant.objects.get(pk=row.tenant_id)
    ledger = ledger_of_row(row, tuple(tenant.redacted_keys))
    _settle(ledger, _ran(row, tenant, ledger))


def _ran(row: RunningCall, tenant: Tenant, ledger: Ledger) -> Ran:
    """How the run ended; a call that could not even begin is lost, with its cause for the auditor."""
    try:
        tool = _tool_of(row)
        if tool is None:
            return ran(Outcome.LOST, failed(f"The tool '{row.tool_name}' is no longer there."))
        return _run(row, tool, tenant, ledger)
    except Exception as problem:
        log.exception("Call %s could not begin", row.pk)
        return ran(Outcome.LOST, failed(f"The call of '{row.tool_name}' could not begin.", str(problem)))


def _claim(call_id: UUID) -> RunningCall | None:
    claimed = RunningCall.objects.filter(pk=call_id, status=CallStatus.QUEUED).update(
        status=CallStatus.RUNNING, owner=process_id(), run_at=timezone.now()
    )
    return RunningCall.objects.filter(pk=call_id).first() if claimed else None


def _tool_of(row: RunningCall) -> CompiledTool | None:
    if row.tenant_id is None:
        return None
    found = catalog.load([row.tenant_id]).get(row.tenant_id)
    return found.tools.get(row.tool_name) if found else None


def _run(row: RunningCall, tool: CompiledTool, tenant: Tenant, ledger: Ledger) -> Ran:
    connection.close()  # a tool may run for hours; the connection is not held meanwhile
    arguments = orjson.loads(vault.unseal(bytes(row.sealed_arguments or b""), arguments_purpose(row.pk)))
    caller = Caller(tenant.pk, tenant.slug, row.remote_address, row.client_name, row.client_version)
    return asyncio.run(_run_on_loop(row, tool, arguments, caller, _emitter(ledger)))


class _WorkerCall(LocalCall):
    """A call on the loop that its worker's thread made for it."""

    def __init__(self, row: RunningCall, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        super().__init__(row.pk, row.session_id, row.request_id)
        self._loop = loop
        self._task = task

    def interrupt(self) -> None:
        """Cancel what the call awaits."""
        self._loop.call_soon_threadsafe(self._task.cancel)


async def _run_on_loop(
    row: RunningCall,
    tool: CompiledTool,
    arguments: dict[str, Any],
    caller: Caller,
    emit: Callable[[str, dict[str, Any]], None],
) -> Ran:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    call = _WorkerCall(row, loop, task)
    local.add(call)
    try:
        if row.cancel_requested:
            call.stop(Outcome.CANCELLED)
        return await run_tool(tool, arguments, ToolContext(row.pk, caller, emit, call.cancelled), call)
    finally:
        local.remove(call)


def _emitter(ledger: Ledger) -> Callable[[str, dict[str, Any]], None]:
    topic = call_topic(ledger.facts.id)

    def emit(kind: str, data: dict[str, Any]) -> None:
        """Record an event; whoever streams the call is rung once it is durable."""
        recorder.current().submit(ledger.saying(kind, data, topic))

    return emit


def _settle(ledger: Ledger, finished: Ran) -> None:
    """Record how the call ended, with the whole answer for whoever waits. If somebody else settled it, that stands."""
    call_id = ledger.facts.id
    answer = vault.seal(finished.wire, answer_purpose(call_id))
    recorder.current().record(ledger.ending(finished.end().with_answer(answer), call_topic(call_id)))
